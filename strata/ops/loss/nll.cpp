// nll_loss of rows without weights: the record that nll_loss goes to, and its gradient.

#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/reduction.h"
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
void nll_cpu(Tensor& loss, const Tensor& x, const Tensor& target, int64_t ignore_index, Reduction reduction) {
  const Tensor t = target.contiguous();
  const Classes c(x.shape());
  if (reduction == Reduction::none) fill_elements(loss, 0);
  const Tensor to = reduction == Reduction::none && !loss.is_contiguous() ? loss.contiguous() : loss;
  dispatch_floats(x.dtype(), "nll_loss", [&]<class T>() {
    const T* from = c.rows() > 0 ? x.data<T>() : nullptr;
    T* out = to.numel() > 0 ? to.data<T>() : nullptr;
    const int64_t along = x.strides()[1];
    double sum = 0;
    int64_t count = 0;
    each_target(t, c, ignore_index, x.strides(), [&](int64_t r, int64_t at, int64_t before) {
      const auto v = -static_cast<double>(static_cast<compute_t<T>>(from[before + at * along]));
      if (reduction == Reduction::none) out[r] = static_cast<T>(static_cast<compute_t<T>>(v));
      sum += v;
      ++count;
    });
    if (reduction == Reduction::mean) sum /= static_cast<double>(count);
    if (reduction != Reduction::none) *out = static_cast<T>(static_cast<compute_t<T>>(sum));
  });
  if (!to.same_as(loss)) loss.copy_(to);
}

void nll_backward_cpu(Tensor& gx, const Tensor& gloss, const Tensor& target, int64_t ignore_index,
                      Reduction reduction) {
  const Tensor t = target.contiguous(), g = gloss.contiguous(), to = gx.is_contiguous() ? gx : gx.contiguous();
  const Classes c(gx.shape());
  const int64_t* targets = c.rows() > 0 ? t.data<int64_t>() : nullptr;
  const auto count = static_cast<double>(c.rows() - std::count(targets, targets + c.rows(), ignore_index));
  dispatch_floats(gx.dtype(), "nll_loss", [&]<class T>() {
    using C = compute_t<T>;
    fill_elements(to, 0);
    if (c.rows() == 0) return;
    T* out = to.data<T>();
    const T* from = g.data<T>();
    const C share = reduction == Reduction::mean ? static_cast<C>(1 / std::max(count, 1.0)) : C(1);
    each_target(t, c, ignore_index, to.strides(), [&](int64_t r, int64_t at, int64_t before) {
      const C v = static_cast<C>(from[reduction == Reduction::none ? r : 0]);
      out[before + at * to.strides()[1]] = static_cast<T>(-v * share);
    });
  });
  if (!to.same_as(gx)) gx.copy_(to);
}

void check_targets(const Shape& x, const Tensor& target, std::string_view op) {
  check<DTypeError>(target.dtype() == DType::i64, op, "needs i64 targets (class indices), got ", target.dtype());
  check<ShapeError>((x.size() == 2 || x.size() == 3) && target.dim() == 1 && target.size(0) == Classes(x).rows(), op,
                    "x is ", x, ", target is ", target, ", wanted [N, C] and [N], or [N, C, I] and [N I]");
}

// [N, C] or [N, C, I] as rows of classes, and rows in that shape.
Tensor as_rows(const Tensor& x) {
  return x.dim() == 2 ? x : transpose(x, 1, 2).reshape({Classes(x.shape()).rows(), x.size(1)});
}
Tensor from_rows(const Tensor& rows, const Shape& x) {
  return x.size() == 2 ? rows : transpose(rows.reshape({x[0], x[2], x[1]}), 1, 2);
}

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, int64_t, const std::string&)> nll_rows_backward_op{{
    .schema = "nll_rows_backward(Tensor gloss, Tensor target, int[] shape, int ignore_index, str reduction) -> Tensor",
    .internal = true,
    .doc = "The gradient of nll_rows for x of that shape: -gloss at each target that counts, over their number for the "
           "mean; 0 elsewhere.",
    .infer =
        [](const Tensor& gloss, const Tensor& target, const Dims& shape, int64_t, const std::string& reduction) {
          constexpr std::string_view op = "nll_rows_backward";
          check_targets(shape, target, op);
          check<DTypeError>(is_floating(gloss.dtype()), op, "gloss is ", gloss, ", wants a floating dtype");
          const bool none = parse_reduction(reduction, op) == Reduction::none;
          check<ShapeError>(none ? gloss.shape() == target.shape() : gloss.numel() == 1, op, "gloss is ", gloss);
          return like(gloss).with_shape(shape);
        },
    .kernels = {.cpu =
                    [](Tensor& gx, const Tensor& gloss, const Tensor& target, const Dims&, int64_t ignore_index,
                       const std::string& reduction) {
                      nll_backward_cpu(gx, gloss, target, ignore_index, parse_reduction(reduction, "nll_loss"));
                    }},
    .composed =
        [](const Tensor& gloss, const Tensor& target, const Dims& shape, int64_t ignore_index,
           const std::string& reduction) {
          const DType dtype = gloss.dtype();
          const Tensor slopes = -(detail::at_targets(target, shape[1], dtype) *
                                  detail::row_shares(target, ignore_index, reduction == "mean", dtype));
          return from_rows(slopes * (reduction == "none" ? gloss.unsqueeze(1) : gloss), shape);
        },
    .cost =
        [](const Tensor& gloss, const Tensor& target, const Dims& shape, int64_t, const std::string&) {
          return Cost{1.0 * target.numel(),
                      static_cast<double>(target.nbytes() + shape.product() * size_of(gloss.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({}), s.integers({4}, 0, 7), Dims{4, 7}, -100, "mean");
          s.add(s.tensor({6}), s.integers({6}, 0, 3), Dims{6, 3}, 1, "none").named("ignored rows");
          s.add(s.tensor({6}), s.integers({6}, 0, 3), Dims{2, 3, 3}, 1, "none").named("further elements");
          s.add(s.tensor({}), s.integers({6}, 0, 3), Dims{2, 3, 3}, 1, "sum");
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({}), s.integers({3}, 0, 3), Dims{2, 3}, -100, "mean");
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t, const std::string&)> nll_rows_op{{
    .schema = "nll_rows(Tensor x, Tensor target, int ignore_index=-100, str reduction=\"mean\") -> Tensor",
    .doc =
        "-x[target] for log-probabilities x [N, C] and i64 targets [N], or x [N, C, I] and targets [N I]; rows whose "
        "target is ignore_index count nothing. Averaged over the rows that count (mean), added (sum) or as it is "
        "(none). IndexError for a target that is no class.",
    .example =
        "assert(nll_loss(full({2, 3}, -1.5), from_span<int64_t>(std::vector<int64_t>{0, 2}, {2})).item() == 1.5);",
    .infer =
        [](const Tensor& x, const Tensor& target, int64_t, const std::string& reduction) {
          check<DTypeError>(is_floating(x.dtype()), "nll_loss", "needs floating log-probabilities, got ", x.dtype());
          check_targets(x.shape(), target, "nll_loss");
          const bool none = parse_reduction(reduction, "nll_loss") == Reduction::none;
          return like(x).with_shape(none ? target.shape() : Shape{});
        },
    .kernels = on_each_device([](auto on, Tensor& loss, const Tensor& x, const Tensor& target, int64_t ignore_index,
                                 const std::string& reduction) {
      const Reduction how = parse_reduction(reduction, "nll_loss");
      if constexpr (on.cuda) {
        const Tensor xc = as_rows(x).contiguous(), tc = target.contiguous();
        CrossEntropyCall c;
        c.dtype = x.dtype();
        c.rows = xc.shape()[0];
        c.classes = xc.shape()[1];
        c.ignore_index = ignore_index;
        c.reduction = how;
        c.x = xc.raw_data();
        c.target = static_cast<const int64_t*>(tc.raw_data());
        c.loss = loss.raw_data();
        nll_loss_cuda(c);
      } else {
        nll_cpu(loss, x, target, ignore_index, how);
      }
    }),
    .saves = "target",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction) {
          b.set(0, nll_rows_backward_op(b.gy(), target, Dims(x.shape()), ignore_index, reduction));
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, const Tensor& target, int64_t, const std::string&) {
          return Cost{1.0 * target.numel(), static_cast<double>(target.nbytes() + target.numel() * size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 7}), s.integers({4}, 0, 7));
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), 1, "none").named("ignored rows");
          s.add(s.tensor({6, 3}), s.integers({6}, 0, 3), 1, "sum");
          s.add(s.tensor({3, 6}).t(), s.integers({6}, 0, 3), 1, "none").named("strided");
          s.add(s.tensor({2, 4, 3}), s.integers({6}, 0, 4), 1).named("further elements");
          s.add(transpose(s.tensor({2, 3, 4}), 1, 2), s.integers({6}, 0, 4), 1, "none").named("further, strided");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({2, 3}), s.integers({3}, 0, 3));
          s.invalid<DTypeError>("i64", s.tensor({2, 3}), s.tensor({2}, DType::f32));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction) {
          const std::vector<double> v = as_rows(x).to_vector<double>();
          const std::vector<int64_t> t = target.to_vector<int64_t>();
          std::vector<double> loss(t.size());
          double total = 0, count = 0;
          for (size_t i = 0; i < t.size(); ++i) {
            if (t[i] == ignore_index) continue;
            total += loss[i] = -v[i * static_cast<size_t>(x.shape()[1]) + static_cast<size_t>(t[i])];
            count += 1;
          }
          if (reduction == "none") return from_span<double>(loss, target.shape());
          return from_span<double>(std::vector<double>{reduction == "mean" ? total / count : total}, {});
        },
}};

}  // namespace

Tensor detail::nll_rows(const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction) {
  return nll_rows_op(x, target, ignore_index, reduction);
}

}  // namespace strata
