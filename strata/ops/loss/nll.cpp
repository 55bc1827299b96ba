// nll_loss of rows: the record that nll_loss goes to, and its gradient.

#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// x [N, C] or [N, C, I] with targets [N I].
struct Classes {
  int64_t outer, classes, inner;
  explicit Classes(const Shape& x) : outer(x[0]), classes(x[1]), inner(x.size() == 3 ? x[2] : 1) {}
  int64_t rows() const { return outer * inner; }
};

// f(row, target, how many elements before the row's class 0) for the rows that count.
template <class F>
void each_target(const Tensor& target, const Classes& c, int64_t ignore_index, const Strides& strides, F&& f) {
  const int64_t* t = target.data<int64_t>();
  const int64_t step = strides.size() == 3 ? strides[2] : 0;
  for (int64_t n = 0, r = 0; n < c.outer; ++n)
    for (int64_t i = 0; i < c.inner; ++i, ++r) {
      if (t[r] == ignore_index) continue;
      check<IndexError>(t[r] >= 0 && t[r] < c.classes, "nll_loss", "target ", t[r], " in row ", r,
                        " is not one of the ", c.classes, " classes (allowed: 0 to ", c.classes - 1,
                        ", or ignore_index ", ignore_index, ")");
      f(r, t[r], n * strides[0] + i * step);
    }
}

// x is read where it lies: one element of a row.
void nll_cpu(Tensor& loss, const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
             Reduction reduction) {
  const Tensor t = target.contiguous();
  const Classes c(x.shape());
  if (reduction == Reduction::none) fill_elements(loss, 0);
  const Tensor to = reduction == Reduction::none && !loss.is_contiguous() ? loss.contiguous() : loss;
  dispatch_floats(x.dtype(), "nll_loss", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = c.rows() > 0 ? x.data<T>() : nullptr;
    T* out = to.numel() > 0 ? to.data<T>() : nullptr;
    const C* weights = weight.defined() ? weight.data<C>() : nullptr;
    const int64_t along = x.strides()[1];
    double sum = 0, count = 0;
    each_target(t, c, ignore_index, x.strides(), [&](int64_t r, int64_t at, int64_t before) {
      const double w = weights ? static_cast<double>(weights[at]) : 1;
      const double v = -static_cast<double>(static_cast<C>(from[before + at * along])) * w;
      if (reduction == Reduction::none) out[r] = static_cast<T>(static_cast<C>(v));
      sum += v;
      count += w;
    });
    if (reduction == Reduction::mean) sum /= count;
    if (reduction != Reduction::none) *out = static_cast<T>(static_cast<C>(sum));
  });
  if (!to.same_as(loss)) loss.copy_(to);
}

void nll_backward_cpu(Tensor& gx, const Tensor& gloss, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                      Reduction reduction) {
  const Tensor t = target.contiguous(), g = gloss.contiguous(), to = gx.is_contiguous() ? gx : gx.contiguous();
  const Classes c(gx.shape());
  dispatch_floats(gx.dtype(), "nll_loss", [&]<class T>() {
    using C = compute_t<T>;
    fill_elements(to, 0);
    if (c.rows() == 0) return;
    T* out = to.data<T>();
    const T* from = g.data<T>();
    const C* weights = weight.defined() ? weight.data<C>() : nullptr;
    const auto weight_of = [&](int64_t at) { return weights ? static_cast<double>(weights[at]) : 1.0; };
    double all = 1;
    if (reduction == Reduction::mean) {
      all = 0;
      each_target(t, c, ignore_index, to.strides(), [&](int64_t, int64_t at, int64_t) { all += weight_of(at); });
    }
    each_target(t, c, ignore_index, to.strides(), [&](int64_t r, int64_t at, int64_t before) {
      const C v = static_cast<C>(from[reduction == Reduction::none ? r : 0]);
      out[before + at * to.strides()[1]] = static_cast<T>(-v * static_cast<C>(weight_of(at) / all));
    });
  });
  if (!to.same_as(gx)) gx.copy_(to);
}

void check_targets(const Shape& x, const Tensor& target, std::string_view op) {
  check<DTypeError>(target.dtype() == DType::i64, op, "needs i64 targets (class indices), got ", target.dtype());
  check<ShapeError>((x.size() == 2 || x.size() == 3) && target.dim() == 1 && target.size(0) == Classes(x).rows(), op,
                    "x is ", x, ", target is ", target, ", wanted [N, C] and [N], or [N, C, I] and [N I]");
}

void check_weight(const Tensor& weight, int64_t classes, DType dtype, std::string_view op) {
  if (!weight.defined()) return;
  const DType wide = statistic_dtype(dtype);
  check<ShapeError>(weight.dim() == 1 && weight.size(0) == classes, op, "weight is ", weight, ", wanted [", classes,
                    "]");
  check<DTypeError>(weight.dtype() == wide, op, "weight is ", weight, ", wanted ", wide);
}
// What each target's row counts, [N]: its weight, 0 where the target is ignored. `at`: the targets, or 0.
Tensor used_weights(const Tensor& target, const Tensor& weight, int64_t ignore_index, DType dtype, Tensor& at) {
  const Tensor counts = target != ignore_index;
  at = where(counts, target, Scalar(0)).to(DType::i64);
  if (!weight.defined()) return counts.to(dtype);
  return where(counts, index_select(weight.to(dtype), 0, at), Scalar(0));
}
NllCall call_of(const Shape& shape, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                Reduction reduction) {
  const Classes c(shape);
  NllCall call;
  call.outer = c.outer;
  call.classes = c.classes;
  call.inner = c.inner;
  call.ignore_index = ignore_index;
  call.reduction = reduction;
  call.target = static_cast<const int64_t*>(target.raw_data());
  call.weight = weight.defined() ? weight.raw_data() : nullptr;
  return call;
}

// [N, C] or [N, C, I] as rows of classes, and rows in that shape.
Tensor as_rows(const Tensor& x) {
  return x.dim() == 2 ? x : transpose(x, 1, 2).reshape({Classes(x.shape()).rows(), x.size(1)});
}
Tensor from_rows(const Tensor& rows, const Shape& x) {
  return x.size() == 2 ? rows : transpose(rows.reshape({x[0], x[2], x[1]}), 1, 2);
}

using BackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, int64_t, const std::string&);
const Op<BackwardSignature> nll_rows_backward_op{{
    .schema = "nll_rows_backward(Tensor gloss, Tensor target, Tensor? weight, int[] shape, int ignore_index, str "
              "reduction) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "The gradient of nll_rows for x of that shape: -gloss weight[target] at each target that counts, over the "
           "sum of those weights for the mean; 0 elsewhere.",
    .infer =
        [](const Tensor& gloss, const Tensor& target, const Tensor& weight, const Dims& shape, int64_t,
           const std::string& reduction) {
          constexpr std::string_view op = "nll_rows_backward";
          check_targets(shape, target, op);
          check<DTypeError>(is_floating(gloss.dtype()), op, "gloss is ", gloss, ", wants a floating dtype");
          check_weight(weight, shape[1], gloss.dtype(), op);
          const bool none = parse_reduction(reduction, op) == Reduction::none;
          check<ShapeError>(none ? gloss.shape() == target.shape() : gloss.numel() == 1, op, "gloss is ", gloss);
          return like(gloss).with_shape(shape);
        },
    .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& gloss, const Tensor& target, const Tensor& weight,
                                 const Dims& shape, int64_t ignore_index, const std::string& reduction) {
      const Reduction how = parse_reduction(reduction, "nll_loss");
      const Tensor w = weight.defined() ? weight.contiguous() : weight;
      if constexpr (on.cuda) {
        const Tensor g = gloss.contiguous(), t = target.contiguous();
        NllCall c = call_of(shape, t, w, ignore_index, how);
        c.dtype = gx.dtype();
        nll_loss_backward_cuda(c, g.raw_data(), gx.raw_data());
      } else {
        nll_backward_cpu(gx, gloss, target, w, ignore_index, how);
      }
    }),
    .composed =
        [](const Tensor& gloss, const Tensor& target, const Tensor& weight, const Dims& shape, int64_t ignore_index,
           const std::string& reduction) {
          const DType dtype = gloss.dtype();
          Tensor at, share = used_weights(target, weight, ignore_index, statistic_dtype(dtype), at);
          if (reduction == "mean") share = share / sum(share);
          const Tensor hit = detail::at_targets(target, shape[1], share.dtype());
          const Tensor g = gloss.to(share.dtype());
          const Tensor slopes = -(hit * share.unsqueeze(1)) * (reduction == "none" ? g.unsqueeze(1) : g);
          return from_rows(slopes.to(dtype), shape);
        },
    .cost =
        [](const Tensor& gloss, const Tensor& target, const Tensor&, const Dims& shape, int64_t, const std::string&) {
          return Cost{1.0 * target.numel(),
                      static_cast<double>(target.nbytes() + shape.product() * size_of(gloss.dtype()))};
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          const DType wide = statistic_dtype(s.dtype());
          s.add(s.tensor({}), s.integers({4}, 0, 7), none, Dims{4, 7}, -100, "mean");
          s.add(s.tensor({6}), s.integers({6}, 0, 3), none, Dims{6, 3}, 1, "none").named("ignored rows");
          s.add(s.tensor({6}), s.integers({6}, 0, 3), none, Dims{2, 3, 3}, 1, "none").named("further elements");
          s.add(s.tensor({}), s.integers({6}, 0, 3), none, Dims{2, 3, 3}, 1, "sum");
          s.add(s.tensor({}), s.integers({5}, 0, 8), s.uniform({8}, 0.2, 2, wide), Dims{5, 8}, 1, "mean");
          s.add(s.tensor({6}), s.integers({6}, 0, 3), s.uniform({3}, 0.2, 2, wide), Dims{2, 3, 3}, 1, "none");
          s.add(s.tensor({}), s.integers({8200}, 0, 2), s.uniform({2}, 0.2, 2, wide), Dims{8200, 2}, -100, "mean")
              .named("more rows than a block adds up")
              .not_differentiable();
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({}), s.integers({3}, 0, 3), none, Dims{2, 3}, -100, "mean");
          s.invalid<ShapeError>("weight is", s.tensor({}), s.integers({2}, 0, 3), s.tensor({2}, wide), Dims{2, 3}, -100,
                                "mean");
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&)> nll_rows_op{{
    .schema = "nll_rows(Tensor x, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction=\"mean\") "
              "-> Tensor",
    .shard = "whole",
    .doc =
        "-x[target] for log-probabilities x [N, C] and i64 targets [N], or x [N, C, I] and targets [N I]; rows whose "
        "target is ignore_index count nothing, others weight[target] (x's arithmetic dtype), or 1. Averaged over what "
        "they count (mean), added (sum) or as it is (none). IndexError for a target that is no class.",
    .example =
        "assert(nll_loss(full({2, 3}, -1.5), from_span<int64_t>(std::vector<int64_t>{0, 2}, {2})).item() == 1.5);",
    .infer =
        [](const Tensor& x, const Tensor& target, const Tensor& weight, int64_t, const std::string& reduction) {
          check<DTypeError>(is_floating(x.dtype()), "nll_loss", "needs floating log-probabilities, got ", x.dtype());
          check_targets(x.shape(), target, "nll_loss");
          check_weight(weight, x.shape()[1], x.dtype(), "nll_loss");
          const bool none = parse_reduction(reduction, "nll_loss") == Reduction::none;
          return like(x).with_shape(none ? target.shape() : Shape{});
        },
    .kernels = on_each_device([](auto on, Tensor& loss, const Tensor& x, const Tensor& target, const Tensor& weight,
                                 int64_t ignore_index, const std::string& reduction) {
      const Reduction how = parse_reduction(reduction, "nll_loss");
      const Tensor w = weight.defined() ? weight.contiguous() : weight;
      if constexpr (on.cuda) {
        const Tensor t = target.contiguous(),
                     to = loss.is_contiguous() ? loss : empty(like(loss).with_shape(loss.shape()));
        NllCall c = call_of(x.shape(), t, w, ignore_index, how);
        c.dtype = x.dtype();
        for (int d = 0; d < x.dim(); ++d) c.stride[d] = x.strides()[d];
        c.x = x.raw_data();
        nll_loss_cuda(c, to.raw_data());
        if (!to.same_as(loss)) copy_elements(loss, to);
      } else {
        nll_cpu(loss, x, target, w, ignore_index, how);
      }
    }),
    .saves = "target weight x:weight result:weight",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
           const std::string& reduction) {
          if (b.needs(0))
            b.set(0, nll_rows_backward_op(b.gy(), target, weight, Dims(x.shape()), ignore_index, reduction));
          if (!b.needs(2)) return;
          // Each row's loss, for the mean less it, goes to its class.
          const DType wide = weight.dtype();
          Tensor at;
          const Tensor used = used_weights(target, weight, ignore_index, wide, at), counts = target != ignore_index;
          Tensor each = -gather(as_rows(x).to(wide), 1, at.unsqueeze(1)).squeeze(1);
          if (reduction == "mean") each = (each - b.y().to(wide)) / sum(used);
          each = where(counts, each * b.gy().to(wide), Scalar(0));
          b.set(2, index_add(zeros_like(weight), 0, at, each));
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor& target, const Tensor&, int64_t, const std::string&) {
          return Cost{1.0 * target.numel(), static_cast<double>(target.nbytes() + target.numel() * size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          const DType wide = statistic_dtype(s.dtype());
          s.add(s.tensor({4, 7}), s.integers({4}, 0, 7));
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), none, 1, "none").named("ignored rows");
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), none, 1, "sum");
          s.add(s.tensor({3, 6}).t(), s.integers({6}, 0, 3), none, 1, "none").named("strided");
          s.add(s.tensor({2, 4, 3}), s.integers({6}, 0, 4), none, 1).named("further elements");
          s.add(transpose(s.tensor({2, 3, 4}), 1, 2), s.integers({6}, 0, 4), none, 1, "none").named("further, strided");
          for (const char* reduction : {"mean", "sum", "none"})
            s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), s.uniform({3}, 0.2, 2, wide), 1, reduction).named("weights");
          s.add(s.tensor({8200, 2}), s.integers({8200}, 0, 2), s.uniform({2}, 0.2, 2, wide))
              .named("more rows than a block adds up")
              .not_differentiable();
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({2, 3}), s.integers({3}, 0, 3));
          s.invalid<DTypeError>("i64", s.tensor({2, 3}), s.tensor({2}, DType::f32));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
           const std::string& reduction) {
          const std::vector<double> v = as_rows(x).to_vector<double>();
          const std::vector<double> w = weight.defined() ? weight.to_vector<double>()
                                                         : std::vector<double>(static_cast<size_t>(x.shape()[1]), 1.0);
          const std::vector<int64_t> t = target.to_vector<int64_t>();
          std::vector<double> loss(t.size());
          double total = 0, count = 0;
          for (size_t i = 0; i < t.size(); ++i) {
            if (t[i] == ignore_index) continue;
            const auto at = static_cast<size_t>(t[i]);
            total += loss[i] = -v[i * w.size() + at] * w[at];
            count += w[at];
          }
          if (reduction == "none") return from_span<double>(loss, target.shape());
          return from_span<double>(std::vector<double>{reduction == "mean" ? total / count : total}, {});
        },
}};

}  // namespace

Tensor detail::nll_rows(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                        const std::string& reduction) {
  return nll_rows_op(x, target, weight, ignore_index, reduction);
}

}  // namespace strata
