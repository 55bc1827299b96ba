// The records of group_norm and batch_norm.

#include <cmath>
#include <vector>

#include "strata/core/channels_last.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/norm/channel_statistics_inl.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using channel_norm::Sizes;
using channel_norm::Triple;

DType affine_dtype(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return weight.defined() ? weight.dtype() : bias.defined() ? bias.dtype() : x.dtype();
}

// groups 0: statistics over the batch, one a channel.
Sizes check_channels(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  check<ShapeError>(x.dim() >= 2, op, "x must be [N, C, ...], got ", x);
  Sizes s{x.shape()[0], x.shape()[1]};
  for (int64_t i = 2; i < x.dim(); ++i) s.inner *= x.shape()[i];
  check(groups >= 0, op, "num_groups must be positive, got ", groups);
  check<ShapeError>(groups == 0 || s.channels % groups == 0, op, "the ", s.channels, " channels of ", x,
                    " do not make ", groups, " groups");
  for (const Tensor* p : {&weight, &bias}) {
    if (!p->defined()) continue;
    const char* name = p == &weight ? "weight" : "bias";
    check<ShapeError>(p->shape() == Shape{s.channels}, op, name, " is ", *p, ", wanted [", s.channels, "]");
    check<DTypeError>(p->dtype() == x.dtype() || (p->dtype() == DType::f32 && is_reduced_floating(x.dtype())), op, name,
                      " is ", p->dtype(), ", x is ", x.dtype(), "; wanted the same, or f32 for f16 and bf16");
  }
  check<DTypeError>(!weight.defined() || !bias.defined() || weight.dtype() == bias.dtype(), op,
                    "weight and bias differ in dtype");
  return s;
}

Sizes sizes_of(const Tensor& x) {
  Sizes s{x.shape()[0], x.shape()[1]};
  for (int64_t i = 2; i < x.dim(); ++i) s.inner *= x.shape()[i];
  return s;
}

Shape statistic_shape(const Tensor& x, int64_t groups) {
  return groups == 0 ? Shape{x.shape()[1]} : Shape{x.shape()[0], groups};
}

TensorMeta statistic(const Tensor& x, int64_t groups) {
  return {statistic_shape(x, groups), statistic_dtype(x.dtype()), x.device(), std::nullopt};
}

// How the kernels take x: its own layout, or where statistics are over the batch and each channel has one element an
// item or the channels lie innermost, a matrix [rows, channels]. One of no elements is taken turned, one channel a row.
struct Layout {
  bool columns = false, last = false, transposed = false;
  Layout(const Tensor& x, int64_t groups) {
    const bool vectors = groups == 0 && sizes_of(x).inner == 1;
    last = groups == 0 && is_channels_last(x);
    columns = last || (vectors && x.numel() > 0);
    transposed = vectors && !columns;
  }

  template <class Call>
  void set_sizes(Call& c, const Tensor& x, int64_t groups, DType affine) const {
    const Sizes s = sizes_of(x);
    c.dtype = x.dtype();
    c.affine = affine;
    c.batch = columns ? s.batch * s.inner : transposed ? 1 : s.batch;
    c.channels = s.channels;
    c.inner = columns ? 1 : transposed ? s.batch : s.inner;
    c.across_batch = groups == 0;
    c.groups = groups == 0 ? s.channels : groups;
  }
  // x, or its gradient, so that the kernels can read it.
  Tensor read(const Tensor& t) const {
    if (last) return channels_innermost(t);
    if (!transposed) return t.contiguous();
    return t.reshape({t.shape()[0], t.shape()[1]}).transpose(0, 1).contiguous();
  }
  // What the kernels write for `result`, as read() gives its like; and from there to `result`.
  Tensor written(const Tensor& result, const Tensor& like_it) const {
    return direct(result) ? result : empty(like(like_it));
  }
  void finish(Tensor& result, const Tensor& from) const {
    if (direct(result)) return;
    result.copy_(last ? from.permute({0, 3, 1, 2}) : transposed ? from.transpose(0, 1).reshape(result.shape()) : from);
  }

 private:
  bool direct(const Tensor& result) const {
    return last ? is_channels_last(result) : !transposed && result.is_contiguous();
  }
};

// Channels stay innermost where x's are.
TensorMeta as_x(const Tensor& x) {
  return is_channels_last(x) ? channels_last(like(x)) : like(x);
}

template <class On>
void run_forward(On on, Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, int64_t groups, const Tensor& weight,
                 const Tensor& bias, double eps) {
  const Layout layout(x, groups);
  const Tensor xc = layout.read(x), wc = packed(weight), bc = packed(bias);
  const Tensor yc = layout.written(y, xc);
  ChannelNorm c;
  layout.set_sizes(c, x, groups, affine_dtype(x, weight, bias));
  c.eps = eps;
  c.x = xc.raw_data();
  c.weight = data_or_null(wc);
  c.bias = data_or_null(bc);
  c.y = yc.raw_data();
  c.mean = mean.raw_data();
  c.rstd = rstd.raw_data();
  if constexpr (on.cuda)
    layout.columns ? column_norm_cuda(c) : channel_norm_cuda(c);
  else
    channel_norm_cpu(c);
  layout.finish(y, yc);
}

template <class On>
void run_backward(On on, Tensor& gx, Tensor& gw, Tensor& gb, const Tensor& gy, const Tensor& x, int64_t groups,
                  const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
  const Layout layout(x, groups);
  const Tensor xc = layout.read(x), gc = layout.read(gy), wc = packed(weight), mc = mean.contiguous(),
               rc = rstd.contiguous();
  const Tensor gxc = layout.written(gx, xc);
  ChannelNormBackward c;
  layout.set_sizes(c, x, groups, gw.dtype());
  c.grad_y = gc.raw_data();
  c.x = xc.raw_data();
  c.weight = data_or_null(wc);
  c.mean = mc.raw_data();
  c.rstd = rc.raw_data();
  c.grad_x = gxc.raw_data();
  c.grad_weight = gw.raw_data();
  c.grad_bias = gb.raw_data();
  if constexpr (on.cuda)
    layout.columns ? column_norm_backward_cuda(c) : channel_norm_backward_cuda(c);
  else
    channel_norm_backward_cpu(c);
  layout.finish(gx, gxc);
}

// ---- the same with ordinary ops ----------------------------------------------------------------------------------
// x as [N, G, C / G, inner], or [N, C, 1, inner] where statistics are over the batch.

Tensor grouped(const Tensor& x, int64_t groups) {
  const Sizes s = sizes_of(x);
  const int64_t g = groups == 0 ? s.channels : groups;
  return x.reshape({s.batch, g, s.channels / std::max<int64_t>(1, g), s.inner});
}
Dims statistic_dims(int64_t groups) {
  return groups == 0 ? Dims{0, 2, 3} : Dims{2, 3};
}
Tensor statistic_view(const Tensor& t) {
  return t.dim() == 1 ? t.reshape({1, t.shape()[0], 1, 1}) : t.reshape({t.shape()[0], t.shape()[1], 1, 1});
}
Tensor channel_view(const Tensor& w, int64_t groups) {
  const int64_t g = groups == 0 ? w.shape()[0] : groups;
  return w.reshape({1, g, w.shape()[0] / std::max<int64_t>(1, g), 1});
}
Tensor mean_keeping(const Tensor& x, const Dims& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(x.shape()[d]);
  return sum(x, dims, true) * (1 / n);
}

std::array<TensorMeta, 3> infer_backward(const Tensor& gy, const Tensor& x, int64_t groups, const Tensor& weight,
                                         const Tensor& mean, const Tensor& rstd, std::string_view op);
Triple composed_backward(const Tensor& gy, const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd) {
  // Whoever asks for the op's own gradient comes here first.
  (void)infer_backward(gy, x, groups, weight, mean, rstd, groups ? "group_norm_backward" : "batch_norm_backward");
  const Dims dims = statistic_dims(groups);
  const Tensor r = statistic_view(rstd), xhat = add(grouped(x, groups), statistic_view(mean), -1) * r,
               g0 = grouped(gy, groups);
  const Tensor g = weight.defined() ? g0 * channel_view(weight, groups) : g0;
  const Tensor gx = r * add(add(g, mean_keeping(g, dims), -1), xhat * mean_keeping(g * xhat, dims), -1);
  const Shape channels{x.shape()[1]};
  const DType affine = affine_dtype(x, weight, {});
  return Triple(gx.reshape(x.shape()).to(x.dtype()), sum(g0 * xhat, Dims{0, 3}).reshape(channels).to(affine),
                sum(g0, Dims{0, 3}).reshape(channels).to(affine));
}

Triple reference(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  const Sizes s = sizes_of(x);
  const int64_t g = groups == 0 ? s.channels : groups, per = s.channels / g;
  const int64_t stats = groups == 0 ? g : s.batch * g;
  std::vector<double> v = x.to_vector<double>(), w, b, mean(static_cast<size_t>(stats)), var(mean.size()),
                      count(mean.size());
  if (weight.defined()) w = weight.to_vector<double>();
  if (bias.defined()) b = bias.to_vector<double>();
  const auto stat_of = [&](size_t i) {
    const int64_t item = static_cast<int64_t>(i) / (s.channels * s.inner),
                  channel = static_cast<int64_t>(i) / s.inner % s.channels;
    return groups == 0 ? channel : item * g + channel / per;
  };
  for (size_t i = 0; i < v.size(); ++i) count[stat_of(i)] += 1;
  for (size_t i = 0; i < v.size(); ++i) mean[stat_of(i)] += v[i] / count[stat_of(i)];
  for (size_t i = 0; i < v.size(); ++i)
    var[stat_of(i)] += (v[i] - mean[stat_of(i)]) * (v[i] - mean[stat_of(i)]) / count[stat_of(i)];
  for (double& r : var) r = 1 / std::sqrt(r + eps);
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t channel = i / static_cast<size_t>(s.inner) % static_cast<size_t>(s.channels);
    v[i] = (v[i] - mean[stat_of(i)]) * var[stat_of(i)];
    if (!w.empty()) v[i] *= w[channel];
    if (!b.empty()) v[i] += b[channel];
  }
  return Triple(from_span<double>(v, x.shape()), from_span<double>(mean, statistic_shape(x, groups)),
                from_span<double>(var, statistic_shape(x, groups)));
}

// What reaches x through the saved statistics, where something differentiates these too.
Tensor through_statistics(Backward& b, const Tensor& x, int64_t groups, Tensor gx) {
  const Sizes s = sizes_of(x);
  const double count =
      static_cast<double>(groups == 0 ? s.batch * s.inner : s.channels / std::max<int64_t>(1, groups) * s.inner);
  const auto put = [&](const Tensor& t) {
    const Tensor full = t.expand(grouped(x, groups).shape()).reshape(x.shape()).to(x.dtype());
    gx = gx.defined() ? gx + full : full;
  };
  if (b.has_gy(1)) put(statistic_view(b.gy(1)) * (1 / count));
  if (b.has_gy(2)) {
    const Tensor r = statistic_view(b.y(2)), d = add(grouped(x, groups), statistic_view(b.y(1)), -1);
    put(d * (statistic_view(b.gy(2)) * r * r * r * (-1 / count)));
  }
  return gx;
}

std::array<TensorMeta, 3> infer_backward(const Tensor& gy, const Tensor& x, int64_t groups, const Tensor& weight,
                                         const Tensor& mean, const Tensor& rstd, std::string_view op) {
  const Sizes s = check_channels(x, groups, weight, {}, op);
  check<ShapeError>(gy.shape() == x.shape() && gy.dtype() == x.dtype(), op, "gy is ", gy, ", x is ", x);
  const TensorMeta m = statistic(x, groups);
  for (const Tensor* t : {&mean, &rstd})
    check<ShapeError>(t->shape() == m.shape && t->dtype() == m.dtype, op, "mean and rstd must be ", m.shape, " ",
                      m.dtype, ", got ", *t);
  const TensorMeta w{Shape{s.channels}, affine_dtype(x, weight, {}), x.device(), std::nullopt};
  return {as_x(x), w, w};
}

const Op<Triple(const Tensor&, const Tensor&, int64_t, const Tensor&, const Tensor&, const Tensor&)>
    group_norm_backward_op{{
        .schema = "group_norm_backward(Tensor gy, Tensor x, int num_groups, Tensor? weight, Tensor mean, Tensor rstd) "
                  "-> (Tensor gx, Tensor gweight, Tensor gbias)",
        .shard = "n c! ...!, n c! ...!, c!, n ...!, n ...! -> n c! ...!, c!, c!",
        .internal = true,
        .doc = "The gradients of group_norm for x, weight and bias, from the gradient gy of its result and its "
               "statistics.",
        .infer =
            [](const Tensor& gy, const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& mean,
               const Tensor& rstd) {
              check(groups >= 1, "group_norm_backward", "num_groups must be positive, got ", groups);
              return infer_backward(gy, x, groups, weight, mean, rstd, "group_norm_backward");
            },
        .kernels = on_each_device([](auto on, auto&&... all) { run_backward(on, all...); }),
        .composed = composed_backward,
        .cost =
            [](const Tensor& gy, const Tensor&, int64_t, const Tensor&, const Tensor&, const Tensor&) {
              return Cost{14.0 * gy.numel(), 3.0 * gy.nbytes()};
            },
        .samples =
            [](Samples& s) {
              const DType st = statistic_dtype(s.dtype());
              s.add(s.tensor({2, 4, 5}), s.tensor({2, 4, 5}), 2, s.tensor({4}), s.tensor({2, 2}, st),
                    s.uniform({2, 2}, 0.5, 2, st));
              s.invalid<ShapeError>("gy is", s.tensor({2, 4, 4}), s.tensor({2, 4, 5}), 2, s.tensor({4}),
                                    s.tensor({2, 2}, st), s.tensor({2, 2}, st));
            },
    }};

const Op<Triple(const Tensor&, int64_t, const Tensor&, const Tensor&, double)> group_norm_op{{
    .schema = "group_norm(Tensor x, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) "
              "-> (Tensor y, Tensor mean, Tensor rstd)",
    .shard = "n ...!, _, _ -> n ...!, n ...!, n ...!",
    .shown = 1,
    .doc = "Each of num_groups groups of neighbouring channels of each item of x [N, C, ...] minus its mean, over its "
           "standard "
           "deviation (divisor n, eps added to the variance), times weight [C] plus bias [C] (Wu and He, "
           "arXiv:1803.08494). mean "
           "and rstd are [N, num_groups], f32 (f64 for f64). ShapeError when the channels do not make groups. The "
           "function "
           "group_norm returns y alone.",
    .example = "Tensor y = group_norm(ones({1, 4, 2}), 2); assert(y.sum().item() == 0);",
    .infer =
        [](const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double) {
          check(groups >= 1, "group_norm", "num_groups must be positive, got ", groups);
          check_channels(x, groups, weight, bias, "group_norm");
          const TensorMeta m = statistic(x, groups);
          return std::array<TensorMeta, 3>{as_x(x), m, m};
        },
    .kernels = on_each_device([](auto on, auto&&... all) { run_forward(on, all...); }),
    .saves = "x weight mean rstd",
    .backward =
        [](Backward& b, const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double) {
          Tensor gx;
          if (b.has_gy(0)) {
            auto [g, gw, gb] = group_norm_backward_op(b.gy(0), x, groups, weight, b.y(1), b.y(2));
            gx = g;
            if (weight.defined() && b.needs(1)) b.set(1, gw);
            if (bias.defined() && b.needs(2)) b.set(2, gb.to(bias.dtype()));
          }
          if (b.needs(0)) b.set(0, through_statistics(b, x, groups, gx));
        },
    .cost =
        [](const Tensor& x, int64_t, const Tensor&, const Tensor&, double) {
          return Cost{8.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 4, 5}), 2, s.tensor({4}), s.tensor({4}));
          s.add(s.tensor({2, 6, 3, 7}), 3, std::nullopt, std::nullopt, 1e-3);
          s.add(s.tensor({3, 4}), 2, s.tensor({4})).named("no inner dimensions");
          s.add(s.tensor({130, 48}), 3, s.tensor({48}), s.tensor({48})).named("no inner dimensions, many items");
          s.add(s.tensor({2, 6}), 6).not_differentiable().named("no inner dimensions, a channel each");
          s.invalid<ShapeError>("groups", s.tensor({2, 4, 5}), 3);
          s.invalid<ShapeError>("weight is", s.tensor({2, 4, 5}), 2, s.tensor({5}));
          s.invalid<ValueError>("num_groups", s.tensor({2, 4, 5}), 0);
          s.invalid<ShapeError>("[N, C", s.tensor({4}), 2);
          if (s.benchmarking()) s.bench(s.tensor({32, 64, 56, 56}), 8, s.tensor({64}), s.tensor({64}));
        },
    .reference = reference,
}};

// The batch's own statistics are the case of 0 groups.
const Op<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> batch_norm_backward_op{{
    .schema = "batch_norm_backward(Tensor gy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd) "
              "-> (Tensor gx, Tensor gweight, Tensor gbias)",
    .shard = "n! c ...!, n! c ...!, c, c, c -> n! c ...!, c, c",
    .internal = true,
    .doc = "The gradients of batch_norm in training for x, weight and bias, from the gradient gy of its result and its "
           "statistics.",
    .infer = [](const Tensor& gy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                const Tensor& rstd) { return infer_backward(gy, x, 0, weight, mean, rstd, "batch_norm_backward"); },
    .kernels = on_each_device([](auto on, Tensor& gx, Tensor& gw, Tensor& gb, const Tensor& gy, const Tensor& x,
                                 const Tensor& weight, const Tensor& mean,
                                 const Tensor& rstd) { run_backward(on, gx, gw, gb, gy, x, 0, weight, mean, rstd); }),
    .composed = [](const Tensor& gy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                   const Tensor& rstd) { return composed_backward(gy, x, 0, weight, mean, rstd); },
    .cost =
        [](const Tensor& gy, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
          return Cost{14.0 * gy.numel(), 3.0 * gy.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          s.add(s.tensor({2, 3, 5}), s.tensor({2, 3, 5}), s.tensor({3}), s.tensor({3}, st), s.uniform({3}, 0.5, 2, st));
          s.add(s.tensor({6, 3}), s.tensor({6, 3}), std::nullopt, s.tensor({3}, st), s.uniform({3}, 0.5, 2, st));
          s.add(s.tensor({2, 8, 4, 5}), s.tensor({2, 4, 5, 8}).permute({0, 3, 1, 2}), s.tensor({8}), s.tensor({8}, st),
                s.uniform({8}, 0.5, 2, st))
              .named("channels innermost");
          s.invalid<ShapeError>("gy is", s.tensor({2, 3, 4}), s.tensor({2, 3, 5}), s.tensor({3}), s.tensor({3}, st),
                                s.tensor({3}, st));
        },
}};

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, double)> batch_norm_op{{
    .schema = "batch_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor y, Tensor "
              "mean, Tensor rstd)",
    .shard = "n! c ...!, c, c -> n! c ...!, c, c",
    .doc = "Each channel of x [N, C, ...] minus its mean over everything else, over its standard deviation (divisor n, "
           "eps added to "
           "the variance), times weight [C] plus bias [C]: batch normalisation in training (Ioffe and Szegedy, "
           "arXiv:1502.03167). mean and rstd are [C], f32 (f64 for f64). The function batch_norm also keeps running "
           "statistics, "
           "uses them in evaluation, and returns y alone.",
    .example = "Tensor y = batch_norm(ones({4, 2}), {}, {}, {}, {}, true); assert(y.sum().item() == 0);",
    .infer =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias, double) {
          check_channels(x, 0, weight, bias, "batch_norm");
          const TensorMeta m = statistic(x, 0);
          return std::array<TensorMeta, 3>{as_x(x), m, m};
        },
    .kernels =
        on_each_device([](auto on, Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, double eps) { run_forward(on, y, mean, rstd, x, 0, weight, bias, eps); }),
    .saves = "x weight mean rstd",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor& bias, double) {
          Tensor gx;
          if (b.has_gy(0)) {
            auto [g, gw, gb] = batch_norm_backward_op(b.gy(0), x, weight, b.y(1), b.y(2));
            gx = g;
            if (weight.defined() && b.needs(1)) b.set(1, gw);
            if (bias.defined() && b.needs(2)) b.set(2, gb.to(bias.dtype()));
          }
          if (b.needs(0)) b.set(0, through_statistics(b, x, 0, gx));
        },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor&, double) {
          return Cost{8.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 5}), s.tensor({3}), s.tensor({3}));
          s.add(s.tensor({7, 4}), s.tensor({4}), std::nullopt).named("no inner dimensions");
          s.add(s.tensor({2, 3, 4, 5}), std::nullopt, std::nullopt, 1e-3);
          s.add(s.tensor({2, 4, 5, 8}).permute({0, 3, 1, 2}), s.tensor({8}), s.tensor({8})).named("channels innermost");
          s.invalid<ShapeError>("weight is", s.tensor({2, 3, 5}), s.tensor({4}));
          s.invalid<ShapeError>("[N, C", s.tensor({4}));
          s.invalid<DTypeError>("floating", s.tensor({2, 3}, DType::i64));
          if (s.benchmarking()) s.bench(s.tensor({32, 64, 56, 56}), s.tensor({64}), s.tensor({64}));
        },
    .reference = [](const Tensor& x, const Tensor& weight, const Tensor& bias,
                    double eps) { return reference(x, 0, weight, bias, eps); },
}};

}  // namespace

namespace channel_norm {
Sizes checked(const Tensor& x, const Tensor& weight, const Tensor& bias, std::string_view op) {
  return check_channels(x, 0, weight, bias, op);
}
Triple batch_statistics(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return batch_norm_op(x, weight, bias, eps);
}
Triple group_statistics(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  return group_norm_op(x, groups, weight, bias, eps);
}
Triple by_loops(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  return reference(x, groups, weight, bias, eps);
}
}  // namespace channel_norm

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  return std::get<0>(group_norm_op(x, num_groups, weight, bias, eps));
}

}  // namespace strata
