// Parts of a tensor, and their gradients: zeros with the part put where it was taken from.

#include "strata/ops/view/view.h"

#include <algorithm>
#include <limits>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view_reference_inl.h"

namespace strata {
namespace {

int64_t clamp_position(int64_t p, int64_t size) {
  if (p < 0) p += size;
  return std::clamp<int64_t>(p, 0, size);
}

void zero(Tensor& t) {
  if (t.device().is_cpu()) {
    std::fill_n(static_cast<char*>(t.raw_data()), t.nbytes(), 0);
  } else {
    fill_elements(t, 0);
  }
}

// Zeros in y but for `part`, whose steps along d are `step`; of a small y, and where they leave gaps, everywhere.
void zero_around(Tensor& y, const Tensor& part, int64_t d, int64_t step) {
  constexpr int64_t kLarge = int64_t{1} << 20;  // bytes that are not written twice
  if (step != 1 || part.numel() == 0 || y.nbytes() < kLarge) return zero(y);
  const auto fill = [&](int64_t first, int64_t count) {
    if (count <= 0) return;
    Shape shape = y.shape();
    shape[d] = count;
    fill_elements(alias(y, shape, y.strides(), y.storage_offset() + first * y.strides()[d]), 0);
  };
  const int64_t begin = (part.storage_offset() - y.storage_offset()) / std::max<int64_t>(1, y.strides()[d]),
                end = begin + part.shape()[d];
  fill(0, begin);
  fill(end, y.shape()[d] - end);
}

// Each view's shape, from that of the whole: what the gradient's record checks too. Positions and dims are counted from
// the front afterwards.

Shape slice_shape(const Shape& whole, int64_t& dim, int64_t& start, int64_t end, int64_t step) {
  dim = wrap_dim(dim, whole.size(), "slice");
  check<IndexError>(!whole.empty(), "slice", "cannot slice a 0-dim tensor");
  check(step >= 1, "slice", "step must be at least 1, got ", step);
  start = clamp_position(start, whole[dim]);
  end = std::max(clamp_position(end, whole[dim]), start);
  Shape shape = whole;
  shape[dim] = end > start ? (end - start - 1) / step + 1 : 0;
  return shape;
}

Shape select_shape(const Shape& whole, int64_t& dim, int64_t& index) {
  check<IndexError>(!whole.empty(), "select", "cannot index a 0-dim tensor");
  dim = wrap_dim(dim, whole.size(), "select");
  const int64_t size = whole[dim];
  check<IndexError>(index >= -size && index < size, "select", "index ", index, " is out of range for dimension ", dim,
                    " with size ", size);
  if (index < 0) index += size;
  Shape shape = whole;
  shape.erase(dim);
  return shape;
}

Shape diagonal_shape(const Shape& whole, int64_t offset, int64_t& dim1, int64_t& dim2) {
  check<ShapeError>(whole.size() >= 2, "diagonal", "needs at least two dimensions, got ", whole);
  dim1 = wrap_dim(dim1, whole.size(), "diagonal");
  dim2 = wrap_dim(dim2, whole.size(), "diagonal");
  check(dim1 != dim2, "diagonal", "dim1 and dim2 are both ", dim1);
  const int64_t rows = whole[dim1], cols = whole[dim2];
  Shape shape = whole;
  shape.erase(std::max(dim1, dim2));
  shape.erase(std::min(dim1, dim2));
  shape.push_back(std::max<int64_t>(0, offset >= 0 ? std::min(rows, cols - offset) : std::min(rows + offset, cols)));
  return shape;
}

Shape unfold_shape(const Shape& whole, int64_t& dim, int64_t size, int64_t step) {
  dim = wrap_dim(dim, whole.size(), "unfold");
  const int64_t length = whole.empty() ? 1 : whole[dim];
  check(size >= 0 && size <= length, "unfold", "a window of ", size, " does not fit dimension ", dim, " of size ",
        length);
  check(step >= 1, "unfold", "step must be at least 1, got ", step);
  Shape shape = whole;
  if (!whole.empty()) shape[dim] = (length - size) / step + 1;
  shape.push_back(size);
  return shape;
}

Tensor slice_view(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  const Shape shape = slice_shape(x.shape(), dim, start, end, step);
  Strides strides = x.strides();
  if (shape[dim] > 1) strides[dim] *= step;  // with one element there is no step, which may be too large to multiply
  return alias(x, shape, strides, x.storage_offset() + start * x.strides()[dim]);
}

Tensor select_view(const Tensor& x, int64_t dim, int64_t index) {
  const Shape shape = select_shape(x.shape(), dim, index);
  Strides strides = x.strides();
  strides.erase(dim);
  return alias(x, shape, strides, x.storage_offset() + index * x.strides()[dim]);
}

Tensor diagonal_view(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const Shape shape = diagonal_shape(x.shape(), offset, dim1, dim2);
  int64_t start = x.storage_offset();
  if (shape.back() > 0) start += offset >= 0 ? offset * x.strides()[dim2] : -offset * x.strides()[dim1];
  const int64_t stride = x.strides()[dim1] + x.strides()[dim2];
  Strides strides = x.strides();
  strides.erase(std::max(dim1, dim2));
  strides.erase(std::min(dim1, dim2));
  strides.push_back(stride);
  return alias(x, shape, strides, start);
}

Tensor unfold_view(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  const Shape shape = unfold_shape(x.shape(), dim, size, step);
  Strides strides = x.strides();
  const int64_t stride = x.dim() == 0 ? 1 : strides[dim];
  if (x.dim() > 0 && shape[dim] > 1) strides[dim] = stride * step;
  strides.push_back(stride);
  return alias(x, shape, strides, x.storage_offset());
}

// Refuses sizes of a gradient's `shape` argument that no tensor has.
const Shape& checked_shape(const Shape& shape, std::string_view op) {
  for (const int64_t n : shape) check<ShapeError>(n >= 0, op, "sizes must not be negative, got ", shape);
  return shape;
}

// What puts `g` where a view of shape `part` was.
TensorMeta put_back(const Tensor& g, const Shape& whole, const Shape& part, std::string_view op) {
  check<ShapeError>(g.shape() == part, op, "g is ", g, ", the part of ", whole, " is ", part);
  return like(g).with_shape(whole);
}

// What a part of a tensor adds to its gradient where others came before: not through zeros of the whole, so that a loop
// over n parts is not n passes over it.
void add_to(Tensor part, const Tensor& g) {
  part.add_(g.to(part.dtype()));
}

// The last element that a geometry reaches, counted from the storage's first.
int64_t last_element(const Shape& shape, const Strides& strides, int64_t offset, std::string_view op) {
  check<ShapeError>(shape.size() == strides.size(), op, "shape ", shape, " and strides ", strides, " differ in length");
  check<ShapeError>(offset >= 0, op, "negative offset ", offset);
  int64_t last = offset;
  for (int i = 0; i < shape.size(); ++i) {
    check<ShapeError>(shape[i] >= 0 && strides[i] >= 0, op, "negative size or stride in ", shape, ", ", strides);
    int64_t extent = 0;
    const bool overflow = __builtin_mul_overflow(std::max<int64_t>(shape[i] - 1, 0), strides[i], &extent) ||
                          __builtin_add_overflow(last, extent, &last);
    check<ShapeError>(!overflow, op, "shape ", shape, " and strides ", strides, " reach beyond 64 bits");
  }
  return last;
}

// Whether no element of the storage is shown twice: each stride, in order, steps over all that the smaller ones reach.
bool is_disjoint(const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int i = 0; i < t.dim(); ++i)
    if (t.shape()[i] > 1) dims.emplace_back(t.strides()[i], t.shape()[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

// Adds g into t, which may show one element several times.
void accumulate_overlapping(const Tensor& t, const Tensor& g) {
  if (g.numel() == 0) return;
  if (is_disjoint(t)) {
    Tensor all = t;
    all.add_(g);
    return;
  }
  if (g.dim() == 0) {
    Tensor one = t;
    one.add_(g);
    return;
  }
  for (int64_t i = 0; i < g.shape()[0]; ++i) accumulate_overlapping(select_view(t, 0, i), select_view(g, 0, i));
}

const Op<Tensor(const Tensor&, int64_t, int64_t, int64_t, int64_t)> slice_op{{
    .schema = "slice(Tensor x, int dim, int start, int end, int step=1) -> Tensor",
    .shard = "along dim",
    .doc =
        "Elements start, start + step, ... before end of one dimension, as a view. Negative positions count from the "
        "end; positions outside are clamped.",
    .view = slice_view,
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
          if (Tensor* sum = b.gathered(0)) return add_to(slice_view(*sum, dim, start, end, step), b.gy());
          b.set(0, slice_backward(b.gy(), x.shape(), dim, start, end, step));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 3}), 0, 1, 4);
          s.add(s.tensor({5, 7}), 1, -6, 100, 2);
          s.add(s.tensor({5, 3}), 0, 4, 2);
          s.add(s.tensor({5, 3}), 0, 1, 4, std::numeric_limits<int64_t>::max()).named("one step past the end");
          s.invalid<ValueError>("step", s.tensor({5}), 0, 0, 5, 0);
          s.invalid<IndexError>("out of range", s.tensor({5}), 1, 0, 5);
        },
    .reference = by_loops::sliced,
}};

const Op<Tensor(const Tensor&, const Shape&, int64_t, int64_t, int64_t, int64_t)> slice_backward_op{{
    .schema = "slice_backward(Tensor g, int[] shape, int dim, int start, int end, int step=1) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "Zeros of the given shape with g in the place that slice took: the gradient of slice.",
    .infer =
        [](const Tensor& g, const Shape& shape, int64_t dim, int64_t start, int64_t end, int64_t step) {
          constexpr std::string_view op = "slice_backward";
          return put_back(g, shape, slice_shape(checked_shape(shape, op), dim, start, end, step), op);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& g, const Shape&, int64_t dim, int64_t start, int64_t end,
                       int64_t step) {
                      Tensor part = slice_view(y, dim, start, end, step);
                      zero_around(y, part, wrap_dim(dim, y.dim(), "slice_backward"), step);
                      part.copy_(g);
                    }},
    .backward = [](Backward& b, const Tensor&, const Shape&, int64_t dim, int64_t start, int64_t end,
                   int64_t step) { b.set(0, slice(b.gy(), dim, start, end, step)); },
    .cost =
        [](const Tensor& g, const Shape& shape, int64_t, int64_t, int64_t, int64_t) {
          return Cost{0, static_cast<double>(g.nbytes() + shape.product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Shape{5, 3}, 0, 1, 4, 2);
          s.invalid<ShapeError>("the part of", s.tensor({1, 3}), Shape{5, 3}, 0, 1, 4, 2);
          s.invalid<ShapeError>("negative", s.tensor({0, 3}), Shape{-5, 3}, 0, 1, 4, 2);
        },
    .reference = by_loops::sliced_back,
}};

const Op<Tensor(const Tensor&, int64_t, int64_t)> select_op{{
    .schema = "select(Tensor x, int dim, int index) -> Tensor",
    .shard = "along dim",
    .doc = "The index-th sub-tensor along dim, which disappears, as a view. A negative index counts from the end.",
    .view = select_view,
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim, int64_t index) {
          if (Tensor* sum = b.gathered(0)) return add_to(select_view(*sum, dim, index), b.gy());
          b.set(0, select_backward(b.gy(), x.shape(), dim, index));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, 2);
          s.add(s.tensor({4, 3}), -1, -1);
          s.invalid<IndexError>("out of range", s.tensor({4, 3}), 0, 4);
          s.invalid<IndexError>("0-dim", s.tensor({}), 0, 0);
        },
    .reference = by_loops::selected,
}};

const Op<Tensor(const Tensor&, const Shape&, int64_t, int64_t)> select_backward_op{{
    .schema = "select_backward(Tensor g, int[] shape, int dim, int index) -> Tensor",
    .shard = "restores dim",
    .internal = true,
    .doc = "Zeros of the given shape with g as the index-th sub-tensor along dim: the gradient of select.",
    .infer =
        [](const Tensor& g, const Shape& shape, int64_t dim, int64_t index) {
          constexpr std::string_view op = "select_backward";
          return put_back(g, shape, select_shape(checked_shape(shape, op), dim, index), op);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& g, const Shape&, int64_t dim, int64_t index) {
                      zero(y);
                      select_view(y, dim, index).copy_(g);
                    }},
    .backward = [](Backward& b, const Tensor&, const Shape&, int64_t dim,
                   int64_t index) { b.set(0, select(b.gy(), dim, index)); },
    .cost =
        [](const Tensor& g, const Shape& shape, int64_t, int64_t) {
          return Cost{0, static_cast<double>(g.nbytes() + shape.product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Shape{2, 4, 3}, 1, -1);
          s.invalid<ShapeError>("the part of", s.tensor({3}), Shape{2, 4, 3}, 1, -1);
          s.invalid<IndexError>("out of range", s.tensor({2, 3}), Shape{2, 4, 3}, 1, 4);
        },
    .reference = by_loops::selected_back,
}};

const Op<Tensor(const Tensor&, int64_t, int64_t, int64_t)> diagonal_op{{
    .schema = "diagonal(Tensor x, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    .shard = "whole",
    .doc = "The diagonal of dimensions dim1 and dim2, as a view in which it is the last dimension.",
    .view = diagonal_view,
    .backward =
        [](Backward& b, const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
          if (Tensor* sum = b.gathered(0)) return add_to(diagonal_view(*sum, offset, dim1, dim2), b.gy());
          b.set(0, diagonal_backward(b.gy(), x.shape(), offset, dim1, dim2));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}));
          s.add(s.tensor({2, 4, 3}), -1, 1, 2);
          s.add(s.tensor({3, 3}), 5);
          s.invalid<ShapeError>("two dimensions", s.tensor({3}));
          s.invalid<ValueError>("both", s.tensor({3, 3}), 0, 1, 1);
        },
    .reference = by_loops::on_diagonal,
}};

const Op<Tensor(const Tensor&, const Shape&, int64_t, int64_t, int64_t)> diagonal_backward_op{{
    .schema = "diagonal_backward(Tensor g, int[] shape, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "Zeros of the given shape with g on a diagonal: the gradient of diagonal.",
    .infer =
        [](const Tensor& g, const Shape& shape, int64_t offset, int64_t dim1, int64_t dim2) {
          constexpr std::string_view op = "diagonal_backward";
          return put_back(g, shape, diagonal_shape(checked_shape(shape, op), offset, dim1, dim2), op);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& g, const Shape&, int64_t offset, int64_t dim1, int64_t dim2) {
                      zero(y);
                      diagonal_view(y, offset, dim1, dim2).copy_(g);
                    }},
    .backward = [](Backward& b, const Tensor&, const Shape&, int64_t offset, int64_t dim1,
                   int64_t dim2) { b.set(0, diagonal(b.gy(), offset, dim1, dim2)); },
    .cost =
        [](const Tensor& g, const Shape& shape, int64_t, int64_t, int64_t) {
          return Cost{0, static_cast<double>(g.nbytes() + shape.product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3}), Shape{3, 4}, 1);
          s.invalid<ShapeError>("the part of", s.tensor({}), Shape{3, 4}, 1);
          s.invalid<ShapeError>("the part of", s.tensor({1}), Shape{3, 4}, 1);
        },
    .reference = by_loops::diagonal_back,
}};

const Op<Tensor(const Tensor&, int64_t, int64_t, int64_t)> unfold_op{{
    .schema = "unfold(Tensor x, int dim, int size, int step) -> Tensor",
    .shard = "along dim",
    .doc = "Windows of `size` elements, `step` apart, along dim, as a view; the window is the new last dimension.",
    .view = unfold_view,
    .backward = [](Backward& b, const Tensor& x, int64_t dim, int64_t size,
                   int64_t step) { b.set(0, unfold_backward(b.gy(), x.shape(), dim, size, step)); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7}), 0, 3, 2);
          s.add(s.tensor({7}), 0, 3, std::numeric_limits<int64_t>::max()).named("one window");
          s.add(s.tensor({2, 5}), 1, 2, 1);
          s.invalid<ValueError>("does not fit", s.tensor({3}), 0, 4, 1);
        },
    .reference = by_loops::unfolded,
}};

const Op<Tensor(const Tensor&, const Shape&, int64_t, int64_t, int64_t)> unfold_backward_op{{
    .schema = "unfold_backward(Tensor g, int[] shape, int dim, int size, int step) -> Tensor",
    .shard = "restores dim",
    .internal = true,
    .doc = "Adds windows back into a tensor of the given shape: the gradient of unfold.",
    .infer =
        [](const Tensor& g, const Shape& shape, int64_t dim, int64_t size, int64_t step) {
          constexpr std::string_view op = "unfold_backward";
          return put_back(g, shape, unfold_shape(checked_shape(shape, op), dim, size, step), op);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& g, const Shape&, int64_t dim, int64_t size, int64_t step) {
                      zero(y);
                      // One position of all windows at a time: within it no element is met twice unless step is 0.
                      const Tensor windows = unfold_view(y, dim, size, step);
                      if (step >= size) return copy_elements(windows, g);  // no two meet at all
                      for (int64_t i = 0; i < size; ++i) {
                        Tensor part = select_view(windows, -1, i);
                        part.add_(select_view(g, -1, i));
                      }
                    }},
    .backward = [](Backward& b, const Tensor&, const Shape&, int64_t dim, int64_t size,
                   int64_t step) { b.set(0, unfold(b.gy(), dim, size, step)); },
    .cost =
        [](const Tensor& g, const Shape& shape, int64_t, int64_t, int64_t) {
          return Cost{static_cast<double>(g.numel()),
                      static_cast<double>(g.nbytes() + shape.product() * size_of(g.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 3}), Shape{7}, 0, 3, 2);
          s.add(s.tensor({2, 2, 3}), Shape{8, 2}, 0, 3, 4).named("apart");
          s.invalid<ShapeError>("the part of", s.tensor({3, 2}), Shape{7}, 0, 3, 2);
          s.invalid<ValueError>("does not fit", s.tensor({3, 3}), Shape{2}, 0, 3, 2);
        },
    .reference = by_loops::unfolded_back,
}};

const Op<Tensor(const Tensor&, const Shape&, const Strides&, int64_t)> as_strided_op{{
    .schema = "as_strided(Tensor x, int[] shape, int[] strides, int offset) -> Tensor",
    .shard = "whole",
    .doc = "Any geometry over x's storage; strides and offset in elements. ShapeError when it reaches outside.",
    .view =
        [](const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
          const int64_t last = last_element(shape, strides, offset, "as_strided");
          // The rule knows the base's shape only.
          check<AutogradError>(!grad_enabled() || !x.requires_grad() || (x.is_contiguous() && x.storage_offset() == 0),
                               "as_strided", "a gradient needs a contiguous base, got strides ", x.strides(),
                               " and offset ", x.storage_offset());
          const int64_t have = static_cast<int64_t>(x.storage()->nbytes) / size_of(x.dtype());
          check<ShapeError>(shape.contains(0) || last < have, "as_strided", "shape ", shape, ", strides ", strides,
                            ", offset ", offset, " reach element ", last, " of a storage of ", have);
          return alias(x, shape, strides, offset);
        },
    .backward =
        [](Backward& b, const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
          b.set(0, as_strided_backward(b.gy(), x.shape(), x.strides(), 0, shape, strides, offset));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 4}), Shape{3, 2}, Strides{2, 1}, 1);
          s.invalid<ShapeError>("reach", s.tensor({4}), Shape{5}, Strides{1}, 0);
        },
    .reference = by_loops::strided,
}};

const Op<Tensor(const Tensor&, const Shape&, const Strides&, int64_t, const Shape&, const Strides&, int64_t)>
    as_strided_backward_op{{
        .schema =
            "as_strided_backward(Tensor g, int[] base_shape, int[] base_strides, int base_offset, int[] shape, int[] "
            "strides, int offset) -> Tensor",
        .shard = "whole",
        .internal = true,
        .doc =
            "Adds g into a tensor of base_shape where as_strided read it: the gradient of as_strided for a base whose "
            "elements do not overlap.",
        .infer =
            [](const Tensor& g, const Shape& base, const Strides& base_strides, int64_t base_offset, const Shape& shape,
               const Strides& strides, int64_t offset) {
              last_element(base, base_strides, base_offset, "as_strided_backward");
              last_element(shape, strides, offset, "as_strided_backward");
              check<ShapeError>(g.shape() == shape, "as_strided_backward", "g is ", g, ", the view was ", shape);
              return like(g).with_shape(base);
            },
        .kernels = {.everywhere =
                        [](Tensor& y, const Tensor& g, const Shape& base, const Strides& base_strides,
                           int64_t base_offset, const Shape& shape, const Strides& strides, int64_t offset) {
                          // A buffer laid out as the storage was: add there, then read the base's elements out of it.
                          const int64_t last = last_element(base, base_strides, base_offset, "as_strided_backward");
                          const int64_t reach = last_element(shape, strides, offset, "as_strided_backward");
                          check<ShapeError>(std::max(last, reach) < INT64_MAX, "as_strided_backward",
                                            "reaches beyond 64 bits");
                          Tensor buffer = empty(like(g).with_shape({std::max(last, reach) + 1}));
                          zero(buffer);
                          accumulate_overlapping(alias(buffer, shape, strides, offset), g);
                          y.copy_(alias(buffer, base, base_strides, base_offset));
                        }},
        .backward =
            [](Backward& b, const Tensor&, const Shape& base, const Strides& base_strides, int64_t base_offset,
               const Shape& shape, const Strides& strides, int64_t offset) {
              const bool inside =
                  shape.contains(0) || last_element(shape, strides, offset, "as_strided_backward") < base.product();
              check<AutogradError>(base_offset == 0 && base_strides == contiguous_strides(base) && inside,
                                   "as_strided_backward",
                                   "a second gradient needs a row-major base that starts at 0 and a view inside of it");
              const Tensor g = reshape(b.gy(), base);
              b.set(0, as_strided(g.is_contiguous() && g.storage_offset() == 0 ? g : clone(contiguous(g)), shape,
                                  strides, offset));
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({3, 2}), Shape{2, 4}, Strides{4, 1}, 0, Shape{3, 2}, Strides{2, 1}, 1);
            },
        .reference = by_loops::strided_back,
    }};

}  // namespace

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  return slice_op(x, dim, start, end, step);
}
Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  return select_op(x, dim, index);
}
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  return diagonal_op(x, offset, dim1, dim2);
}
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  return unfold_op(x, dim, size, step);
}
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  check<AutogradError>(!grad_enabled() || !x.requires_grad() || (x.is_contiguous() && x.storage_offset() == 0),
                       "as_strided", "a gradient needs a row-major tensor that starts its storage; use clone() first");
  return as_strided_op(x, shape, strides, offset);
}
Tensor slice_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t start, int64_t end, int64_t step) {
  return slice_backward_op(g, shape, dim, start, end, step);
}
Tensor select_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t index) {
  return select_backward_op(g, shape, dim, index);
}
Tensor diagonal_backward(const Tensor& g, const Shape& shape, int64_t offset, int64_t dim1, int64_t dim2) {
  return diagonal_backward_op(g, shape, offset, dim1, dim2);
}
Tensor unfold_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t size, int64_t step) {
  return unfold_backward_op(g, shape, dim, size, step);
}
Tensor as_strided_backward(const Tensor& g, const Shape& base_shape, const Strides& base_strides, int64_t base_offset,
                           const Shape& shape, const Strides& strides, int64_t offset) {
  return as_strided_backward_op(g, base_shape, base_strides, base_offset, shape, strides, offset);
}

}  // namespace strata
