// Values joined by slices, which share an index: a block has 8 places of 256 lines. It looks through the whole index,
// keeps what names its places, in order, and goes along that; each thread has a line and adds in order, so that nothing
// is sorted and results have the CPU's bits.

#include <algorithm>

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/join_lines_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 256, kPlaces = 8;
constexpr int kEach = 4, kChunk = kThreads * kEach;  // elements of the index that are looked at together
constexpr int kFew = 4;                              // slices whose loads are under way together
constexpr int kRowBits = 3;                          // of a kept element: its place in the block, below its number
static_assert(1 << kRowBits == kPlaces && kChunk << kRowBits <= 65536);

// y, x [pre, rows, width] and source [pre, n, width], dense.
struct Slices {
  int64_t lines, rows, n;
  cuda::Divisor width;
  int64_t index_step;
  bool from_end;
};

template <class T, bool kCounted>
__global__ void __launch_bounds__(kThreads)
    slices_kernel(Slices s, T* y, const T* x, const int64_t* index, const T* source, Join join, bool include_self,
                  Joined<T> alpha, cuda::RangeCheck in_range) {
  using C = Joined<T>;
  constexpr int kAhead = kCounted ? kFew : 16;  // for sums in which many name one place
  __shared__ C total[kPlaces][kThreads];
  __shared__ int32_t count[kCounted ? kPlaces : 1][kThreads];
  __shared__ uint16_t kept[kChunk];
  __shared__ int warps[kThreads / cuda::kWarp];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kThreads + thread;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kPlaces;
  const int places = static_cast<int>(s.rows - first < kPlaces ? s.rows - first : kPlaces);
  const bool here = line < s.lines;
  int64_t column;
  const int64_t block = s.width.split(here ? line : 0, column);
  const int64_t at = (block * s.rows + first) * s.width.d + column, from = block * s.n * s.width.d + column;
  if (here)
    for (int p = 0; p < places; ++p) {
      total[p][thread] = static_cast<C>(cuda::widen(x[at + p * s.width.d]));
      if constexpr (kCounted) count[p][thread] = include_self ? 1 : 0;
    }
  for (int64_t begin = 0; begin < s.n; begin += kChunk) {
    int own[kEach], mine = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t e = begin + thread * kEach + j;
      own[j] = -1;
      if (e >= s.n) continue;
      const int64_t given = index[e * s.index_step], k = s.from_end && given < 0 ? given + s.rows : given;
      if (k >= first && k < first + places) own[j] = static_cast<int>(k - first), ++mine;
      if (blockIdx.x == 0 && blockIdx.y == 0 && !cuda::is_in_range(k, s.rows)) in_range.tell(given, s.rows);
    }
    int upto = mine;
#pragma unroll
    for (int o = 1; o < cuda::kWarp; o *= 2) {
      const int earlier = __shfl_up_sync(0xffffffffu, upto, o);
      if (lane >= o) upto += earlier;
    }
    if (lane == cuda::kWarp - 1) warps[warp] = upto;
    __syncthreads();
    int rank = upto - mine, all = 0;
#pragma unroll
    for (int w = 0; w < kThreads / cuda::kWarp; ++w) {
      if (w < warp) rank += warps[w];
      all += warps[w];
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (own[j] >= 0) kept[rank++] = static_cast<uint16_t>((thread * kEach + j) << kRowBits | own[j]);
    __syncthreads();
    if (here) {
      const auto join_some = [&]<int N>(int i) {
        T v[N];
        int place[N];
#pragma unroll
        for (int u = 0; u < N; ++u) {
          const int e = kept[i + u];
          place[u] = e & (kPlaces - 1);
          v[u] = source[from + (begin + (e >> kRowBits)) * s.width.d];
        }
#pragma unroll
        for (int u = 0; u < N; ++u) {
          const C next = static_cast<C>(alpha * static_cast<C>(cuda::widen(v[u])));
          C& to = total[place[u]][thread];
          if constexpr (kCounted)
            to = count[place[u]][thread]++ == 0 ? next : joined(join, to, next);
          else
            to = joined(Join::sum, to, next);
        }
      };
      int i = 0;
      for (; i + kAhead <= all; i += kAhead) join_some.template operator()<kAhead>(i);
      for (; kAhead > kFew && i + kFew <= all; i += kFew) join_some.template operator()<kFew>(i);
      for (; i < all; ++i) join_some.template operator()<1>(i);
    }
    __syncthreads();
  }
  if (!here) return;
  for (int p = 0; p < places; ++p) {
    C v = total[p][thread];
    if constexpr (kCounted)
      if (join == Join::mean) v = mean_of(v, count[p][thread]);
    y[at + p * s.width.d] = cuda::narrow<T>(v);
  }
}

}  // namespace

bool joins_slices(const Tensor& y, int64_t dim, const Tensor& source) {
  if (!y.is_contiguous() || y.dim() == 0 || y.numel() == 0) return false;
  const int64_t rows = y.shape()[dim], n = source.shape()[dim], lines = y.numel() / rows;
  int64_t width = 1;
  for (int64_t d = dim + 1; d < y.dim(); ++d) width *= y.shape()[d];
  const int64_t across = (lines + kThreads - 1) / kThreads, down = (rows + kPlaces - 1) / kPlaces;
  if (width < cuda::kWarp || n == 0 || down > 65535 || across > INT32_MAX) return false;
  // Each block reads the index; that should not take longer than what is sent and written.
  const double looked = 8.0 * static_cast<double>(across * down) * static_cast<double>(n);
  return looked <= 2e7 + 2.0 * static_cast<double>(2 * y.nbytes() + source.nbytes());
}

void join_slices_cuda(Tensor& y, const Tensor& given, int64_t dim, const Tensor& index, const Tensor& sent,
                      const JoinLines& how) {
  const Tensor x = contiguous(given), dense = contiguous(sent);
  const Tensor source = y.storage() == dense.storage() ? clone(dense) : dense;
  const int64_t rows = y.shape()[dim], lines = y.numel() / rows;
  int64_t width = 1;
  for (int64_t d = dim + 1; d < y.dim(); ++d) width *= y.shape()[d];
  const Slices s{
      lines, rows, source.shape()[dim], cuda::Divisor(width), index.dim() == 0 ? 1 : index.strides()[0], how.from_end};
  const bool counted = how.join != Join::sum || !how.include_self;
  const dim3 grid(cuda::blocks_for(lines, kThreads), cuda::blocks_for(rows, kPlaces));
  dispatch_all(y.dtype(), "index_add", [&]<class T>() {
    const auto alpha = static_cast<Joined<T>>(how.alpha.to<compute_t<T>>());
    const auto kernel = counted ? slices_kernel<T, true> : slices_kernel<T, false>;
    kernel<<<grid, kThreads, 0, cuda::stream()>>>(s, static_cast<T*>(y.raw_data()), static_cast<const T*>(x.raw_data()),
                                                  static_cast<const int64_t*>(index.raw_data()),
                                                  static_cast<const T*>(source.raw_data()), how.join, how.include_self,
                                                  alpha, cuda::range_check());
  });
}

}  // namespace strata
