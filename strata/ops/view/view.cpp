#include "strata/ops/view/view.h"

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view_reference_inl.h"

namespace strata {
namespace {

// The requested shape with its -1 worked out.
Shape resolve_shape(const Tensor& x, const Shape& shape, std::string_view op) {
  Shape r = shape;
  int unknown = -1;
  int64_t known = 1;
  // No tensor has as many elements as do not fit; with a zero among the sizes there are none.
  const bool zero = std::find(r.begin(), r.end(), 0) != r.end();
  for (int i = 0; i < r.size(); ++i) {
    if (r[i] == -1) {
      check<ShapeError>(unknown < 0, op, "only one size may be -1, got ", shape);
      unknown = i;
    } else {
      check<ShapeError>(r[i] >= 0, op, "sizes must not be negative, got ", shape);
      check<ShapeError>(zero || !__builtin_mul_overflow(known, r[i], &known), op, x, " has ", x.numel(),
                        " elements, shape ", shape, " has more than fit in 64 bits");
    }
  }
  if (zero) known = 0;
  if (unknown >= 0) {
    check<ShapeError>(known > 0 && x.numel() % known == 0, op, "cannot work out the -1 in ", shape, " for ", x);
    r[unknown] = x.numel() / known;
    known *= r[unknown];
  }
  check<ShapeError>(known == x.numel(), op, x, " has ", x.numel(), " elements, shape ", shape, " has ", known);
  return r;
}

// Strides that give `shape` over x's storage, or nothing when its dimensions do not merge that way.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  if (x.numel() == 0) return contiguous_strides(shape);
  Strides r = Strides::filled(shape.size(), 0);
  int to = shape.size() - 1;
  int64_t chunk_elements = 1, viewed = 1;
  int64_t chunk_stride = x.dim() ? x.strides().back() : 1;
  for (int from = static_cast<int>(x.dim()) - 1; from >= 0; --from) {
    chunk_elements *= x.shape()[from];
    const bool chunk_ends =
        from == 0 || (x.shape()[from - 1] != 1 && x.strides()[from - 1] != chunk_elements * chunk_stride);
    if (!chunk_ends) continue;
    while (to >= 0 && (viewed < chunk_elements || shape[to] == 1)) {
      // Too far for a number only where it is that of a single element, which nothing steps over.
      if (__builtin_mul_overflow(viewed, chunk_stride, &r[to])) r[to] = chunk_stride;
      viewed *= shape[to];
      --to;
    }
    if (viewed != chunk_elements) return std::nullopt;
    if (from > 0) {
      chunk_stride = x.strides()[from - 1];
      chunk_elements = 1;
      viewed = 1;
    }
  }
  return to == -1 ? std::optional(r) : std::nullopt;
}

const Op<Tensor(const Tensor&, const Shape&)> view_op{{
    .schema = "view(Tensor x, int[] shape) -> Tensor",
    .shard = "view",
    .doc =
        "x's elements in row-major order under another shape, without a copy. One size may be -1. ShapeError when the "
        "number of elements differs or the strides of x do not allow it (reshape copies in that case).",
    .example = "Tensor x = arange(6); Tensor y = view(x, {2, -1}); assert(y.shape() == Shape({2, 3}));",
    .view =
        [](const Tensor& x, const Shape& shape) {
          const Shape s = resolve_shape(x, shape, "view");
          const auto strides = view_strides(x, s);
          check<ShapeError>(strides.has_value(), "view", "shape ", s, " cannot be a view of ", x.shape(),
                            " with strides ", x.strides(), "; use reshape, which copies");
          return alias(x, s, *strides, x.storage_offset());
        },
    .backward = [](Backward& b, const Tensor& x, const Shape&) { b.set(0, reshape(b.gy(), x.shape())); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 6}), Shape{3, -1});
          s.add(s.tensor({2, 6}), Shape{12});
          s.add(s.tensor({0, 3}), Shape{3, 0});
          s.invalid<ShapeError>("elements", s.tensor({2, 3}), Shape{4});
          s.invalid<ShapeError>("-1", s.tensor({2, 3}), Shape{-1, -1});
          s.invalid<ShapeError>("64 bits", s.tensor({0}), Shape{int64_t{1} << 32, int64_t{1} << 32});
        },
    .reference = by_loops::viewed,
}};

const Op<Tensor(const Tensor&, int64_t, int64_t)> transpose_op{{
    .schema = "transpose(Tensor x, int a, int b) -> Tensor",
    .shard = "transpose",
    .aliases = "swapaxes swapdims",
    .doc = "Exchanges dimensions a and b, as a view.",
    .view =
        [](const Tensor& x, int64_t a, int64_t b) {
          a = wrap_dim(a, x.dim(), "transpose");
          b = wrap_dim(b, x.dim(), "transpose");
          Shape shape = x.shape();
          Strides strides = x.strides();
          if (x.dim() > 0) {
            std::swap(shape[a], shape[b]);
            std::swap(strides[a], strides[b]);
          }
          return alias(x, shape, strides, x.storage_offset());
        },
    .backward = [](Backward& b, const Tensor&, int64_t i, int64_t j) { b.set(0, transpose(b.gy(), i, j)); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4}), 0, -1);
          s.add(s.tensor({3}), 0, 0);
          s.add(s.tensor({0, 3}), 0, 1);
          s.invalid<IndexError>("out of range", s.tensor({2, 3}), 0, 2);
        },
    .reference = by_loops::transposed,
}};

const Op<Tensor(const Tensor&, const Dims&)> permute_op{{
    .schema = "permute(Tensor x, int[] dims) -> Tensor",
    .shard = "permute",
    .doc = "Dimension i of the result is dimension dims[i] of x, as a view.",
    .view =
        [](const Tensor& x, const Dims& dims) {
          check(dims.size() == x.dim(), "permute", "dims ", dims, " must list each of the ", x.dim(), " dimensions of ",
                x, " once");
          Shape shape;
          Strides strides;
          unsigned seen = 0;
          for (int64_t d : dims) {
            d = wrap_dim(d, x.dim(), "permute");
            check(!(seen & (1u << d)), "permute", "dims ", dims, " lists dimension ", d, " twice");
            seen |= 1u << d;
            shape.push_back(x.shape()[d]);
            strides.push_back(x.strides()[d]);
          }
          return alias(x, shape, strides, x.storage_offset());
        },
    .backward =
        [](Backward& b, const Tensor& x, const Dims& dims) {
          Dims inverse = dims;
          for (int i = 0; i < dims.size(); ++i) inverse[wrap_dim(dims[i], x.dim(), "permute")] = i;
          b.set(0, permute(b.gy(), inverse));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4}), Dims{2, 0, 1});
          s.add(s.tensor({2, 3, 4}), Dims{-1, 1, 0});
          s.add(s.tensor({}), Dims{});
          s.invalid<ValueError>("twice", s.tensor({2, 3}), Dims{0, 0});
          s.invalid<ValueError>("must list", s.tensor({2, 3}), Dims{0});
        },
    .reference = by_loops::permuted,
}};

const Op<Tensor(const Tensor&, const Shape&)> expand_op{{
    .schema = "expand(Tensor x, int[] shape) -> Tensor",
    .shard = "expand",
    .doc = "Repeats dimensions of size 1 (and new leading ones) to the given shape without copying: their stride is 0. "
           "-1 keeps a size. Its gradient is the sum over the repeated dimensions.",
    .view =
        [](const Tensor& x, const Shape& shape) {
          check<ShapeError>(shape.size() >= x.dim(), "expand", "shape ", shape, " has fewer dimensions than ", x);
          Shape s = shape;
          Strides strides = Strides::filled(shape.size(), 0);
          const int lead = shape.size() - static_cast<int>(x.dim());
          for (int i = 0; i < shape.size(); ++i) {
            const int64_t have = i < lead ? 1 : x.shape()[i - lead];
            if (s[i] == -1) {
              check<ShapeError>(i >= lead, "expand", "-1 is not allowed for the new dimension ", i, " in ", shape);
              s[i] = have;
            }
            check<ShapeError>(s[i] == have || (have == 1 && s[i] >= 0), "expand", x, " does not expand to ", shape,
                              ": dimension ", i, " has size ", have);
            if (i >= lead && have == s[i]) strides[i] = x.strides()[i - lead];
          }
          return alias(x, s, strides, x.storage_offset());
        },
    .backward = [](Backward& b, const Tensor& x, const Shape&) { b.set(0, sum_to(b.gy(), x.shape())); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 1}), Shape{2, 3, 4});
          s.add(s.tensor({3, 4}), Shape{-1, 4});
          s.add(s.tensor({}), Shape{2, 2});
          s.add(s.tensor({1, 3}), Shape{0, 3});
          s.invalid<ShapeError>("does not expand", s.tensor({2, 3}), Shape{4, 3});
        },
    .reference = by_loops::expanded,
}};

}  // namespace

Tensor view(const Tensor& x, const Shape& shape) {
  return view_op(x, shape);
}
Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  return transpose_op(x, a, b);
}
Tensor permute(const Tensor& x, const Dims& dims) {
  return permute_op(x, dims);
}
Tensor expand(const Tensor& x, const Shape& shape) {
  return expand_op(x, shape);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape s = resolve_shape(x, shape, "reshape");
  return view_strides(x, s) ? view(x, s) : view(contiguous(x), s);
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  if (x.dim() == 0) return reshape(x, {1});
  start = wrap_dim(start, x.dim(), "flatten");
  end = wrap_dim(end, x.dim(), "flatten");
  check(start <= end, "flatten", "start ", start, " comes after end ", end);
  Shape s;
  int64_t merged = 1;
  for (int i = 0; i < x.dim(); ++i) {
    if (i < start || i > end) {
      s.push_back(x.shape()[i]);
    } else {
      merged *= x.shape()[i];
      if (i == end) s.push_back(merged);
    }
  }
  return reshape(x, s);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  dim = wrap_dim(dim, x.dim(), "unflatten");
  int64_t known = 1, unknown = -1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1)
      unknown = i;
    else
      check<ShapeError>(sizes[i] >= 0 && !__builtin_mul_overflow(known, sizes[i], &known), "unflatten", "sizes ", sizes,
                        " do not make up dimension ", dim, " of ", x);
  }
  Shape s;
  for (int i = 0; i < x.dim(); ++i) {
    if (i != dim) {
      s.push_back(x.shape()[i]);
      continue;
    }
    for (int j = 0; j < sizes.size(); ++j) s.push_back(j == unknown && known > 0 ? x.shape()[i] / known : sizes[j]);
  }
  return view(x, s);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int64_t size = x.size(dim);
  if (start < 0) start += size;
  check<IndexError>(start >= 0 && length >= 0 && length <= size - start, "narrow", "start ", start, " and length ",
                    length, " do not fit dimension ", dim, " of ", x);
  return slice(x, dim, start, start + length);
}

Tensor squeeze(const Tensor& x) {
  Shape s;
  for (int64_t n : x.shape())
    if (n != 1) s.push_back(n);
  return view(x, s);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  dim = wrap_dim(dim, x.dim(), "squeeze");
  return x.dim() > 0 && x.shape()[dim] == 1 ? select(x, dim, 0) : x;
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  dim = wrap_dim(dim, x.dim() + 1, "unsqueeze");
  Shape s = x.shape();
  s.insert(dim, 1);
  return view(x, s);
}

Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  const int lead = static_cast<int>(g.dim()) - shape.size();
  Dims dims;
  for (int i = 0; i < g.dim(); ++i)
    if (i < lead || (shape[i - lead] == 1 && g.shape()[i] != 1)) dims.push_back(i);
  return reshape(g.sum(dims, true), shape);
}

Tensor Tensor::view(const Shape& shape) const {
  return strata::view(*this, shape);
}
Tensor Tensor::reshape(const Shape& shape) const {
  return strata::reshape(*this, shape);
}
Tensor Tensor::flatten(int64_t start, int64_t end) const {
  return strata::flatten(*this, start, end);
}
Tensor Tensor::transpose(int64_t a, int64_t b) const {
  return strata::transpose(*this, a, b);
}
Tensor Tensor::t() const {
  check<ShapeError>(dim() <= 2, "t", "needs a matrix, got ", *this, " (use transpose)");
  return dim() < 2 ? *this : strata::transpose(*this, 0, 1);
}
Tensor Tensor::permute(const Dims& dims) const {
  return strata::permute(*this, dims);
}
Tensor Tensor::expand(const Shape& shape) const {
  return strata::expand(*this, shape);
}
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, int64_t step) const {
  return strata::slice(*this, dim, start, end, step);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return strata::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int64_t dim, int64_t index) const {
  return strata::select(*this, dim, index);
}
Tensor Tensor::squeeze() const {
  return strata::squeeze(*this);
}
Tensor Tensor::squeeze(int64_t dim) const {
  return strata::squeeze(*this, dim);
}
Tensor Tensor::unsqueeze(int64_t dim) const {
  return strata::unsqueeze(*this, dim);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return strata::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  return strata::unfold(*this, dim, size, step);
}
Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  return strata::as_strided(*this, shape, strides, offset);
}

}  // namespace strata
