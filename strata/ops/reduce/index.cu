// Positions of extremes, and picking along a dimension on a CUDA device.

#include "strata/cuda/range.cuh"
#include "strata/ops/index/join_lines_kernel.h"
#include "strata/ops/reduce/lines.cuh"
#include "strata/ops/reduce/reduce.cuh"

namespace strata {
namespace {
using namespace cuda::reduce_detail;

// A value and where it stands; -1: nowhere yet. Padded to whole words for shuffles.
template <class C>
struct Placed {
  int64_t index;
  C value;
};

// The first of the best elements; the first NaN, if there is one.
template <class T, bool kLargest>
struct IndexOf {
  using C = compute_t<T>;
  using Acc = Placed<C>;
  using Shift = char;
  T* values;
  int64_t* at;
  __device__ Acc init() const { return {-1, C()}; }
  __device__ void step(Acc& a, C v, Shift, int64_t i) const {
    const bool better = (kLargest ? v > a.value : v < a.value) || v != v;
    if (a.index < 0 || (better && a.value == a.value)) a = {i, v};
  }
  __device__ Acc combine(Acc a, Acc b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool same = nan_a == nan_b && (nan_a || a.value == b.value);
    const bool take_b =
        same ? b.index < a.index : nan_b || (!nan_a && (kLargest ? b.value > a.value : b.value < a.value));
    return take_b ? b : a;
  }
  __device__ void write(int64_t i, Acc a) const {
    at[i] = a.index;
    if (values != nullptr) values[i] = cuda::narrow<T>(a.value);
  }
};

// ---- along a dimension: wide [outer, n, inner], short [outer, m, inner] ----

template <class T>
__global__ void __launch_bounds__(kThreads) pick_kernel(T* y, const T* x, const int64_t* at, int64_t count, int64_t n,
                                                        int64_t m, int64_t inner, cuda::RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t k = at[i];
  y[i] = k >= 0 && k < n ? x[(i / inner / m * n + k) * inner + i % inner] : T();
  in_range(k, n);
}
// One thread adds all of a line, in order: positions may repeat. For lines that few are added to.
template <class T>
__global__ void __launch_bounds__(kThreads) put_kernel(T* y, const T* g, const int64_t* at, int64_t lines, int64_t n,
                                                       int64_t m, int64_t inner, cuda::RangeCheck in_range) {
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (line >= lines) return;
  const int64_t o = line / inner, j = line % inner;
  for (int64_t k = 0; k < m; ++k) {
    const int64_t i = (o * m + k) * inner + j, to = at[i];
    if (!in_range(to, n)) continue;
    T& v = y[(o * n + to) * inner + j];
    v = cuda::narrow<T>(cuda::widen(v) + cuda::widen(g[i]));
  }
}
}  // namespace

void reduce_index_cuda(bool largest, const Tensor& values, const Tensor& indices, const Tensor& given,
                       uint32_t given_mask) {
  // Along one dimension positions are the same however the others lie; of all elements they count row by row.
  const auto [x, mask] = std::has_single_bit(given_mask) ? as_it_lies(given, given_mask) : Reduced{given, given_mask};
  const ReduceLayout l = gapped_layout(x, mask, false);
  dispatch_numbers(x.dtype(), [&]<class T>() {
    T* const v = values.defined() ? static_cast<T*>(values.raw_data()) : nullptr;
    int64_t* const at = static_cast<int64_t*>(indices.raw_data());
    if (largest)
      reduce_with<IndexOf<T, true>, T>({v, at}, l);
    else
      reduce_with<IndexOf<T, false>, T>({v, at}, l);
  });
}

void pick_along_cuda(const Tensor& y, const Tensor& x, const Tensor& indices, int64_t dim) {
  if (y.numel() == 0) return;
  const Tensor from = contiguous(x), index = contiguous(indices);
  const Lines wide = lines_of(x, dim, false), small = lines_of(indices, dim, false);
  dispatch_bytes(x.dtype(), [&]<class T>() {
    pick_kernel<T><<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), static_cast<const T*>(from.raw_data()),
        static_cast<const int64_t*>(index.raw_data()), y.numel(), wide.n, small.n, wide.inner, cuda::range_check());
  });
}

void put_along_cuda(const Tensor& y, const Tensor& g, const Tensor& indices, int64_t dim) {
  fill_elements(y, 0.0);
  if (g.numel() == 0 || y.numel() == 0) return;
  const auto row = [](const Tensor& t) { return t.dim() == 0 ? alias(t, {1}, {1}, t.storage_offset()) : t; };
  Tensor to = row(y);
  constexpr int64_t kFew = 16;
  if (row(indices).shape()[dim] > kFew && joins_lines(to, dim, row(indices)))
    return join_lines_cuda(to, to, dim, row(indices), row(g), {});
  const Tensor from = contiguous(g), index = contiguous(indices);
  const Lines wide = lines_of(y, dim, false), small = lines_of(g, dim, false);
  dispatch_floats(g.dtype(), "put_along", [&]<class T>() {
    put_kernel<T><<<cuda::blocks_for(wide.count, kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), static_cast<const T*>(from.raw_data()),
        static_cast<const int64_t*>(index.raw_data()), wide.count, wide.n, small.n, wide.inner, cuda::range_check());
  });
}

}  // namespace strata
