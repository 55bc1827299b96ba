// Values joined at the places that an index names along one dimension. Elements meet only within their line, so that
// lines need no sorting: a warp goes along each, 32 elements a step, and those of one place are joined in their order.
// A block has 8 lines next to each other, a part of whose totals is in shared memory; all its threads bring the next
// stretch while the warps are at the one before. Results have the bits of the CPU's sums.

#include <algorithm>

#include "strata/cuda/current.h"
#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/join_lines_kernel.h"
#include "strata/ops/index/join_step.cuh"

namespace strata {
namespace {
using cuda::kWarp;
using cuda::Walk;

constexpr int kLines = 8, kThreads = kLines * kWarp, kStretch = 256;
constexpr int kLoads = kStretch * kLines / kThreads;
constexpr int64_t kMostMemory = 96 * 1024;    // of a block: two to a multiprocessor
constexpr int64_t kAloneMemory = 208 * 1024;  // of a block that is alone there
constexpr int64_t kMultiprocessors = 132;     // of an H200

// From one line's numbers to the next's in shared memory: of `n` places. Lines lie 4 words apart, so that 4 places of 8
// lines are in banks of their own.
__host__ __device__ constexpr int64_t pitch_of(int64_t n) {
  return (n + 27) / 32 * 32 + 4;
}
constexpr int kStretchPitch = static_cast<int>(pitch_of(kStretch));

// n places of y and x and m of index and src along the dimension, with their steps; `tile` places a block.
struct Along {
  int64_t n, m, tile;
  int64_t step_y, step_x, step_index, step_src;
  bool from_end;

  __device__ __forceinline__ int64_t place(int64_t k) const { return from_end && k < 0 ? k + n : k; }
};

template <class T>
constexpr int64_t stretch_bytes = int64_t{kLines} * kStretchPitch* static_cast<int64_t>(sizeof(Joined<T>) + 4);

// Sums of integers are the same in any order.
template <class T>
constexpr bool waits(bool counted) {
  return counted || !std::is_integral_v<T>;
}
template <class T>
int64_t bytes_of_place(bool counted) {
  return kLines * static_cast<int64_t>(sizeof(Joined<T>) + (counted ? 4 : 0) + (waits<T>(counted) ? 1 : 0));
}
// The places of a tile whose lines take `room` bytes at `each` a place.
int64_t tile_within(int64_t n, int64_t room, int64_t each) {
  const int64_t fit = room / each / 32 * 32 - 32;
  return std::clamp<int64_t>(n, 1, fit);  // of no places: only to tell of it
}
// The same, and fewer where `lines` lines would be too few blocks: a block of fewer places has fewer steps to go,
// though it looks at all elements.
constexpr int64_t kLeastTile = 64;
int64_t tile_of(int64_t n, int64_t lines, int64_t room, int64_t each) {
  const int64_t most = tile_within(n, room, each), blocks = (lines + kLines - 1) / kLines;
  const int64_t parts = std::max<int64_t>(1, 2 * kMultiprocessors / std::max<int64_t>(1, blocks));
  const int64_t fair = std::max((n + parts - 1) / parts, kLeastTile);
  return std::min(most, (fair + 31) / 32 * 32);
}
int64_t most_memory(int64_t wanted = kMostMemory) {
  return std::min(wanted, cuda::properties(cuda::current_device()).shared_bytes_per_block - 1024);
}

// Where the block's lines begin in the operands of a walk.
template <int N>
__device__ __forceinline__ int find_lines(const Walk<N>& lines, int64_t (&base)[N][kLines]) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kLines;
  const int held = static_cast<int>(lines.numel - first < kLines ? lines.numel - first : kLines);
  if (static_cast<int>(threadIdx.x) < held) {
    int64_t at[N];
    lines.offsets(static_cast<uint32_t>(first + threadIdx.x), 1, at);
#pragma unroll
    for (int k = 0; k < N; ++k) base[k][threadIdx.x] = at[k];
  }
  __syncthreads();
  return held;
}

// f(place in the tile, line) for the places of the block's lines, neighbours by step.
template <class F>
__device__ __forceinline__ void each_place(int tile, int held, int64_t step, F&& f) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * kLines; i += kThreads) {
    const int p = step == 1 ? i % tile : i / kLines, line = step == 1 ? i / tile : i % kLines;
    if (line < held) f(p, line);
  }
}

// take(place in the tile, line, read(place, line)) for the same places: a thread's next reads are on their way
// together. One after the other, a block's few threads would take longer over a tile than over the elements that are
// sent.
constexpr int kReads = 8;
template <class T, int kAtOnce = kThreads, class Read, class Take>
__device__ __forceinline__ void read_places(int tile, int held, int64_t step, Read&& read, Take&& take) {
  for (int first = static_cast<int>(threadIdx.x); first < tile * kLines; first += kAtOnce * kReads) {
    T v[kReads] = {};
    int p[kReads], line[kReads];
#pragma unroll
    for (int u = 0; u < kReads; ++u) {
      const int i = first + u * kAtOnce;
      p[u] = step == 1 ? i % tile : i / kLines, line[u] = step == 1 ? i / tile : i % kLines;
      if (i >= tile * kLines) line[u] = kLines;
      if (line[u] < held) v[u] = read(p[u], line[u]);
    }
#pragma unroll
    for (int u = 0; u < kReads; ++u)
      if (line[u] < held) take(p[u], line[u], v[u]);
  }
}

// Moves those of a warp's `count` elements that name a place to the front, in their order; returns how many they are.
template <class C>
__device__ __forceinline__ int kept_of(int32_t* place, C* value, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int kept = 0;
  for (int first = 0; first < count; first += kWarp) {
    const int32_t to = first + lane < count ? place[first + lane] : -1;
    const C v = value[first + lane];  // a stretch has room for whole steps
    const unsigned named = __ballot_sync(0xffffffffu, to >= 0);
    __syncwarp();  // all have read
    if (to >= 0) {
      const int at = kept + __popc(named & ((1u << lane) - 1));
      place[at] = to, value[at] = v;
    }
    kept += __popc(named);
    __syncwarp();
  }
  return kept;
}

// Sums of integers are the same in any order: nobody waits. Of types of up to 32 bits the lower word says all.
template <class T>
__device__ __forceinline__ void add_in_any_order(int64_t* total, int64_t value) {
  if constexpr (sizeof(T) < sizeof(int64_t))
    atomicAdd(reinterpret_cast<unsigned*>(total), static_cast<unsigned>(value));  // the lower word comes first
  else
    atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(value));
}

// Block (i, j) has lines 8 i and on, and places `tile` j and on.
template <class T, bool kCounted>
__global__ void __launch_bounds__(kThreads)
    join_kernel(Walk<4> lines, T* y, const T* x, const int64_t* index, const T* src, Along a, Join join,
                bool include_self, Joined<T> alpha, cuda::RangeCheck in_range) {
  using C = Joined<T>;
  constexpr bool kAnyOrder = std::is_integral_v<T> && !kCounted;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ int64_t base[4][kLines];
  const int thread = static_cast<int>(threadIdx.x), own = thread / kWarp, lane = thread % kWarp;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * a.tile;
  const int tile = static_cast<int>(a.n - begin < a.tile ? a.n - begin : a.tile);
  const int pitch = static_cast<int>(pitch_of(a.tile));
  // The lines' totals, a stretch of elements and their places, counts, tags.
  C* const total = reinterpret_cast<C*>(memory);                                      // [kLines][pitch]
  C* const value = total + kLines * pitch;                                            // [kLines][kStretchPitch]
  int32_t* const place = reinterpret_cast<int32_t*>(value + kLines * kStretchPitch);  // [kLines][kStretchPitch]
  int32_t* const count = place + kLines * kStretchPitch;                              // [kLines][pitch]
  [[maybe_unused]] uint8_t* const tags = reinterpret_cast<uint8_t*>(count + (kCounted ? kLines * pitch : 0));
  const int held = find_lines(lines, base);

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
      next_index[u] = -1;
      next_value[u] = T{};
      if (line >= held || e >= a.m) continue;
      next_index[u] = index[base[2][line] + e * a.step_index];
      next_value[u] = src[base[3][line] + e * a.step_src];
    }
  };
  load(0);
  read_places<T>(
      tile, held, a.step_x, [&](int p, int line) { return x[base[1][line] + (begin + p) * a.step_x]; },
      [&](int p, int line, T v) {
        total[line * pitch + p] = static_cast<C>(cuda::widen(v));
        if constexpr (kCounted) count[line * pitch + p] = include_self ? 1 : 0;
      });
  for (int64_t from = 0; from < a.m; from += kStretch) {
    __syncthreads();  // totals are there; the stretch before is done with
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
      int line;
      const int e = spot(u, line);
      int32_t to = -1;
      if (line < held && from + e < a.m) {
        const int64_t k = a.place(next_index[u]);
        if (k >= begin && k < begin + tile) to = static_cast<int32_t>(k - begin);
        if (blockIdx.y == 0 && !cuda::is_in_range(k, a.n)) in_range.tell(next_index[u], a.n);
      }
      const C sent = static_cast<C>(alpha * static_cast<C>(cuda::widen(next_value[u])));
      if constexpr (kAnyOrder) {
        if (to >= 0) add_in_any_order<T>(total + line * pitch + to, sent);
      } else {
        place[line * kStretchPitch + e] = to;
        value[line * kStretchPitch + e] = sent;
      }
    }
    if constexpr (!kAnyOrder) __syncthreads();
    if (from + kStretch < a.m) load(from + kStretch);
    if (kAnyOrder || own >= held) continue;
    int32_t* const places = place + own * kStretchPitch;
    C* const values = value + own * kStretchPitch;
    int elements = static_cast<int>(a.m - from < kStretch ? a.m - from : kStretch);
    if (a.tile < a.n) elements = kept_of(places, values, elements);  // others are for other blocks
    for (int e = lane; e - lane < elements; e += kWarp)
      join_step<kCounted>(kCounted ? join : Join::sum, e < elements ? places[e] : -1, values[e], total + own * pitch,
                          count + own * pitch, tile < kLeastTags ? nullptr : tags + own * pitch);
  }
  __syncthreads();
  each_place(tile, held, a.step_y, [&](int p, int line) {
    C v = total[line * pitch + p];
    if constexpr (kCounted)
      if (join == Join::mean) v = mean_of(v, count[line * pitch + p]);
    y[base[0][line] + (begin + p) * a.step_y] = cuda::narrow<T>(v);
  });
}

// The last element that names a place is the largest, whatever order they come in: nobody walks.
template <class B, int kAtOnce>
__global__ void __launch_bounds__(kAtOnce) put_kernel(Walk<4> lines, B* y, const B* x, const int64_t* index,
                                                      const B* src, Along a, cuda::RangeCheck in_range) {
  extern __shared__ __align__(16) unsigned char memory[];
  int32_t* const last = reinterpret_cast<int32_t*>(memory);  // [kLines][pitch]
  __shared__ int64_t base[4][kLines];
  const int thread = static_cast<int>(threadIdx.x), pitch = static_cast<int>(pitch_of(a.tile));
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * a.tile;
  const int tile = static_cast<int>(a.n - begin < a.tile ? a.n - begin : a.tile);
  for (int i = thread; i < kLines * pitch; i += kAtOnce) last[i] = -1;
  const int held = find_lines(lines, base);
  const int m = static_cast<int>(a.m);
#pragma unroll 4
  for (int i = thread; i < m * kLines; i += kAtOnce) {
    const int line = a.step_index == 1 ? i / m : i % kLines, e = a.step_index == 1 ? i % m : i / kLines;
    if (line >= held) continue;
    const int64_t given = index[base[2][line] + e * a.step_index], k = a.place(given);
    if (k >= begin && k < begin + tile) atomicMax(last + line * pitch + static_cast<int>(k - begin), e);
    if (blockIdx.y == 0 && !cuda::is_in_range(k, a.n)) in_range.tell(given, a.n);
  }
  __syncthreads();
  read_places<B, kAtOnce>(
      tile, held, a.step_y,
      [&](int p, int line) {
        const int e = last[line * pitch + p];
        return e < 0 ? x[base[1][line] + (begin + p) * a.step_x] : src[base[3][line] + e * a.step_src];
      },
      [&](int p, int line, B v) { y[base[0][line] + (begin + p) * a.step_y] = v; });
}

// y = x in places that no line of the index has, else nothing; what x is then.
Tensor rest_copied(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index) {
  bool all = true;
  for (int64_t d = 0; d < y.dim(); ++d) all = all && (d == dim || index.shape()[d] == y.shape()[d]);
  if (all || y.same_as(x)) return x;
  copy_elements(y, x);
  return y;
}

// launch(walk of the lines' beginnings, offsets, along) for the parts that one launch takes.
template <class Launch>
void for_lines(const Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, bool from_end,
               Launch&& launch) {
  // The lines: all but `dim`, of which each tensor has its first place.
  const auto lines_of = [&](const Tensor& t) {
    Shape shape = index.shape();
    shape[dim] = 1;
    return alias(t, shape, t.strides(), t.storage_offset());
  };
  const Tensor ys = lines_of(y), xs = lines_of(x), is = lines_of(index), ss = lines_of(src);
  const auto w = cuda::make_walk<4>(std::array<const Tensor*, 4>{&ys, &xs, &is, &ss}, "scatter_add");
  Along a{y.shape()[dim],       index.shape()[dim], 1,       y.strides()[dim], x.strides()[dim],
          index.strides()[dim], src.strides()[dim], from_end};
  cuda::for_parts(w, 1, [&](const Walk<4>& part, const std::array<int64_t, 4>& at) { launch(part, at, a); });
}

void allow_memory(const void* kernel, int64_t bytes) {
  if (bytes > 46 * 1024)
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                     "scatter", "cudaFuncSetAttribute");
}

unsigned parts_of(const Along& a) {
  return static_cast<unsigned>(std::max<int64_t>(1, (a.n + a.tile - 1) / a.tile));
}

// How often all of a card's blocks run one after another: of 8 lines and a tile of `memory` bytes each.
double rounds_of(int64_t lines, int64_t parts, int64_t memory) {
  const int64_t at_once = kMultiprocessors * std::clamp<int64_t>(200 * 1024 / memory, 1, 2);
  return static_cast<double>(((lines + kLines - 1) / kLines * parts + at_once - 1) / at_once);
}

// A block's places and memory, how many such parts there are, and the microseconds of all blocks' steps along lines of
// m elements: 12 ns an element of a line whose steps wait for one another and mostly find elements of a place each, 30
// where a place has several, 4 where nobody waits, and 6 to look at one that is for another part. Each part reads all
// elements and their places anew.
struct Tiling {
  int64_t tile = 1, memory = 1, parts = 1;
  double rounds = 1, steps = 0, reading = 0;
};
template <class T>
Tiling tiling_of(int64_t n, int64_t m, int64_t lines, bool counted) {
  const auto with = [&](int64_t room) {
    Tiling t;
    t.tile = tile_of(n, lines, room - stretch_bytes<T>, bytes_of_place<T>(counted));
    t.memory = stretch_bytes<T> + pitch_of(t.tile) * bytes_of_place<T>(counted);
    t.parts = std::max<int64_t>(1, (n + t.tile - 1) / t.tile);
    const double each = !waits<T>(counted) ? 0.004 : t.tile >= kLeastTags && n >= 4 * kWarp * kWarp ? 0.012 : 0.03;
    const double along = each / static_cast<double>(t.parts) + (t.parts > 1 ? 0.006 : 0.0);
    t.rounds = rounds_of(lines, t.parts, t.memory);
    t.steps = (3 + along * static_cast<double>(m)) * t.rounds;
    t.reading = static_cast<double>(lines) * static_cast<double>(m) * static_cast<double>(12 * t.parts) / 3e6;
    return t;
  };
  const Tiling two = with(most_memory()), one = with(most_memory(kAloneMemory));
  return one.steps + one.reading < two.steps + two.reading ? one : two;
}

// Of `steps` microseconds along the lines, with what is read and written.
double time_of(const Tiling& t, const Tensor& y, double steps) {
  return steps + t.reading + static_cast<double>(y.nbytes()) / 2e6;
}

}  // namespace

double time_along_lines(const Tensor& y, int64_t dim, const Tensor& index) {
  const int64_t n = y.shape()[dim], m = index.shape()[dim];
  Tiling t;
  dispatch_all(y.dtype(), "scatter_add", [&]<class T>() { t = tiling_of<T>(n, m, index.numel() / m, false); });
  return time_of(t, y, t.steps);
}

bool joins_lines(const Tensor& y, int64_t dim, const Tensor& index, bool any_order) {
  const int64_t n = y.shape()[dim], m = index.shape()[dim];
  if (m == 0 || index.numel() == 0) return true;
  const int64_t lines = index.numel() / m;
  Tiling t;
  dispatch_all(y.dtype(), "scatter_add", [&]<class T>() { t = tiling_of<T>(n, m, lines, !any_order); });
  if (lines >= int64_t{1} << 31 || t.parts > 65535) return false;
  // In microseconds; all of y is read and written. Sorting is some ten launches and moves an element of 16 bytes four
  // times; in any order it is four launches, with two atomics an element.
  const double elements = static_cast<double>(index.numel());
  const double steps = any_order ? t.steps : (3 + 0.004 * static_cast<double>(m)) * t.rounds;
  return time_of(t, y, steps) <= (any_order ? 15 + elements * 4e-5 : 50 + elements * 128 / 3e6);
}

void join_lines_cuda(Tensor& y, const Tensor& given, int64_t dim, const Tensor& index, const Tensor& sent,
                     const JoinLines& how) {
  if (index.numel() == 0) {
    if (!y.same_as(given)) copy_elements(y, given);
    return;
  }
  const Tensor x = rest_copied(y, given, dim, index);
  // What is written over may be what is sent.
  const Tensor src = y.storage() == sent.storage() ? clone(sent) : sent;
  const bool counted = how.join != Join::sum || !how.include_self;
  dispatch_all(y.dtype(), "scatter_add", [&]<class T>() {
    const auto alpha = static_cast<Joined<T>>(how.alpha.to<compute_t<T>>());
    for_lines(y, x, dim, index, src, how.from_end, [&](const Walk<4>& part, const std::array<int64_t, 4>& at, Along a) {
      const Tiling t = tiling_of<T>(a.n, a.m, part.numel, counted);
      a.tile = t.tile;
      const auto kernel = counted ? join_kernel<T, true> : join_kernel<T, false>;
      allow_memory(reinterpret_cast<const void*>(kernel), t.memory);
      kernel<<<dim3(cuda::blocks_for(part.numel, kLines), parts_of(a)), kThreads, static_cast<size_t>(t.memory),
               cuda::stream()>>>(
          part, static_cast<T*>(y.raw_data()) + at[0], static_cast<const T*>(x.raw_data()) + at[1],
          static_cast<const int64_t*>(index.raw_data()) + at[2], static_cast<const T*>(src.raw_data()) + at[3], a,
          how.join, how.include_self, alpha, cuda::range_check());
    });
  });
}

namespace {
// Much that is sent, of which a block takes 8 whole lines, alone on its multiprocessor and with all the threads it can
// have: what it waits for is memory.
constexpr int64_t kMuch = int64_t{1} << 20;
constexpr int kAlone = 1024;
bool puts_alone(int64_t n, int64_t elements) {
  return elements > kMuch && tile_within(n, most_memory(kAloneMemory), kLines * 4) >= n;
}
}  // namespace

bool puts_lines(const Tensor& y, int64_t dim, const Tensor& index) {
  const int64_t n = y.shape()[dim], m = index.shape()[dim];
  if (m == 0 || index.numel() == 0) return true;
  const int64_t lines = index.numel() / m;
  // All of y is written: what is sent should be a good part of it, and all multiprocessors have lines.
  if (puts_alone(n, index.numel())) {
    // One index for all lines names whole rows, which go faster as they lie.
    bool same = true;
    for (int64_t d = 0; d < index.dim(); ++d)
      same = same && (d == dim || index.shape()[d] == 1 || index.strides()[d] == 0);
    return !same && 8 * index.numel() >= y.numel() && lines >= 4 * kLines * kMultiprocessors / 5;
  }
  const int64_t tile = tile_within(n, most_memory(), kLines * 4), parts = (n + tile - 1) / tile;
  // Of much, parts of lines are slower than whole rows.
  if (index.numel() > kMuch || parts > 65535) return false;
  // In microseconds: a block brings and marks 8 elements a nanosecond, each part anew; otherwise it is four launches,
  // which move an element's place, number and value twice.
  const double elements = static_cast<double>(index.numel());
  const double here = (2 + 0.002 * static_cast<double>(m)) * rounds_of(lines, parts, kLines * 4 * tile) +
                      elements * static_cast<double>(12 * parts) / 3e6;
  return here <= 10 + elements * 40 / 3e6;
}

void put_lines_cuda(Tensor& y, const Tensor& given, int64_t dim, const Tensor& index, const Tensor& sent,
                    bool from_end) {
  if (index.numel() == 0) {
    if (!y.same_as(given)) copy_elements(y, given);
    return;
  }
  const Tensor x = rest_copied(y, given, dim, index);
  const Tensor src = y.storage() == sent.storage() ? clone(sent) : sent;
  dispatch_bytes(y.dtype(), [&]<class B>() {
    for_lines(y, x, dim, index, src, from_end, [&](const Walk<4>& part, const std::array<int64_t, 4>& at, Along a) {
      const bool alone = puts_alone(a.n, index.numel());
      a.tile = tile_within(a.n, most_memory(alone ? kAloneMemory : kMostMemory), kLines * 4);
      const int64_t memory = kLines * 4 * pitch_of(a.tile);
      const auto kernel = alone ? put_kernel<B, kAlone> : put_kernel<B, kThreads>;
      allow_memory(reinterpret_cast<const void*>(kernel), memory);
      kernel<<<dim3(cuda::blocks_for(part.numel, kLines), parts_of(a)), alone ? kAlone : kThreads,
               static_cast<size_t>(memory), cuda::stream()>>>(
          part, static_cast<B*>(y.raw_data()) + at[0], static_cast<const B*>(x.raw_data()) + at[1],
          static_cast<const int64_t*>(index.raw_data()) + at[2], static_cast<const B*>(src.raw_data()) + at[3], a,
          cuda::range_check());
    });
  });
}

}  // namespace strata
