// The fused record of cross entropy over planes of classes: logits [N, C, ..] as they lie, of which no copy is made.

#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/lse_gradient_inl.h"
#include "strata/ops/loss/planes_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Triple = std::tuple<Tensor, Tensor, Tensor>;

void check_planes(const Tensor& x, const Tensor& target, double smoothing, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating logits, got ", x.dtype());
  check<DTypeError>(target.dtype() == DType::i64, op, "needs i64 targets (class indices), got ", target.dtype());
  check<ShapeError>(x.dim() == 3 && target.shape() == Shape({x.shape()[0], x.shape()[2]}), op, "x is ", x,
                    ", target is ", target, ", wanted [N, C, S] and [N, S]");
  check<ShapeError>(x.shape()[1] > 0, op, "x is ", x, "; there must be a class");
  check(smoothing >= 0 && smoothing <= 1, op, "label_smoothing must be in [0, 1], got ", smoothing);
}

PlanesCall describe_call(const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                         double smoothing) {
  PlanesCall c;
  c.rows.dtype = x.dtype();
  c.rows.rows = target.numel();
  c.rows.classes = x.shape()[1];
  c.rows.ignore_index = ignore_index;
  c.rows.smoothing = smoothing;
  c.rows.reduction = parse_reduction(reduction, "cross_entropy");
  c.rows.x = x.raw_data();
  c.rows.target = static_cast<const int64_t*>(target.raw_data());
  c.inner = x.shape()[2];
  return c;
}

// [N S, C] from [N, C, S].
Tensor as_rows(const Tensor& x) {
  return permute(x, {0, 2, 1}).contiguous().view({x.shape()[0] * x.shape()[2], x.shape()[1]});
}

// On the processor rows are turned, in memory that lasts as long as the call.
void forward_by_rows(Tensor& loss, Tensor& lse, Tensor& share, const Tensor& x, const Tensor& target, PlanesCall c) {
  const Tensor rows = as_rows(x);
  c.rows.x = rows.raw_data();
  c.rows.loss = loss.raw_data();
  c.rows.lse = lse.raw_data();
  cross_entropy_cpu(c.rows);
  if (c.rows.reduction != Reduction::mean) return void(share.fill_(1));
  share.fill_(1.0 / static_cast<double>(sum(target != c.rows.ignore_index).item<int64_t>()));
}

using BackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                                 const std::string&, double);

const Op<BackwardSignature> cross_entropy_planes_backward_op{{
    .schema = "cross_entropy_planes_backward(Tensor gloss, Tensor x, Tensor target, Tensor lse, Tensor share, int "
              "ignore_index, str reduction, float label_smoothing) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "The gradient of cross_entropy_planes for x [N, C, S], in one pass: (exp(x - lse) - wanted distribution) "
           "times share and the gradient gloss of the loss, 0 where the target is ignored.",
    .infer =
        [](const Tensor& gloss, const Tensor& x, const Tensor& target, const Tensor& lse, const Tensor& share, int64_t,
           const std::string& reduction, double smoothing) {
          const std::string_view op = "cross_entropy_planes_backward";
          check_planes(x, target, smoothing, op);
          const bool none = parse_reduction(reduction, op) == Reduction::none;
          check<ShapeError>(none ? gloss.shape() == target.shape() : gloss.numel() == 1, op, "gloss is ", gloss);
          check<ShapeError>(lse.shape() == target.shape() && share.numel() == 1, op, "lse is ", lse, ", share ", share,
                            ", target is ", target);
          const DType wide = statistic_dtype(x.dtype());
          check<DTypeError>(gloss.dtype() == wide && lse.dtype() == wide && share.dtype() == wide, op,
                            "gloss, lse and share must be ", wide);
          return like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& gloss, const Tensor& x, const Tensor& target,
                                 const Tensor& lse, const Tensor& share, int64_t ignore_index,
                                 const std::string& reduction, double smoothing) {
      const Tensor tc = target.contiguous(), lc = lse.contiguous();
      PlanesCall c = describe_call(x, tc, ignore_index, reduction, smoothing);
      c.rows.lse = lc.raw_data();
      if constexpr (on.cuda) {
        const Tensor xc = x.contiguous(), gc = gloss.contiguous(), sc = share.contiguous();
        c.rows.x = xc.raw_data();
        c.rows.grad_loss = gc.raw_data();
        c.rows.grad_x = gx.raw_data();
        c.share = sc.raw_data();
        cross_entropy_planes_backward_cuda(c);
      } else {
        const Tensor xc = as_rows(x), gc = (gloss * share.reshape({})).contiguous(), rows = empty_like(xc);
        if (c.rows.reduction == Reduction::mean)
          c.rows.reduction = Reduction::sum;  // the share says the number of rows
        c.rows.x = xc.raw_data();
        c.rows.grad_loss = gc.raw_data();
        c.rows.grad_x = rows.raw_data();
        cross_entropy_backward_cpu(c.rows);
        gx.copy_(permute(rows.view({x.shape()[0], x.shape()[2], x.shape()[1]}), {0, 2, 1}));
      }
    }),
    .composed =
        [](const Tensor& gloss, const Tensor& x, const Tensor& target, const Tensor& lse, const Tensor& share,
           int64_t ignore_index, const std::string&, double smoothing) {
          const Tensor p = add(x.to(lse.dtype()), lse.unsqueeze(1), -1).exp();
          const int64_t n = x.shape()[0], classes = x.shape()[1], inner = x.shape()[2];
          const Tensor at = detail::at_targets(target.reshape({target.numel()}), classes, p.dtype());
          const Tensor w = permute(at.reshape({n, inner, classes}), {0, 2, 1}) * (1 - smoothing) +
                           smoothing / static_cast<double>(classes);
          const Tensor g = (target != ignore_index).to(p.dtype()) * share * gloss;
          return (add(p, w, -1) * g.unsqueeze(1)).to(x.dtype());
        },
    .cost =
        [](const Tensor&, const Tensor& x, const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&,
           double) {
          return Cost{3.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({}, t), s.tensor({2, 7, 3}), s.integers({2, 3}, 0, 7), s.uniform({2, 3}, 2, 4, t),
                full({}, 1.0 / 6, t), -100, "mean", 0.0);
          s.add(s.tensor({3, 5}, t), s.tensor({3, 9, 5}), s.integers({3, 5}, 0, 9), s.uniform({3, 5}, 3, 5, t),
                full({}, 1.0, t), 3, "none", 0.1);
          s.invalid<IndexError>("not one of", s.tensor({}, t), s.tensor({1, 7, 2}), s.integers({1, 2}, 7, 8),
                                s.uniform({1, 2}, 2, 4, t), full({}, 0.5, t), -100, "mean", 0.0);
        },
}};

using ForwardSignature = Triple(const Tensor&, const Tensor&, int64_t, const std::string&, double);

const Op<ForwardSignature> cross_entropy_planes_op{{
    .schema = "cross_entropy_planes(Tensor x, Tensor target, int ignore_index=-100, str reduction=\"mean\", float "
              "label_smoothing=0.0) -> (Tensor loss, Tensor lse, Tensor share)",
    .shard = "whole",
    .internal = true,
    .doc =
        "cross_entropy of logits x [N, C, S] and class indices [N, S], read as they lie. lse [N, S] = "
        "log(sum(exp(x))) over the classes and share, 1 over the number of targets that count where the mean is "
        "wanted, else 1, are kept for the gradient. They and the loss are f32 (f64 for f64). IndexError for a target "
        "that is no class.",
    .infer =
        [](const Tensor& x, const Tensor& target, int64_t, const std::string& reduction, double smoothing) {
          check_planes(x, target, smoothing, "cross_entropy");
          const bool none = parse_reduction(reduction, "cross_entropy") == Reduction::none;
          const TensorMeta rows{target.shape(), statistic_dtype(x.dtype()), x.device(), std::nullopt};
          return std::array<TensorMeta, 3>{none ? rows : rows.with_shape({}), rows, rows.with_shape({})};
        },
    .kernels =
        on_each_device([](auto on, Tensor& loss, Tensor& lse, Tensor& share, const Tensor& x, const Tensor& target,
                          int64_t ignore_index, const std::string& reduction, double smoothing) {
          const Tensor tc = target.contiguous();
          if constexpr (on.cuda) {
            const Tensor xc = x.contiguous();
            PlanesCall c = describe_call(xc, tc, ignore_index, reduction, smoothing);
            c.rows.loss = loss.raw_data();
            c.rows.lse = lse.raw_data();
            c.share = share.raw_data();
            cross_entropy_planes_cuda(c);
          } else {
            forward_by_rows(loss, lse, share, x, tc, describe_call(x, tc, ignore_index, reduction, smoothing));
          }
        }),
    .saves = "x target lse share",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
           double smoothing) {
          Tensor gx;
          if (b.has_gy(0))
            gx = cross_entropy_planes_backward_op(b.gy(0), x, target, b.y(1), b.y(2), ignore_index, reduction,
                                                  smoothing);
          if (b.has_gy(1)) gx = with_lse_gradient(gx, x, b.y(1), b.gy(1));
          b.set(0, gx);
        },
    .cost =
        [](const Tensor& x, const Tensor&, int64_t, const std::string&, double) {
          return Cost{4.0 * x.numel(), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 7, 3}), s.integers({2, 3}, 0, 7));
          s.add(s.tensor({3, 10, 5}), s.integers({3, 5}, 0, 10), -100, "sum", 0.1).named("smoothed");
          s.add(s.tensor({1, 3, 300}), s.integers({1, 300}, 0, 3), 1, "none").named("ignored, more than a block");
          s.add(s.tensor({2, 3, 300}), s.integers({2, 300}, 0, 3), 1).named("mean of those that count");
          s.add(s.uniform({3, 9, 2}, 80, 90), s.integers({3, 2}, 0, 9), -100, "none", 0.0).named("large values");
          s.add(s.tensor({2, 4, 0}), s.integers({2, 0}, 0, 4), -100, "sum").named("no rows");
          s.invalid<IndexError>("not one of", s.tensor({1, 3, 2}), s.integers({1, 2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C, S]", s.tensor({2, 3, 4}), s.integers({2, 3}, 0, 3));
          s.invalid<DTypeError>("i64", s.tensor({2, 3, 1}), s.tensor({2, 1}, DType::f32));
          s.invalid<ValueError>("reduction", s.tensor({2, 3, 1}), s.integers({2, 1}, 0, 3), -100, "median");
          s.invalid<ValueError>("label_smoothing", s.tensor({2, 3, 1}), s.integers({2, 1}, 0, 3), -100, "mean", 1.5);
          if (s.benchmarking()) s.bench(s.tensor({8, 21, 65536}), s.integers({8, 65536}, 0, 21));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
           double smoothing) {
          const std::vector<double> v = x.to_vector<double>();
          const std::vector<int64_t> t = target.to_vector<int64_t>();
          const int64_t classes = x.shape()[1], inner = x.shape()[2];
          std::vector<double> loss(t.size()), lse(t.size());
          double total = 0, count = 0;
          for (size_t r = 0; r < t.size(); ++r) {
            const auto row = static_cast<int64_t>(r);
            const auto at = [&](int64_t c) {
              return v[static_cast<size_t>((row / inner * classes + c) * inner + row % inner)];
            };
            double top = at(0), sum = 0, even = 0;
            for (int64_t c = 0; c < classes; ++c) top = std::max(top, at(c));
            for (int64_t c = 0; c < classes; ++c) sum += std::exp(at(c) - top);
            lse[r] = top + std::log(sum);
            if (t[r] == ignore_index) continue;
            for (int64_t c = 0; c < classes; ++c) even += (lse[r] - at(c)) / static_cast<double>(classes);
            loss[r] = (1 - smoothing) * (lse[r] - at(t[r])) + smoothing * even;
            total += loss[r];
            count += 1;
          }
          const bool mean = parse_reduction(reduction, "cross_entropy") == Reduction::mean;
          const bool none = parse_reduction(reduction, "cross_entropy") == Reduction::none;
          const Tensor one = from_span<double>(std::vector<double>{mean ? total / count : total}, {});
          return Triple(none ? from_span<double>(loss, target.shape()) : one, from_span<double>(lse, target.shape()),
                        from_span<double>(std::vector<double>{mean ? 1 / count : 1}, {}));
        },
}};

}  // namespace

bool detail::lies_in_planes(const Tensor& x) {
  constexpr int64_t kLeastRows = 8192;
  return x.dim() > 2 && x.is_contiguous() && x.shape()[0] > 0 && x.numel() > x.shape()[0] * x.shape()[1] &&
         x.numel() / x.shape()[1] >= kLeastRows;
}
Tensor detail::cross_entropy_planes(const Tensor& x, const Tensor& target, int64_t ignore_index,
                                    const std::string& reduction, double smoothing) {
  const int64_t n = x.shape()[0];
  return std::get<0>(cross_entropy_planes_op(x.reshape({n, x.shape()[1], -1}), target.reshape({n, -1}), ignore_index,
                                             reduction, smoothing));
}

}  // namespace strata
