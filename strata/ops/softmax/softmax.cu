// Softmax on a CUDA device, over rows and over columns.

#include "strata/cuda/current.h"
#include "strata/cuda/row_loops.cuh"
#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/softmax/softmax_kernel.h"

namespace strata {
namespace {
using namespace cuda;

// What a thread that holds few vectors leaves of the registers is for other threads.
constexpr int blocks_at_least(int held, int few) {
  return held == few ? 2 : 1;
}

// Of a row that is held its exponentials are kept (for the logarithm its distances from the maximum): what remains is a
// multiplication.
template <class T, int V, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, blocks_at_least(kHeld, kHeldFew<V>))
    forward_rows(bool log, const T* x, T* y, int64_t rows, int64_t n) {
  using C = compute_t<T>;
  __shared__ Exponentials<C> shared[kMostRowThreads / kWarp];
  __shared__ C tops[kMostRowThreads / kWarp];
  const int64_t r = this_row(), m = r < rows ? n : 0;
  RowOf<T, V, kHeld> row(x + r * n, m);
  T* to = y + r * n;
  Exponentials<C> s{static_cast<C>(-INFINITY), 0};
  Kept<Vec<C, V>, kHeld == 0 ? 1 : kHeld> e;
  if constexpr (kHeld > 0) {
    for_row<V, kHeld>(m, [&](int64_t i, int k) { s.top = fmax(s.top, largest_of(row.at(i, k))); });
    s.top = row_reduce(s.top, Larger(), tops, true);
    const C shift = exp_shift<T>(s.top);
    for_row<V, kHeld>(m, [&](int64_t i, int k) {
      const Vec<C, V> v = widen_all(row.at(i, k));
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C x = v.v[j], power = exp_below<T>(x, shift);
        s.sum += power;
        e.v[k].v[j] = log ? x - s.top : power;
      }
    });
    __shared__ C sums[kMostRowThreads / kWarp];
    s.sum = row_reduce(s.sum, Sum(), sums, true);
  } else {
    for_row<V, kHeld>(m, [&](int64_t i, int k) {
      const auto v = row.at(i, k);
      const C top = fmax(s.top, largest_of(v)), shift = exp_shift<T>(top);
      s.sum *= exp_below<T>(s.top, shift);
      s.top = top;
#pragma unroll
      for (int j = 0; j < V; ++j) s.sum += exp_below<T>(widen(v.v[j]), shift);
    });
    s = row_reduce(s, AddExponentials<T>(), shared, true);
  }
  // Of a row of -inf alone, what the formula gives: NaN.
  const C scale = C(1) / s.sum, shift = exp_shift<T>(s.top), lsum = ::log(s.sum);
  for_row<V, kHeld>(m, [&](int64_t i, int k) {
    Vec<C, V> d;
    if constexpr (kHeld > 0) {
      d = e.v[k];
    } else {
      const auto v = row.at(i, k);
#pragma unroll
      for (int j = 0; j < V; ++j) d.v[j] = log ? widen(v.v[j]) - s.top : exp_below<T>(widen(v.v[j]), shift);
    }
    Vec<T, V> p;
#pragma unroll
    for (int j = 0; j < V; ++j) p.v[j] = narrow<T>(log ? d.v[j] - lsum : d.v[j] * scale);
    store_vec(to + i, p);
  });
}

// Rows that lie aligned and of which a multiprocessor's registers hold one only: a block for each multiprocessor copies
// the next kStages rows to shared memory while it works on one. A thread reads only what it asked for itself, and asks
// for another row as soon as it has this one in registers.
constexpr int kRingThreads = 1024;
template <class T, int kHeld, int kStages>
__global__ void __launch_bounds__(kRingThreads, 1) ring_forward(bool log, const T* x, T* y, int64_t rows, int n) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>;
  extern __shared__ uint4 ring[];
  __shared__ C tops[2][kRingThreads / kWarp], sums[2][kRingThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  bool in[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) in[k] = (thread + k * kRingThreads) * V < n;
  int64_t asked = blockIdx.x;
  const auto ask = [&](uint4* at) {
    if (asked < rows) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k)
        if (in[k]) tile::copy_async(at + k * kRingThreads, x + asked * n + (thread + k * kRingThreads) * V);
    }
    asked += gridDim.x;
    tile::commit_copies();
  };
#pragma unroll
  for (int s = 0; s < kStages; ++s) ask(ring + s * kHeld * kRingThreads + thread);
  int stage = 0, parity = 0;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    uint4* const at = ring + stage * kHeld * kRingThreads + thread;
    tile::wait_copies<kStages - 1>();
    Vec<C, V> e[kHeld];
    C top = static_cast<C>(-INFINITY), sum = 0;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        Vec<T, V> v;
        const uint4 words = at[k * kRingThreads];
        memcpy(&v, &words, 16);
        e[k] = widen_all(v);
#pragma unroll
        for (int j = 0; j < V; ++j) top = fmax(top, e[k].v[j]);
      }
    ask(at);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    top = warp_reduce(top, Larger());
    if (lane == 0) tops[parity][warp] = top;
    __syncthreads();
    top = warp_reduce(tops[parity][lane], Larger());
    const C shift = exp_shift<T>(top);
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k])
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C power = exp_below<T>(e[k].v[j], shift);
          sum += power;
          e[k].v[j] = log ? e[k].v[j] - top : power;
        }
    sum = warp_reduce(sum, Sum());
    if (lane == 0) sums[parity][warp] = sum;
    __syncthreads();
    sum = warp_reduce(sums[parity][lane], Sum());
    parity ^= 1;  // the next row's barriers stand between this row's reads and the next write to the same half
    const C scale = C(1) / sum, lsum = ::log(sum);
    T* const to = y + r * n;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
#pragma unroll
        for (int j = 0; j < V; ++j) e[k].v[j] = log ? e[k].v[j] - lsum : e[k].v[j] * scale;
        store_vec(to + (thread + k * kRingThreads) * V, narrow_all<T>(e[k]));
      }
  }
}

// False where a row is too long, or the card has too little shared memory.
template <class T, int kHeld, int kStages>
bool ring_rows(bool log, const T* x, T* y, int64_t rows, int64_t n) {
  constexpr int kBytes = kStages * kHeld * kRingThreads * 16;
  const DeviceProperties& card = properties(current_device());
  if (n > int64_t{kHeld} * kRingThreads * kVec<T> || kBytes + 1024 > card.shared_bytes_per_block) return false;
  const auto kernel = ring_forward<T, kHeld, kStages>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "softmax",
             "cudaFuncSetAttribute");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, card.multiprocessors));
  kernel<<<blocks, kRingThreads, kBytes, stream()>>>(log, x, y, rows, static_cast<int>(n));
  return true;
}

template <class T, int V, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads, blocks_at_least(kHeld, kHeldFew<V>))
    backward_rows(bool log, const T* gy, const T* y, T* gx, int64_t rows, int64_t n) {
  using C = compute_t<T>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), m = r < rows ? n : 0;
  RowOf<T, V, kHeld> g_row(gy + r * n, m), y_row(y + r * n, m);
  C sum = 0;
  for_row<V, kHeld>(m, [&](int64_t i, int k) {
    const Vec<C, V> g = widen_all(g_row.at(i, k)), v = widen_all(y_row.at(i, k));
#pragma unroll
    for (int j = 0; j < V; ++j) sum += log ? g.v[j] : g.v[j] * v.v[j];
  });
  sum = row_reduce(sum, Sum(), shared, true);
  g_row.renew(), y_row.renew();
  T* to = gx + r * n;
  for_row<V, kHeld>(m, [&](int64_t i, int k) {
    const Vec<C, V> g = widen_all(g_row.at(i, k)), v = widen_all(y_row.at(i, k));
    Vec<T, V> e;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C gv = g.v[j], yv = v.v[j];
      e.v[j] = narrow<T>(log ? gv - exp_below<T>(yv, C(0)) * sum : yv * (gv - sum));
    }
    store_vec(to + i, e);
  });
}

// Columns of all [n, inner] matrices side by side; blocks are [threads down a column][columns].
constexpr int kAcross = 32, kDown = 8;

template <class V, class Op>
__device__ __forceinline__ V combine_down(V v, Op op, V (&shared)[kDown][kAcross]) {
  shared[threadIdx.y][threadIdx.x] = v;
  __syncthreads();
  v = shared[0][threadIdx.x];
#pragma unroll
  for (int k = 1; k < kDown; ++k) v = op(v, shared[k][threadIdx.x]);
  return v;
}

// Few long rows are cut into parts, a block each: the first launch takes the parts' sums of exponentials, the second
// puts a row's together, in the order of the parts.
constexpr int kPartThreads = 256;
constexpr int64_t kFewRows = 32, kLongRow = 32768, kLeastPart = 4096, kParts = 264;

template <class T, int V>
__global__ void __launch_bounds__(kPartThreads)
    part_sums(const T* x, int64_t n, int64_t length, Exponentials<compute_t<T>>* parts) {
  using C = compute_t<T>;
  __shared__ Exponentials<C> shared[kPartThreads / kWarp];
  const int64_t begin = blockIdx.x * length;
  const T* const from = x + blockIdx.y * n + begin;
  Exponentials<C> s{static_cast<C>(-INFINITY), 0};
  for_row<V, 0>(begin + length < n ? length : n - begin, [&](int64_t i, int) {
    const auto v = load_vec<V>(from + i);
    const C top = fmax(s.top, largest_of(v)), shift = exp_shift<T>(top);
    s.sum *= exp_below<T>(s.top, shift);
    s.top = top;
#pragma unroll
    for (int j = 0; j < V; ++j) s.sum += exp_below<T>(widen(v.v[j]), shift);
  });
  s = row_reduce(s, AddExponentials<T>(), shared, true);
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = s;
}
template <class T, int V>
__global__ void __launch_bounds__(kPartThreads)
    part_results(bool log, const T* x, T* y, int64_t n, int64_t length, const Exponentials<compute_t<T>>* parts) {
  using C = compute_t<T>;
  __shared__ Exponentials<C> shared[kPartThreads / kWarp];
  const int64_t begin = blockIdx.x * length, first = blockIdx.y * n + begin;
  Exponentials<C> s{static_cast<C>(-INFINITY), 0};
  for (unsigned p = threadIdx.x; p < gridDim.x; p += kPartThreads)
    s = AddExponentials<T>()(s, parts[blockIdx.y * gridDim.x + p]);
  s = row_reduce(s, AddExponentials<T>(), shared, true);
  const C scale = C(1) / s.sum, shift = exp_shift<T>(s.top), lsum = ::log(s.sum);
  for_row<V, 0>(begin + length < n ? length : n - begin, [&](int64_t i, int) {
    auto v = widen_all(load_vec<V>(x + first + i));
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = log ? (v.v[j] - s.top) - lsum : exp_below<T>(v.v[j], shift) * scale;
    store_vec(y + first + i, narrow_all<T>(v));
  });
}
template <class T, int V>
void forward_parts(bool log, const T* x, T* y, int64_t rows, int64_t n) {
  const int64_t wanted = std::clamp<int64_t>(kParts / rows, 1, n / kLeastPart);
  const int64_t length = (n + wanted * V - 1) / (wanted * V) * V;
  const dim3 grid(blocks_for(n, length), static_cast<unsigned>(rows));
  const int64_t bytes = int64_t{grid.x} * rows * static_cast<int64_t>(sizeof(Exponentials<compute_t<T>>));
  const Tensor room = empty({Shape{bytes}, DType::u8, Device::cuda(current_device()), std::nullopt});
  auto* const parts = static_cast<Exponentials<compute_t<T>>*>(room.raw_data());
  part_sums<T, V><<<grid, kPartThreads, 0, stream()>>>(x, n, length, parts);
  part_results<T, V><<<grid, kPartThreads, 0, stream()>>>(log, x, y, n, length, parts);
}

template <class T>
__global__ void __launch_bounds__(kAcross* kDown)
    forward_columns(bool log, const T* x, T* y, int64_t columns, int64_t n, int64_t inner) {
  using C = compute_t<T>;
  __shared__ Exponentials<C> shared[kDown][kAcross];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x, m = c < columns ? n : 0;
  const int64_t first = c / inner * n * inner + c % inner;
  Exponentials<C> s{static_cast<C>(-INFINITY), 0};
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const C v = widen(x[first + i * inner]), top = fmax(s.top, v), shift = exp_shift<T>(top);
    s.sum = s.sum * exp_below<T>(s.top, shift) + exp_below<T>(v, shift);
    s.top = top;
  }
  s = combine_down(s, AddExponentials<T>(), shared);
  const C scale = C(1) / s.sum, shift = exp_shift<T>(s.top), lsum = ::log(s.sum);
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const C v = widen(x[first + i * inner]);
    y[first + i * inner] = narrow<T>(log ? (v - s.top) - lsum : exp_below<T>(v, shift) * scale);
  }
}

template <class T>
__global__ void __launch_bounds__(kAcross* kDown)
    backward_columns(bool log, const T* gy, const T* y, T* gx, int64_t columns, int64_t n, int64_t inner) {
  using C = compute_t<T>;
  __shared__ C shared[kDown][kAcross];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x, m = c < columns ? n : 0;
  const int64_t first = c / inner * n * inner + c % inner;
  C sum = 0;
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const C g = widen(gy[first + i * inner]);
    sum += log ? g : g * widen(y[first + i * inner]);
  }
  sum = combine_down(sum, Sum(), shared);
  for (int64_t i = threadIdx.y; i < m; i += kDown) {
    const int64_t at = first + i * inner;
    const C g = widen(gy[at]), v = widen(y[at]);
    gx[at] = narrow<T>(log ? g - exp_below<T>(v, C(0)) * sum : v * (g - sum));
  }
}
}  // namespace

void softmax_forward_cuda(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner) {
  if (outer * n * inner == 0) return;
  dispatch_floats(t, "softmax", [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (inner > 1) {
      forward_columns<T><<<blocks_for(outer * inner, kAcross), dim3(kAcross, kDown), 0, stream()>>>(
          log, from, to, outer * inner, n, inner);
      return;
    }
    const RowLaunch l = row_launch<T>(outer, n, aligned16(x) && aligned16(y));
    if (outer <= kFewRows && n >= kLongRow)
      return by_vectors<T>(l, [&](auto v) { forward_parts<T, decltype(v)::value>(log, from, to, outer, n); });
    if constexpr (sizeof(T) <= 4) {
      if (l.vectors && l.held != kHeldFew<kVec<T>> && ring_rows<T, 4, 3>(log, from, to, outer, n)) return;
      if constexpr (sizeof(T) == 4)
        if (l.vectors && l.held == 0 && ring_rows<T, 8, 1>(log, from, to, outer, n)) return;
    }
    dispatch_rows<T>(l, [&](auto v, auto held) {
      forward_rows<T, decltype(v)::value, decltype(held)::value>
          <<<l.blocks, l.threads, 0, stream()>>>(log, from, to, outer, n);
    });
  });
}

void softmax_backward_cuda(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                           int64_t inner) {
  if (outer * n * inner == 0) return;
  dispatch_floats(t, "softmax_backward", [&]<class T>() {
    const T *g = static_cast<const T*>(gy), *p = static_cast<const T*>(y);
    T* to = static_cast<T*>(gx);
    if (inner > 1) {
      backward_columns<T><<<blocks_for(outer * inner, kAcross), dim3(kAcross, kDown), 0, stream()>>>(
          log, g, p, to, outer * inner, n, inner);
      return;
    }
    const bool aligned = aligned16(gy) && aligned16(y) && aligned16(gx);
    const RowLaunch l = row_launch<T>(outer, n, aligned);
    dispatch_rows<T>(l, [&](auto v, auto held) {
      backward_rows<T, decltype(v)::value, decltype(held)::value>
          <<<l.blocks, l.threads, 0, stream()>>>(log, g, p, to, outer, n);
    });
  });
}

}  // namespace strata
