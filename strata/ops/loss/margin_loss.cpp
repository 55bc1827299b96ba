// Losses with margins.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/multi_margin_kernel.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using by_hand::Numbers;
using detail::reduced;
using detail::widened;

void check_floating(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating arguments, got ", x.dtype());
}

const Op<Tensor(const Tensor&, const Tensor&, double, const std::string&)> hinge_embedding_loss_op{{
    .schema = "hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, str reduction=\"mean\") -> Tensor",
    .doc = "input where target is 1, max(0, margin - input) where it is -1; averaged (mean), added (sum) or as it is "
           "(none). The arguments broadcast and promote.",
    .example = "assert(hinge_embedding_loss(full({1}, 0.25), full({1}, -1.0)).item() == 0.75);",
    .composed =
        [](const Tensor& input, const Tensor& target, double margin, const std::string& r) {
          check_floating(input, "hinge_embedding_loss");
          const Tensor x = widened(input);
          const Tensor short_of = where(target == 1, Scalar(0.0), clamp_min(margin - x, 0));
          return reduced(short_of + where(target == -1, Scalar(0.0), x), r, result_type(input, target),
                         "hinge_embedding_loss");
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor sign = s.integers({3, 5}, 0, 2, s.dtype()) * 2 - 1;
          s.add(s.off_grid({3, 5}), sign);
          s.add(s.off_grid({3, 5}), sign, 2.0, "none");
          s.add(s.off_grid({2, 5}), s.integers({5}, 0, 2) * 2 - 1, 1.0, "sum");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), 1.0, "median");
        },
    .reference =
        [](const Tensor& x, const Tensor& t, double margin, const std::string& r) {
          return by_hand::each(
              r, [&](double a, double b) { return (b != 1 ? std::max(0.0, margin - a) : 0) + (b != -1 ? a : 0); }, x,
              t);
        },
}};

using Ranking = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, double, const std::string&)>;
const Ranking margin_ranking_loss_op{{
    .schema = "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, str "
              "reduction=\"mean\") -> Tensor",
    .doc = "max(0, -target (input1 - input2) + margin): target 1 says that input1 ranks higher, -1 that input2 does. "
           "Averaged (mean), added (sum) or as it is (none). The arguments broadcast and promote; ShapeError unless "
           "they have one number of dimensions.",
    .example = "assert(margin_ranking_loss(full({1}, 1.0), full({1}, 3.0), ones({1})).item() == 2);",
    .composed =
        [](const Tensor& a, const Tensor& b, const Tensor& t, double margin, const std::string& r) {
          const std::string_view op = "margin_ranking_loss";
          check<ShapeError>(a.dim() == t.dim() && b.dim() == t.dim(), op, "input1 is ", a, ", input2 is ", b,
                            ", target is ", t, ": they must have one number of dimensions");
          check_floating(a, op);
          check_floating(b, op);
          const Tensor each = clamp_min(-widened(t) * (widened(a) - widened(b)) + margin, 0);
          return reduced(each, r, promote_types(result_type(a, b), t.dtype()), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor sign = s.integers({3, 5}, 0, 2, s.dtype()) * 2 - 1, zero = s.uniform({3, 5}, -0.05, 0.05);
          s.add(s.off_grid({3, 5}), zero, sign);
          s.add(s.off_grid({3, 5}), zero, sign, 0.5, "none");
          s.add(s.off_grid({2, 5}), s.uniform({1, 5}, -0.05, 0.05), s.integers({2, 1}, 0, 2, s.dtype()) * 2 - 1, 0.5,
                "sum");
          s.invalid<ShapeError>("number of dimensions", s.tensor({3, 1}), s.tensor({3, 1}), s.tensor({3}));
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), s.tensor({3}), 1.0, "median");
        },
    .reference =
        [](const Tensor& a, const Tensor& b, const Tensor& t, double margin, const std::string& r) {
          return by_hand::each(
              r, [&](double x, double y, double s) { return std::max(0.0, -s * (x - y) + margin); }, a, b, t);
        },
}};

// ---- classes ------------------------------------------------------------------------------------------------------

void check_rows(const Tensor& input, std::string_view op) {
  check<ShapeError>((input.dim() == 1 || input.dim() == 2) && input.size(-1) > 0, op, "input is ", input,
                    ", wanted [N, C] or [C] with at least one class");
  check_floating(input, op);
}
// On the CPU: on a device what indexes with them says so.
void check_classes(const Tensor& target, int64_t least, int64_t classes, std::string_view op) {
  if (!target.device().is_cpu() || target.numel() == 0) return;
  const auto low = amin(target).item<int64_t>(), high = amax(target).item<int64_t>();
  check<IndexError>(low >= least && high < classes, op, "targets from ", low, " to ", high, " are not all in [", least,
                    ", ", classes, ")");
}
void check_indices(const Tensor& target, std::string_view op) {
  check<DTypeError>(!is_floating(target.dtype()) && target.dtype() != DType::boolean, op,
                    "needs integer targets (class indices), got ", target.dtype());
}

using MultiMargin = Op<Tensor(const Tensor&, const Tensor&, int64_t, double, const Tensor&, const std::string&)>;
const MultiMargin multi_margin_loss_op{{
    .schema = "multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? weight=None, str "
              "reduction=\"mean\") -> Tensor",
    .doc =
        "The sum over the other classes c of max(0, margin - input[target] + input[c])^p over the number of classes, "
        "for scores input [N, C] or [C], integer targets [N] or one, and p 1 or 2; weight [C] multiplies the loss "
        "of a target class. Averaged over the rows (mean), added (sum) or as it is (none). ShapeError, DTypeError, "
        "ValueError, IndexError for a target that is no class.",
    .example = "assert(multi_margin_loss(zeros({1, 4}), zeros({1}, DType::i64)).item() == 0.75);",
    .composed =
        [](const Tensor& input, const Tensor& target, int64_t p, double margin, const Tensor& weight,
           const std::string& r) {
          const std::string_view op = "multi_margin_loss";
          check_rows(input, op);
          check_indices(target, op);
          check(p == 1 || p == 2, op, "p must be 1 or 2, got ", p);
          check<ShapeError>(target.numel() == (input.dim() == 1 ? 1 : input.size(0)) && target.dim() <= 1, op,
                            "input is ", input, ", target is ", target, ", wanted a class for each row");
          const int64_t classes = input.size(-1);
          check<ShapeError>(!weight.defined() || (weight.dim() == 1 && weight.size(0) == classes), op, "weight is ",
                            weight, ", wanted [", classes, "]");
          check_classes(target, 0, classes, op);
          const Tensor x = widened(input).reshape({target.numel(), classes});
          const Tensor t = target.to(DType::i64).reshape({target.numel()});
          Tensor each = detail::multi_margin_rows(x, t, p, margin);
          if (weight.defined()) each = each * index_select(widened(weight), 0, t);
          return reduced(r == "none" ? each.reshape(target.shape()) : each, r, input.dtype(), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.integers({4}, 0, 5), 1, 6.0);
          s.add(s.tensor({4, 5}), s.integers({4}, 0, 5), 2, 6.0, s.uniform({5}, 0.2, 2), "none");
          s.add(s.tensor({5}), s.integers({}, 0, 5), 1, 6.0, std::nullopt, "none").named("one row");
          s.add(s.tensor({4, 5}), s.integers({4}, 0, 5)).not_differentiable();
          s.invalid<ValueError>("p must be", s.tensor({4, 5}), s.integers({4}, 0, 5), 3);
          s.invalid<ShapeError>("a class for each row", s.tensor({4, 5}), s.integers({3}, 0, 5));
          s.invalid<ShapeError>("weight is", s.tensor({4, 5}), s.integers({4}, 0, 5), 1, 1.0, s.tensor({4}));
          s.invalid<IndexError>("targets", s.tensor({2, 3}), s.integers({2}, 3, 4));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, int64_t p, double margin, const Tensor& weight,
           const std::string& r) {
          const Numbers v = x.to_vector<double>(), w = by_hand::numbers(weight, {x.size(-1)});
          const std::vector<int64_t> t = target.to(DType::i64).to_vector<int64_t>();
          const auto n = static_cast<size_t>(x.size(-1));
          Numbers each(t.size());
          for (size_t i = 0; i < t.size(); ++i)
            for (size_t c = 0; c < n; ++c) {
              const auto at = static_cast<size_t>(t[i]);
              if (c != at)
                each[i] += w[at] *
                           std::pow(std::max(0.0, margin - v[i * n + at] + v[i * n + c]), static_cast<double>(p)) /
                           static_cast<double>(n);
            }
          return by_hand::reduced(each, target.shape(), r);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> multilabel_margin_loss_op{{
    .schema = "multilabel_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor",
    .doc =
        "The sum over pairs of a target class t and another class c of max(0, 1 - input[t] + input[c]), over the "
        "number of classes, for scores input [N, C] or [C]; target, of its shape, holds class indices and ends where "
        "-1 stands. Averaged over the rows (mean), added (sum) or as it is (none). ShapeError, DTypeError, "
        "IndexError for a target that is no class.",
    .example = "assert(multilabel_margin_loss(zeros({2}), from_span<int64_t>(std::vector<int64_t>{0, -1}, {2})).item() "
               "== 0.5);",
    .composed =
        [](const Tensor& input, const Tensor& target, const std::string& r) {
          const std::string_view op = "multilabel_margin_loss";
          check_rows(input, op);
          check_indices(target, op);
          check<ShapeError>(target.shape() == input.shape(), op, "input is ", input, ", target is ", target,
                            ": they must have the same shape");
          const int64_t classes = input.size(-1);
          check_classes(target, -1, classes, op);
          const Tensor x = widened(input).reshape({-1, classes}), t = target.to(DType::i64).reshape({-1, classes});
          const bool single = r == "none" && input.dim() == 1;
          if (classes <= kMostPairedClasses) {
            const Tensor rows = detail::multilabel_margin_rows(x, t) / static_cast<double>(classes);
            return reduced(single ? rows.reshape({}) : rows, r, input.dtype(), op);
          }
          const Tensor used = cumsum((t < 0).to(DType::i64), 1) == 0, at = where(used, t, Scalar(0)).to(DType::i64);
          const Tensor named = scatter_add(zeros_like(t), 1, at, used.to(DType::i64)) > 0;
          // Of the other classes, best first, those above target - 1 are the first ones: their sum is a running one.
          const Scalar infinite(static_cast<double>(INFINITY));
          const Tensor falling = sort_values(where(named, infinite, -x), 1);
          const Tensor sums = cumsum(where(falling == infinite, Scalar(0.0), -falling), 1);
          const Tensor bound = gather(x, 1, at) - 1;
          const Tensor count = searchsorted(falling.detach(), -bound.detach());
          const Tensor above = gather(sums, 1, clamp_min(count - 1, 0)) - count.to(x.dtype()) * bound;
          // NaN, which no order counts, is added.
          const Tensor odd = sum(where(isnan(x), x, Scalar(0.0)), {1});
          const Tensor rows =
              (sum(where(logical_and(used, count > 0), above, Scalar(0.0)), {1}) + odd) / static_cast<double>(classes);
          return reduced(single ? rows.reshape({}) : rows, r, input.dtype(), op);
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor&, const std::string&) {
          const double classes = x.dim() > 0 ? static_cast<double>(x.size(-1)) : 0;
          return Cost{static_cast<double>(x.numel()) * (8 + 2 * std::log2(classes + 1)),
                      static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.integers({3, 4}, -1, 4)).not_differentiable();
          s.add(s.uniform({3, 4}, -0.4, 0.4), s.integers({3, 4}, -1, 4), "none");
          const Tensor few = s.integers({1, 4100}, 0, 4100);
          few.slice(1, 3, 4).fill_(-1);
          s.add(s.uniform({1, 4100}, -0.4, 0.4), few, "sum").not_differentiable().named("more classes than pairs are");
          s.invalid<ShapeError>("same shape", s.tensor({3, 4}), s.integers({3}, 0, 3));
          s.invalid<IndexError>("targets", s.tensor({2, 3}), s.integers({2, 3}, 3, 4));
          s.invalid<DTypeError>("integer", s.tensor({2, 3}), s.tensor({2, 3}, DType::f32));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, const std::string& r) {
          const Numbers v = x.to_vector<double>();
          const std::vector<int64_t> t = target.to(DType::i64).to_vector<int64_t>();
          const auto n = static_cast<size_t>(x.size(-1));
          const size_t rows = v.size() / n;
          Numbers each(rows);
          for (size_t i = 0; i < rows; ++i) {
            std::vector<size_t> labels;
            std::vector<char> named(n);
            for (size_t k = 0; k < n && t[i * n + k] >= 0; ++k) {
              labels.push_back(static_cast<size_t>(t[i * n + k]));
              named[labels.back()] = 1;
            }
            for (const size_t label : labels)
              for (size_t c = 0; c < n; ++c)
                if (!named[c]) each[i] += std::max(0.0, 1 - v[i * n + label] + v[i * n + c]) / static_cast<double>(n);
          }
          return by_hand::reduced(each, x.dim() == 1 ? Shape{} : Shape{static_cast<int64_t>(rows)}, r);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::string&)> multilabel_soft_margin_loss_op{{
    .schema =
        "multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\") -> "
        "Tensor",
    .doc =
        "-(t log sigmoid(x) + (1 - t) log sigmoid(-x)) for scores x (input) [.., C] and targets t of 0 and 1, the mean "
        "over the classes; weight [C] multiplies them. Averaged over the rows (mean), added (sum) or as it is "
        "(none). The arguments broadcast and promote. ShapeError.",
    .example = "assert(std::abs(multilabel_soft_margin_loss(zeros({1, 3}), ones({1, 3})).item() - std::log(2.0)) < "
               "1e-6);",
    .composed =
        [](const Tensor& input, const Tensor& target, const Tensor& weight, const std::string& r) {
          const std::string_view op = "multilabel_soft_margin_loss";
          check<ShapeError>(input.dim() > 0, op, "input is ", input, ", wanted [.., C]");
          check_floating(input, op);
          const Tensor x = widened(input), t = widened(target);
          Tensor each = -(t * logsigmoid(x) + (1 - t) * logsigmoid(-x));
          if (weight.defined()) each = each * widened(weight);
          return reduced(mean(each, {-1}), r, result_type(input, target), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0, 1));
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0, 1), s.uniform({5}, 0.2, 2), "none");
          s.add(s.tensor({5}), s.uniform({5}, 0, 1), std::nullopt, "sum");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), std::nullopt, "median");
          s.invalid<ShapeError>("wanted [.., C]", s.tensor({}), s.tensor({}));
        },
    .reference =
        [](const Tensor& x, const Tensor& t, const Tensor& weight, const std::string& r) {
          const Tensor each = by_hand::each(
              "none",
              [](double a, double b, double w) {
                const auto minus_log = [](double z) { return std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z))); };
                return w * (b * minus_log(a) + (1 - b) * minus_log(-a));
              },
              x, t, weight);
          const Numbers v = each.to_vector<double>();
          const auto n = static_cast<size_t>(each.size(-1));
          Shape lead = each.shape();
          lead.erase(lead.size() - 1);
          Numbers rows(static_cast<size_t>(lead.product()));
          for (size_t i = 0; i < v.size(); ++i) rows[i / n] += v[i] / static_cast<double>(n);
          return by_hand::reduced(rows, lead, r);
        },
}};

}  // namespace

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin, const std::string& reduction) {
  return hinge_embedding_loss_op(input, target, margin, reduction);
}
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                           const std::string& reduction) {
  return margin_ranking_loss_op(input1, input2, target, margin, reduction);
}
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin, const Tensor& weight,
                         const std::string& reduction) {
  return multi_margin_loss_op(input, target, p, margin, weight, reduction);
}
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction) {
  return multilabel_margin_loss_op(input, target, reduction);
}
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                   const std::string& reduction) {
  return multilabel_soft_margin_loss_op(input, target, weight, reduction);
}

}  // namespace strata
