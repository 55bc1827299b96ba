#include "strata/ops/index/index.h"

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor zeros_as(const Tensor& g, const Shape& shape) {
  Tensor z = empty(like(g).with_shape(shape));
  return z.zero_();
}

void check_index_dtype(const Tensor& index, std::string_view op) {
  check<DTypeError>(index.dtype() == DType::i64 || index.dtype() == DType::i32, op, "index must be i64 or i32, got ",
                    index);
}

Cost move_cost(const Tensor& x, const Tensor& index) {
  return {0, static_cast<double>(index.nbytes() + 2 * index.numel() * size_of(x.dtype()))};
}

using naive::Array;
Array row_of(const Tensor& t) {
  return {t.dim() == 0 ? Shape{1} : t.shape(), t.to_vector<double>()};
}

// ---- an index for each element ----

// Rank and sizes of an element-wise index into x along dim.
void check_element_index(const Tensor& x, int64_t dim, const Tensor& index, std::string_view op) {
  dim = wrap_dim(dim, x.dim(), op);
  check_index_dtype(index, op);
  if (x.dim() <= 1 && index.dim() <= 1) return;  // a 0-dim one counts as a single element in a row
  check<ShapeError>(index.dim() == x.dim(), op, "index is ", index, ", x is ", x,
                    ": both must have the same number of dimensions");
  for (int64_t d = 0; d < x.dim(); ++d)
    check<ShapeError>(d == dim || index.shape()[d] <= x.shape()[d], op, "index is ", index, ", x is ", x,
                      ": index must not be longer in dimension ", d);
}

void check_source(const Tensor& x, const Tensor& index, const Tensor& src, std::string_view op) {
  const bool rows = src.dim() <= 1 && index.dim() <= 1 && src.numel() == index.numel();
  check<ShapeError>(rows || src.shape() == index.shape(), op, "src is ", src, ", index is ", index,
                    ": they must have one shape");
  check<DTypeError>(src.dtype() == x.dtype(), op, "src is ", src, ", x is ", x, ": they must have one dtype");
}

// The kernels want tensors of one rank: a 0-dim one is shown to them as a row.
Tensor as_row(const Tensor& t) {
  return t.dim() == 0 ? alias(t, {1}, {1}, t.storage_offset()) : t;
}
template <auto Kernel, auto... Options>
void take_rows(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor out = as_row(y);
  Kernel(out, as_row(x), wrap_dim(dim, x.dim(), "gather"), as_row(index), Options...);
}
template <auto Kernel>
void put_rows(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor out = as_row(y);
  Kernel(out, as_row(x), wrap_dim(dim, x.dim(), "scatter"), as_row(index), as_row(src));
}

// The references' way to the elements that an index names: f(place in the index, place in x).
template <class F>
void each_named(const Tensor& x, int64_t dim, const Tensor& index, F f) {
  const Array at(row_of(index));
  dim = naive::from_front(dim, x.dim());
  naive::each(at.shape(), [&](const Dims& p) { f(p, naive::moved(p, dim, static_cast<int64_t>(at[p]))); });
}
Tensor in_shape(const Array& y, const Shape& shape) {
  return Array(shape, Tensor(y).to_vector<double>());
}
bool is_bool(const Tensor& x) {
  return x.dtype() == DType::boolean;
}

// scatter_add of g into zeros of that shape.
Tensor added_to_zeros(const Tensor& g, const Shape& shape, int64_t dim, const Tensor& index);

const Op<Tensor(const Tensor&, int64_t, const Tensor&)> gather_op{{
    .schema = "gather(Tensor x, int dim, Tensor index) -> Tensor",
    .shard = "along dim",
    .doc = "result[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. The result has the shape of index, which "
           "may be "
           "shorter than x in the other dimensions.",
    .example = "Tensor x = arange(6).view({2, 3}); Tensor y = gather(x, 1, full({2, 1}, 2)); "
               "assert(y.to_vector<int64_t>() == std::vector<int64_t>({2, 5}));",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          check_element_index(x, dim, index, "gather");
          return like(x).with_shape(index.shape());
        },
    .kernels = {.cpu = take_rows<gather_cpu, false>, .cuda = STRATA_CUDA_KERNEL(take_rows<gather_cuda, false>)},
    .saves = "index",
    .backward = [](Backward& b, const Tensor& x, int64_t dim,
                   const Tensor& index) { b.set(0, added_to_zeros(b.gy(), x.shape(), dim, index)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, const Tensor& index) { return move_cost(x, index); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, s.integers({5, 3}, 0, 4));
          s.add(s.tensor({4, 3}), -1, s.integers({4, 2}, 0, 3, DType::i32));
          s.add(s.tensor({2, 3, 4}), 1, s.integers({2, 5, 2}, 0, 3));
          s.add(s.tensor({4, 3}), 0, s.integers({0, 3}, 0, 4));
          s.add(s.tensor({}), 0, s.integers({}, 0, 1));
          s.add(s.tensor({}), 0, s.integers({3}, 0, 1));
          s.add(s.tensor({4}), -1, s.integers({}, 0, 4));
          s.invalid<IndexError>("index 4 is out of range for dimension 0 with size 4", s.tensor({4, 3}), 0,
                                s.integers({1, 3}, 4, 5));
          s.invalid<ShapeError>("longer in dimension 1", s.tensor({4, 3}), 0, s.integers({1, 4}, 0, 1));
          s.invalid<ShapeError>("same number", s.tensor({4, 3}), 0, s.integers({3}, 0, 1));
          s.invalid<DTypeError>("i64 or i32", s.tensor({4}), 0, s.tensor({2}, DType::f32));
          if (s.benchmarking()) s.bench(s.tensor({4096, 1024}), 0, s.integers({4096, 1024}, 0, 4096));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          const Array from = row_of(x);
          Array y = row_of(index);
          each_named(x, dim, index, [&](const Dims& at, const Dims& in_x) { y[at] = from[in_x]; });
          return in_shape(y, index.shape());
        },
}};

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)> scatter_op{{
    .schema = "scatter(Tensor x, int dim, Tensor index, Tensor src) -> Tensor",
    .shard = "along dim",
    .doc = "x with x[index[i][j][k]][j][k] replaced by src[i][j][k] for dim 0, and so on; src has the shape of index. "
           "Where an "
           "index comes twice the later element wins, and the gradient supposes that none does.",
    .example = "Tensor y = scatter(zeros({3}), 0, full({1}, 1), ones({1})); assert(y.to_vector<float>() == "
               "std::vector<float>({0, 1, 0}));",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
          check_element_index(x, dim, index, "scatter");
          check_source(x, index, src, "scatter");
          return like(x);
        },
    .kernels = {.cpu = put_rows<scatter_cpu>, .cuda = STRATA_CUDA_KERNEL(put_rows<scatter_cuda>)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor&, int64_t dim, const Tensor& index, const Tensor& src) {
          if (b.needs(0)) b.set(0, scatter(b.gy(), dim, index, Scalar(0)));
          if (b.needs(2)) b.set(2, reshape(gather(b.gy(), dim, index), src.shape()));
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, const Tensor& index, const Tensor&) {
          return Cost{0, move_cost(x, index).bytes + 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const Tensor rows = from_span<int64_t>(std::vector<int64_t>{2, 0, 1, 1, 3, 0}, {2, 3});
          s.add(s.tensor({4, 3}), 0, rows, s.tensor({2, 3}));
          s.add(s.tensor({3, 5}), 1, from_span<int64_t>(std::vector<int64_t>{4, 1, 0, 2}, {2, 2}), s.tensor({2, 2}));
          s.add(s.tensor({4, 3}), 0, s.integers({0, 3}, 0, 4), s.tensor({0, 3}));
          s.add(s.tensor({}), 0, s.integers({1}, 0, 1), s.tensor({}));
          s.add(s.tensor({3}), 0, s.integers({}, 0, 3), s.tensor({1}));
          s.add(s.tensor({3, 300}), 0, s.integers({2, 290}, 0, 3), s.tensor({2, 290}))
              .named("twice")
              .not_differentiable();
          s.invalid<IndexError>("index 3 is out of range for dimension 0 with size 3", s.tensor({3, 3}), 0, rows,
                                s.tensor({2, 3}));
          s.invalid<ShapeError>("one shape", s.tensor({4, 3}), 0, rows, s.tensor({2, 2}));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
          Array y = row_of(x);
          const Array from = row_of(src);
          each_named(x, dim, index, [&](const Dims& at, const Dims& in_x) { y[in_x] = from[at]; });
          return in_shape(y, x.shape());
        },
}};

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)> scatter_add_op{{
    .schema = "scatter_add(Tensor x, int dim, Tensor index, Tensor src) -> Tensor",
    .shard = "along dim",
    .doc = "x with src[i][j][k] added to x[index[i][j][k]][j][k] for dim 0, and so on; src has the shape of index. "
           "Elements "
           "with one target are added in order (bf16 and f16 in f32), so the sum does not depend on threads.",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
          check_element_index(x, dim, index, "scatter_add");
          check_source(x, index, src, "scatter_add");
          return like(x);
        },
    .kernels = {.cpu = put_rows<scatter_add_cpu>, .cuda = STRATA_CUDA_KERNEL(put_rows<scatter_add_cuda>)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor&, int64_t dim, const Tensor& index, const Tensor& src) {
          if (b.needs(0)) b.set(0, b.gy());
          if (b.needs(2)) b.set(2, reshape(gather(b.gy(), dim, index), src.shape()));
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, const Tensor& index, const Tensor&) {
          return Cost{static_cast<double>(index.numel()),
                      move_cost(x, index).bytes + 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, s.integers({7, 3}, 0, 4), s.tensor({7, 3}));
          s.add(s.tensor({3, 5}), -1, s.integers({2, 6}, 0, 5, DType::i32), s.tensor({2, 6}));
          s.add(s.tensor({2, 3, 4}), 1, s.integers({1, 5, 2}, 0, 3), s.tensor({1, 5, 2}));
          s.add(s.tensor({2, 300}), 1, s.integers({2, 130}, 0, 300), s.tensor({130, 2}).t())
              .named("several parts, strided");
          s.add(s.tensor({5, 37}), 0, s.integers({70, 33}, 0, 5), s.tensor({70, 33})).named("many lines");
          s.add(s.tensor({3, 4}), 0, s.integers({0, 4}, 0, 3), s.tensor({0, 4})).named("nothing");
          s.invalid<IndexError>("out of range for dimension 0", s.tensor({4}), 0, s.integers({2}, -2, 0),
                                s.tensor({2}));
          s.add(s.tensor({}), 0, s.integers({2}, 0, 1), s.tensor({2}));
          s.invalid<ShapeError>("one shape", s.tensor({4}), 0, s.integers({2}, 0, 4), s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
          Array y = row_of(x);
          const Array from = row_of(src);
          each_named(x, dim, index, [&](const Dims& at, const Dims& in_x) {
            y[in_x] = is_bool(x) ? std::max(y[in_x], from[at]) : y[in_x] + from[at];
          });
          return in_shape(y, x.shape());
        },
}};

Tensor added_to_zeros(const Tensor& g, const Shape& shape, int64_t dim, const Tensor& index) {
  Tensor sums = zeros_as(g, shape);
  // In place, so that the zeros are not copied first; where a sharded gradient's parts lie is for the other form.
  return is_placed(g) ? scatter_add(sums, dim, index, g) : scatter_add_op.inplace(sums, dim, index, g);
}

// Indices of a dimension of n as counted from its front; those that are out of range stay as they are, for the error.
Tensor from_front(const Tensor& index, int64_t n) {
  return where(logical_and(index < 0, index >= -n), index + n, index);
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&)> take_along_op{{
    .schema = "take_along(Tensor x, int dim, Tensor index) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "gather where negative indices count from the end: what take_along_dim is, in one pass.",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          check_element_index(x, dim, index, "take_along_dim");
          return like(x).with_shape(index.shape());
        },
    .kernels = {.cpu = take_rows<gather_cpu, true>, .cuda = STRATA_CUDA_KERNEL(take_rows<gather_cuda, true>)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim, const Tensor& index) {
          const int64_t n = x.dim() == 0 ? 1 : x.shape()[wrap_dim(dim, x.dim(), "take_along_dim")];
          b.set(0, added_to_zeros(b.gy(), x.shape(), dim, from_front(index, n)));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, const Tensor& index) { return move_cost(x, index); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, s.integers({5, 3}, -4, 4));
          s.add(s.tensor({4, 3}), -1, s.integers({4, 2}, -3, 3, DType::i32));
          s.add(s.tensor({4}), 0, s.integers({7}, -4, 0));
          s.add(s.tensor({}), 0, s.integers({2}, -1, 1));
          s.invalid<IndexError>("index -5 is out of range for dimension 0 with size 4", s.tensor({4, 3}), 0,
                                s.integers({1, 3}, -5, -4));
          s.invalid<DTypeError>("i64 or i32", s.tensor({4}), 0, s.tensor({2}, DType::f32));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          const Array from = row_of(x), at = row_of(index);
          Array y = at;
          dim = naive::from_front(dim, x.dim());
          naive::each(at.shape(), [&](const Dims& p) {
            const int64_t i = naive::from_front(static_cast<int64_t>(at[p]), from.shape()[dim]);
            y[p] = from[naive::moved(p, dim, i)];
          });
          return in_shape(y, index.shape());
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, std::optional<int64_t>)> take_along_dim_op{{
    .schema = "take_along_dim(Tensor x, Tensor index, int? dim=None) -> Tensor",
    .doc = "gather with x and index broadcast against each other in the other dimensions; without dim on the flattened "
           "x. Negative indices count from the end. IndexError.",
    .composed =
        [](const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
          const auto flat = [](const Tensor& t) { return t.dim() == 1 ? t : reshape(t, {t.numel()}); };
          if (!dim) return take_along_op(flat(x), 0, flat(index));
          check<ShapeError>(x.dim() == index.dim(), "take_along_dim", "x is ", x, ", index is ", index,
                            ": both must have the same number of dimensions");
          const int64_t d = wrap_dim(*dim, x.dim(), "take_along_dim");
          if (x.dim() == 0) return take_along_op(x, d, index);
          Shape sx = x.shape(), si = index.shape();
          sx[d] = si[d] = 1;
          Shape both = broadcast_shapes(sx, si, "take_along_dim");
          both[d] = x.shape()[d];
          const auto spread = [&](const Tensor& t) { return t.shape() == both ? t : expand(t, both); };
          const Tensor wide = spread(x);
          both[d] = index.shape()[d];
          return take_along_op(wide, d, spread(index));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.integers({1, 3}, 0, 4), 0);
          s.add(s.tensor({4, 3}), s.integers({5, 3}, -4, 4, DType::i32), 0).named("indices from the end");
          s.add(s.tensor({2, 3}), s.integers({4}, -6, 0)).named("from the end of the flattened");
          s.invalid<IndexError>("out of range", s.tensor({4}), s.integers({2}, -6, -4), 0);
          s.add(s.tensor({1, 4}), s.integers({3, 2}, 0, 4), -1);
          s.add(s.tensor({2, 3}), s.integers({4}, 0, 6));
          s.invalid<ShapeError>("same number", s.tensor({2, 3}), s.integers({2}, 0, 1), 0);
        },
    .reference =
        [](const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
          const naive::Array v(x), at(index);
          if (!dim)
            return Tensor(naive::made({at.size()}, [&](const Dims& p) {
              return v.flat(naive::from_front(static_cast<int64_t>(at[p]), x.numel()));
            }));
          const int64_t d = naive::from_front(*dim, x.dim());
          Shape shape = index.shape();
          for (int64_t i = 0; i < x.dim(); ++i)
            if (i != d) shape[i] = std::max(shape[i], x.shape()[i]);
          const auto within = [](Dims p, const Shape& s) {
            for (int i = 0; i < p.size(); ++i) p[i] = s[i] == 1 ? 0 : p[i];
            return p;
          };
          return Tensor(naive::made(shape, [&](const Dims& p) {
            const auto i = static_cast<int64_t>(at[within(p, index.shape())]);
            return v[naive::moved(within(p, x.shape()), d, naive::from_front(i, x.shape()[d]))];
          }));
        },
}};

// ---- an index for each slice ----

void check_slice_index(const Tensor& x, int64_t dim, const Tensor& index, std::string_view op) {
  wrap_dim(dim, x.dim(), op);
  check_index_dtype(index, op);
  check<ShapeError>(index.dim() <= 1, op, "index must be 1-D, got ", index);
  check<ShapeError>(x.dim() > 0 || index.numel() == 1, op, "a 0-dim tensor has a single slice, got index ", index);
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&)> index_select_op{{
    .schema = "index_select(Tensor x, int dim, Tensor index) -> Tensor",
    .shard = "along dim",
    .doc = "The slices of x along dim that the 1-D index names.",
    .example = "Tensor y = index_select(arange(4), 0, full({2}, 3)); assert(y.to_vector<int64_t>() == "
               "std::vector<int64_t>({3, 3}));",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          check_slice_index(x, dim, index, "index_select");
          TensorMeta m = like(x);
          if (x.dim() > 0) m.shape[wrap_dim(dim, x.dim(), "index_select")] = index.numel();
          return m;
        },
    .kernels = {.cpu = take_rows<index_select_cpu>, .cuda = STRATA_CUDA_KERNEL(take_rows<index_select_cuda>)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim, const Tensor& index) {
          Tensor g = zeros_as(b.gy(), x.shape());
          // In place, so that the zeros are not copied first; where a sharded gradient's parts lie is for the other
          // form.
          b.set(0, is_placed(b.gy()) ? index_add(g, dim, index, b.gy()) : index_add_(g, dim, index, b.gy()));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          const int64_t slices = x.dim() == 0 ? 1 : std::max<int64_t>(1, x.size(dim));
          const double slice = static_cast<double>(x.nbytes()) / static_cast<double>(slices);
          return Cost{0, 2 * slice * static_cast<double>(index.numel())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, s.integers({6}, 0, 4));
          s.add(s.tensor({2, 4, 3}), 1, s.integers({2}, 0, 4, DType::i32));
          s.add(s.tensor({4, 3}), -1, s.integers({}, 0, 3));
          s.add(s.tensor({4, 3}), 0, s.integers({0}, 0, 4));
          s.invalid<IndexError>("index 4 is out of range for dimension 0 with size 4", s.tensor({4, 3}), 0,
                                s.integers({1}, 4, 5));
          s.invalid<ShapeError>("1-D", s.tensor({4, 3}), 0, s.integers({1, 1}, 0, 1));
          s.add(s.tensor({}), 0, s.integers({1}, 0, 1));
          s.invalid<ShapeError>("0-dim", s.tensor({}), 0, s.integers({2}, 0, 1));
          if (s.benchmarking()) s.bench(s.tensor({50000, 256}), 0, s.integers({8192}, 0, 50000));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index) {
          const Tensor i64 = contiguous(to(index, DType::i64));
          TensorList rows;
          if (x.dim() == 0) return clone(x);
          for (int64_t i = 0; i < i64.numel(); ++i) rows.push_back(select(x, dim, i64.data<int64_t>()[i]));
          if (rows.empty()) return slice(x, dim, 0, 0);
          return stack(rows, wrap_dim(dim, x.dim(), "index_select"));
        },
}};

template <auto Kernel>
void add_rows(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  Tensor out = as_row(y);
  Kernel(out, as_row(x), wrap_dim(dim, x.dim(), "index_add"), index, as_row(source), alpha);
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, Scalar)> index_add_op{{
    .schema = "index_add(Tensor x, int dim, Tensor index, Tensor source, Scalar alpha=1) -> Tensor",
    .shard = "along dim",
    .doc = "x with alpha * (slice i of source) added to its slice index[i] along dim, in order (bf16 and f16 in f32).",
    .infer =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar) {
          check_slice_index(x, dim, index, "index_add");
          Shape wanted = x.shape();
          if (x.dim() > 0) wanted[wrap_dim(dim, x.dim(), "index_add")] = index.numel();
          check<ShapeError>(source.shape() == wanted, "index_add", "source is ", source, ", wanted shape ", wanted);
          check<DTypeError>(source.dtype() == x.dtype(), "index_add", "source is ", source, ", x is ", x,
                            ": they must have one dtype");
          return like(x);
        },
    .kernels = {.cpu = add_rows<index_add_cpu>, .cuda = STRATA_CUDA_KERNEL(add_rows<index_add_cuda>)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor&, int64_t dim, const Tensor& index, const Tensor&, Scalar alpha) {
          if (b.needs(0)) b.set(0, b.gy());
          if (!b.needs(2)) return;
          const Tensor g = index_select(b.gy(), dim, index);
          b.set(2, alpha.to_double() == 1 ? g : g * alpha);
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, const Tensor&, const Tensor& source, Scalar) {
          return Cost{static_cast<double>(source.numel()),
                      2.0 * static_cast<double>(x.nbytes()) + 3.0 * static_cast<double>(source.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, s.integers({6}, 0, 4), s.tensor({6, 3}));
          s.add(s.tensor({2, 4, 3}), 1, s.integers({5}, 0, 4), s.tensor({2, 5, 3}), Scalar(2));
          s.add(s.tensor({4, 3}), -1, s.integers({2}, 0, 3, DType::i32), s.tensor({4, 2}));
          s.invalid<ShapeError>("wanted shape", s.tensor({4, 3}), 0, s.integers({2}, 0, 4), s.tensor({3, 3}));
          s.invalid<IndexError>("out of range for dimension 0 with size 4", s.tensor({4}), 0, s.integers({1}, 5, 6),
                                s.tensor({1}));
          s.add(s.tensor({}), 0, s.integers({1}, 0, 1), s.tensor({}));
          s.add(s.tensor({300, 33}), 0, s.integers({1100}, 0, 300), s.tensor({1100, 33}))
              .named("slices, looked through")
              .not_differentiable();
          s.add(s.tensor({2, 3, 40}), 1, s.integers({5}, 0, 3), s.tensor({2, 5, 40}), Scalar(2)).not_differentiable();
          if (s.benchmarking()) s.bench(s.tensor({5000, 256}), 0, s.integers({8192}, 0, 5000), s.tensor({8192, 256}));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
          Array y = row_of(x);
          const Array from = row_of(source), at = row_of(index);
          dim = naive::from_front(dim, x.dim());
          naive::each(from.shape(), [&](const Dims& p) {
            const Dims to = naive::moved(p, dim, static_cast<int64_t>(at.flat(p[dim])));
            y[to] = is_bool(x) ? std::max(y[to], from[p]) : y[to] + alpha.to_double() * from[p];
          });
          return in_shape(y, x.shape());
        },
}};

// src cut to the index's shape (scatter takes a larger one) and in x's dtype.
Tensor cut_source(const Tensor& x, const Tensor& index, const Tensor& src, std::string_view op) {
  Tensor s = to(src, x.dtype());
  if (s.shape() == index.shape()) return s;
  if (s.dim() <= 1 && index.dim() <= 1 && (s.dim() == 0 || index.dim() == 0) && s.numel() >= index.numel())
    return reshape(slice(reshape(s, {s.numel()}), 0, 0, index.numel()), index.shape());
  check<ShapeError>(s.dim() == index.dim(), op, "src is ", src, ", index is ", index,
                    ": both must have the same number of dimensions");
  for (int64_t d = 0; d < s.dim(); ++d) {
    check<ShapeError>(s.shape()[d] >= index.shape()[d], op, "src is ", src, ", index is ", index,
                      ": src must not be shorter in dimension ", d);
    if (s.shape()[d] != index.shape()[d]) s = slice(s, d, 0, index.shape()[d]);
  }
  return s;
}

}  // namespace

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  return gather_op(x, dim, index);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_op(x, dim, index, cut_source(x, index, src, "scatter"));
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value) {
  Tensor v = empty(like(x).with_shape({}));
  v.fill_(value);
  return scatter_op(x, dim, index, expand(v, index.shape()));
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter_add_op(x, dim, index, cut_source(x, index, src, "scatter_add"));
}
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  return take_along_dim_op(x, index, dim);
}
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  return index_select_op(x, dim, index);
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  return index_add_op(x, dim, index, to(source, x.dtype()), alpha);
}
Tensor& index_add_(Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  return index_add_op.inplace(x, dim, index, source, alpha);
}

}  // namespace strata
