#include "strata/ops/shape/shape.h"

#include <algorithm>
#include <string>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/shape/shape_kernels.h"
#include "strata/ops/shape/shape_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

// ---- repeating ----

// size * n, an error rather than an overflow.
int64_t times(int64_t size, int64_t n, std::string_view op) {
  int64_t r = 0;
  check<ShapeError>(!__builtin_mul_overflow(size, n, &r) && r < int64_t{1} << 60, op, "a dimension of ", size,
                    " repeated ", n, " times is too large");
  return r;
}

// x with dimension d repeated n times as a whole: through [outer, 1, inner], so that any rank works.
Tensor repeat_dim(const Tensor& x, int64_t d, int64_t n) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.dim(); ++i) (i < d ? outer : inner) *= x.shape()[i];
  Shape shape = x.shape();
  shape[d] = times(shape[d], n, "repeat");
  times(times(outer, inner, "repeat"), n, "repeat");
  return reshape(expand(reshape(x, {outer, 1, inner}), {outer, n, inner}), shape);
}

Tensor repeat_composed(const Tensor& x, const Dims& repeats) {
  check<ShapeError>(repeats.size() >= x.dim(), "repeat", "repeats ", repeats, " has fewer entries than ", x,
                    " dimensions");
  Shape shape = x.shape();
  while (shape.size() < repeats.size()) shape.insert(0, 1);
  for (const int64_t n : repeats) check<ShapeError>(n >= 0, "repeat", "repeats must not be negative, got ", repeats);
  // All at once where so many dimensions do: a repeated dimension of n is [1, n], spread to [times, n], and others that
  // are neighbours are one. The result is then written once, and its gradient read once.
  std::vector<int64_t> from, spread;
  bool plain = false;  // the last of them may grow
  Shape result = shape;
  int64_t total = 1;
  for (int d = 0; d < shape.size(); ++d) {
    result[d] = times(shape[d], repeats[d], "repeat");
    total = times(total, std::max<int64_t>(result[d], 1), "repeat");
    if (repeats[d] != 1) from.push_back(1), spread.push_back(repeats[d]), plain = false;
    if (shape[d] == 1) continue;
    if (plain)
      from.back() *= shape[d], spread.back() = from.back();
    else
      from.push_back(shape[d]), spread.push_back(shape[d]), plain = true;
  }
  Tensor y = reshape(x, shape);
  if (from.size() <= static_cast<size_t>(kMaxDims)) {
    if (result != shape) y = reshape(expand(reshape(y, Shape(from)), Shape(spread)), result);
  } else {
    for (int d = repeats.size() - 1; d >= 0; --d)
      if (repeats[d] != 1) y = repeat_dim(y, d, repeats[d]);
  }
  return y.same_as(x) ? clone(x) : y;
}

const Op<Tensor(const Tensor&, const Dims&)> repeat_op{{
    .schema = "repeat(Tensor x, int[] repeats) -> Tensor",
    .doc = "x as often as repeats says along each dimension; new leading dimensions where repeats is longer than x's "
           "shape.",
    .example =
        "assert(repeat(arange(2), {2, 2}).to_vector<int64_t>() == std::vector<int64_t>({0, 1, 0, 1, 0, 1, 0, 1}));",
    .composed = repeat_composed,
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{2, 3});
          s.add(s.tensor({3}), Dims{2, 1, 2});
          s.add(s.tensor({2, 3}), Dims{0, 1});
          s.add(s.tensor({}), Dims{3});
          s.invalid<ShapeError>("fewer", s.tensor({2, 3}), Dims{2});
          s.invalid<ShapeError>("negative", s.tensor({3}), Dims{-1});
        },
    .reference = by_loops::repeated,
}};

const Op<Tensor(const Tensor&, const Dims&)> tile_op{{
    .schema = "tile(Tensor x, int[] repeats) -> Tensor",
    .doc = "repeat, with ones added in front of a repeats that is shorter than x's shape.",
    .composed =
        [](const Tensor& x, const Dims& repeats) {
          Dims r = repeats;
          while (r.size() < x.dim()) r.insert(0, 1);
          return repeat(x, r);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{2});
          s.add(s.tensor({3}), Dims{2, 2});
          s.invalid<ShapeError>("negative", s.tensor({3}), Dims{-1});
        },
    .reference = by_loops::repeated,
}};

const Op<Tensor(const Tensor&, int64_t, std::optional<int64_t>)> repeat_interleave_op{{
    .schema = "repeat_interleave(Tensor x, int repeats, int? dim=None) -> Tensor",
    .doc = "Each element along dim (of the flattened x without one) repeats times in a row. The function of this name "
           "also "
           "takes a tensor of counts.",
    .example = "assert(repeat_interleave(arange(2), 2).to_vector<int64_t>() == std::vector<int64_t>({0, 0, 1, 1}));",
    .composed =
        [](const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
          check(repeats >= 0, "repeat_interleave", "repeats must not be negative, got ", repeats);
          if (!dim || x.dim() == 0) {
            const Tensor flat = reshape(x, {x.numel(), 1});
            return reshape(expand(flat, {x.numel(), repeats}), {times(x.numel(), repeats, "repeat_interleave")});
          }
          const int64_t d = wrap_dim(*dim, x.dim(), "repeat_interleave");
          int64_t outer = 1, inner = 1;
          for (int i = 0; i <= d; ++i) outer *= x.shape()[i];
          for (int i = static_cast<int>(d) + 1; i < x.dim(); ++i) inner *= x.shape()[i];
          Shape shape = x.shape();
          shape[d] = times(shape[d], repeats, "repeat_interleave");
          times(x.numel(), repeats, "repeat_interleave");
          return reshape(expand(reshape(x, {outer, 1, inner}), {outer, repeats, inner}), shape);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), 2);
          s.add(s.tensor({2, 3}), 3, 0);
          s.add(s.tensor({2, 3, 2}), 2, -2);
          s.add(s.tensor({2, 3}), 0, 1);
          s.invalid<ValueError>("negative", s.tensor({3}), -1);
          s.invalid<IndexError>("out of range", s.tensor({3}), 2, 1);
        },
    .reference = by_loops::repeated_in_a_row,
}};

const Op<Tensor(const Tensor&)> repeat_index_op{{
    .schema = "repeat_index(Tensor repeats) -> Tensor",
    .shard = "whole",
    .doc = "0 repeats[0] times, then 1 repeats[1] times, and so on: the index that repeat_interleave selects with.",
    .dynamic = {.everywhere =
                    [](const Tensor& repeats) {
                      check<ShapeError>(repeats.dim() == 1, "repeat_index", "repeats must be 1-D, got ", repeats);
                      check<DTypeError>(is_integral(repeats.dtype()), "repeat_index", "repeats must be integers, got ",
                                        repeats);
                      const Tensor dense = to(contiguous(to(repeats, DType::i64)), Device::cpu());
                      const std::span<const int64_t> counts(dense.data<int64_t>(), static_cast<size_t>(dense.numel()));
                      int64_t total = 0;
                      for (int64_t n : counts) {
                        check(n >= 0, "repeat_index", "repeats must not be negative, got ", n);
                        check(!__builtin_add_overflow(total, n, &total), "repeat_index",
                              "the repeats add up to more than 64 bits");
                      }
                      Tensor y = empty({{total}, DType::i64, Device::cpu(), std::nullopt});
                      int64_t* p = y.data<int64_t>();
                      for (size_t i = 0; i < counts.size(); ++i) p = std::fill_n(p, counts[i], static_cast<int64_t>(i));
                      return to(y, repeats.device());
                    }},
    .dtypes = kInts,
    .samples =
        [](Samples& s) {
          s.add(s.integers({4}, 0, 3, s.dtype()));
          s.add(s.integers({0}, 0, 3, s.dtype()));
          s.invalid<ShapeError>("1-D", s.integers({2, 2}, 0, 3));
          s.invalid<ValueError>("negative", s.integers({2}, -3, -1));
          s.invalid<ValueError>("64 bits", from_span<int64_t>(std::vector<int64_t>{3, INT64_MAX}, {2}));
        },
    .reference = by_loops::numbers_repeated,
}};

const Op<Tensor(const Tensor&, const Shape&)> broadcast_to_op{{
    .schema = "broadcast_to(Tensor x, int[] shape) -> Tensor",
    .doc = "x broadcast to shape, as a view: another name of expand.",
    .composed = [](const Tensor& x, const Shape& shape) { return expand(x, shape); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 1}), Shape{2, 3, 4});
          s.invalid<ShapeError>("does not expand", s.tensor({2, 3}), Shape{4, 3});
        },
    .reference = by_loops::expanded,
}};

const Op<TensorList(const TensorList&, const std::string&)> meshgrid_op{{
    .schema = "meshgrid(Tensor[] tensors, str indexing=\"ij\") -> Tensor[]",
    .doc =
        "1-D tensors as coordinates of a grid: each as a view of the shape of all. With indexing \"xy\" the first two "
        "dimensions are exchanged.",
    .composed =
        [](const TensorList& tensors, const std::string& indexing) {
          check(indexing == "ij" || indexing == "xy", "meshgrid", "indexing must be \"ij\" or \"xy\", got \"", indexing,
                "\"");
          Shape shape;
          for (const Tensor& t : tensors) {
            check<ShapeError>(t.dim() <= 1, "meshgrid", "needs 1-D tensors, got ", t);
            shape.push_back(t.numel());
          }
          const int n = shape.size();
          TensorList grids;
          for (int i = 0; i < n; ++i) {
            Shape column = Shape::filled(n, 1);
            column[i] = shape[i];
            Tensor g = expand(reshape(tensors[static_cast<size_t>(i)], column), shape);
            grids.push_back(indexing == "xy" && n > 1 ? transpose(g, 0, 1) : g);
          }
          return grids;
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({3})});
          // Each result belongs to one input alone: a gradient check of one input would find the others unrecorded.
          s.add(TensorList{s.tensor({2}), s.tensor({3})}).not_differentiable();
          s.add(TensorList{s.tensor({2}), s.tensor({3}), s.tensor({})}, "xy").not_differentiable();
          s.invalid<ValueError>("indexing", TensorList{s.tensor({2})}, "ji");
          s.invalid<ShapeError>("1-D", TensorList{s.tensor({2, 2})});
        },
    .reference = by_loops::grids,
}};

// ---- triangles and diagonals ----

TensorMeta triangle_meta(const Tensor& x, std::string_view op) {
  check<ShapeError>(x.dim() >= 2, op, "needs at least two dimensions, got ", x);
  return like(x);
}
void triangle_samples(Samples& s) {
  s.add(s.tensor({3, 4}));
  s.add(s.tensor({2, 4, 3}), -1);
  s.add(s.tensor({2, 3, 3}), 2);
  s.add(s.tensor({0, 3}));
  s.invalid<ShapeError>("two dimensions", s.tensor({3}));
  if (s.benchmarking()) s.bench(s.tensor({2048, 2048}));
}

const Op<Tensor(const Tensor&, int64_t)> tril_op{{
    .schema = "tril(Tensor x, int diagonal=0) -> Tensor",
    .shard = "... m! n! -> ... m! n!",
    .inplace_by_copy = true,
    .doc = "The matrices of the last two dimensions with zeros above the diagonal-th diagonal.",
    .example = "assert(tril(ones({2, 2})).to_vector<float>() == std::vector<float>({1, 0, 1, 1}));",
    .infer = [](const Tensor& x, int64_t) { return triangle_meta(x, "tril"); },
    .kernels = {.cpu = tril_cpu, .cuda = STRATA_CUDA_KERNEL(tril_cuda)},
    .backward = [](Backward& b, const Tensor&, int64_t diagonal) { b.set(0, tril(b.gy(), diagonal)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t) { return move_cost(x); },
    .samples = triangle_samples,
    .reference = by_loops::triangle<true>,
}};
const Op<Tensor(const Tensor&, int64_t)> triu_op{{
    .schema = "triu(Tensor x, int diagonal=0) -> Tensor",
    .shard = "... m! n! -> ... m! n!",
    .inplace_by_copy = true,
    .doc = "The matrices of the last two dimensions with zeros below the diagonal-th diagonal.",
    .infer = [](const Tensor& x, int64_t) { return triangle_meta(x, "triu"); },
    .kernels = {.cpu = triu_cpu, .cuda = STRATA_CUDA_KERNEL(triu_cuda)},
    .backward = [](Backward& b, const Tensor&, int64_t diagonal) { b.set(0, triu(b.gy(), diagonal)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t) { return move_cost(x); },
    .samples = triangle_samples,
    .reference = by_loops::triangle<false>,
}};

const Op<Tensor(const Tensor&, int64_t, int64_t, int64_t)> diag_embed_op{{
    .schema = "diag_embed(Tensor x, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    .doc = "Zero matrices over dimensions dim1 and dim2 of the result with the last dimension of x on their diagonals.",
    .composed =
        [](const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
          check<ShapeError>(x.dim() >= 1, "diag_embed", "needs at least one dimension, got ", x);
          dim1 = wrap_dim(dim1, x.dim() + 1, "diag_embed");
          dim2 = wrap_dim(dim2, x.dim() + 1, "diag_embed");
          check(dim1 != dim2, "diag_embed", "dim1 and dim2 are both ", dim1);
          check<ShapeError>(offset < int64_t{1} << 60 && offset > -(int64_t{1} << 60), "diag_embed", "offset ", offset,
                            " is too large");
          const int64_t n = x.shape().back() + (offset < 0 ? -offset : offset);
          Shape shape = x.shape();
          shape.resize(shape.size() - 1);
          for (int64_t d : {std::min(dim1, dim2), std::max(dim1, dim2)}) shape.insert(d, n);
          return diagonal_backward(x, shape, offset, dim1, dim2);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3}));
          s.add(s.tensor({2, 3}), 1, 0, 2);
          s.add(s.tensor({2, 3}), -2);
          s.invalid<ShapeError>("one dimension", s.tensor({}));
          s.invalid<ValueError>("both", s.tensor({3}), 0, 1, 1);
        },
    .reference = by_loops::embedded,
}};

const Op<Tensor(const Tensor&, int64_t)> diag_op{{
    .schema = "diag(Tensor x, int diagonal=0) -> Tensor",
    .doc = "A matrix with a 1-D x on its diagonal, or the diagonal (a view) of a 2-D x.",
    .composed =
        [](const Tensor& x, int64_t diagonal) {
          check<ShapeError>(x.dim() == 1 || x.dim() == 2, "diag", "needs one or two dimensions, got ", x);
          return x.dim() == 1 ? diag_embed(x, diagonal) : strata::diagonal(x, diagonal);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3}), 1);
          s.add(s.tensor({3, 4}), -1);
          s.invalid<ShapeError>("one or two", s.tensor({2, 2, 2}));
        },
    .reference = by_loops::diagonal_or_matrix,
}};

}  // namespace

Tensor repeat(const Tensor& x, const Dims& repeats) {
  return repeat_op(x, repeats);
}
Tensor tile(const Tensor& x, const Dims& repeats) {
  return tile_op(x, repeats);
}
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  return repeat_interleave_op(x, repeats, dim);
}
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
  const Tensor from = dim && x.dim() > 0 ? x : reshape(x, {x.numel()});
  const int64_t d = dim && x.dim() > 0 ? wrap_dim(*dim, x.dim(), "repeat_interleave") : 0;
  const int64_t n = from.shape()[d];
  check<ShapeError>(repeats.dim() <= 1 && (repeats.numel() == n || repeats.numel() == 1), "repeat_interleave",
                    "repeats is ", repeats, ", wanted one count for each of ", n, " elements, or a single one");
  return index_select(from, d, repeat_index_op(expand(reshape(repeats, {repeats.numel()}), {n})));
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return broadcast_to_op(x, shape);
}
TensorList meshgrid(const TensorList& tensors, std::string_view indexing) {
  return meshgrid_op(tensors, std::string(indexing));
}
Tensor tril(const Tensor& x, int64_t diagonal) {
  return tril_op(x, diagonal);
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  return triu_op(x, diagonal);
}
Tensor diag(const Tensor& x, int64_t diagonal) {
  return diag_op(x, diagonal);
}
Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  return diag_embed_op(x, offset, dim1, dim2);
}

}  // namespace strata
