// Losses of pairs, element by element, as callers see them: with weights, and those that are composed of other ops.

#include <cmath>
#include <numbers>

#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {

Tensor detail::widened(const Tensor& x) {
  return x.defined() && is_reduced_floating(x.dtype()) ? x.to(DType::f32) : x;
}

Tensor detail::reduced(const Tensor& each, const std::string& reduction, DType dtype, std::string_view op) {
  const Reduction how = parse_reduction(reduction, op);
  const Tensor y = how == Reduction::none ? each : how == Reduction::mean ? mean(each) : sum(each);
  return y.to(dtype);
}

namespace {

using detail::reduced;
using detail::widened;

void check_same_shape(const Tensor& input, const Tensor& target, std::string_view op) {
  check<ShapeError>(input.shape() == target.shape(), op, "target is ", target, ", input is ", input,
                    ": they must have the same shape");
}

void check_floating(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating arguments, got ", x.dtype());
}

// A loss with weights of the elements: the mean is over the weights, or with `over_elements` over their number.
Tensor weighted(PairLoss kind, const Tensor& input, const Tensor& target, const std::string& reduction,
                const Tensor& weight, double param, bool over_elements, std::string_view op) {
  if (!weight.defined()) return detail::pair_loss(kind, input, target, reduction, param);
  check<ShapeError>(weight.shape() == input.shape(), op, "weight is ", weight, ", input is ", input,
                    ": they must have the same shape");
  const DType dtype = result_type(result_type(input, target) == input.dtype() ? input : target, weight);
  const Tensor w = widened(weight);
  const Tensor each = detail::pair_loss(kind, widened(input), widened(target), "none", param) * w;
  if (reduction == "mean" && !over_elements) return (sum(each) / sum(w)).to(dtype);
  return reduced(each, reduction, dtype, op);
}

// By hand, with weights: sums of f(x, t) w over the number of elements or the sum of weights.
template <class F>
Tensor weighted_by_hand(const Tensor& input, const Tensor& target, const std::string& reduction, const Tensor& weight,
                        bool over_elements, F&& f) {
  if (reduction != "mean" || over_elements || !weight.defined())
    return by_hand::each(
        reduction, [&](double x, double t, double w) { return f(x, t) * w; }, input, target, weight);
  double total = 0, divisor = 0;
  by_hand::each(
      "none",
      [&](double x, double t, double w) {
        total += f(x, t) * w;
        divisor += w;
        return 0.0;
      },
      input, target, weight);
  return from_span<double>(std::vector<double>{total / divisor}, {});
}

double huber(double x, double t, double delta) {
  const double d = std::abs(x - t);
  return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}

void weighted_samples(Samples& s) {
  const Tensor zero = s.uniform({3, 5}, -0.05, 0.05), w = s.uniform({3, 5}, 0.2, 2);
  s.add(s.off_grid({3, 5}), zero);
  s.add(s.off_grid({2, 5}), s.uniform({5}, -0.05, 0.05), "sum").named("broadcast");
  s.add(s.off_grid({3, 5}), zero, "none");
  s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
  s.invalid<ShapeError>("", s.tensor({3}), s.tensor({4}), "mean");
}

using Weighted = Op<Tensor(const Tensor&, const Tensor&, const std::string&, const Tensor&)>;

const Weighted mse_loss_op{{
    .schema = "mse_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None) -> Tensor",
    .doc = "(input - target)^2, averaged (mean), added (sum) or as it is (none). weight, of input's shape, multiplies "
           "the elements, and the mean is then over the weights. The arguments broadcast and promote.",
    .example = "assert(mse_loss(full({2}, 3.0), full({2}, 1.0)).item() == 4);",
    .composed = [](const Tensor& x, const Tensor& t, const std::string& r,
                   const Tensor& w) { return weighted(PairLoss::mse, x, t, r, w, 0, false, "mse_loss"); },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          weighted_samples(s);
          const Tensor w = s.uniform({3, 5}, 0.2, 2);
          for (const char* reduction : {"mean", "sum", "none"}) s.add(s.tensor({3, 5}), s.tensor({3, 5}), reduction, w);
          s.invalid<ShapeError>("weight is", s.tensor({3}), s.tensor({3}), "mean", s.tensor({1}));
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r, const Tensor& w) {
          return weighted_by_hand(x, t, r, w, false, [](double a, double b) { return (a - b) * (a - b); });
        },
}};

const Weighted l1_loss_op{{
    .schema = "l1_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None) -> Tensor",
    .doc = "|input - target|, averaged (mean), added (sum) or as it is (none); the gradient is 0 where they are equal. "
           "weight, of input's shape, multiplies the elements, and the mean is then over the weights. The arguments "
           "broadcast and promote.",
    .example = "assert(l1_loss(full({2}, 3.0), full({2}, 1.0)).item() == 2);",
    .composed = [](const Tensor& x, const Tensor& t, const std::string& r,
                   const Tensor& w) { return weighted(PairLoss::l1, x, t, r, w, 0, false, "l1_loss"); },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          weighted_samples(s);
          const Tensor zero = s.uniform({3, 5}, -0.05, 0.05), w = s.uniform({3, 5}, 0.2, 2);
          for (const char* reduction : {"mean", "sum", "none"}) s.add(s.off_grid({3, 5}), zero, reduction, w);
          s.invalid<ShapeError>("weight is", s.tensor({3}), s.tensor({3}), "mean", s.tensor({1}));
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r, const Tensor& w) {
          return weighted_by_hand(x, t, r, w, false, [](double a, double b) { return std::abs(a - b); });
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, double)> smooth_l1_loss_op{{
    .schema = "smooth_l1_loss(Tensor input, Tensor target, str reduction=\"mean\", float beta=1.0) -> Tensor",
    .doc = "With d = input - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2 (Girshick, "
           "arXiv:1504.08083); averaged (mean), added (sum) or as it is (none). beta 0 is l1_loss. The arguments "
           "broadcast and promote. ValueError where beta is negative.",
    .example = "assert(smooth_l1_loss(full({1}, 3.0), full({1}, 0.0)).item() == 2.5);",
    .composed =
        [](const Tensor& x, const Tensor& t, const std::string& r, double beta) {
          return beta == 0 ? detail::pair_loss(PairLoss::l1, x, t, r)
                           : detail::pair_loss(PairLoss::smooth_l1, x, t, r, beta);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          weighted_samples(s);
          s.add(s.off_grid({3, 5}), s.uniform({3, 5}, -0.05, 0.05), "sum", 0.5);
          s.add(s.off_grid({3, 5}), s.uniform({3, 5}, -0.05, 0.05), "mean", 0.0).named("l1");
          s.invalid<ValueError>("beta", s.tensor({3}), s.tensor({3}), "mean", -1.0);
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r, double beta) {
          return by_hand::each(
              r,
              [&](double a, double b) {
                const double d = std::abs(a - b);
                return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
              },
              x, t);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, double, const Tensor&)> huber_loss_op{{
    .schema = "huber_loss(Tensor input, Tensor target, str reduction=\"mean\", float delta=1.0, Tensor? weight=None) "
              "-> Tensor",
    .doc = "With d = input - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2) (Huber, 1964); averaged "
           "(mean), added (sum) or as it is (none). weight, of input's shape, multiplies the elements; the mean stays "
           "that of the elements. The arguments broadcast and promote. ValueError unless delta > 0.",
    .example = "assert(huber_loss(full({1}, 3.0), full({1}, 0.0)).item() == 2.5);",
    .composed = [](const Tensor& x, const Tensor& t, const std::string& r, double delta,
                   const Tensor& w) { return weighted(PairLoss::huber, x, t, r, w, delta, true, "huber_loss"); },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          weighted_samples(s);
          const Tensor zero = s.uniform({3, 5}, -0.05, 0.05);
          s.add(s.off_grid({3, 5}), zero, "mean", 0.5, s.uniform({3, 5}, 0.2, 2));
          s.invalid<ValueError>("delta", s.tensor({3}), s.tensor({3}), "mean", 0.0);
          s.invalid<ShapeError>("weight is", s.tensor({3}), s.tensor({3}), "mean", 1.0, s.tensor({1}));
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r, double delta, const Tensor& w) {
          return weighted_by_hand(x, t, r, w, true, [&](double a, double b) { return huber(a, b, delta); });
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, bool)> kl_div_op{{
    .schema = "kl_div(Tensor input, Tensor target, str reduction=\"mean\", bool log_target=false) -> Tensor",
    .doc = "target (log target - input) for log-probabilities input and probabilities target (0 where target is 0, NaN "
           "where it is negative); with log_target, exp(target) (target - input). Averaged over all elements (mean), "
           "over input.size(0) (batchmean), added (sum) or as it is (none). The arguments broadcast and promote. The "
           "gradient for the target wants positive probabilities.",
    .example = "assert(kl_div(zeros({2}), ones({2})).item() == 0);",
    .composed =
        [](const Tensor& x, const Tensor& t, const std::string& r, bool log_target) {
          if (r != "batchmean") return detail::pair_loss(PairLoss::kl_div, x, t, r, log_target);
          check<ShapeError>(x.dim() > 0, "kl_div", "batchmean needs a batch dimension, got ", x);
          const DType dtype = result_type(x, t);
          const Tensor total = detail::pair_loss(PairLoss::kl_div, widened(x), widened(t), "sum", log_target);
          return (total / static_cast<double>(x.size(0))).to(dtype);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          for (const char* reduction : {"mean", "sum", "none", "batchmean"})
            s.add(s.uniform({3, 5}, -3, -0.1), s.uniform({3, 5}, 0.1, 1), reduction);
          s.add(s.uniform({3, 5}, -3, -0.1), s.uniform({3, 5}, -3, -0.1), "batchmean", true).named("logarithms");
          s.invalid<ShapeError>("batch dimension", s.tensor({}), s.tensor({}), "batchmean");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r, bool log_target) {
          const Tensor y = by_hand::each(
              r == "batchmean" ? "sum" : r,
              [&](double a, double b) {
                if (log_target) return std::exp(b) * (b - a);
                return b > 0 ? b * (std::log(b) - a) : 0.0;
              },
              x, t);
          if (r != "batchmean") return y;
          return from_span<double>(std::vector<double>{y.to_vector<double>()[0] / static_cast<double>(x.size(0))}, {});
        },
}};

// ---- binary cross entropy -----------------------------------------------------------------------------------------

constexpr double kLeastLog = -100, kLeastVariance = 1e-12;  // PyTorch's bounds

// The gradient is not that of the loss's parts: the denominator p (1 - p) is at least 1e-12, whatever the logarithms
// are.
const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool)> bce_pairs_backward_op{{
    .schema = "bce_pairs_backward(Tensor g, Tensor input, Tensor target, bool of_target) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "The gradient of bce_pairs for input, g (input - target) over input (1 - input), which is taken as at least "
           "1e-12, or for target, g (log(1 - input) - log input), logarithms being at least -100.",
    .infer =
        [](const Tensor& g, const Tensor& p, const Tensor& t, bool) {
          check_same_shape(p, t, "bce_pairs_backward");
          check_same_shape(p, g, "bce_pairs_backward");
          check_floating(p, "bce_pairs_backward");
          return like(p);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(bce_pairs_backward_cuda)},
    .composed =
        [](const Tensor& gy, const Tensor& p, const Tensor& t, bool of_target) {
          const Tensor x = widened(p), y = widened(t), g = widened(gy);
          if (of_target) return (g * (clamp_min(log1p(-x), kLeastLog) - clamp_min(log(x), kLeastLog))).to(p.dtype());
          return (g * (x - y) / clamp_min((1 - x) * x, kLeastVariance)).to(p.dtype());
        },
    .adapt = Adapt::promote,
    .cost =
        [](const Tensor&, const Tensor& p, const Tensor&, bool) {
          return Cost{20.0 * p.numel(), 4.0 * p.nbytes()};
        },
    .samples =
        [](Samples& s) {
          for (const bool of_target : {false, true}) {
            s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0.1, 0.9), s.uniform({3, 5}, 0, 1), of_target);
            s.add(expand(s.tensor({1, 1}), {2, 37}), s.uniform({2, 37}, 0.1, 0.9), s.uniform({2, 37}, 0, 1), of_target)
                .named("one gradient for all");
          }
          s.add(s.tensor({5}), s.integers({5}, 0, 2, s.dtype()), s.uniform({5}, 0, 1), true)
              .not_differentiable()
              .named("certain");
          s.invalid<ShapeError>("broadcast", s.tensor({3}), s.uniform({3}, 0, 1), s.uniform({2}, 0, 1), false);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&)> bce_pairs_op{{
    .schema = "bce_pairs(Tensor input, Tensor target) -> Tensor",
    .shard = "elementwise",
    .doc = "-(t log p + (1 - t) log(1 - p)) of each pair, logarithms being at least -100. The gradient for p is (p - "
           "t) over p (1 - p), which is taken as at least 1e-12. ValueError where p is outside [0, 1], except on "
           "devices.",
    .infer =
        [](const Tensor& p, const Tensor& t) {
          check_same_shape(p, t, "binary_cross_entropy");
          check_floating(p, "binary_cross_entropy");
          return like(p);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(bce_pairs_cuda)},
    .composed =
        [](const Tensor& p, const Tensor& t) {
          // The comparison is false for NaN, which is refused too.
          if (p.device().is_cpu() && p.numel() > 0)
            check(amin(p).item() >= 0 && amax(p).item() <= 1, "binary_cross_entropy",
                  "input must lie in [0, 1], got values in [", amin(p).item(), ", ", amax(p).item(), "]");
          const Tensor x = widened(p), y = widened(t);
          return ((y - 1) * clamp_min(log1p(-x), kLeastLog) - y * clamp_min(log(x), kLeastLog)).to(p.dtype());
        },
    .saves = "input target",
    .backward =
        [](Backward& b, const Tensor& p, const Tensor& t) {
          if (b.needs(0)) b.set(0, bce_pairs_backward_op(b.gy(), p, t, false));
          if (b.needs(1)) b.set(1, bce_pairs_backward_op(b.gy(), p, t, true));
        },
    .adapt = Adapt::promote,
    .cost =
        [](const Tensor& p, const Tensor&) {
          return Cost{20.0 * p.numel(), 3.0 * p.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0.1, 0.9), s.uniform({3, 5}, 0, 1));
          s.add(s.integers({5}, 0, 2, s.dtype()), s.uniform({5}, 0, 1)).not_differentiable().named("certain");
          s.invalid<ValueError>("[0, 1]", s.uniform({3}, 1.5, 2), s.uniform({3}, 0, 1));
        },
    .reference =
        [](const Tensor& p, const Tensor& t) {
          return by_hand::each(
              "none",
              [](double a, double b) {
                return -(b * std::max(std::log(a), kLeastLog) + (1 - b) * std::max(std::log1p(-a), kLeastLog));
              },
              p, t);
        },
}};

Tensor times(const Tensor& each, const Tensor& weight) {
  return weight.defined() ? each * widened(weight) : each;
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&)> binary_cross_entropy_op{{
    .schema = "binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\") -> "
              "Tensor",
    .doc =
        "-(t log p + (1 - t) log(1 - p)) for probabilities p (input) and t (target) of one shape, logarithms being at "
        "least -100; times weight, which broadcasts; averaged over the elements (mean), added (sum) or as it is "
        "(none). ShapeError, DTypeError, and on the CPU ValueError where p is outside [0, 1].",
    .example = "assert(std::abs(binary_cross_entropy(full({2}, 0.5), ones({2})).item() - std::log(2.0)) < 1e-6);",
    .composed =
        [](const Tensor& p, const Tensor& t, const Tensor& w, const std::string& r) {
          const std::string_view op = "binary_cross_entropy";
          check_same_shape(p, t, op);
          check_floating(p, op);
          return reduced(times(bce_pairs_op(widened(p), widened(t)), w), r, p.dtype(), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0.1, 0.9), s.uniform({3, 5}, 0, 1));
          s.add(s.uniform({3, 5}, 0.1, 0.9), s.uniform({3, 5}, 0, 1), s.uniform({5}, 0.2, 2), "none");
          s.add(s.uniform({3, 5}, 0.1, 0.9), s.uniform({3, 5}, 0, 1), s.uniform({3, 1}, 0.2, 2), "sum");
          s.invalid<ShapeError>("same shape", s.uniform({3}, 0, 1), s.uniform({1}, 0, 1));
          s.invalid<ValueError>("[0, 1]", s.uniform({3}, -2, -1), s.uniform({3}, 0, 1));
          s.invalid<ValueError>("reduction", s.uniform({3}, 0, 1), s.uniform({3}, 0, 1), std::nullopt, "median");
        },
    .reference =
        [](const Tensor& p, const Tensor& t, const Tensor& w, const std::string& r) {
          return by_hand::each(
              r,
              [](double a, double b, double weight) {
                return -weight * (b * std::max(std::log(a), kLeastLog) + (1 - b) * std::max(std::log1p(-a), kLeastLog));
              },
              p, t, w);
        },
}};

using Logits = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&, const Tensor&)>;
const Logits bce_with_logits_op{{
    .schema = "binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, str "
              "reduction=\"mean\", Tensor? pos_weight=None) -> Tensor",
    .doc = "-(w t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for logits x (input) and probabilities t (target) of "
           "one shape, computed without overflow; w is pos_weight, which broadcasts. Times weight, which broadcasts; "
           "averaged over the elements (mean), added (sum) or as it is (none). ShapeError, DTypeError.",
    .example =
        "assert(std::abs(binary_cross_entropy_with_logits(zeros({2}), ones({2})).item() - std::log(2.0)) < 1e-6);",
    .composed =
        [](const Tensor& x, const Tensor& t, const Tensor& w, const std::string& r, const Tensor& positive) {
          const std::string_view op = "binary_cross_entropy_with_logits";
          check_same_shape(x, t, op);
          check_floating(x, op);
          if (!w.defined() && !positive.defined()) return detail::pair_loss(PairLoss::bce_with_logits, x, t, r);
          const Tensor a = widened(x), b = widened(t);
          const Tensor each = positive.defined() ? (1 - b) * a - ((widened(positive) - 1) * b + 1) * logsigmoid(a)
                                                 : detail::pair_loss(PairLoss::bce_with_logits, a, b, "none");
          return reduced(times(each, w), r, x.dtype(), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor w = s.uniform({5}, 0.2, 2), t = s.uniform({3, 5}, 0, 1);
          s.add(s.tensor({3, 5}), t);
          s.add(s.tensor({3, 5}), t, w, "sum");
          s.add(s.tensor({3, 5}), t, std::nullopt, "mean", w);
          s.add(s.tensor({3, 5}), t, w, "none", s.uniform({5}, 0.2, 2));
          s.add(s.uniform({6}, -90, 90), s.uniform({6}, 0, 1), std::nullopt, "none", s.uniform({6}, 1, 3))
              .not_differentiable()
              .named("large");
          s.invalid<ShapeError>("same shape", s.tensor({3}), s.tensor({1}));
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), std::nullopt, "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const Tensor& w, const std::string& r, const Tensor& positive) {
          return by_hand::each(
              r,
              [](double a, double b, double weight, double p) {
                const auto minus_log = [](double z) { return std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z))); };
                return weight * (p * b * minus_log(a) + (1 - b) * minus_log(-a));
              },
              x, t, w, positive);
        },
}};

// ---- negative log-likelihoods -------------------------------------------------------------------------------------

constexpr double kTwoPi = 2 * std::numbers::pi;

const Op<Tensor(const Tensor&, const Tensor&, bool, bool, double, const std::string&)> poisson_nll_loss_op{{
    .schema = "poisson_nll_loss(Tensor input, Tensor target, bool log_input=true, bool full=false, float eps=1e-8, str "
              "reduction=\"mean\") -> Tensor",
    .doc = "exp(input) - target input, the negative logarithm of a Poisson probability without its constant, for the "
           "logarithm of the rate; with log_input false, input - target log(input + eps) for the rate itself. full "
           "adds Stirling's approximation of log(target!) where target > 1. Averaged (mean), added (sum) or as it is "
           "(none). The arguments broadcast and promote.",
    .example = "assert(poisson_nll_loss(zeros({2}), full({2}, 3.0)).item() == 1);",
    .composed =
        [](const Tensor& input, const Tensor& target, bool log_input, bool full, double eps, const std::string& r) {
          const Tensor x = widened(input), t = widened(target);
          Tensor each = log_input ? exp(x) - t * x : x - t * log(x + eps);
          if (full) {
            // Where the target is at most 1 nothing is added, and nothing of it may reach the gradient.
            const Tensor safe = where(t > 1, t, Scalar(2));
            each = each + where(t > 1, safe * log(safe) - safe + log(safe * kTwoPi) * 0.5, Scalar(0));
          }
          return reduced(each, r, result_type(input, target), "poisson_nll_loss");
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0, 4));
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}, 2), true, true, 1e-8, "none");
          s.add(s.uniform({2, 5}, 0.5, 3), s.uniform({5}, 1.2, 4), false, true, 1e-6, "sum");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), true, false, 1e-8, "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, bool log_input, bool full, double eps, const std::string& r) {
          return by_hand::each(
              r,
              [&](double a, double b) {
                const double loss = log_input ? std::exp(a) - b * a : a - b * std::log(a + eps);
                return full && b > 1 ? loss + b * std::log(b) - b + 0.5 * std::log(kTwoPi * b) : loss;
              },
              x, t);
        },
}};

// var as it broadcasts with input: of its shape, without its last dimension, or with 1 in one place; else an error.
Tensor variances(const Tensor& input, const Tensor& var) {
  if (var.shape() == input.shape() || var.dim() == 0) return var;
  Shape lead = input.shape();
  if (!lead.empty()) lead.erase(lead.size() - 1);
  if (var.dim() == input.dim() - 1 && var.shape() == lead) return var.unsqueeze(-1);
  int differ = 0, ones = 0;
  for (int64_t d = 0; d < var.dim() && var.dim() == input.dim(); ++d) {
    differ += var.size(d) != input.size(d);
    ones += var.size(d) != input.size(d) && var.size(d) == 1;
  }
  check<ShapeError>(differ == 1 && ones == 1, "gaussian_nll_loss", "var is ", var, ", wanted input's shape ",
                    input.shape(), ", that with 1 in one place, or ", lead);
  return var;
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool, double, const std::string&)> gaussian_nll_loss_op{{
    .schema = "gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full=false, float eps=1e-6, str "
              "reduction=\"mean\") -> Tensor",
    .doc = "(log var + (input - target)^2 / var) / 2, the negative logarithm of a normal density without its constant; "
           "full adds log(2 pi) / 2. var has input's shape, that without the last dimension, or that with 1 in one "
           "place (or none: one number), and is taken as at least eps (the gradient does not notice). Averaged (mean), "
           "added (sum) or as it is (none). ShapeError; on the CPU ValueError for a negative variance.",
    .example = "assert(gaussian_nll_loss(zeros({2}), full({2}, 2.0), ones({2})).item() == 2);",
    .composed =
        [](const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps, const std::string& r) {
          const std::string_view op = "gaussian_nll_loss";
          check_floating(input, op);
          check_floating(var, op);
          check(eps >= 0, op, "eps must not be negative, got ", eps);
          const Tensor given = widened(variances(input, var));
          if (given.device().is_cpu() && given.numel() > 0)
            check(!any(given < 0).item<bool>(), op, "var must not be negative, got ", amin(given).item());
          const Tensor fixed = given.detach();
          const Tensor v = given + (clamp_min(fixed, eps) - fixed);
          const Tensor d = widened(input) - widened(target);
          Tensor each = (log(v) + d * d / v) * 0.5;
          if (full) each = each + 0.5 * std::log(kTwoPi);
          const DType pair = promote_types(input.dtype(), target.dtype());
          return reduced(each, r, promote_types(pair, var.dtype()), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.uniform({3, 5}, 0.5, 2));
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.uniform({3}, 0.5, 2), true, 1e-6, "none").named("one a row");
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.uniform({3, 1}, 0.5, 2), false, 1e-6, "sum");
          s.add(s.tensor({4}), s.tensor({4}), s.uniform({4}, 0.1, 0.2), false, 0.5).not_differentiable().named("floor");
          s.invalid<ShapeError>("var is", s.tensor({3, 5}), s.tensor({3, 5}), s.uniform({5}, 0.5, 2));
          s.invalid<ValueError>("negative", s.tensor({3}), s.tensor({3}), s.uniform({3}, -2, -1));
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), s.uniform({3}, 1, 2), false, 1e-6, "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const Tensor& var, bool full, double eps, const std::string& r) {
          const Tensor v = var.dim() == x.dim() || var.dim() == 0 ? var : var.unsqueeze(-1);
          return by_hand::each(
              r,
              [&](double a, double b, double c) {
                c = std::max(c, eps);
                return 0.5 * (std::log(c) + (a - b) * (a - b) / c) + (full ? 0.5 * std::log(kTwoPi) : 0);
              },
              x, t, v);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> soft_margin_loss_op{{
    .schema = "soft_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor",
    .doc = "log(1 + exp(-target input)) for targets of 1 and -1, without overflow; averaged (mean), added (sum) or as "
           "it is (none). The arguments broadcast and promote.",
    .example = "assert(std::abs(soft_margin_loss(zeros({2}), ones({2})).item() - std::log(2.0)) < 1e-6);",
    .composed =
        [](const Tensor& x, const Tensor& t, const std::string& r) {
          check_floating(x, "soft_margin_loss");
          return reduced(-logsigmoid(widened(t) * widened(x)), r, result_type(x, t), "soft_margin_loss");
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          for (const char* reduction : {"mean", "sum", "none"}) s.add(s.tensor({3, 5}), s.tensor({3, 5}), reduction);
          s.add(s.uniform({4}, 200, 300), s.uniform({4}, -1, 1)).not_differentiable().named("large");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const std::string& r) {
          return by_hand::each(
              r,
              [](double a, double b) {
                const double z = -a * b;
                return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
              },
              x, t);
        },
}};

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction, const Tensor& weight) {
  return mse_loss_op(input, target, reduction, weight);
}
Tensor l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction, const Tensor& weight) {
  return l1_loss_op(input, target, reduction, weight);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction, double beta) {
  return smooth_l1_loss_op(input, target, reduction, beta);
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const std::string& reduction, double delta,
                  const Tensor& weight) {
  return huber_loss_op(input, target, reduction, delta, weight);
}
Tensor kl_div(const Tensor& input, const Tensor& target, const std::string& reduction, bool log_target) {
  return kl_div_op(input, target, reduction, log_target);
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            const std::string& reduction) {
  return binary_cross_entropy_op(input, target, weight, reduction);
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        const std::string& reduction, const Tensor& pos_weight) {
  return bce_with_logits_op(input, target, weight, reduction, pos_weight);
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps,
                        const std::string& reduction) {
  return poisson_nll_loss_op(input, target, log_input, full, eps, reduction);
}
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps,
                         const std::string& reduction) {
  return gaussian_nll_loss_op(input, target, var, full, eps, reduction);
}
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction) {
  return soft_margin_loss_op(input, target, reduction);
}

}  // namespace strata
