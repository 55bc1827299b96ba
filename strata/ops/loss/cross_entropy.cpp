// The fused record that cross entropy is made of.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/loss/class_sharding_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/lse_gradient_inl.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

void check_inputs(const Tensor& x, const Tensor& target, double smoothing, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating logits, got ", x.dtype());
  check<DTypeError>(target.dtype() == DType::i64, op, "needs i64 targets (class indices), got ", target.dtype());
  check<ShapeError>(x.dim() == 2 && target.dim() == 1 && x.shape()[0] == target.shape()[0], op, "x is ", x,
                    ", target is ", target, ", wanted [N, C] and [N]");
  check<ShapeError>(x.shape()[1] > 0, op, "x is ", x, "; there must be a class");
  check(smoothing >= 0 && smoothing <= 1, op, "label_smoothing must be in [0, 1], got ", smoothing);
}

CrossEntropyCall describe_call(const Tensor& x, const Tensor& target, int64_t ignore_index,
                               const std::string& reduction, double smoothing) {
  CrossEntropyCall c;
  c.dtype = x.dtype();
  c.rows = x.shape()[0];
  c.classes = x.shape()[1];
  c.ignore_index = ignore_index;
  c.smoothing = smoothing;
  c.reduction = parse_reduction(reduction, "cross_entropy");
  c.x = x.raw_data();
  c.target = static_cast<const int64_t*>(target.raw_data());
  return c;
}

// What the gradient of the loss is multiplied by in each row: [N, 1], in x's arithmetic dtype.
Tensor row_scale(const Tensor& gloss, const Tensor& target, int64_t ignore_index, const std::string& reduction) {
  const bool mean = parse_reduction(reduction, "cross_entropy") == Reduction::mean;
  const Tensor share = detail::row_shares(target, ignore_index, mean, gloss.dtype());
  return share * (gloss.dim() == 1 ? gloss.unsqueeze(1) : gloss);
}

// The wanted distribution [N, C].
Tensor wanted_distribution(const Tensor& target, int64_t classes, double smoothing, DType dtype) {
  return detail::at_targets(target, classes, dtype) * (1 - smoothing) + smoothing / static_cast<double>(classes);
}

using BackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                                 const std::string&, double);

const Op<BackwardSignature> cross_entropy_backward_op{{
    .schema =
        "cross_entropy_backward(Tensor gloss, Tensor x, Tensor target, Tensor lse, int ignore_index, str reduction, "
        "float label_smoothing) -> Tensor",
    .shard = detail::shard_cross_entropy,
    .internal = true,
    .doc = "The gradient of cross_entropy for x [N, C], in one pass: (exp(x - lse) - wanted distribution) times the "
           "gradient "
           "gloss of the loss, 0 in ignored rows.",
    .infer =
        [](const Tensor& gloss, const Tensor& x, const Tensor& target, const Tensor& lse, int64_t,
           const std::string& reduction, double smoothing) {
          const std::string_view op = "cross_entropy_backward";
          check_inputs(x, target, smoothing, op);
          const bool none = parse_reduction(reduction, op) == Reduction::none;
          check<ShapeError>(none ? gloss.shape() == target.shape() : gloss.numel() == 1, op, "gloss is ", gloss);
          check<ShapeError>(lse.shape() == target.shape(), op, "lse is ", lse, ", target is ", target);
          check<DTypeError>(gloss.dtype() == statistic_dtype(x.dtype()) && lse.dtype() == gloss.dtype(), op,
                            "gloss and lse must be ", statistic_dtype(x.dtype()));
          return like(x);
        },
    .kernels =
        on_each_device([](auto on, Tensor& gx, const Tensor& gloss, const Tensor& x, const Tensor& target,
                          const Tensor& lse, int64_t ignore_index, const std::string& reduction, double smoothing) {
          const Tensor xc = x.contiguous(), tc = target.contiguous(), lc = lse.contiguous(), gc = gloss.contiguous();
          CrossEntropyCall c = describe_call(xc, tc, ignore_index, reduction, smoothing);
          c.lse = lc.raw_data();
          c.grad_loss = gc.raw_data();
          c.grad_x = gx.raw_data();
          if constexpr (on.cuda)
            cross_entropy_backward_cuda(c);
          else
            cross_entropy_backward_cpu(c);
        }),
    .composed =
        [](const Tensor& gloss, const Tensor& x, const Tensor& target, const Tensor& lse, int64_t ignore_index,
           const std::string& reduction, double smoothing) {
          const Tensor p = add(x.to(lse.dtype()), lse.unsqueeze(1), -1).exp();
          const Tensor w = wanted_distribution(target, x.shape()[1], smoothing, p.dtype());
          return (add(p, w, -1) * row_scale(gloss, target, ignore_index, reduction)).to(x.dtype());
        },
    .cost =
        [](const Tensor&, const Tensor& x, const Tensor&, const Tensor&, int64_t, const std::string&, double) {
          return Cost{3.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({}, t), s.tensor({4, 7}), s.integers({4}, 0, 7), s.uniform({4}, 2, 4, t), -100, "mean", 0.0);
          s.add(s.tensor({4}, t), s.tensor({4, 40}), s.integers({4}, 0, 40), s.uniform({4}, 3, 5, t), 3, "none", 0.1);
          s.invalid<IndexError>("not one of", s.tensor({}, t), s.tensor({4, 7}), s.integers({4}, 7, 8),
                                s.uniform({4}, 2, 4, t), -100, "mean", 0.0);
        },
}};

using ForwardSignature = Pair(const Tensor&, const Tensor&, int64_t, const std::string&, double);

const Op<ForwardSignature> cross_entropy_rows_op{{
    .schema = "cross_entropy_rows(Tensor x, Tensor target, int ignore_index=-100, str reduction=\"mean\", float "
              "label_smoothing=0.0) "
              "-> (Tensor loss, Tensor lse)",
    .shard = detail::shard_cross_entropy,
    .doc =
        "lse - x[target] with lse = log(sum(exp(x))) over the classes of x [N, C], for i64 targets [N]; rows whose "
        "target is "
        "ignore_index count nothing. With label smoothing e the wanted distribution is (1 - e) at the target plus e / "
        "C at "
        "every class. reduction is mean (over the rows that count), sum or none. Only lse [N] is kept for the "
        "gradient. "
        "Loss and lse are f32 (f64 for f64). IndexError for a target that is no class.",
    .infer =
        [](const Tensor& x, const Tensor& target, int64_t, const std::string& reduction, double smoothing) {
          check_inputs(x, target, smoothing, "cross_entropy");
          const bool none = parse_reduction(reduction, "cross_entropy") == Reduction::none;
          const TensorMeta rows{target.shape(), statistic_dtype(x.dtype()), x.device(), std::nullopt};
          return std::array<TensorMeta, 2>{none ? rows : rows.with_shape({}), rows};
        },
    .kernels = on_each_device([](auto on, Tensor& loss, Tensor& lse, const Tensor& x, const Tensor& target,
                                 int64_t ignore_index, const std::string& reduction, double smoothing) {
      const Tensor xc = x.contiguous(), tc = target.contiguous();
      CrossEntropyCall c = describe_call(xc, tc, ignore_index, reduction, smoothing);
      c.loss = loss.raw_data();
      c.lse = lse.raw_data();
      if constexpr (on.cuda)
        cross_entropy_cuda(c);
      else
        cross_entropy_cpu(c);
    }),
    .saves = "x target lse",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
           double smoothing) {
          Tensor gx;
          if (b.has_gy(0))
            gx = cross_entropy_backward_op(b.gy(0), x, target, b.y(1), ignore_index, reduction, smoothing);
          if (b.has_gy(1)) gx = with_lse_gradient(gx, x, b.y(1), b.gy(1));
          b.set(0, gx);
        },
    .cost =
        [](const Tensor& x, const Tensor&, int64_t, const std::string&, double) {
          return Cost{4.0 * x.numel(), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 7}), s.integers({4}, 0, 7));
          s.add(s.tensor({5, 40}), s.integers({5}, 0, 40), -100, "sum", 0.1).named("smoothed");
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), 1, "none").named("ignored rows");
          s.add(s.uniform({3, 9}, 80, 90), s.integers({3}, 0, 9), -100, "none", 0.0).named("large values");
          s.add(s.tensor({0, 4}), s.integers({0}, 0, 4), -100, "sum").named("no rows");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({2, 3}), s.integers({3}, 0, 3));
          s.invalid<DTypeError>("i64", s.tensor({2, 3}), s.tensor({2}, DType::f32));
          s.invalid<ValueError>("reduction", s.tensor({2, 3}), s.integers({2}, 0, 3), -100, "median");
          s.invalid<ValueError>("label_smoothing", s.tensor({2, 3}), s.integers({2}, 0, 3), -100, "mean", 1.5);
          if (s.benchmarking()) s.bench(s.tensor({4096, 8192}), s.integers({4096}, 0, 8192));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
           double smoothing) {
          const std::vector<double> v = x.to_vector<double>();
          const std::vector<int64_t> t = target.to_vector<int64_t>();
          const int64_t rows = x.shape()[0], classes = x.shape()[1];
          std::vector<double> loss(t.size()), lse(t.size());
          double total = 0, count = 0;
          for (int64_t r = 0; r < rows; ++r) {
            const double* row = v.data() + r * classes;
            double top = row[0], sum = 0, even = 0;
            for (int64_t c = 0; c < classes; ++c) top = std::max(top, row[c]);
            for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - top);
            lse[r] = top + std::log(sum);
            if (t[r] == ignore_index) continue;
            for (int64_t c = 0; c < classes; ++c) even += (lse[r] - row[c]) / static_cast<double>(classes);
            loss[r] = (1 - smoothing) * (lse[r] - row[t[r]]) + smoothing * even;
            total += loss[r];
            count += 1;
          }
          const Tensor each = from_span<double>(lse, target.shape());
          switch (parse_reduction(reduction, "cross_entropy")) {
            case Reduction::none:
              return Pair(from_span<double>(loss, target.shape()), each);
            case Reduction::mean:
              total /= count;
              break;
            case Reduction::sum:
              break;
          }
          return Pair(from_span<double>(std::vector<double>{total}, {}), each);
        },
}};

}  // namespace

Tensor detail::cross_entropy_rows(const Tensor& x, const Tensor& target, int64_t ignore_index,
                                  const std::string& reduction, double smoothing) {
  return std::get<0>(cross_entropy_rows_op(x, target, ignore_index, reduction, smoothing));
}

Tensor detail::at_targets(const Tensor& target, int64_t classes, DType dtype) {
  const DeviceScope there(target.device());
  return eq(target.unsqueeze(1), arange(classes, DType::i64)).to(dtype);
}

Tensor detail::row_shares(const Tensor& target, int64_t ignore_index, bool mean, DType dtype) {
  const Tensor used = (target != ignore_index).unsqueeze(1), wide = used.to(statistic_dtype(dtype));
  return (mean ? wide / clamp_min(sum(used), 1).to(wide.dtype()) : wide).to(dtype);
}

void detail::check_targets_fit(const Tensor& x, const Tensor& target, std::string_view op) {
  Shape wanted = x.shape();
  if (x.dim() > 0) wanted.erase(x.dim() <= 1 ? 0 : 1);
  check<ShapeError>(x.dim() > 0 && target.shape() == wanted, op, "x is ", x, ", target is ", target,
                    ", wanted [N, C, ...] and [N, ...]");
}

Tensor detail::class_last(const Tensor& x, const Tensor& target, std::string_view op) {
  check_targets_fit(x, target, op);
  const int64_t at = x.dim() <= 1 ? 0 : 1;
  if (x.dim() <= 2) return x.dim() == 2 ? x : x.unsqueeze(0);
  Dims order;
  for (int64_t i = 0; i < x.dim(); ++i)
    if (i != at) order.push_back(i);
  order.push_back(at);
  return permute(x, order).reshape({target.numel(), x.shape()[at]});
}

}  // namespace strata
