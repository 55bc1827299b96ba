// Batch and instance normalisation with running statistics.

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/channels_last.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/norm/channel_statistics_inl.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/norm/running_statistics_kernel.h"
#include "strata/ops/norm/scale_shift_kernel.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using namespace channel_norm;

using RunningSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, double,
                                double);

void check_running(const Tensor& mean, const Tensor& var, int64_t channels, std::string_view op) {
  check(mean.defined() == var.defined(), op, "running_mean and running_var go together");
  for (const Tensor* t : {&mean, &var}) {
    check<ShapeError>(!t->defined() || t->shape() == Shape{channels}, op, "running statistics must be [", channels,
                      "], got ", *t);
    check<DTypeError>(!t->defined() || is_floating(t->dtype()), op, "running statistics need a floating dtype, got ",
                      *t);
  }
}

// [C] beside [N, C, ...].
Tensor beside(const Tensor& channels, const Tensor& x) {
  Shape shape = Shape::filled(static_cast<int>(x.dim()), 1);
  shape[1] = x.size(1);
  return channels.reshape(shape);
}

using ScaleShiftOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
extern const ScaleShiftOp scale_shift_channels_op;
const ScaleShiftOp scale_shift_channels_op{{
    .schema = "scale_shift_channels(Tensor x, Tensor scale, Tensor shift) -> Tensor",
    .shard = "n c ...!, c, c -> n c ...!",
    .internal = true,
    .doc = "x [N, C, ...] times scale [C] plus shift [C], which are f32 (f64 for f64), rounded once.",
    .infer =
        [](const Tensor& x, const Tensor& scale, const Tensor& shift) {
          constexpr std::string_view op = "scale_shift_channels";
          check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
          check<ShapeError>(x.dim() >= 2, op, "x is ", x, ", wanted [N, C, ...]");
          for (const Tensor* t : {&scale, &shift}) {
            check<ShapeError>(t->shape() == Shape{x.size(1)}, op, "x is ", x, ", scale ", scale, ", shift ", shift);
            check<DTypeError>(t->dtype() == statistic_dtype(x.dtype()), op, "scale is ", scale, ", shift ", shift,
                              ", wanted ", statistic_dtype(x.dtype()));
          }
          return laid_out_as(x, like(x));
        },
    .kernels = {.cpu = scale_shift_cpu},
    .composed = [](const Tensor& x, const Tensor& scale,
                   const Tensor& shift) { return addcmul(beside(shift, x), x, beside(scale, x)).to(x.dtype()); },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor&) {
          return Cost{2.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({2, 3, 5}), s.tensor({3}, t), s.tensor({3}, t));
          s.add(s.tensor({4, 7}), s.tensor({7}, t), s.tensor({7}, t)).named("no inner dimensions");
          s.add(s.tensor({2, 2, 37}), s.tensor({2}, t), s.tensor({2}, t)).named("longer than a vector");
          s.add(transpose(s.tensor({2, 5, 3}), 1, 2), s.tensor({3}, t), s.tensor({3}, t)).named("strided");
          s.add(permute(s.tensor({2, 3, 4, 5}), {0, 3, 1, 2}), s.tensor({5}, t), s.tensor({5}, t))
              .named("channels last");
          s.add(s.tensor({0, 3, 2}), s.tensor({3}, t), s.tensor({3}, t)).named("none");
          s.invalid<ShapeError>("scale", s.tensor({2, 3}), s.tensor({2}, t), s.tensor({3}, t));
        },
}};

using ByRunningOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double)>;
extern const ByRunningOp normalize_channels_op;

// y = x * (weight / sqrt(var + eps)) + (bias - mean * that), per channel.
Tensor by_running(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                  double eps) {
  if (x.device().is_cuda() && is_floating(x.dtype())) return normalize_channels_op(x, mean, var, weight, bias, eps);
  // On the CPU in one pass, with the channels' numbers in the arithmetic's type.
  const bool once = x.device().is_cpu() && is_floating(x.dtype());
  const auto wide = [&](const Tensor& t) { return once ? t.to(statistic_dtype(x.dtype())) : t; };
  Tensor scale = (wide(var) + eps).pow(-0.5);
  if (weight.defined()) scale = scale * wide(weight);
  Tensor shift = -(wide(mean) * scale);
  if (bias.defined()) shift = shift + wide(bias);
  if (once) return scale_shift_channels_op(x, scale, shift);
  return addcmul(beside(shift, x), x, beside(scale, x)).to(x.dtype());
}

const ByRunningOp normalize_channels_op{{
    .schema =
        "normalize_channels(Tensor x, Tensor mean, Tensor var, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    .shard = "n c ...!, c, c, c, c -> n c ...!",
    .internal = true,
    .doc = "(x - mean) / sqrt(var + eps) times weight plus bias, where given: [C] beside x [N, C, ...], rounded once.",
    .infer =
        [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias, double) {
          constexpr std::string_view op = "normalize_channels";
          check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
          check<ShapeError>(x.dim() >= 2, op, "x is ", x, ", wanted [N, C, ...]");
          for (const Tensor* t : {&mean, &var, &weight, &bias})
            check<ShapeError>(!t->defined() || t->shape() == Shape{x.size(1)}, op, "x is ", x, ", a channels' tensor ",
                              *t);
          return laid_out_as(x, like(x));
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(by_running_cuda)},
    .composed =
        [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
           double eps) {
          const auto wide = [&](const Tensor& t) { return t.to(statistic_dtype(x.dtype())); };
          Tensor scale = (wide(var) + eps).pow(-0.5);
          if (weight.defined()) scale = scale * wide(weight);
          Tensor shift = -(wide(mean) * scale);
          if (bias.defined()) shift = shift + wide(bias);
          return addcmul(beside(shift, x), x, beside(scale, x)).to(x.dtype());
        },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double) {
          return Cost{5.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.uniform({3}, 0.5, 2), s.tensor({3}), s.tensor({3}), 1e-5);
          s.add(s.tensor({4, 8}), s.tensor({8}), s.uniform({8}, 0.5, 2), none, s.tensor({8}), 1e-2)
              .named("no inner dimensions");
          s.add(s.tensor({2, 3, 16}), s.tensor({3}), s.uniform({3}, 0.5, 2), s.tensor({3}), none, 1e-5)
              .named("whole vectors");
          s.add(permute(s.tensor({2, 3, 4, 5}), {0, 3, 1, 2}), s.tensor({5}), s.uniform({5}, 0.5, 2), none, none, 1e-5)
              .named("channels last");
          s.add(s.tensor({0, 3, 2}), s.tensor({3}), s.uniform({3}, 0.5, 2), none, none, 1e-5).named("none");
          s.invalid<ShapeError>("channels", s.tensor({2, 3}), s.tensor({2}), s.tensor({3}), none, none, 1e-5);
        },
    .reference =
        [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
           double eps) {
          std::vector<double> v = x.to_vector<double>();
          const std::vector<double> m = mean.to_vector<double>(), r = var.to_vector<double>();
          const size_t channels = m.size(), inner = channels == 0 || x.size(0) == 0
                                                        ? 1
                                                        : v.size() / channels / static_cast<size_t>(x.size(0));
          for (size_t i = 0; i < v.size(); ++i) {
            const size_t c = i / inner % channels;
            v[i] = (v[i] - m[c]) / std::sqrt(r[c] + eps) * (weight.defined() ? weight.to_vector<double>()[c] : 1) +
                   (bias.defined() ? bias.to_vector<double>()[c] : 0);
          }
          return from_span<double>(v, x.shape());
        },
}};

// y without any running statistics that follow: empty ones.
Triple alone(const Tensor& y) {
  const TensorMeta none = like(y).with_shape({0}).with_dtype(statistic_dtype(y.dtype()));
  return Triple(y, empty(none), empty(none));
}
// y, and the running statistics after they have taken a share `momentum` of those of x, n values each (a mean for each
// item where there is one).
Triple followed(const Tensor& y, const Tensor& running_mean, const Tensor& running_var, const Tensor& mean,
                const Tensor& rstd, int64_t n, double momentum, double eps) {
  NoGrad guard;
  const double unbiased = static_cast<double>(n) / static_cast<double>(n - 1);
  if (mean.dim() == 1 && running_mean.dtype() == mean.dtype() && running_var.dtype() == mean.dtype()) {
    const auto [new_mean, new_var] =
        detail::running_statistics(running_mean, running_var, mean, rstd, {momentum, eps, unbiased});
    return Triple(y, new_mean, new_var);
  }
  Tensor m = mean, var = (rstd.pow(-2.0) + -eps) * unbiased;
  if (m.dim() == 2) m = strata::mean(m, {0}), var = strata::mean(var, {0});
  return Triple(y, add(running_mean * (1 - momentum), m.to(running_mean.dtype()), momentum),
                add(running_var * (1 - momentum), var.to(running_var.dtype()), momentum));
}
// What followed() gives is written over the running statistics.
Tensor written(const Triple& made, Tensor running_mean, Tensor running_var) {
  const auto& [y, mean, var] = made;
  if (running_mean.defined() && mean.numel() == running_mean.numel() && !y.is_meta()) {
    NoGrad guard;
    running_mean.copy_(mean);
    running_var.copy_(var);
  }
  return y;
}

// Of f64 tensors; where the running statistics are not read they do not count.
Triple running_by_hand(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                       int64_t groups, bool by_own, double momentum, double eps) {
  const Sizes s = checked(x, {}, {}, {});
  const Tensor none = from_span<double>(std::vector<double>{}, {0});
  if (by_own) {
    const auto [y, m, r] = by_loops(x, groups, weight, bias, eps);
    if (!mean.defined()) return Triple(y, none, none);
    const auto n = static_cast<double>(groups == 0 ? s.batch * s.inner : s.inner);
    const std::vector<double> means = m.to_vector<double>(), stds = r.to_vector<double>();
    std::vector<double> new_mean = mean.to_vector<double>(), new_var = var.to_vector<double>();
    const size_t items = means.size() / new_mean.size();
    for (size_t c = 0; c < new_mean.size(); ++c) {
      double own_mean = 0, own_var = 0;
      for (size_t i = c; i < means.size(); i += new_mean.size()) {
        own_mean += means[i] / static_cast<double>(items);
        own_var += (1 / (stds[i] * stds[i]) - eps) * n / (n - 1) / static_cast<double>(items);
      }
      new_mean[c] += momentum * (own_mean - new_mean[c]);
      new_var[c] += momentum * (own_var - new_var[c]);
    }
    return Triple(y, from_span<double>(new_mean, mean.shape()), from_span<double>(new_var, var.shape()));
  }
  std::vector<double> v = x.to_vector<double>(), m = mean.to_vector<double>(), r = var.to_vector<double>();
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t c = i / static_cast<size_t>(s.inner) % static_cast<size_t>(s.channels);
    v[i] = (v[i] - m[c]) / std::sqrt(r[c] + eps) * (weight.defined() ? weight.to_vector<double>()[c] : 1) +
           (bias.defined() ? bias.to_vector<double>()[c] : 0);
  }
  return Triple(from_span<double>(v, x.shape()), none, none);
}

const Op<RunningSignature> batch_norm_running_op{{
    .schema = "batch_norm_running(Tensor x, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, "
              "Tensor? bias=None, bool training=false, float momentum=0.1, float eps=1e-05) -> (Tensor y, Tensor mean, "
              "Tensor var)",
    .shown = 1,
    .doc =
        "Each channel of x [N, C, ...] normalised by its own mean and variance in training, or without running "
        "statistics [C]; else by these (Ioffe and Szegedy, arXiv:1502.03167). mean and var are what the "
        "running statistics become in training: they take the share `momentum` of x's, the variance with divisor n - "
        "1; empty otherwise, and where x is. The function batch_norm writes them over the running statistics. "
        "ShapeError, ValueError.",
    .example = "Tensor mean = zeros({2}), var = ones({2});\n"
               "batch_norm(ones({4, 2}), mean, var, {}, {}, true, 0.5);\n"
               "assert(mean.to_vector<float>() == std::vector<float>({0.5f, 0.5f}));",
    .composed =
        [](const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
           const Tensor& bias, bool training, double momentum, double eps) {
          const Sizes s = checked(x, {}, {}, "batch_norm");
          check(eps > 0, "batch_norm", "eps must be positive, got ", eps);
          check_running(running_mean, running_var, s.channels, "batch_norm");
          checked(x, weight, bias, "batch_norm");
          if (!training && running_mean.defined())
            return alone(by_running(x, running_mean, running_var, weight, bias, eps));
          const int64_t n = s.batch * s.inner;
          check<ShapeError>(n != 1, "batch_norm", "training needs more than one value per channel, got x ", x);
          if (n == 0) {  // no statistics, nothing to normalise by them, and nothing for the running ones to follow
            const Tensor none = empty(like(x).with_shape({s.channels})).fill_(0);
            return alone(by_running(x, none, none, weight, bias, eps));
          }
          const auto [y, mean, rstd] = batch_statistics(x, weight, bias, eps);
          return running_mean.defined() ? followed(y, running_mean, running_var, mean, rstd, n, momentum, eps)
                                        : alone(y);
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.uniform({3}, 0.5, 2), s.tensor({3}), s.tensor({3}));
          s.add(s.tensor({4, 2}), s.tensor({2}), s.uniform({2}, 0.5, 2), none, none, false, 0.1, 1e-2)
              .named("no inner dimensions");
          s.add(s.tensor({2, 3, 5}), none, none, s.tensor({3}), s.tensor({3}), true).named("training");
          s.add(s.tensor({0, 3}), none, none, s.tensor({3}), s.tensor({3}), true).named("training, nothing");
          // What the running statistics become is not differentiated.
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.uniform({3}, 0.5, 2), none, none, true, 0.3)
              .named("training, running statistics")
              .not_differentiable();
          s.invalid<ShapeError>("running statistics", s.tensor({2, 3, 5}), s.tensor({2}), s.tensor({3}));
          s.invalid<ValueError>("go together", s.tensor({2, 3, 5}), s.tensor({3}));
          s.invalid<ValueError>("eps", s.tensor({2, 3, 5}), none, none, none, none, true, 0.1, 0.0);
          s.invalid<ShapeError>("more than one value", s.tensor({1, 3}), none, none, none, none, true);
        },
    .reference =
        [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
           bool training, double momentum, double eps) {
          return running_by_hand(x, mean, var, weight, bias, 0, training || !mean.defined(), momentum, eps);
        },
}};

const Op<RunningSignature> instance_norm_op{{
    .schema = "instance_norm(Tensor x, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, "
              "Tensor? bias=None, bool use_input_stats=true, float momentum=0.1, float eps=1e-05) -> (Tensor y, Tensor "
              "mean, Tensor var)",
    .shown = 1,
    .doc =
        "Each channel of each item of x [N, C, ...] normalised by its own mean and variance, times weight [C] plus "
        "bias [C] (Ulyanov et al., arXiv:1607.08022); without use_input_stats by the running statistics [C]. mean and "
        "var are what these, where given, become otherwise: they take the share `momentum` of the items' mean ones, "
        "the variance with divisor n - 1; else empty. The function instance_norm writes them over the running "
        "statistics. ShapeError, ValueError.",
    .example = "assert(instance_norm(ones({1, 2, 3})).sum().item() == 0);",
    .composed =
        [](const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
           const Tensor& bias, bool use_input_stats, double momentum, double eps) {
          constexpr std::string_view op = "instance_norm";
          const Sizes s = checked(x, {}, {}, op);
          check(eps >= 0, op, "eps must not be negative, got ", eps);
          check_running(running_mean, running_var, s.channels, op);
          checked(x, weight, bias, op);
          if (!use_input_stats) {
            check(running_mean.defined(), op, "use_input_stats=false wants running_mean and running_var");
            return alone(by_running(x, running_mean, running_var, weight, bias, eps));
          }
          check<ShapeError>(s.inner > 1, op, "needs more than one value per channel and item, got x ", x);
          const auto [y, mean, rstd] = group_statistics(x, std::max<int64_t>(s.channels, 1), weight, bias, eps);
          return running_mean.defined() && s.batch > 0
                     ? followed(y, running_mean, running_var, mean, rstd, s.inner, momentum, eps)
                     : alone(y);
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          s.add(s.tensor({2, 3, 5}));
          s.add(s.tensor({2, 3, 2, 4}), none, none, s.tensor({3}), s.tensor({3}), true, 0.1, 1e-3).named("affine");
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.uniform({3}, 0.5, 2), s.tensor({3}), none, false)
              .named("running statistics");
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.uniform({3}, 0.5, 2), none, none, true, 0.3)
              .named("running statistics that follow")
              .not_differentiable();  // what they become is not
          s.invalid<ShapeError>("more than one value", s.tensor({2, 3, 1}));
          s.invalid<ShapeError>("running statistics", s.tensor({2, 3, 5}), s.tensor({2}), s.tensor({2}));
          s.invalid<DTypeError>("running statistics", s.tensor({2, 3, 5}), s.tensor({3}, DType::i64), s.tensor({3}));
          s.invalid<ValueError>("wants running_mean", s.tensor({2, 3, 5}), none, none, none, none, false);
          s.invalid<ValueError>("eps", s.tensor({2, 3, 5}), none, none, none, none, true, 0.1, -1.0);
        },
    .reference = [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                    bool own, double momentum,
                    double eps) { return running_by_hand(x, mean, var, weight, bias, x.size(1), own, momentum, eps); },
}};

}  // namespace

Tensor batch_norm(const Tensor& x, Tensor running_mean, Tensor running_var, const Tensor& weight, const Tensor& bias,
                  bool training, double momentum, double eps) {
  return written(batch_norm_running_op(x, running_mean, running_var, weight, bias, training, momentum, eps),
                 running_mean, running_var);
}
Tensor instance_norm(const Tensor& x, Tensor running_mean, Tensor running_var, const Tensor& weight, const Tensor& bias,
                     bool use_input_stats, double momentum, double eps) {
  return written(instance_norm_op(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps),
                 running_mean, running_var);
}

}  // namespace strata
