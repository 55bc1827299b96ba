// Indexing on a CUDA device. Results do not depend on how threads meet: of what names one place twice the last wins
// (put_last.cu, join_lines.cu), and sums are formed in order, along lines (join_lines.cu) or after sorting, or in
// integers, which have none (add_any_order.cu).

#include <algorithm>

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/cuda/rows.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/add_any_order_kernel.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/index/join_lines_kernel.h"
#include "strata/ops/index/put_last_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using cuda::RowShape;
using cuda::Walk;

constexpr int kThreads = 256;

// ---- an index for each slice, or for several dimensions ----

// x seen as [pre, rows, width]: dims before, indexed, after.
struct Layout {
  Dims order;  // of x's dims
  RowShape shape;
  bool as_it_is = true;  // order is 0, 1, 2, ...
};

Layout layout_of(const Tensor& x, const Dims& pre, const Dims& indexed, const Dims& post) {
  Layout l;
  l.shape = {1, 1, 1};
  const auto add = [&](const Dims& dims, int64_t& size) {
    for (int64_t d : dims) {
      l.as_it_is = l.as_it_is && d == l.order.size();
      l.order.push_back(d);
      size *= x.shape()[d];
    }
  };
  add(pre, l.shape.pre);
  add(indexed, l.shape.rows);
  add(post, l.shape.width);
  return l;
}
Layout layout_of(const Tensor& x, int64_t dim) {
  Dims pre, post;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != dim) (d < dim ? pre : post).push_back(d);
  return layout_of(x, pre, {dim}, post);
}

Tensor permuted(const Tensor& x, const Layout& l) {
  if (l.as_it_is) return x;
  Shape shape;
  Strides strides;
  for (int64_t d : l.order) {
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return alias(x, shape, strides, x.storage_offset());
}

Tensor dense_i64(const Tensor& index) {
  return contiguous(to(index, DType::i64));
}

struct AddIndex {
  int64_t size, stride;
  cuda::RangeCheck in_range;
  __device__ int64_t operator()(int64_t sum, int64_t index) const {
    if (sum == cuda::kNoRow) return sum;
    const int64_t v = index < 0 ? index + size : index;
    if (v >= 0 && v < size) return sum + v * stride;
    in_range.tell(index, size);
    return cuda::kNoRow;
  }
};

struct FirstIndex {
  AddIndex add;
  __device__ int64_t operator()(int64_t index) const { return add(0, index); }
};

// The row that each position of the index tensors (broadcast) names.
Tensor rows_named(const Tensor& x, const TensorList& indices, const IndexPlan& plan) {
  Tensor rows = empty({plan.broadcast, DType::i64, x.device(), std::nullopt});
  int64_t stride = 1;
  for (int k = plan.indexed.size() - 1; k >= 0; --k) {
    const int64_t d = plan.indexed[k];
    const Tensor index = to(indices[static_cast<size_t>(d)], DType::i64);
    const int lead = plan.broadcast.size() - static_cast<int>(index.dim());
    Strides strides = Strides::filled(plan.broadcast.size(), 0);
    for (int i = 0; i < index.dim(); ++i)
      if (index.shape()[i] != 1) strides[lead + i] = index.strides()[i];
    const Tensor spread = alias(index, plan.broadcast, strides, index.storage_offset());
    const AddIndex add{x.shape()[d], stride, cuda::range_check()};
    if (k == plan.indexed.size() - 1)
      cuda::elementwise<int64_t, int64_t>("index", rows, FirstIndex{add}, spread);
    else
      cuda::elementwise<int64_t, int64_t, int64_t>("index", rows, add, rows, spread);
    stride *= x.shape()[d];
  }
  return rows;
}

// An index by rows, and whether its negative elements count from the end: kernels take them, so that one of i64 needs
// no pass before.
struct RowIndex {
  Tensor rows;
  bool from_end;
};
RowIndex row_index(const Tensor& x, const TensorList& indices, const IndexPlan& plan) {
  if (plan.indexed.size() == 1) {
    const Tensor& index = indices[static_cast<size_t>(plan.indexed[0])];
    if (index.dtype() == DType::i64) return {contiguous(index), true};
  }
  return {rows_named(x, indices, plan), false};
}

void read_rows(Tensor& y, const Tensor& x, const Layout& l, const RowIndex& index) {
  if (l.shape.pre == 1 && l.as_it_is && x.dim() > 0 && l.shape.rows == x.size(0) && cuda::has_far_rows(x))
    return cuda::take_far_rows(y, x, index.rows, index.from_end);
  const Tensor in = contiguous(permuted(x, l));
  cuda::take_rows(x.dtype(), in.raw_data(), l.shape, index.rows, y.raw_data(), index.from_end);
}

// write(memory of y, memory of x), both row-major in l's order, whatever y's own layout is: what is written over x is
// to go to y, which may be x.
template <class Write>
void write_into(Tensor& y, const Tensor& x, const Layout& l, Write&& write) {
  if (y.is_contiguous() && l.as_it_is) {
    if (x.is_contiguous()) return write(y.raw_data(), x.raw_data());
    copy_elements(y, x);
    return write(y.raw_data(), y.raw_data());
  }
  const Tensor from = contiguous(permuted(x, l));
  const bool own = !(from.storage() == x.storage());
  const Tensor work = own ? from : empty({from.shape(), x.dtype(), x.device(), std::nullopt});
  write(work.raw_data(), from.raw_data());
  copy_elements(permuted(y, l), work);
}

// to += alpha * source at the rows that the index names, where `from` is what was there.
void add_at_rows(DType t, void* to, const void* from, const RowShape& shape, const RowIndex& index,
                 const Tensor& source, Scalar alpha) {
  const int64_t n = index.rows.numel();
  // Single values are sorted with their places, and need not be looked for afterwards. Of more than the L2 cache holds
  // an atomic operation is a sector read and written, so that two an element take longer than the sort.
  constexpr int64_t kBeyondCache = int64_t{1} << 22;
  const bool single = t == DType::f32 && shape.pre == 1 && shape.width == 1 && shape.rows > 0 &&
                      shape.rows <= INT32_MAX && n <= INT32_MAX;
  const bool many = single && n >= kBeyondCache && shape.rows >= kBeyondCache;
  if (!many && adds_any_order(t, shape, n))
    return add_any_order_cuda(t, to, from, shape, index.rows, source.raw_data(), alpha, index.from_end);
  const size_t bytes = static_cast<size_t>(shape.pre * shape.rows * shape.width * size_of(t));
  const Device device = index.rows.device();
  if (to != from && bytes > 0) cuda::copy_bytes(to, device, from, device, bytes);
  if (n == 0 || source.numel() == 0) return;
  if (single)
    return cuda::add_values(static_cast<float*>(to), shape.rows, index.rows,
                            static_cast<const float*>(source.raw_data()), alpha.to<float>(), index.from_end);
  const cuda::SortedIndex sorted = cuda::sort_index(index.rows, shape.rows, index.from_end);
  cuda::add_rows(t, to, shape, sorted, source.raw_data(), alpha);
}

void write_rows(Tensor& y, const Tensor& x, const Layout& l, const RowIndex& index, const Tensor& value, bool add,
                Scalar alpha) {
  const Tensor from = contiguous(value);
  write_into(y, x, l, [&](void* to, const void* was) {
    if (add) return add_at_rows(y.dtype(), to, was, l.shape, index, from, alpha);
    put_last_cuda(y.dtype(), to, was, l.shape, index.rows, from.raw_data(), index.from_end);
  });
}

// Whether slices are better added up as rows, by a sorted index, than along lines: rows are as wide as a sector and all
// lies row by row. In microseconds, some ten launches, and what moves.
bool adds_rows(const Tensor& y, const Tensor& x, int64_t dim, const Tensor& spread, const Tensor& value) {
  int64_t bytes = size_of(y.dtype());
  for (int64_t d = dim + 1; d < y.dim(); ++d) bytes *= y.shape()[d];
  if (bytes < 64 || !y.is_contiguous() || !x.is_contiguous() || !value.is_contiguous()) return false;
  const int64_t moved = value.nbytes() + (y.same_as(x) ? 2 : 4) * y.nbytes();
  return 40 + static_cast<double>(moved) / 3e6 < time_along_lines(y, dim, spread);
}

// The same of an index for slices along dim, where lines along it are the fast way.
bool writes_lines(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value, bool add,
                  Scalar alpha, bool from_end) {
  if (index.dim() > 1 || x.dim() == 0 || value.dim() != x.dim()) return false;
  const Tensor spread = index_of_slices(index, value.shape(), dim);
  if (add) {
    // Of a longer index many may name one place, which is one thread's work there.
    constexpr int64_t kLongest = 2048;
    // Copies of what has gaps are two launches more, and what they read and write.
    const double copies = x.is_contiguous() && value.is_contiguous()
                              ? 0
                              : 8 + static_cast<double>(2 * (x.nbytes() + value.nbytes())) / 2e6;
    if (value.shape()[dim] <= kLongest && joins_slices(y, dim, value) &&
        (copies == 0 || copies < time_along_lines(y, dim, spread))) {
      join_slices_cuda(y, x, dim, index, value, {Join::sum, true, from_end, alpha});
      return true;
    }
    if (!joins_lines(y, dim, spread, adds_floats_or_words(y.dtype()))) return false;
    if (spread.numel() > 0 && adds_rows(y, x, dim, spread, value)) return false;
    join_lines_cuda(y, x, dim, spread, value, {Join::sum, true, from_end, alpha});
  } else {
    if (puts_few(y, index) && y.storage() != value.storage()) {
      if (!y.same_as(x)) copy_elements(y, x);
      put_few_cuda(y, index, value, from_end);
      return true;
    }
    if (!puts_lines(y, dim, spread)) return false;
    put_lines_cuda(y, x, dim, spread, value, from_end);
  }
  return true;
}

}  // namespace

void index_select_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index) {
  read_rows(y, x, layout_of(x, wrap_dim(dim, x.dim(), "index_select")), {dense_i64(index), false});
}
void index_add_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  dim = wrap_dim(dim, x.dim(), "index_add");
  const Tensor rows = dense_i64(index);
  if (writes_lines(y, x, dim, rows, source, true, alpha, false)) return;
  write_rows(y, x, layout_of(x, dim), {rows, false}, source, true, alpha);
}
void index_cuda(Tensor& y, const Tensor& x, const TensorList& indices) {
  const IndexPlan plan = plan_index(x, indices, "index");
  read_rows(y, x, layout_of(x, plan.pre, plan.indexed, plan.post), row_index(x, indices, plan));
}
// Where the elements of a tensor with gaps lie, by their places in row-major order.
struct PlacesOf {
  int dims = 0;
  cuda::FastDivisor by[cuda::kMostDims];  // innermost first, as the strides are
  int64_t strides[cuda::kMostDims] = {};
  explicit PlacesOf(const Tensor& x) {
    for (int d = static_cast<int>(x.dim()) - 1; d >= 0; --d, ++dims) {
      by[dims] = cuda::FastDivisor(static_cast<uint32_t>(x.shape()[d]));
      strides[dims] = x.strides()[d];
    }
  }
  __device__ __forceinline__ int64_t operator()(uint32_t place) const {
    int64_t at = 0;
#pragma unroll
    for (int d = 0; d < cuda::kMostDims; ++d) {
      if (d >= dims) break;
      const uint32_t q = by[d].divide(place);
      at += static_cast<int64_t>(place - q * by[d].d) * strides[d];
      place = q;
    }
    return at;
  }
};
template <class B>
__global__ void __launch_bounds__(kThreads) take_kernel(PlacesOf places, B* y, const B* x, const int64_t* index,
                                                        int64_t n, int64_t size, cuda::RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t named = index[i], k = named < 0 && named >= -size ? named + size : named;
  y[i] = cuda::is_in_range(k, size) ? x[places(static_cast<uint32_t>(k))] : B();
  in_range(k, size);
}

void take_cuda(Tensor& y, const Tensor& x, const Tensor& index) {
  const Tensor named = dense_i64(index);
  // Few elements of an x with gaps are read where they lie; for many a copy of it comes first.
  const int64_t n = named.numel(), size = x.numel();
  if (n > 0 && n <= size && size < (int64_t{1} << 31) && x.dim() <= cuda::kMostDims && !x.is_contiguous())
    return dispatch_bytes(x.dtype(), [&]<class B>() {
      take_kernel<B><<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(
          PlacesOf(x), static_cast<B*>(y.raw_data()), static_cast<const B*>(x.raw_data()),
          static_cast<const int64_t*>(named.raw_data()), n, size, cuda::range_check());
    });
  const Tensor from = contiguous(x);
  cuda::take_rows(x.dtype(), from.raw_data(), {1, size, 1}, named, y.raw_data(), true);
}
void index_put_cuda(Tensor& y, const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate) {
  const IndexPlan plan = plan_index(x, indices, "index_put");
  if (plan.indexed.size() == 1) {
    const int64_t dim = plan.indexed[0];
    const Tensor index = to(indices[static_cast<size_t>(dim)], DType::i64);
    if (writes_lines(y, x, dim, index, value, accumulate, 1, true)) return;
  }
  const Layout l = layout_of(x, plan.pre, plan.indexed, plan.post);
  write_rows(y, x, l, row_index(x, indices, plan), value, accumulate, 1);
}

// ---- an index for each element ----

namespace {

// x as the index's elements see it: x's strides over the index's sizes, and none along dim.
Tensor lines_of(const Tensor& x, int64_t dim, const Tensor& index) {
  Strides strides = x.strides();
  if (x.dim() > 0) strides[dim] = 0;
  return alias(x, index.shape(), strides, x.storage_offset());
}

// An index as gather() has it, of any integer type, where negative ones may count from the end.
template <class I>
struct ElementIndex {
  const I* index;
  int64_t size;
  bool from_end;
  __device__ __forceinline__ int64_t operator[](int64_t at) const {
    const int64_t k = index[at];
    return from_end && k < 0 && k >= -size ? k + size : k;
  }
};

// Each thread has E elements on their way together.
template <class B, int E, class I>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Walk<3> w, B* y, const B* x, ElementIndex<I> index, int64_t stride, cuda::RangeCheck in_range) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * E) + threadIdx.x;
  int64_t at[E][3], k[E];
#pragma unroll
  for (int u = 0; u < E; ++u) {
    k[u] = cuda::kNoRow;
    if (first + u * kThreads >= w.numel) continue;
    w.offsets(static_cast<uint32_t>(first + u * kThreads), 1, at[u]);
    k[u] = index[at[u][2]];
  }
  B v[E] = {};
#pragma unroll
  for (int u = 0; u < E; ++u)
    if (cuda::is_in_range(k[u], index.size)) v[u] = x[at[u][1] + k[u] * stride];
#pragma unroll
  for (int u = 0; u < E; ++u) {
    if (first + u * kThreads >= w.numel) continue;
    y[at[u][0]] = v[u];
    in_range(k[u], index.size);
  }
}

// The same of x seen as [pre, rows, width] and an index [pre, length, width], all row-major, by columns: of
// neighbouring blocks that are at work together the lines of x are kColumns elements of each row, which stay in the L2
// cache where all of x does not.
constexpr int kColumns = 32, kRowsAtOnce = kThreads / kColumns, kRowsEach = 4;
template <class B, class I>
__global__ void __launch_bounds__(kThreads)
    gather_columns_kernel(B* y, const B* x, ElementIndex<I> index, int64_t length, int64_t width, int64_t row_blocks,
                          int64_t column_blocks, cuda::RangeCheck in_range) {
  const int64_t block = blockIdx.x, line = block / row_blocks, pre = line / column_blocks;
  const int64_t column = (line - pre * column_blocks) * kColumns + threadIdx.x % kColumns;
  const int64_t row = (block - line * row_blocks) * (kRowsAtOnce * kRowsEach) + threadIdx.x / kColumns;
  if (column >= width) return;
  const int64_t first = pre * length * width + column;
  int64_t k[kRowsEach];
#pragma unroll
  for (int u = 0; u < kRowsEach; ++u) {
    const int64_t r = row + u * kRowsAtOnce;
    k[u] = r < length ? index[first + r * width] : cuda::kNoRow;
  }
  const B* const from = x + pre * index.size * width + column;
  B v[kRowsEach] = {};
#pragma unroll
  for (int u = 0; u < kRowsEach; ++u)
    if (cuda::is_in_range(k[u], index.size)) v[u] = from[k[u] * width];
#pragma unroll
  for (int u = 0; u < kRowsEach; ++u) {
    const int64_t r = row + u * kRowsAtOnce;
    if (r >= length) continue;
    y[first + r * width] = v[u];
    in_range(k[u], index.size);
  }
}

// Whether gather_columns_kernel() is for these: x is past the L2 cache, and a block of its columns is not.
bool gathers_columns(const Tensor& y, const Tensor& x, int64_t dim, const Tensor& index) {
  constexpr int64_t kPlane = int64_t{16} << 20;
  if (!x.is_contiguous() || !index.is_contiguous() || !y.is_contiguous()) return false;
  int64_t width = 1;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != dim && x.shape()[d] != index.shape()[d]) return false;
    if (d > dim) width *= x.shape()[d];
  }
  const int64_t rows = x.shape()[dim], size = size_of(x.dtype());
  return width >= 2 * kColumns && rows * width * size > kPlane && rows * kColumns * size <= kPlane;
}

// target[e] = the place that element e of the index names.
__global__ void __launch_bounds__(kThreads)
    targets_kernel(Walk<3> w, int64_t* target, const int64_t* index, int64_t first, int64_t size, int64_t stride,
                   cuda::RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.numel) return;
  int64_t at[3];
  w.offsets(static_cast<uint32_t>(i), 1, at);
  const int64_t k = index[at[2]];
  target[at[0]] = cuda::is_in_range(k, size) ? first + at[1] + k * stride : cuda::kNoRow;
  in_range(k, size);
}

// Where in a row-major x the elements of the index land.
Tensor targets_of(const Tensor& x, int64_t dim, const Tensor& index) {
  const Tensor dense = dense_i64(index);
  if (x.dim() == 1) return dense;
  const Tensor target = empty(like(dense));
  // Only the geometry of a row-major x counts here.
  Strides strides = Strides::filled(static_cast<int>(x.dim()), 1);
  for (int64_t d = x.dim() - 2; d >= 0; --d) strides[d] = strides[d + 1] * x.shape()[d + 1];
  const int64_t size = x.dim() == 0 ? 1 : x.shape()[dim], stride = x.dim() == 0 ? 0 : strides[dim];
  Strides lines = strides;
  if (x.dim() > 0) lines[dim] = 0;
  const Tensor seen = alias(target, index.shape(), lines, 0);
  const auto w = cuda::make_walk<3>(std::array<const Tensor*, 3>{&target, &seen, &dense}, "scatter");
  cuda::for_parts(w, 1, [&](const Walk<3>& part, const std::array<int64_t, 3>& at) {
    targets_kernel<<<cuda::blocks_for(part.numel, kThreads), kThreads, 0, cuda::stream()>>>(
        part, static_cast<int64_t*>(target.raw_data()) + at[0], static_cast<const int64_t*>(dense.raw_data()) + at[2],
        at[1], size, stride, cuda::range_check());
  });
  return target;
}

void scatter(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, bool add) {
  if (index.numel() == 0) {
    if (!y.same_as(x)) copy_elements(y, x);
    return;
  }
  Layout l;
  l.shape = {1, x.numel(), 1};
  for (int64_t d = 0; d < x.dim(); ++d) l.order.push_back(d);
  write_rows(y, x, l, {targets_of(x, dim, index), false},
             alias(src, index.shape(), src.strides(), src.storage_offset()), add, 1);
}

}  // namespace

void gather_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, bool from_end) {
  if (index.numel() == 0) return;
  dim = wrap_dim(dim, x.dim(), "gather");
  const int64_t size = x.dim() == 0 ? 1 : x.shape()[dim], stride = x.dim() == 0 ? 0 : x.strides()[dim];
  const bool columns = x.dim() > 0 && gathers_columns(y, x, dim, index);
  const Tensor lines = lines_of(x, dim, index);
  const auto w = cuda::make_walk<3>(std::array<const Tensor*, 3>{&y, &lines, &index}, "gather");
  const auto run = [&]<class B, class I>() {
    B* const to = static_cast<B*>(y.raw_data());
    const B* const from = static_cast<const B*>(x.raw_data());
    const ElementIndex<I> named{static_cast<const I*>(index.raw_data()), size, from_end};
    if (columns) {
      const int64_t length = index.shape()[dim],
                    row_blocks = (length + kRowsAtOnce * kRowsEach - 1) / (kRowsAtOnce * kRowsEach);
      const int64_t column_blocks = (stride + kColumns - 1) / kColumns;
      const int64_t pre = index.numel() / (length * stride);
      gather_columns_kernel<B, I>
          <<<static_cast<unsigned>(pre * column_blocks * row_blocks), kThreads, 0, cuda::stream()>>>(
              to, from, named, length, stride, row_blocks, column_blocks, cuda::range_check());
      return;
    }
    cuda::for_parts(w, 1, [&](const Walk<3>& part, const std::array<int64_t, 3>& at) {
      const ElementIndex<I> of_part{named.index + at[2], size, from_end};
      const auto launch = [&]<int E>() {
        gather_kernel<B, E, I><<<cuda::blocks_for(part.numel, kThreads * E), kThreads, 0, cuda::stream()>>>(
            part, to + at[0], from + at[1], of_part, stride, cuda::range_check());
      };
      // Of few elements each has a thread: more of these wait for memory at a time.
      part.numel < 1 << 20 ? launch.template operator()<1>() : launch.template operator()<4>();
    });
  };
  dispatch_bytes(x.dtype(), [&]<class B>() {
    index.dtype() == DType::i32 ? run.template operator()<B, int32_t>() : run.template operator()<B, int64_t>();
  });
}
void scatter_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  dim = wrap_dim(dim, x.dim(), "scatter");
  if (!puts_lines(x, dim, index)) return scatter(y, x, dim, index, src, false);
  put_lines_cuda(y, x, dim, to(index, DType::i64), src, false);
}
void scatter_add_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  dim = wrap_dim(dim, x.dim(), "scatter_add");
  if (!joins_lines(x, dim, index, adds_floats_or_words(x.dtype()))) return scatter(y, x, dim, index, src, true);
  join_lines_cuda(y, x, dim, to(index, DType::i64), src, {});
}

}  // namespace strata
