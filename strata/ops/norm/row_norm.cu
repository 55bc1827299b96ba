// Layer norm and RMS norm on a CUDA device: one pass over memory where a row fits in its threads' registers.

#include "strata/cuda/overlap.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kSideBySide = 4;  // rows of a block where a warp has a row

template <int kRow>
inline constexpr int kHeldThreads = kRow == kWarp ? kWarp* kSideBySide : kRow;

// Rows that lie aligned, a row to kRow threads, held in their registers as they are stored, or, where there is a
// residual (kAdd), as sums that are not yet rounded. Registers are bounded so that many rows are under way.
template <class T, class A, int kRow, int kHeld, bool kAdd, bool kRms>
__global__ void __launch_bounds__(kHeldThreads<kRow>, kHeld <= 4 && !kAdd ? 1536 / kHeldThreads<kRow> : 1)
    held_kernel(const RowNorm c) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>, kWarps = kRow / kWarp;
  __shared__ PairOf<C> shared[kWarps];
  let_next_begin();
  wait_for_previous();
  const int x0 = static_cast<int>(threadIdx.x), n = static_cast<int>(c.n), warp = x0 / kWarp;
  const int64_t r = kWarps == 1 ? this_row() : blockIdx.x, begin = r * c.n + x0 * V;
  bool in[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) in[k] = r < c.rows && (x0 + k * kRow) * V < n;
  uint4 kept[kHeld];
  Vec<C, V> sums[kAdd ? kHeld : 1];
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (in[k]) kept[k] = load_words(static_cast<const T*>(c.x) + begin + k * kRow * V);
  if constexpr (kAdd) {
    uint4 more[kHeld];
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) more[k] = load_words(static_cast<const T*>(c.residual) + begin + k * kRow * V);
        // All loads are under way before anything is stored.
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        sums[k] = widen_words<T>(kept[k]);
        const Vec<C, V> v = widen_words<T>(more[k]);
#pragma unroll
        for (int j = 0; j < V; ++j) sums[k].v[j] += v.v[j];
        if (c.sum != nullptr) store_narrow(static_cast<T*>(c.sum) + begin + k * kRow * V, sums[k]);
      }
  }
  // Between passes the stored words are widened again, rather than kept in twice the registers.
  const auto value = [&](int k) {
    if constexpr (kAdd) {
      return sums[k];
    } else {
      asm volatile("" : "+r"(kept[k].x), "+r"(kept[k].y), "+r"(kept[k].z), "+r"(kept[k].w));
      return widen_words<T>(kept[k]);
    }
  };
  // How many elements a warp has.
  const auto count_of = [&](int w) {
    int count = 0;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) count += min(max(n - (w * kWarp + k * kRow) * V, 0), kWarp * V);
    return static_cast<C>(count);
  };

  // Sums and squares about each warp's mean, which need not be exact for that, are combined with one barrier. RMS
  // norm's mean is 0.
  C sum = 0, mean = 0, squares = 0;
  if constexpr (!kRms) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        const Vec<C, V> v = value(k);
#pragma unroll
        for (int j = 0; j < V; ++j) sum += v.v[j];
      }
    sum = warp_reduce(sum, Sum());
    if constexpr (kWarps == 1) {
      mean = sum / static_cast<C>(n);
    } else {
      const C count = count_of(warp);
      mean = count > 0 ? __fdividef(sum, count) : C(0);
    }
  }
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (in[k]) {
      const Vec<C, V> v = value(k);
#pragma unroll
      for (int j = 0; j < V; ++j) squares += kRms ? v.v[j] * v.v[j] : (v.v[j] - mean) * (v.v[j] - mean);
    }
  squares = warp_reduce(squares, Sum());
  if constexpr (kWarps > 1) {
    if (x0 % kWarp == 0) shared[warp] = {sum, squares};
    __syncthreads();
    // Lane by lane the warps' numbers, as often as they fit.
    const int w = x0 % kWarps;
    const PairOf<C> of = shared[w];
    squares = of.b;
    if constexpr (!kRms) {
      mean = warp_reduce<kWarps>(of.a, Sum()) / static_cast<C>(n);
      const C count = count_of(w), away = count > 0 ? __fdividef(of.a, count) - mean : C(0);
      squares += count * away * away;
    }
    squares = warp_reduce<kWarps>(squares, Sum());
  }
  const C rstd = C(1) / sqrt(squares / static_cast<C>(n) + static_cast<C>(c.eps));
  if (x0 == 0 && r < c.rows) {
    if (c.mean != nullptr) static_cast<C*>(c.mean)[r] = mean;
    if (c.rstd != nullptr) static_cast<C*>(c.rstd)[r] = rstd;
  }
  Most<T> most(c.most);
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (in[k]) {
      const int i = (x0 + k * kRow) * V;
      Vec<C, V> w, b;
#pragma unroll
      for (int j = 0; j < V; ++j) w.v[j] = 1, b.v[j] = 0;
      // Both are under way before either is used.
      if (c.weight != nullptr) w = load_wide<C, V>(static_cast<const A*>(c.weight) + i);
      if (!kRms && c.bias != nullptr) b = load_wide<C, V>(static_cast<const A*>(c.bias) + i);
      Vec<C, V> v = value(k);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] = kRms ? v.v[j] * rstd * w.v[j] : (v.v[j] - mean) * rstd * w.v[j] + b.v[j];
      store_narrow(static_cast<T*>(c.y) + begin + k * kRow * V, v, most);
    }
  most.leave();
}

// Rows that lie unaligned, or that are too long to be held: read for each pass.
template <class T, class A, int V>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(const RowNorm c) {
  using C = compute_t<T>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.n : 0;
  const T *x = static_cast<const T*>(c.x) + r * c.n, *residual = static_cast<const T*>(c.residual);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  const auto read = [&](int64_t i) {
    Vec<C, V> v = load_wide<C, V>(x + i);
    if (residual != nullptr) {
      const Vec<C, V> more = load_wide<C, V>(residual + r * c.n + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] += more.v[j];
    }
    return v;
  };
  C mean = 0, square = 0;
  if (!c.rms || c.sum != nullptr)
    for_row<V, 0>(n, [&](int64_t i, int) {
      const Vec<C, V> v = read(i);
#pragma unroll
      for (int j = 0; j < V; ++j) mean += v.v[j];
      if (c.sum != nullptr) store_narrow(static_cast<T*>(c.sum) + r * c.n + i, v);
    });
  mean = c.rms ? C(0) : row_reduce(mean, Sum(), shared) / static_cast<C>(c.n);
  for_row<V, 0>(n, [&](int64_t i, int) {
    const Vec<C, V> v = read(i);
#pragma unroll
    for (int j = 0; j < V; ++j) square += (v.v[j] - mean) * (v.v[j] - mean);
  });
  square = row_reduce(square, Sum(), shared, true) / static_cast<C>(c.n);
  const C rstd = C(1) / sqrt(square + static_cast<C>(c.eps));
  if (threadIdx.x == 0 && n > 0) {
    if (c.mean != nullptr) static_cast<C*>(c.mean)[r] = mean;
    if (c.rstd != nullptr) static_cast<C*>(c.rstd)[r] = rstd;
  }
  Most<T> most(c.most);
  for_row<V, 0>(n, [&](int64_t i, int) {
    Vec<C, V> v = read(i);
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean) * rstd;
    if (w != nullptr) {
      const Vec<C, V> wv = load_wide<C, V>(w + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] *= wv.v[j];
    }
    if (b != nullptr) {
      const Vec<C, V> bv = load_wide<C, V>(b + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] += bv.v[j];
    }
    store_narrow(static_cast<T*>(c.y) + r * c.n + i, v, most);
  });
  most.leave();
}

// False where a row is too long.
template <class T, class A>
bool held_rows(const RowNorm& c) {
  const int64_t vectors = c.n / kVec<T>;
  const auto launch = [&]<int kRow, int kHeld>() {
    constexpr int kRows = kRow == kWarp ? kSideBySide : 1;
    const auto by_add = [&]<bool kRms>() {
      return c.residual != nullptr ? held_kernel<T, A, kRow, kHeld, true, kRms>
                                   : held_kernel<T, A, kRow, kHeld, false, kRms>;
    };
    const auto kernel = c.rms ? by_add.template operator()<true>() : by_add.template operator()<false>();
    launch_early(kernel, blocks_for(c.rows, kRows), dim3(kRow, kRows), 0, 1, c);
    return true;
  };
  if (vectors <= 3 * 32) return launch.template operator()<32, 3>();
  if (vectors <= 4 * 64) return launch.template operator()<64, 4>();
  if (vectors <= 4 * 128) return launch.template operator()<128, 4>();
  if (vectors <= 4 * 256) return launch.template operator()<256, 4>();
  if (vectors <= 4 * 512) return launch.template operator()<512, 4>();
  return vectors <= 8 * 512 && launch.template operator()<512, 8>();
}
}  // namespace

void row_norm_cuda(const RowNorm& c) {
  if (c.rows * c.n == 0) return;
  dispatch_types(c, [&]<class T, class A>() {
    const RowLaunch l = row_launch<T>(c.rows, c.n, all_aligned(c.x, c.weight, c.bias, c.residual, c.y, c.sum));
    if constexpr (sizeof(T) <= 4)
      if (l.vectors && held_rows<T, A>(c)) return;
    const auto kernel = l.vectors ? forward_kernel<T, A, kVec<T>> : forward_kernel<T, A, 1>;
    kernel<<<l.blocks, l.threads, 0, stream()>>>(c);
  });
}

}  // namespace strata
