// The fused records that nll_loss and the losses of pairs are made of.

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {

Reduction parse_reduction(std::string_view text, std::string_view op) {
  if (text == "mean") return Reduction::mean;
  if (text == "sum") return Reduction::sum;
  check(text == "none", op, "reduction '", text, "' must be mean, sum or none");
  return Reduction::none;
}

namespace {

// f(x, target) at each element of the shape that they broadcast to.
template <class F>
Tensor each_pair(const Tensor& x, const Tensor& target, F&& f) {
  const Shape shape = broadcast_shapes(x.shape(), target.shape(), "loss");
  const std::vector<double> a = x.expand(shape).to_vector<double>(), b = target.expand(shape).to_vector<double>();
  std::vector<double> r(a.size());
  for (size_t i = 0; i < r.size(); ++i) r[i] = f(a[i], b[i]);
  return from_span<double>(r, shape);
}

// What each pair's gradient is multiplied by: the gradient of the loss, over the divisor for the mean.
Tensor spread(const Tensor& gloss, const Tensor& x, const std::string& reduction) {
  return reduction == "mean" ? gloss * (1.0 / static_cast<double>(x.numel())) : gloss;
}

// Kind-specific formulas: `value` in double precision, `slopes` the derivatives for x and target with ordinary ops.
template <PairLoss kind>
struct Formula;

using Slopes = std::pair<Tensor, Tensor>;
Tensor difference(const Tensor& x, const Tensor& t) {
  return add(x, t, -1);
}

template <>
struct Formula<PairLoss::mse> {
  static constexpr std::string_view name = "mse_loss";
  static double value(double x, double t, double) { return (x - t) * (x - t); }
  static Slopes slopes(const Tensor& x, const Tensor& t, double) {
    const Tensor d = difference(x, t) * 2;
    return {d, -d};
  }
};

template <>
struct Formula<PairLoss::l1> {
  static constexpr std::string_view name = "l1_loss";
  static double value(double x, double t, double) { return std::abs(x - t); }
  static Slopes slopes(const Tensor& x, const Tensor& t, double) {
    const Tensor s = sign(difference(x, t));
    return {s, -s};
  }
};

template <>
struct Formula<PairLoss::huber> {
  static constexpr std::string_view name = "huber_loss";
  static double value(double x, double t, double delta) {
    const double a = std::abs(x - t);
    return a <= delta ? 0.5 * a * a : delta * (a - 0.5 * delta);
  }
  static Slopes slopes(const Tensor& x, const Tensor& t, double delta) {
    const Tensor d = difference(x, t).clamp(-delta, delta);
    return {d, -d};
  }
};

template <>
struct Formula<PairLoss::smooth_l1> {
  static constexpr std::string_view name = "smooth_l1_loss";
  static double value(double x, double t, double beta) {
    const double a = std::abs(x - t);
    return a < beta ? 0.5 * a * a / beta : a - 0.5 * beta;
  }
  static Slopes slopes(const Tensor& x, const Tensor& t, double beta) {
    const Tensor d = (difference(x, t) * (1 / beta)).clamp(-1, 1);
    return {d, -d};
  }
};

template <>
struct Formula<PairLoss::bce_with_logits> {
  static constexpr std::string_view name = "binary_cross_entropy_with_logits";
  static double value(double x, double t, double) {
    return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
  }
  static Slopes slopes(const Tensor& x, const Tensor& t, double) { return {difference(x.sigmoid(), t), -x}; }
};

template <>
struct Formula<PairLoss::kl_div> {
  static constexpr std::string_view name = "kl_div";
  static double value(double x, double t, double log_target) {
    if (log_target != 0) return std::exp(t) * (t - x);
    return t > 0 ? t * (std::log(t) - x) : 0;
  }
  static Slopes slopes(const Tensor& x, const Tensor& t, double log_target) {
    if (log_target != 0) {
      const Tensor p = t.exp();
      return {-p, p * (difference(t, x) + 1)};
    }
    // The derivative for the target is meant for positive targets; at 0 the loss has none.
    return {-t, difference(t.log(), x) + 1};
  }
};

template <PairLoss kind>
TensorMeta infer_pair(const Tensor& x, const Tensor& target, const std::string& reduction, double param) {
  const std::string_view op = Formula<kind>::name;
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating arguments, got ", x.dtype());
  const bool positive = kind == PairLoss::huber || kind == PairLoss::smooth_l1;
  check(!positive || param > 0, op, kind == PairLoss::huber ? "delta" : "beta", " must be positive, got ", param);
  return parse_reduction(reduction, op) == Reduction::none ? laid_like(x, target) : like(x).with_shape({});
}

template <PairLoss kind, class On>
void run_pair(On on, Tensor& loss, const Tensor& x, const Tensor& target, const std::string& reduction, double param) {
  const Reduction r = parse_reduction(reduction, Formula<kind>::name);
  // Pairs in whatever order they lie; else in row-major order.
  const bool as_they_lie = lie_alike(x, target) && (r != Reduction::none || lie_alike(x, loss));
  const Tensor xc = as_they_lie ? x : x.contiguous(), tc = as_they_lie ? target : target.contiguous();
  if (!as_they_lie && !loss.is_contiguous()) {
    Tensor dense = empty({loss.shape(), loss.dtype(), loss.device(), std::nullopt});
    run_pair<kind>(on, dense, xc, tc, reduction, param);
    loss.copy_(dense);
    return;
  }
  const double divisor = r == Reduction::mean ? static_cast<double>(x.numel()) : 1;
  if constexpr (on.cuda)
    pair_loss_cuda(kind, x.dtype(), xc.raw_data(), tc.raw_data(), x.numel(), param, r, divisor, loss.raw_data());
  else
    pair_loss_cpu(kind, x.dtype(), xc.raw_data(), tc.raw_data(), x.numel(), param, r, divisor, loss.raw_data());
}

template <PairLoss kind>
void pair_rule(Backward& b, const Tensor& x, const Tensor& target, const std::string& reduction, double param) {
  const auto [dx, dt] = Formula<kind>::slopes(x, target, param);
  const Tensor g = spread(b.gy(), x, reduction);
  if (b.needs(0)) b.set(0, dx * g);
  if (b.needs(1)) b.set(1, dt * g);
}

template <PairLoss kind>
Tensor pair_reference(const Tensor& x, const Tensor& target, const std::string& reduction, double param) {
  const Tensor each = each_pair(x, target, [&](double a, double t) { return Formula<kind>::value(a, t, param); });
  if (reduction == "none") return each;
  double total = 0;
  for (double v : each.to_vector<double>()) total += v;
  if (reduction == "mean") total /= static_cast<double>(each.numel());
  return from_span<double>(std::vector<double>{total}, {});
}

Cost pair_cost(const Tensor& x, const Tensor&, const std::string& reduction) {
  return {4.0 * x.numel(), static_cast<double>((reduction == "none" ? 3 : 2) * x.nbytes())};
}

// Pairs whose difference is off the kinks of the losses, of either sign.
void pair_samples(Samples& s, auto&&... more) {
  const auto zero = s.uniform({3, 5}, -0.05, 0.05);
  s.add(s.off_grid({3, 5}), zero, "mean", more...);
  s.add(s.off_grid({3, 5}), zero, "sum", more...);
  s.add(s.off_grid({3, 5}), zero, "none", more...);
  s.add(s.off_grid({2, 5}), s.uniform({5}, -0.05, 0.05), "mean", more...).named("broadcast");
  s.add(s.tensor({0, 5}), s.tensor({0, 5}), "sum", more...).named("empty");
  s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
  s.invalid<ShapeError>("", s.tensor({3}), s.tensor({4}), "mean");
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.tensor({4096, 4096}), "mean", more...);
}

// The four functions of a record of a loss without a further parameter.
template <PairLoss kind>
struct Plain {
  static TensorMeta infer(const Tensor& x, const Tensor& t, const std::string& r) {
    return infer_pair<kind>(x, t, r, 0);
  }
  static constexpr auto kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& t,
                                                    const std::string& r) { run_pair<kind>(on, y, x, t, r, 0); });
  static void rule(Backward& b, const Tensor& x, const Tensor& t, const std::string& r) {
    pair_rule<kind>(b, x, t, r, 0);
  }
  static Tensor reference(const Tensor& x, const Tensor& t, const std::string& r) {
    return pair_reference<kind>(x, t, r, 0);
  }
};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> mse_pairs_op{{
    .schema = "mse_pairs(Tensor x, Tensor target, str reduction=\"mean\") -> Tensor",
    .shard = "pairs reduction",
    .doc = "(x - target)^2, averaged (mean), added (sum) or as it is (none). The arguments broadcast and promote.",
    .infer = Plain<PairLoss::mse>::infer,
    .kernels = Plain<PairLoss::mse>::kernels,
    .saves = "x target",
    .backward = Plain<PairLoss::mse>::rule,
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost = pair_cost,
    .samples = [](Samples& s) { pair_samples(s); },
    .reference = Plain<PairLoss::mse>::reference,
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> l1_pairs_op{{
    .schema = "l1_pairs(Tensor x, Tensor target, str reduction=\"mean\") -> Tensor",
    .shard = "pairs reduction",
    .doc = "|x - target|, averaged (mean), added (sum) or as it is (none). The gradient is 0 where they are equal. The "
           "arguments "
           "broadcast and promote.",
    .example = "assert(l1_loss(full({2}, 3.0), full({2}, 1.0)).item() == 2);",
    .infer = Plain<PairLoss::l1>::infer,
    .kernels = Plain<PairLoss::l1>::kernels,
    .saves = "x target",
    .backward = Plain<PairLoss::l1>::rule,
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost = pair_cost,
    .samples = [](Samples& s) { pair_samples(s); },
    .reference = Plain<PairLoss::l1>::reference,
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> bce_logits_pairs_op{{
    .schema = "bce_logits_pairs(Tensor x, Tensor target, str reduction=\"mean\") -> Tensor",
    .shard = "pairs reduction",
    .doc = "-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for logits x and probabilities t, computed as "
           "max(x, 0) - x t + log(1 + exp(-|x|)), which does not overflow; averaged (mean), added (sum) or as it is "
           "(none). The "
           "arguments broadcast and promote.",
    .example =
        "assert(std::abs(binary_cross_entropy_with_logits(zeros({2}), ones({2})).item() - std::log(2.0)) < 1e-6);",
    .infer = Plain<PairLoss::bce_with_logits>::infer,
    .kernels = Plain<PairLoss::bce_with_logits>::kernels,
    .saves = "x target",
    .backward = Plain<PairLoss::bce_with_logits>::rule,
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor&, const std::string& r) {
          return Cost{12.0 * x.numel(), static_cast<double>((r == "none" ? 3 : 2) * x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0, 1));
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0, 1), "none");
          s.add(s.uniform({6}, -90, 90), s.uniform({6}, 0, 1), "sum").not_differentiable().named("large");
          s.add(s.tensor({2, 5}), s.uniform({5}, 0, 1), "sum").named("broadcast");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.uniform({4096, 4096}, 0, 1));
        },
    .reference = Plain<PairLoss::bce_with_logits>::reference,
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, double)> huber_pairs_op{{
    .schema = "huber_pairs(Tensor x, Tensor target, str reduction=\"mean\", float delta=1.0) -> Tensor",
    .shard = "pairs reduction",
    .doc = "With d = x - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); averaged (mean), added "
           "(sum) or as it is "
           "(none). The arguments broadcast and promote. ValueError unless delta > 0.",
    .example = "assert(huber_loss(full({1}, 3.0), full({1}, 0.0)).item() == 2.5);",
    .infer = infer_pair<PairLoss::huber>,
    .kernels = on_each_device([](auto on, auto&&... all) { run_pair<PairLoss::huber>(on, all...); }),
    .saves = "x target",
    .backward = pair_rule<PairLoss::huber>,
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& t, const std::string& r, double) { return pair_cost(x, t, r); },
    .samples =
        [](Samples& s) {
          pair_samples(s, 1.0);
          s.invalid<ValueError>("delta", s.tensor({3}), s.tensor({3}), "mean", 0.0);
        },
    .reference = pair_reference<PairLoss::huber>,
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, double)> smooth_l1_pairs_op{{
    .schema = "smooth_l1_pairs(Tensor x, Tensor target, str reduction=\"mean\", float beta=1.0) -> Tensor",
    .shard = "pairs reduction",
    .doc = "With d = x - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; averaged (mean), added (sum) or "
           "as it is "
           "(none). The arguments broadcast and promote. ValueError unless beta > 0.",
    .example = "assert(smooth_l1_loss(full({1}, 3.0), full({1}, 0.0)).item() == 2.5);",
    .infer = infer_pair<PairLoss::smooth_l1>,
    .kernels = on_each_device([](auto on, auto&&... all) { run_pair<PairLoss::smooth_l1>(on, all...); }),
    .saves = "x target",
    .backward = pair_rule<PairLoss::smooth_l1>,
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& t, const std::string& r, double) { return pair_cost(x, t, r); },
    .samples =
        [](Samples& s) {
          pair_samples(s, 1.0);
          s.invalid<ValueError>("beta", s.tensor({3}), s.tensor({3}), "mean", -1.0);
        },
    .reference = pair_reference<PairLoss::smooth_l1>,
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, bool)> kl_div_pairs_op{{
    .schema = "kl_div_pairs(Tensor x, Tensor target, str reduction=\"mean\", bool log_target=false) -> Tensor",
    .shard = "pairs reduction",
    .doc = "t (log t - x) for log-probabilities x and probabilities t (0 where t is 0, NaN where it is negative); with "
           "log_target, "
           "exp(t) (t - x). Averaged over all elements (mean), added (sum) or as it is (none). The arguments broadcast "
           "and promote. The gradient for the target wants positive probabilities.",
    .example = "assert(kl_div(zeros({2}), ones({2})).item() == 0);",
    .infer = [](const Tensor& x, const Tensor& t, const std::string& r,
                bool) { return infer_pair<PairLoss::kl_div>(x, t, r, 0); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& t, const std::string& r,
                                 bool log_target) { run_pair<PairLoss::kl_div>(on, y, x, t, r, log_target); }),
    .saves = "x target",
    .backward = [](Backward& b, const Tensor& x, const Tensor& t, const std::string& r,
                   bool log_target) { pair_rule<PairLoss::kl_div>(b, x, t, r, log_target); },
    .adapt = Adapt::promote,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& t, const std::string& r, bool) { return pair_cost(x, t, r); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, -3, -0.1), s.uniform({3, 5}, 0.1, 1));
          s.add(s.uniform({3, 5}, -3, -0.1), s.uniform({3, 5}, 0.1, 1), "none");
          s.add(s.uniform({3, 5}, -3, -0.1), s.uniform({3, 5}, -3, -0.1), "sum", true).named("logarithms");
          s.add(s.uniform({4}, -3, -0.1), s.integers({4}, 0, 2, s.dtype()), "sum").not_differentiable().named("zeros");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), "median");
          if (s.benchmarking()) s.bench(s.uniform({4096, 4096}, -3, 0), s.uniform({4096, 4096}, 0.1, 1));
        },
    .reference = [](const Tensor& x, const Tensor& t, const std::string& r,
                    bool log_target) { return pair_reference<PairLoss::kl_div>(x, t, r, log_target); },
}};

}  // namespace

Tensor detail::pair_loss(PairLoss kind, const Tensor& x, const Tensor& target, const std::string& reduction,
                         double param) {
  switch (kind) {
    case PairLoss::mse:
      return mse_pairs_op(x, target, reduction);
    case PairLoss::l1:
      return l1_pairs_op(x, target, reduction);
    case PairLoss::smooth_l1:
      return smooth_l1_pairs_op(x, target, reduction, param);
    case PairLoss::huber:
      return huber_pairs_op(x, target, reduction, param);
    case PairLoss::bce_with_logits:
      return bce_logits_pairs_op(x, target, reduction);
    case PairLoss::kl_div:
      break;
  }
  return kl_div_pairs_op(x, target, reduction, param != 0);
}

}  // namespace strata
