// Rotary position embedding on a CUDA device.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/ops/attention/rotary_kernel.h"

namespace strata {
namespace {
using cuda::kVec;
using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::Vec;
using cuda::widen;

constexpr int kThreads = 256;

// A thread turns V pairs of a row, or copies V of the elements that stay. I is wide enough to number all threads.
// HeadsFirst: neighbouring rows are of one time, else of one head.
template <class T, int V, class I, bool HeadsFirst>
__global__ void __launch_bounds__(kThreads) rotary_kernel(RotaryCall c, I per_row, I rows) {
  using R = compute_t<T>;
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const I item = static_cast<I>(blockIdx.x) * kThreads + threadIdx.x;
  if (item / per_row >= rows) return;
  I r = item / per_row;
  const int64_t part = item - r * per_row;
  const I inner = static_cast<I>(HeadsFirst ? c.outer[2] : c.time),
          next = static_cast<I>(HeadsFirst ? c.time : c.outer[2]);
  const int64_t r0 = r % inner;
  r /= inner;
  const int64_t r1 = r % next;
  r /= next;
  const int64_t t = HeadsFirst ? r1 : r0, k = HeadsFirst ? r0 : r1;
  const int64_t j = r % static_cast<I>(c.outer[1]), i = r / static_cast<I>(c.outer[1]);
  const T* x =
      static_cast<const T*>(c.x) + i * c.x_stride[0] + j * c.x_stride[1] + k * c.x_stride[2] + t * c.x_stride[3];
  T* y = static_cast<T*>(c.y) + i * c.y_stride[0] + j * c.y_stride[1] + k * c.y_stride[2] + t * c.y_stride[3];

  const int64_t p = c.pairs, n = part * V;
  if (n >= p) {  // V divides p
    const int64_t at = p + n;
    store_vec(y + at, load_vec<V>(x + at));
    return;
  }
  const auto co = load_vec<V>(static_cast<const R*>(c.cos) + t * p + n);
  const auto si = load_vec<V>(static_cast<const R*>(c.sin) + t * p + n);
  const R sign = c.inverse ? R(-1) : R(1);
  const int64_t first = c.interleaved ? 2 * n : n, second = c.interleaved ? 2 * n + V : n + p;
  const auto lo = load_vec<V>(x + first), hi = load_vec<V>(x + second);
  if (k >= c.turned) {
    store_vec(y + first, lo);
    store_vec(y + second, hi);
    return;
  }
  Vec<T, V> to_lo, to_hi;
  const auto turn = [&](int m, T a_in, T b_in, T& a_out, T& b_out) {
    const R a = widen(a_in), b = widen(b_in), s = si.v[m] * sign;
    a_out = narrow<T>(a * co.v[m] - b * s);
    b_out = narrow<T>(a * s + b * co.v[m]);
  };
  if (c.interleaved) {
    T in[2 * V], out[2 * V];
#pragma unroll
    for (int m = 0; m < V; ++m) in[m] = lo.v[m], in[V + m] = hi.v[m];
#pragma unroll
    for (int m = 0; m < V; ++m) turn(m, in[2 * m], in[2 * m + 1], out[2 * m], out[2 * m + 1]);
#pragma unroll
    for (int m = 0; m < V; ++m) to_lo.v[m] = out[m], to_hi.v[m] = out[V + m];
  } else {
#pragma unroll
    for (int m = 0; m < V; ++m) turn(m, lo.v[m], hi.v[m], to_lo.v[m], to_hi.v[m]);
  }
  store_vec(y + first, to_lo);
  store_vec(y + second, to_hi);
}

template <class T, int V>
void launch(const RotaryCall& c) {
  const int64_t per_row = (c.d - c.pairs) / V, rows = c.outer[0] * c.outer[1] * c.outer[2] * c.time;
  const int64_t items = per_row * rows;
  const unsigned blocks = cuda::blocks_for(items, kThreads);
  const auto queue = [&]<class I>(I) {
    const auto kernel = c.y_stride[2] < c.y_stride[3] ? rotary_kernel<T, V, I, true> : rotary_kernel<T, V, I, false>;
    cuda::launch_early(kernel, blocks, kThreads, 0, 1, c, static_cast<I>(per_row), static_cast<I>(rows));
  };
  items < int64_t{1} << 31 ? queue(uint32_t{}) : queue(uint64_t{});
}

}  // namespace

void rotary_cuda(const RotaryCall& c) {
  if (c.d == 0 || c.outer[0] * c.outer[1] * c.outer[2] * c.time == 0) return;
  dispatch_floats(c.dtype, "rotary", [&]<class T>() {
    constexpr int V = kVec<T>;
    constexpr uintptr_t kTable = V * sizeof(compute_t<T>);
    const auto aligned = [](const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
    bool vectors = aligned(c.x, 16) && aligned(c.y, 16) && aligned(c.cos, kTable) && aligned(c.sin, kTable) &&
                   c.pairs % V == 0 && c.d % V == 0;
    for (int i = 0; i < 4; ++i) vectors = vectors && c.x_stride[i] % V == 0 && c.y_stride[i] % V == 0;
    vectors ? launch<T, V>(c) : launch<T, 1>(c);
  });
}

}  // namespace strata
