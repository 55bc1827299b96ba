// Sums of products along a dimension on a CUDA device, in one launch: some lanes of a warp, or a block, have a result.

#include <algorithm>
#include <bit>

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/linalg/vecdot_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256, kAhead = 4;

// Integers' products and sums wrap around, so that the low bits are those of a sum in i64.
template <class T>
using Sums = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;

// `lanes` (a power of two to 32, or 256) threads have result i of a part of `w`: operand 0 is the result, 1 and 2 where
// the vectors begin. Vectors of V elements lie side by side; single ones x_step and y_step apart.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    vecdot_kernel(Walk<3> w, T* to, const T* x, const T* y, int64_t n, int64_t x_step, int64_t y_step, int lanes) {
  using S = Sums<T>;
  __shared__ S shared[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool active = i < w.pieces;
  int64_t at[3] = {};
  if (active) w.offsets(static_cast<uint32_t>(i), 1, at);
  x += at[1], y += at[2];
  S sums[kAhead] = {};
  const int64_t step = static_cast<int64_t>(lanes) * V, end = active ? n : 0;
  const auto load = [&](const T* p, int64_t k, int64_t apart) { return load_vec<V>(p + (V == 1 ? k * apart : k)); };
  const auto take = [](S& sum, const Vec<T, V>& a, const Vec<T, V>& b) {
#pragma unroll
    for (int e = 0; e < V; ++e) sum += static_cast<S>(widen(a.v[e])) * static_cast<S>(widen(b.v[e]));
  };
  int64_t k = lane * V;
  for (; k + (kAhead - 1) * step < end; k += kAhead * step) {
    Vec<T, V> a[kAhead], b[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) a[u] = load(x, k + u * step, x_step), b[u] = load(y, k + u * step, y_step);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) take(sums[u], a[u], b[u]);
  }
  for (; k < end; k += step) take(sums[0], load(x, k, x_step), load(y, k, y_step));
  S total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int o = (lanes < kWarp ? lanes : kWarp) / 2; o > 0; o /= 2) total += __shfl_xor_sync(0xffffffffu, total, o);
  if (lanes > kWarp) {
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = total;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int warp = 1; warp < kThreads / kWarp; ++warp) total += shared[warp];
  }
  if (lane == 0 && active) to[at[0]] = narrow<T>(total);
}

}  // namespace

bool vecdot_cuda(const Tensor& to, const Tensor& x, const Tensor& y, int64_t dim) {
  constexpr int64_t kNearBytes = 16, kManyResults = 128, kLongVectors = 16384;
  const int64_t n = x.size(dim), x_step = x.strides()[static_cast<int>(dim)],
                y_step = y.strides()[static_cast<int>(dim)];
  const int64_t bytes = size_of(x.dtype());
  // Along another dimension, and of few long vectors, a product of all elements is summed by more threads.
  if (n > 1 && (x_step * bytes > kNearBytes || y_step * bytes > kNearBytes)) return false;
  if (to.numel() < kManyResults && n > kLongVectors) return false;
  if (to.numel() == 0) return true;
  const auto first = [&](const Tensor& t) { return n == 0 ? to : t.select(dim, 0); };
  const Tensor xs = first(x), ys = first(y);
  const auto run = [&]<class T>() {
    constexpr int V = kVec<T>;
    const auto whole = [&](const Tensor& t) {
      bool all = t.strides()[static_cast<int>(dim)] == 1 && aligned16(t.raw_data());
      for (int d = 0; d < t.dim(); ++d) all = all && (d == dim || t.shape()[d] == 1 || t.strides()[d] % V == 0);
      return all;
    };
    const bool vectors = n % V == 0 && whole(x) && whole(y);
    const int64_t each = vectors ? n / V : n,
                  wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n == 0 ? 1 : each)));
    const int lanes = n > 2048 && to.numel() < 4096 ? kThreads : static_cast<int>(std::min<int64_t>(kWarp, wanted));
    for_parts(make_walk<3>({&to, &xs, &ys}, "linalg_vecdot"), 1,
              [&](const Walk<3>& part, const std::array<int64_t, 3>& at) {
                const auto launch = [&]<int W>(std::integral_constant<int, W>) {
                  vecdot_kernel<T, W><<<blocks_for(part.pieces, kThreads / lanes), kThreads, 0, stream()>>>(
                      part, static_cast<T*>(to.raw_data()) + at[0], static_cast<const T*>(x.raw_data()) + at[1],
                      static_cast<const T*>(y.raw_data()) + at[2], n, x_step, y_step, lanes);
                };
                if (vectors)
                  launch(std::integral_constant<int, V>());
                else
                  launch(std::integral_constant<int, 1>());
              });
  };
  if (is_floating(x.dtype()))
    dispatch_floats(x.dtype(), "linalg_vecdot", run);
  else
    dispatch_ints(x.dtype(), "linalg_vecdot", run);
  return true;
}

}  // namespace strata
