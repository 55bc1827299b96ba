// Values joined at the places that an index names along one dimension. Elements meet only within their line, so that
// one thread that goes along a line adds in order, without sorting: a block has 32 lines, a part of whose totals is in
// shared memory, as wide as that is; its first warp, a line to each thread, goes along them, while the others bring the
// next stretch. Results have the bits of the CPU's sums.

#include <algorithm>

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/index/join_lines_kernel.h"

namespace strata {
namespace {
using cuda::Walk;

constexpr int kThreads = 256, kLines = 32, kStretch = 64, kAtOnce = 4;
constexpr int kPitch = kLines + 1;  // odd: neither lines nor places next to each other share a bank
constexpr int kLoads = kStretch * kLines / kThreads;
constexpr int64_t kMemory = 48 * 1024 - 1024;  // a block's shared memory, less what lies there by name
constexpr int64_t kBlocksAtOnce = 132 * 4;     // of an H200

// n places of y and m of index and src along the dimension, with their steps; `tile` places a block.
struct Along {
  int64_t n, m, tile;
  int64_t step_y, step_index, step_src;
};

template <class T>
constexpr int64_t stretch_bytes = int64_t{kStretch} * kPitch* static_cast<int64_t>(sizeof(Joined<T>) + 4);

template <class T>
int64_t tile_of(int64_t n, bool counted) {
  const int64_t row = kPitch * static_cast<int64_t>(sizeof(Joined<T>) + (counted ? 4 : 0));
  return std::clamp<int64_t>(n, 1, (kMemory - stretch_bytes<T>) / row - 1);  // of no places: only to tell of it
}
template <class T>
size_t memory_of(int64_t tile, bool counted) {
  const int64_t row = kPitch * static_cast<int64_t>(sizeof(Joined<T>) + (counted ? 4 : 0));
  return static_cast<size_t>(stretch_bytes<T> + (tile + 1) * row);
}

// Block (x, y) has lines 32 x and on, and places `tile` y and on.
template <class T, bool kCounted>
__global__ void __launch_bounds__(kThreads)
    join_kernel(Walk<3> lines, T* y, const int64_t* index, const T* src, Along a, Join join, bool include_self,
                cuda::RangeCheck in_range) {
  using C = Joined<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  C* const total = reinterpret_cast<C*>(memory);                                 // [tile + 1][kPitch]
  C* const value = total + (a.tile + 1) * kPitch;                                // [kStretch][kPitch]
  int32_t* const place = reinterpret_cast<int32_t*>(value + kStretch * kPitch);  // [kStretch][kPitch]
  int32_t* const count = place + kStretch * kPitch;                              // [tile + 1][kPitch]
  __shared__ int64_t base[3][kLines];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kLines;
  const int held = static_cast<int>(lines.numel - first < kLines ? lines.numel - first : kLines);
  if (thread < held) {
    int64_t at[3];
    lines.offsets(static_cast<uint32_t>(first + thread), 1, at);
#pragma unroll
    for (int k = 0; k < 3; ++k) base[k][thread] = at[k];
  }
  __syncthreads();

  // The part's totals: f(place in the part, line, element of y).
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * a.tile;
  const int tile = static_cast<int>(a.n - begin < a.tile ? a.n - begin : a.tile);
  const auto each_total = [&](auto&& f) {
    for (int i = thread; i < tile * kLines; i += kThreads) {
      const int p = a.step_y == 1 ? i % tile : i / kLines, line = a.step_y == 1 ? i / tile : i % kLines;
      if (line < held) f(p * kPitch + line, y[base[0][line] + (begin + p) * a.step_y]);
    }
  };
  each_total([&](int i, const T& v) {
    total[i] = static_cast<C>(cuda::widen(v));
    if constexpr (kCounted) count[i] = include_self ? 1 : 0;
  });
  // What goes elsewhere goes to one place more, which nobody reads.
  if (thread < kPitch) {
    total[tile * kPitch + thread] = C(0);
    if constexpr (kCounted) count[tile * kPitch + thread] = 0;
  }

  // Element u of this thread in a stretch, and its line: neighbours lie side by side in src.
  const auto spot = [&](int u, int& line) {
    const int i = thread + u * kThreads;
    line = a.step_src == 1 ? i / kStretch : i % kLines;
    return a.step_src == 1 ? i % kStretch : i / kLines;
  };
  int64_t next_index[kLoads];
  T next_value[kLoads];
  const auto load = [&](int64_t from) {
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
      int line;
      const int64_t e = from + spot(u, line);
      if (line >= held || e >= a.m) continue;
      next_index[u] = index[base[1][line] + e * a.step_index];
      next_value[u] = src[base[2][line] + e * a.step_src];
    }
  };
  load(0);
  for (int64_t from = 0; from < a.m; from += kStretch) {
    __syncthreads();  // totals are there; the stretch before is done with
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
      int line;
      const int e = spot(u, line);
      int32_t to = tile;
      C v = C(0);
      if (line < held && from + e < a.m) {
        const int64_t k = next_index[u];
        if (k >= begin && k < begin + tile) to = static_cast<int32_t>(k - begin);
        if (blockIdx.y == 0) in_range(k, a.n);
        v = static_cast<C>(cuda::widen(next_value[u]));
      }
      place[e * kPitch + line] = to * kPitch + line;
      value[e * kPitch + line] = v;
    }
    __syncthreads();
    if (from + kStretch < a.m) load(from + kStretch);
    if (thread >= kLines) continue;
    for (int e = 0; e < kStretch; e += kAtOnce) {
      int32_t to[kAtOnce];
      C v[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        to[k] = place[(e + k) * kPitch + thread];
        v[k] = value[(e + k) * kPitch + thread];
      }
      join_in_turn<kAtOnce, kCounted>(kCounted ? join : Join::sum, to, v, total, count);
    }
  }
  __syncthreads();
  each_total([&](int i, T& to) {
    C v = total[i];
    if constexpr (kCounted)
      if (join == Join::mean) v = mean_of(v, count[i]);
    to = cuda::narrow<T>(v);
  });
}

}  // namespace

bool joins_lines(const Tensor& y, int64_t dim, const Tensor& index) {
  const int64_t n = y.shape()[dim], m = index.shape()[dim];
  if (m == 0 || index.numel() == 0) return true;
  const int64_t lines = index.numel() / m;
  const int64_t tile = dispatch_all(y.dtype(), "scatter_add", [&]<class T>() { return tile_of<T>(n, true); });
  const int64_t parts = (n + tile - 1) / tile;
  if (lines >= int64_t{1} << 31 || parts > 65535) return false;
  // In microseconds: 10 ns a step of a line, each part reads the index anew, and all of y is read and written; sorting
  // is some ten launches and moves an element of 16 bytes four times.
  const double rounds =
      static_cast<double>(((lines + kLines - 1) / kLines * parts + kBlocksAtOnce - 1) / kBlocksAtOnce);
  const double elements = static_cast<double>(index.numel());
  const double walked = 0.01 * static_cast<double>(m) * rounds + elements * static_cast<double>(12 * parts) / 3e6 +
                        static_cast<double>(y.nbytes()) / 2e6;
  return walked <= 50 + elements * 128 / 3e6;
}

void join_lines_cuda(Tensor& y, int64_t dim, const Tensor& index, const Tensor& src, Join join, bool include_self) {
  if (index.numel() == 0) return;
  // The lines: all but `dim`, of which each tensor has its first place.
  const auto lines_of = [&](const Tensor& t) {
    Shape shape = index.shape();
    shape[dim] = 1;
    return alias(t, shape, t.strides(), t.storage_offset());
  };
  const Tensor ys = lines_of(y), is = lines_of(index), ss = lines_of(src);
  const auto w = cuda::make_walk<3>(std::array<const Tensor*, 3>{&ys, &is, &ss}, "scatter_add");
  const bool counted = join != Join::sum || !include_self;
  Along a{y.shape()[dim], index.shape()[dim], 1, y.strides()[dim], index.strides()[dim], src.strides()[dim]};
  dispatch_all(y.dtype(), "scatter_add", [&]<class T>() {
    a.tile = tile_of<T>(a.n, counted);
    const auto down = static_cast<unsigned>(std::max<int64_t>(1, (a.n + a.tile - 1) / a.tile));
    const size_t memory = memory_of<T>(a.tile, counted);
    const auto kernel = counted ? join_kernel<T, true> : join_kernel<T, false>;
    cuda::for_parts(w, 1, [&](const Walk<3>& part, const std::array<int64_t, 3>& at) {
      kernel<<<dim3(cuda::blocks_for(part.numel, kLines), down), kThreads, memory, cuda::stream()>>>(
          part, static_cast<T*>(y.raw_data()) + at[0], static_cast<const int64_t*>(index.raw_data()) + at[1],
          static_cast<const T*>(src.raw_data()) + at[2], a, join, include_self, cuda::range_check());
    });
  });
}

}  // namespace strata
