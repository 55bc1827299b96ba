// Positions of extremes, scans, and picking along a dimension on a CUDA device.

#include "strata/cuda/range.cuh"
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

// ---- scans: combine(earlier, later) ----

template <class T, bool kProduct>
struct Running {
  using Acc = Wide<T>;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  Out* y;
  __device__ Acc init() const { return kProduct ? 1 : 0; }
  __device__ Acc of(compute_t<T> v, int64_t) const { return static_cast<Acc>(v); }
  __device__ Acc combine(Acc a, Acc b) const { return kProduct ? times(a, b) : plus(a, b); }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<Out>(a); }
};
// The last of the best elements so far; NaN stays.
template <class T, bool kLargest>
struct RunningExtreme {
  using C = compute_t<T>;
  using Acc = Placed<C>;
  T* y;
  int64_t* at;
  __device__ Acc init() const { return {-1, C()}; }
  __device__ Acc of(C v, int64_t i) const { return {i, v}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    return b.value != b.value || (kLargest ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
  __device__ void write(int64_t i, Acc a) const {
    y[i] = cuda::narrow<T>(a.value);
    at[i] = a.index;
  }
};

// The value of the lane `o` before.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& v, int o) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(__shfl_up_sync(0xffffffffu, v, o));
  } else {
    constexpr int kWords = sizeof(T) / 4;
    uint32_t words[kWords];
    memcpy(words, &v, sizeof(T));
    for (int k = 0; k < kWords; ++k) words[k] = __shfl_up_sync(0xffffffffu, words[k], o);
    T r;
    memcpy(&r, words, sizeof(T));
    return r;
  }
}

struct Lines {
  int64_t count, n, inner;
  bool reverse;
};

// One thread a line, one element after the other.
template <class R, class T>
__global__ void __launch_bounds__(kThreads) scan_lines(R r, const T* x, Lines l) {
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (line >= l.count) return;
  const int64_t first = line / l.inner * l.n * l.inner + line % l.inner + (l.reverse ? (l.n - 1) * l.inner : 0);
  const int64_t step = l.reverse ? -l.inner : l.inner;
  typename R::Acc a = r.init();
  for (int64_t k = 0, i = first; k < l.n; ++k, i += step) {
    a = r.combine(a, r.of(cuda::widen(x[i]), k));
    r.write(i, a);
  }
}

// One block a row of neighbouring elements. Each thread scans a few, each warp its threads' totals; then every thread
// takes in what lies before its elements.
template <class R, class T>
__global__ void __launch_bounds__(kThreads) scan_rows(R r, const T* x, Lines l) {
  using Acc = typename R::Acc;
  constexpr int kWarps = kThreads / cuda::kWarp, kItems = 8;
  __shared__ Acc totals[kWarps];
  const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * l.n;
  const auto place = [&](int64_t k) { return base + (l.reverse ? l.n - 1 - k : k); };
  Acc carry = r.init();
  for (int64_t from = 0; from < l.n; from += kThreads * kItems) {
    const int64_t first = from + threadIdx.x * kItems;
    Acc a[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      a[j] = first + j < l.n ? r.of(cuda::widen(x[place(first + j)]), first + j) : r.init();
#pragma unroll
    for (int j = 1; j < kItems; ++j) a[j] = r.combine(a[j - 1], a[j]);
    Acc total = a[kItems - 1];
#pragma unroll
    for (int o = 1; o < cuda::kWarp; o *= 2) {
      const Acc earlier = shuffle_up(total, o);
      if (lane >= o) total = r.combine(earlier, total);
    }
    const Acc earlier = shuffle_up(total, 1);
    if (lane == cuda::kWarp - 1) totals[warp] = total;
    __syncthreads();
    Acc before = carry;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before = r.combine(before, totals[w]);
      carry = r.combine(carry, totals[w]);
    }
    if (lane > 0) before = r.combine(before, earlier);
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      if (first + j < l.n) r.write(place(first + j), r.combine(before, a[j]));
    __syncthreads();
  }
}

template <class R, class T>
void scan_with(const R& r, const T* x, const Lines& l) {
  if (l.count * l.n == 0) return;
  if (l.inner > 1 || l.n <= 32)
    scan_lines<R, T><<<cuda::blocks_for(l.count, kThreads), kThreads, 0, cuda::stream()>>>(r, x, l);
  else
    scan_rows<R, T><<<static_cast<unsigned>(l.count), kThreads, 0, cuda::stream()>>>(r, x, l);
}

Lines lines_of(const Tensor& x, int64_t dim, bool reverse) {
  Lines l{1, x.dim() == 0 ? 1 : x.shape()[dim], 1, reverse};
  for (int i = 0; i < x.dim(); ++i) {
    if (i != dim) l.count *= x.shape()[i];
    if (i > dim) l.inner *= x.shape()[i];
  }
  return l;
}

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
// One thread adds all of a line, in order: positions may repeat.
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

void reduce_index_cuda(bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask) {
  const ReduceLayout l = reduce_layout(x, mask);
  dispatch_numbers(x.dtype(), [&]<class T>() {
    T* const v = values.defined() ? static_cast<T*>(values.raw_data()) : nullptr;
    int64_t* const at = static_cast<int64_t*>(indices.raw_data());
    if (largest)
      reduce_with<IndexOf<T, true>, T>({v, at}, l);
    else
      reduce_with<IndexOf<T, false>, T>({v, at}, l);
  });
}

void scan_cuda(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse) {
  const Tensor from = contiguous(x);
  const Lines l = lines_of(x, dim, reverse);
  dispatch_numbers(x.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(from.raw_data());
    using Out = typename Running<T, false>::Out;
    if (what == Reduction::sum) return scan_with<Running<T, false>, T>({static_cast<Out*>(y.raw_data())}, p, l);
    if (what == Reduction::prod) return scan_with<Running<T, true>, T>({static_cast<Out*>(y.raw_data())}, p, l);
    T* const to = static_cast<T*>(y.raw_data());
    int64_t* const at = static_cast<int64_t*>(indices.raw_data());
    if (what == Reduction::max) return scan_with<RunningExtreme<T, true>, T>({to, at}, p, l);
    scan_with<RunningExtreme<T, false>, T>({to, at}, p, l);
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
  const Tensor from = contiguous(g), index = contiguous(indices);
  const Lines wide = lines_of(y, dim, false), small = lines_of(g, dim, false);
  dispatch_floats(g.dtype(), "put_along", [&]<class T>() {
    put_kernel<T><<<cuda::blocks_for(wide.count, kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), static_cast<const T*>(from.raw_data()),
        static_cast<const int64_t*>(index.raw_data()), wide.count, wide.n, small.n, wide.inner, cuda::range_check());
  });
}

}  // namespace strata
