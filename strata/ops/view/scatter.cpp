// Copies of a tensor in which a view shows other elements.

#include <algorithm>
#include <limits>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/stand_in.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/scatter.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

// Checks src against the part of x that it takes the place of.
TensorMeta whole_meta(const Tensor& x, const Tensor& part, const Tensor& src, std::string_view op) {
  check<ShapeError>(src.shape() == part.shape(), op, "src is ", src, ", the part of ", x, " is ", part);
  check<DTypeError>(src.dtype() == x.dtype(), op, "src is ", src, ", x is ", x, ": they must have one dtype");
  return laid_like(x);
}
// Kernels see no history: the view is one of the result's own elements.
template <class View>
void write_part(Tensor& y, const Tensor& x, const Tensor& src, View view) {
  copy_elements(y, x);
  copy_elements(view(y), src);
}
Tensor zeros_as(const Tensor& g, const Shape& shape) {
  Tensor z = empty(like(g).with_shape(shape));
  return z.zero_();
}
Cost scatter_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

using SliceOp =
    Op<Tensor(const Tensor&, const Tensor&, int64_t, std::optional<int64_t>, std::optional<int64_t>, int64_t)>;
Tensor slice_of(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  return slice(x, dim, start.value_or(0), end.value_or(std::numeric_limits<int64_t>::max()), step);
}
const SliceOp slice_scatter_op{{
    .schema = "slice_scatter(Tensor x, Tensor src, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    .shard = "along dim",
    .doc = "A copy of x with src in the place of slice(x, dim, start, end, step).",
    .example = "Tensor y = slice_scatter(zeros({4}), ones({2}), 0, 1, 4, 2); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 1, 0, 1}));",
    .infer =
        [](const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
           int64_t step) {
          NoGrad guard;
          return whole_meta(x, slice_of(x, dim, start, end, step), src, "slice_scatter");
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                       std::optional<int64_t> end, int64_t step) {
                      write_part(y, x, src, [&](const Tensor& t) { return slice_of(t, dim, start, end, step); });
                    }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src, int64_t dim, std::optional<int64_t> start,
           std::optional<int64_t> end, int64_t step) {
          if (b.needs(0)) b.set(0, slice_scatter(b.gy(), zeros_as(b.gy(), src.shape()), dim, start, end, step));
          if (b.needs(1)) b.set(1, slice_of(b.gy(), dim, start, end, step));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, int64_t, std::optional<int64_t>, std::optional<int64_t>,
               int64_t) { return scatter_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 3}), s.tensor({2, 3}), 0, 1, 4, 2);
          s.add(s.tensor({2, 4}), s.tensor({2, 2}), -1, -2);
          s.add(s.tensor({2, 4}), s.tensor({2, 0}), 1, 3, 1);
          s.add(s.tensor({3}), s.tensor({3}));
          s.invalid<ShapeError>("the part of", s.tensor({5, 3}), s.tensor({2, 3}), 0, 1, 4);
          s.invalid<ValueError>("step", s.tensor({5}), s.tensor({5}), 0, std::nullopt, std::nullopt, 0);
        },
    .reference =
        [](const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start, std::optional<int64_t>,
           int64_t step) {
          Array y(x);
          const Array from(src);
          dim = naive::from_front(dim, x.dim());
          int64_t first = start.value_or(0);
          if (first < 0) first += x.shape()[dim];
          naive::each(src.shape(), [&](const Dims& p) { y[naive::moved(p, dim, first + p[dim] * step)] = from[p]; });
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t, int64_t)> select_scatter_op{{
    .schema = "select_scatter(Tensor x, Tensor src, int dim, int index) -> Tensor",
    .shard = "whole",
    .doc = "A copy of x with src in the place of select(x, dim, index).",
    .example = "Tensor y = select_scatter(zeros({2, 2}), ones({2}), 0, 1); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 0, 1, 1}));",
    .infer =
        [](const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
          NoGrad guard;
          return whole_meta(x, select(x, dim, index), src, "select_scatter");
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
                      write_part(y, x, src, [&](const Tensor& t) { return select(t, dim, index); });
                    }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src, int64_t dim, int64_t index) {
          if (b.needs(0)) b.set(0, select_scatter(b.gy(), zeros_as(b.gy(), src.shape()), dim, index));
          if (b.needs(1)) b.set(1, select(b.gy(), dim, index));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, int64_t, int64_t) { return scatter_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3}), 0, 2);
          s.add(s.tensor({2, 3, 4}), s.tensor({2, 4}), -2, -1);
          s.invalid<IndexError>("out of range", s.tensor({4, 3}), s.tensor({3}), 0, 4);
          s.invalid<ShapeError>("the part of", s.tensor({4, 3}), s.tensor({4}), 0, 1);
        },
    .reference =
        [](const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
          Array y(x);
          const Array from(src);
          dim = naive::from_front(dim, x.dim());
          const int64_t at = index < 0 ? index + x.shape()[dim] : index;
          naive::each(src.shape(), [&](Dims p) {
            const double v = from[p];
            p.insert(dim, at);
            y[p] = v;
          });
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t, int64_t, int64_t)> diagonal_scatter_op{{
    .schema = "diagonal_scatter(Tensor x, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    .shard = "whole",
    .doc = "A copy of x with src in the place of diagonal(x, offset, dim1, dim2).",
    .example = "Tensor y = diagonal_scatter(zeros({2, 2}), ones({2})); "
               "assert(y.to_vector<float>() == std::vector<float>({1, 0, 0, 1}));",
    .infer =
        [](const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
          NoGrad guard;
          return whole_meta(x, diagonal(x, offset, dim1, dim2), src, "diagonal_scatter");
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
                      write_part(y, x, src, [&](const Tensor& t) { return diagonal(t, offset, dim1, dim2); });
                    }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
          if (b.needs(0)) b.set(0, diagonal_scatter(b.gy(), zeros_as(b.gy(), src.shape()), offset, dim1, dim2));
          if (b.needs(1)) b.set(1, diagonal(b.gy(), offset, dim1, dim2));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, int64_t, int64_t, int64_t) { return scatter_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.tensor({3}));
          s.add(s.tensor({2, 4, 3}), s.tensor({2, 3}), -1, 1, -1);
          s.invalid<ShapeError>("the part of", s.tensor({3, 4}), s.tensor({4}));
          s.invalid<ShapeError>("two dimensions", s.tensor({3}), s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
          Array y(x);
          const Array from(src);
          const int64_t a = naive::from_front(dim1, x.dim()), b = naive::from_front(dim2, x.dim());
          naive::each(x.shape(), [&](const Dims& p) {
            if (p[b] - p[a] != offset) return;
            Dims at;
            for (int64_t d = 0; d < x.dim(); ++d)
              if (d != a && d != b) at.push_back(p[d]);
            at.push_back(offset >= 0 ? p[a] : p[b]);
            y[p] = from[at];
          });
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Shape&, const Strides&, int64_t)> as_strided_scatter_op{{
    .schema = "as_strided_scatter(Tensor x, Tensor src, int[] shape, int[] strides, int offset=0) -> Tensor",
    .shard = "whole",
    .doc = "A row-major copy of x with src in the place of as_strided(copy, shape, strides, offset). The gradient "
           "supposes that no element is shown twice.",
    .example = "Tensor y = as_strided_scatter(zeros({4}), ones({2}), {2}, {2}, 1); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 1, 0, 1}));",
    .infer =
        [](const Tensor& x, const Tensor& src, const Shape& shape, const Strides& strides, int64_t offset) {
          const Tensor dense = stand_in(x.shape(), x.dtype());
          TensorMeta m = whole_meta(x, as_strided(dense, shape, strides, offset), src, "as_strided_scatter");
          m.strides.reset();
          return m;
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, const Tensor& src, const Shape& shape, const Strides& strides,
                       int64_t offset) {
                      Tensor dense = y.is_contiguous() ? y : empty(like(y));
                      write_part(dense, x, src, [&](const Tensor& t) {
                        return alias(t, shape, strides, t.storage_offset() + offset);
                      });
                      if (!dense.same_as(y)) copy_elements(y, dense);
                    }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src, const Shape& shape, const Strides& strides, int64_t offset) {
          if (b.needs(0)) b.set(0, as_strided_scatter(b.gy(), zeros_as(b.gy(), src.shape()), shape, strides, offset));
          if (!b.needs(1)) return;
          const Tensor dense = contiguous(b.gy());
          b.set(1, as_strided(dense.storage_offset() == 0 ? dense : clone(dense), shape, strides, offset));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, const Shape&, const Strides&, int64_t) { return scatter_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.tensor({2, 2}), Shape{2, 2}, Strides{4, 2}, 1);
          s.add(s.tensor({6}), s.tensor({3}), Shape{3}, Strides{2});
          s.invalid<ShapeError>("the part of", s.tensor({6}), s.tensor({2}), Shape{3}, Strides{2}, 0);
          s.invalid<ShapeError>("as_strided", s.tensor({4}), s.tensor({3}), Shape{3}, Strides{2}, 0);
        },
    .reference =
        [](const Tensor& x, const Tensor& src, const Shape& shape, const Strides& strides, int64_t offset) {
          Array y(x);
          const Array from(src);
          naive::each(shape, [&](const Dims& p) {
            int64_t at = offset;
            for (int d = 0; d < p.size(); ++d) at += p[d] * strides[d];
            y.flat(at) = from[p];
          });
          return Tensor(y);
        },
}};

}  // namespace

Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) {
  return slice_scatter_op(x, src, dim, start, end, step);
}
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
  return select_scatter_op(x, src, dim, index);
}
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
  return diagonal_scatter_op(x, src, offset, dim1, dim2);
}
Tensor as_strided_scatter(const Tensor& x, const Tensor& src, const Shape& shape, const Strides& strides,
                          int64_t offset) {
  return as_strided_scatter_op(x, src, shape, strides, offset);
}

}  // namespace strata
