// cross_entropy and nll_loss as callers see them: any rank, weights of classes, probabilities as targets. Rows of
// classes go to the fused records, those of cross_entropy without weights.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/planes_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

int64_t class_dim(const Tensor& x) {
  return x.dim() > 1 ? 1 : 0;
}

void check_weight(const Tensor& weight, int64_t classes, std::string_view op) {
  if (!weight.defined()) return;
  check<DTypeError>(is_floating(weight.dtype()), op, "weight must be floating, got ", weight.dtype());
  check<ShapeError>(weight.dim() == 1 && weight.size(0) == classes, op, "weight is ", weight, ", wanted [", classes,
                    "]: a number for each class");
}

Tensor classes_of(const Tensor& target, std::string_view op) {
  check<DTypeError>(!is_floating(target.dtype()) && target.dtype() != DType::boolean, op,
                    "needs integer targets (class indices), got ", target.dtype());
  return target.to(DType::i64).reshape({target.numel()});
}

// Smoothed losses of log-probabilities [rows, C] with weights: a loss for each row, averaged over the weights.
Tensor weighted_rows(const Tensor& logs, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                     double smoothing, const std::string& reduction, std::string_view op) {
  const Reduction how = parse_reduction(reduction, op);
  const Tensor counts = target != ignore_index, w = weight.to(logs.dtype());
  const Tensor at_target = detail::nll_rows(logs, target, w, ignore_index, "none");
  const Tensor even = where(counts, sum(logs * w, {1}), Scalar(0));
  const Tensor loss = add(at_target * (1 - smoothing), even, -smoothing / static_cast<double>(logs.size(1)));
  if (how == Reduction::none) return loss;
  if (how == Reduction::sum) return sum(loss);
  const Tensor share = index_select(w, 0, where(counts, target, Scalar(0)).to(DType::i64));
  return sum(loss) / sum(where(counts, share, Scalar(0)));
}

// -sum over the classes of wanted * log_softmax(x), weighted.
Tensor of_probabilities(const Tensor& x, const Tensor& target, const Tensor& weight, const std::string& reduction,
                        double smoothing) {
  const std::string_view op = "cross_entropy";
  const Reduction how = parse_reduction(reduction, op);
  check<ShapeError>(x.dim() > 0 && target.shape() == x.shape(), op, "probabilities are ", target,
                    ", wanted the shape of x, ", x);
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating logits, got ", x.dtype());
  const int64_t dim = class_dim(x), classes = x.size(dim);
  check<ShapeError>(classes > 0, op, "x is ", x, "; there must be a class");
  check_weight(weight, classes, op);
  const Tensor logs = log_softmax(detail::widened(x), dim);
  Tensor wanted = detail::widened(target);
  if (smoothing != 0) wanted = wanted * (1 - smoothing) + smoothing / static_cast<double>(classes);
  Tensor each = -(logs * wanted);
  if (weight.defined()) {
    Shape spread = Shape::filled(x.dim(), 1);
    spread[dim] = classes;
    each = each * weight.to(logs.dtype()).reshape(spread);
  }
  each = sum(each, {dim});
  if (how == Reduction::none) return each;
  return how == Reduction::sum ? sum(each) : sum(each) / static_cast<double>(x.numel() / classes);
}

Tensor cross_entropy_composed(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                              const std::string& reduction, double smoothing) {
  const std::string_view op = "cross_entropy";
  check(smoothing >= 0 && smoothing <= 1, op, "label_smoothing must be in [0, 1], got ", smoothing);
  if (is_floating(target.dtype())) return of_probabilities(x, target, weight, reduction, smoothing);
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating logits, got ", x.dtype());
  detail::check_targets_fit(x, target, op);
  const Tensor classes = classes_of(target, op);
  Tensor loss;
  if (!weight.defined() && detail::lies_in_planes(x)) {
    loss = detail::cross_entropy_planes(x, classes, ignore_index, reduction, smoothing);
    return reduction == "none" ? loss.reshape(target.shape()) : loss;
  }
  const Tensor rows = detail::class_last(x, target, op);
  if (weight.defined()) {
    check_weight(weight, rows.size(1), op);
    const Tensor logs = log_softmax(detail::widened(rows), 1);
    loss = smoothing == 0 ? detail::nll_rows(logs, classes, weight.to(logs.dtype()), ignore_index, reduction)
                          : weighted_rows(logs, classes, weight, ignore_index, smoothing, reduction, op);
  } else {
    loss = detail::cross_entropy_rows(rows, classes, ignore_index, reduction, smoothing);
  }
  return reduction == "none" ? loss.reshape(target.shape()) : loss;
}

Tensor nll_loss_composed(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                         const std::string& reduction) {
  const std::string_view op = "nll_loss";
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating log-probabilities, got ", x.dtype());
  const Tensor classes = classes_of(target, op);
  detail::check_targets_fit(x, target, op);
  check_weight(weight, x.size(class_dim(x)), op);
  // Where a row lies does not matter: one element of it is read.
  const Tensor rows = x.dim() == 1 ? x.unsqueeze(0) : x.dim() <= 3 ? x : x.flatten(2);
  const DType wide = statistic_dtype(x.dtype());
  const Tensor loss =
      detail::nll_rows(rows, classes, weight.defined() ? weight.to(wide) : weight, ignore_index, reduction);
  return reduction == "none" ? loss.reshape(target.shape()) : loss;
}

// ---- references ---------------------------------------------------------------------------------------------------

// [N, C, inner] of x and its strides by hand.
struct Layout {
  int64_t outer, classes, inner;
  explicit Layout(const Tensor& x) : outer(x.dim() > 1 ? x.size(0) : 1), classes(x.size(class_dim(x))), inner(1) {
    for (int64_t d = 2; d < x.dim(); ++d) inner *= x.size(d);
  }
  size_t at(int64_t n, int64_t c, int64_t i) const { return static_cast<size_t>((n * classes + c) * inner + i); }
};

// `wanted(row, class)` says how much of -log_softmax (or of -x) counts; `share(row)` is the row's divisor in a mean.
template <class Wanted, class Share>
Tensor class_loss_by_hand(const Tensor& x, bool logits, const std::string& reduction, Wanted&& wanted, Share&& share) {
  const std::vector<double> v = x.to_vector<double>();
  const Layout l(x);
  std::vector<double> each;
  double total = 0, divisor = 0;
  for (int64_t n = 0; n < l.outer; ++n)
    for (int64_t i = 0; i < l.inner; ++i) {
      double top = -INFINITY, mass = 0, loss = 0;
      for (int64_t c = 0; c < l.classes; ++c) top = std::max(top, v[l.at(n, c, i)]);
      for (int64_t c = 0; c < l.classes; ++c) mass += std::exp(v[l.at(n, c, i)] - top);
      const double lse = logits ? top + std::log(mass) : 0;
      const auto row = static_cast<size_t>(n * l.inner + i);
      for (int64_t c = 0; c < l.classes; ++c)
        if (const double w = wanted(row, c, l.at(n, c, i)); w != 0) loss += w * (lse - v[l.at(n, c, i)]);
      each.push_back(loss);
      total += loss;
      divisor += share(row);
    }
  if (reduction == "none") {
    Shape shape = x.shape();
    shape.erase(class_dim(x));
    return from_span<double>(each, shape);
  }
  return from_span<double>(std::vector<double>{reduction == "mean" ? total / divisor : total}, {});
}

std::vector<double> weights_by_hand(const Tensor& weight, const Tensor& x) {
  return weight.defined() ? weight.to_vector<double>()
                          : std::vector<double>(static_cast<size_t>(x.size(class_dim(x))), 1.0);
}

Tensor by_classes(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                  const std::string& reduction, double smoothing, bool logits) {
  const std::vector<double> w = weights_by_hand(weight, x);
  const std::vector<int64_t> t = target.to(DType::i64).to_vector<int64_t>();
  const double even = smoothing / static_cast<double>(w.size());
  return class_loss_by_hand(
      x, logits, reduction,
      [&](size_t row, int64_t c, size_t) {
        if (t[row] == ignore_index) return 0.0;
        return w[static_cast<size_t>(c)] * (even + (c == t[row] ? 1 - smoothing : 0));
      },
      [&](size_t row) { return t[row] == ignore_index ? 0.0 : w[static_cast<size_t>(t[row])]; });
}

Tensor cross_entropy_reference(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                               const std::string& reduction, double smoothing) {
  if (!is_floating(target.dtype())) return by_classes(x, target, weight, ignore_index, reduction, smoothing, true);
  const std::vector<double> w = weights_by_hand(weight, x), p = target.to_vector<double>();
  return class_loss_by_hand(
      x, true, reduction,
      [&](size_t, int64_t c, size_t at) {
        return w[static_cast<size_t>(c)] * (p[at] * (1 - smoothing) + smoothing / static_cast<double>(w.size()));
      },
      [](size_t) { return 1.0; });
}

Tensor nll_loss_reference(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                          const std::string& reduction) {
  return by_classes(x, target, weight, ignore_index, reduction, 0, false);
}

// ---- records ------------------------------------------------------------------------------------------------------

using CrossEntropy = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&, double)>;
const CrossEntropy cross_entropy_op{{
    .schema = "cross_entropy(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str "
              "reduction=\"mean\", float label_smoothing=0.0) -> Tensor",
    .doc = "-log softmax(input)[target] for logits input [N, C], [C] or [N, C, d1, ...] and integer targets of that "
           "shape without C; targets of ignore_index count nothing. With a floating target of input's shape "
           "(probabilities) it is -sum(target log softmax(input)) over the classes. label_smoothing e makes (1 - e) "
           "of the wanted distribution and spreads e evenly; weight [C] multiplies the classes. reduction is mean "
           "(over the weights of the targets that count; over all rows for probabilities), sum or none. The loss of "
           "bf16 and f16 logits is f32, since a mean over thousands of rows does not fit 8 bits (PyTorch rounds it). "
           "ShapeError, DTypeError, ValueError, IndexError for a target that is no class.",
    .example = "Tensor loss = cross_entropy(zeros({2, 4}), from_span<int64_t>(std::vector<int64_t>{1, 3}, {2})); "
               "assert(std::abs(loss.item() - std::log(4.0)) < 1e-6);",
    .composed = cross_entropy_composed,
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor&, int64_t, const std::string&, double) {
          return Cost{4.0 * x.numel(), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          const Tensor w = s.uniform({5}, 0.2, 2);
          s.add(s.tensor({4, 7}), s.integers({4}, 0, 7));
          s.add(s.tensor({6, 5}), s.integers({6}, 0, 5), w, 2).named("weights");
          s.add(s.tensor({6, 5}), s.integers({6}, 0, 5), w, 2, "none", 0.1).named("weights, each");
          s.add(s.tensor({2, 5, 3}), s.integers({2, 3}, 0, 5), w, -100, "sum", 0.2).named("further dimensions");
          s.add(s.tensor({2, 5, 2, 2}), s.integers({2, 2, 2}, 0, 5), none, -100, "none");
          s.add(s.tensor({5}), s.integers({}, 0, 5), w, -100, "mean").named("one row");
          s.add(s.tensor({4, 5}), s.integers({4}, 0, 5, DType::u8), none, -100, "mean").named("u8 targets");
          s.add(s.tensor({4, 5}), s.uniform({4, 5}, 0, 1), none, -100, "mean").named("probabilities");
          s.add(s.tensor({2, 5, 3}), s.uniform({2, 5, 3}, 0, 1), w, -100, "none", 0.1).named("weighted probabilities");
          s.add(s.tensor({5}), s.uniform({5}, 0, 1), none, -100, "sum").named("one row of probabilities");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C", s.tensor({2, 3}), s.integers({3}, 0, 3));
          s.invalid<ShapeError>("wanted [3]", s.tensor({2, 3}), s.integers({2}, 0, 3), s.uniform({4}, 0, 1));
          s.invalid<ShapeError>("wanted [3]", s.tensor({2, 3}), s.uniform({2, 3}, 0, 1), s.uniform({2}, 0, 1));
          s.invalid<ShapeError>("probabilities", s.tensor({2, 3}), s.tensor({2}, DType::f32));
          s.invalid<DTypeError>("integer targets", s.tensor({2, 3}), s.boolean({2}));
          s.invalid<ValueError>("reduction", s.tensor({2, 3}), s.integers({2}, 0, 3), none, -100, "median");
          s.invalid<ValueError>("label_smoothing", s.tensor({2, 3}), s.integers({2}, 0, 3), none, -100, "mean", 1.5);
        },
    .reference = cross_entropy_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&)> nll_loss_op{{
    .schema = "nll_loss(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str "
              "reduction=\"mean\") -> Tensor",
    .doc =
        "-input[target] for log-probabilities input [N, C], [C] or [N, C, d1, ...] and integer targets of that shape "
        "without C; targets of ignore_index count nothing. weight [C] multiplies the classes; reduction is mean "
        "(over the weights of the targets that count), sum or none. ShapeError, DTypeError, ValueError, IndexError "
        "for a target that is no class.",
    .example =
        "assert(nll_loss(full({2, 3}, -1.5), from_span<int64_t>(std::vector<int64_t>{0, 2}, {2})).item() == 1.5);",
    .composed = nll_loss_composed,
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor& target, const Tensor&, int64_t, const std::string&) {
          return Cost{1.0 * target.numel(), static_cast<double>(target.nbytes() + target.numel() * size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          const Tensor w = s.uniform({5}, 0.2, 2);
          s.add(s.tensor({4, 7}), s.integers({4}, 0, 7));
          s.add(s.tensor({6, 5}), s.integers({6}, 0, 5), w, 1);
          s.add(s.tensor({2, 5, 3}), s.integers({2, 3}, 0, 5), w, 1, "none").named("further dimensions");
          s.add(s.tensor({2, 5, 3}), s.integers({2, 3}, 0, 5, DType::i32), std::nullopt, 1, "sum");
          s.add(s.tensor({5}), s.integers({}, 0, 5), w, -100, "none").named("one row");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C", s.tensor({2, 3}), s.integers({3}, 0, 3));
          s.invalid<ShapeError>("wanted [3]", s.tensor({2, 3}), s.integers({2}, 0, 3), s.uniform({2}, 0, 1));
          s.invalid<DTypeError>("integer targets", s.tensor({2, 3}), s.tensor({2}, DType::f32));
        },
    .reference = nll_loss_reference,
}};

}  // namespace

Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& o) {
  return cross_entropy_op(x, target, o.weight, o.ignore_index, o.reduction, o.label_smoothing);
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                const std::string& reduction) {
  return nll_loss_op(x, target, weight, ignore_index, reduction);
}

}  // namespace strata
