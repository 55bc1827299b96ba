#pragma once
// The gradient of a convolution's filters on Hopper's tensor cores from row-major operands as they lie, whose rows are
// along the sum: pixels. A share of the sum for each block; the shares are added up in order. Of the second operand,
// the gradient of the convolution's result, every block of the first columns adds up the rows too: the bias's gradient.

#include "strata/ops/conv/conv_divisor.cuh"
#include "strata/ops/conv/conv_kernels.h"
#include "strata/ops/conv/conv_stage.cuh"

namespace strata::conv_cuda {
using cpu::ConvSizes;
using cuda::FastDivisor;

/// Starts a copy of one f32 to shared memory, through L1: what is read need not begin at 16 bytes. Zero where `valid`
/// is false; `from` is not read there.
#ifndef STRATA_TILE_EMULATION
__device__ __forceinline__ void copy_one(uint32_t to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
/// The same of 16 bytes, both aligned: what one tap reads another reads some pixels further.
__device__ __forceinline__ void copy_near(uint32_t to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
#else
inline void copy_near(uint32_t to, const float* from, bool valid) {
  copy_async(to, from, valid);
}
inline void copy_one(uint32_t to, const float* from, bool valid) {
  emulation::Block* const block = emulation::block;
  uint8_t* const at = block->pointer(to, 4);
  emulation::Thread* const thread = block->now;
  thread->copies.open.push_back([=] {
    valid ? std::memcpy(at, from, 4) : std::memset(at, 0, 4);
    const uint32_t place = (to - emulation::kBase) / 16;
    block->unfenced[place] = thread->number + 1;
    thread->unfenced.push_back(place);
  });
}
#endif

/// What a block does: its rows and columns of the filters, and which part of the sum.
struct ShareTile {
  int m0, n0, group, share, begin, end;
};
/// How a sum is shared out: `blocks` steps among `shares`, for each of so many tiles of columns and, of all groups,
/// rows.
struct SharedOut {
  int blocks, shares, tiles_n, tiles_m;
};
template <int Warpgroups>
__device__ __forceinline__ ShareTile share_tile(const SharedOut& g, int groups) {
  const int number = static_cast<int>(blockIdx.x), rest = number / g.tiles_n, share = rest / g.tiles_m;
  const int row = rest - share * g.tiles_m, per_group = g.tiles_m / groups;
  return {row % per_group * 64 * Warpgroups,
          (number - rest * g.tiles_n) * kBlockN,
          row / per_group,
          share,
          static_cast<int>(static_cast<int64_t>(g.blocks) * share / g.shares),
          static_cast<int>(static_cast<int64_t>(g.blocks) * (share + 1) / g.shares)};
}

/// A thread's half of a row of a stage, added up: 64 bytes of the row `thread / 2`. Eight neighbours read eight
/// different pieces.
template <class T>
__device__ __forceinline__ float half_row_sum(const uint8_t* tile) {
  const int row = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
  constexpr int kPiece = 16 / sizeof(T);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto v = cuda::load_vec<kPiece>(reinterpret_cast<const T*>(tile + swizzled(row, half * 4 + i)));
    float part = 0;
#pragma unroll
    for (int e = 0; e < kPiece; ++e) part += cuda::widen(v.v[e]);
    sum += part;
  }
  return sum;
}
/// The halves of a row together into rows[share, group, m].
__device__ __forceinline__ void write_row_sum(float sum, float* rows, const ShareTile& at, int groups, int m) {
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  const int row = at.m0 + static_cast<int>(threadIdx.x) / 2;
  if (threadIdx.x % 2 == 0 && row < m) rows[(static_cast<int64_t>(at.share) * groups + at.group) * m + row] = sum;
}

/// sums[share, group, m, c] = the sum over a share's images and pixels of y[n, group, m, pixel] x[n, group, c, pixel]:
/// the gradient of filters of 1 x 1 that move by one. With `rows`, rows[share, group, m] = the sum of y's.
struct PlaneSum {
  const void *x, *y;
  float *sums, *rows;
  int plane, m, channels, columns, groups;  // columns: channels, padded
  SharedOut work;                           // blocks of 128 bytes of a plane, of all images
  FastDivisor by_image;                     // blocks of an image
};

template <class Of, int Warpgroups>
__global__ void __launch_bounds__(128 * Warpgroups) plane_kernel(const PlaneSum g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Of::T;
  constexpr int kM = 64 * Warpgroups, kPiece = 16 / sizeof(T), kRowStep = 16 * Warpgroups;
  constexpr int kRowsA = kM / kRowStep, kRowsB = kBlockN / kRowStep;
  uint8_t* const memory = shared_memory();
  const uint32_t base = shared_address(memory);
  const int tid = static_cast<int>(threadIdx.x), piece = tid % 8, row0 = tid / 8;
  const ShareTile at = share_tile<Warpgroups>(g.work, g.groups);
  const T* const y = static_cast<const T*>(g.y) + (static_cast<int64_t>(at.group) * g.m + at.m0 + row0) * g.plane;
  const T* const x =
      static_cast<const T*>(g.x) + (static_cast<int64_t>(at.group) * g.channels + at.n0 + row0) * g.plane;

  const auto load = [&](int block, int stage) {
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    const int n = static_cast<int>(g.by_image.divide(static_cast<uint32_t>(block)));
    const int p = ((block - n * static_cast<int>(g.by_image.d)) * 8 + piece) * kPiece;
    const T* const a = y + static_cast<int64_t>(n) * g.groups * g.m * g.plane + p;
    const T* const b = x + static_cast<int64_t>(n) * g.groups * g.channels * g.plane + p;
#pragma unroll
    for (int r = 0; r < kRowsA; ++r)
      copy_async(a_at + swizzled(row0 + r * kRowStep, piece), a + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && at.m0 + row0 + r * kRowStep < g.m);
#pragma unroll
    for (int r = 0; r < kRowsB; ++r)
      copy_async(b_at + swizzled(row0 + r * kRowStep, piece), b + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && at.n0 + row0 + r * kRowStep < g.channels);
  };

  float sums[64], row_sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  const bool adds_rows = g.rows != nullptr && at.n0 == 0;
  for (int s = 0; s < kStages - 1; ++s) {
    if (at.begin + s < at.end) load(at.begin + s, s);
    commit_copies();
  }
  for (int block = at.begin, stage = 0; block < at.end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = block + kStages - 1;
    if (next < at.end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    commit_copies();
    if (adds_rows) row_sum += half_row_sum<T>(memory + stage * stage_bytes<Warpgroups>());
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  write_sums(sums, g.sums + (static_cast<int64_t>(at.share) * g.groups + at.group) * g.m * g.columns, g.m, g.columns,
             at.m0 + warpgroup * 64, at.n0);
  if (adds_rows) write_row_sum(row_sum, g.rows, at, g.groups, g.m);
#endif
}

/// sums[share, group, m, (tap, c)] = the sum over a share's pixels (n, i, j) of y[n, group, m, (i, j)] x[n, group, c,
/// i step_h + a dilation_h - pad_h, j step_w + b dilation_w - pad_w], of f32 rounded to TF32: the tensor cores have no
/// transposed form for these, so that rows are along pixels, and a window's shift by a pixel is one by four bytes. With
/// `rows` as in PlaneSum.
struct WindowSum {
  const float *x, *y;
  float *sums, *rows;
  int height, width, plane, cols;            // of x, of y
  int m, channels, padded, columns, groups;  // columns = taps * padded
  int kernel_w, step_h, step_w, pad_h, pad_w, dilation_h, dilation_w;
  SharedOut work;           // blocks of 32 pixels of an image, of all images
  bool y_pieces, x_pieces;  // y's planes are whole pieces of 16 bytes; windows of four of its pixels are those of x
  FastDivisor by_image, by_col, by_padded, by_kernel_w;
};

/// Of a column: elements from an output's place to its input's in its channel, rows down, columns to the right.
struct alignas(16) ColumnWindow {
  int place, down, right, unused;
};
template <int Warpgroups>
constexpr int window_bytes() {
  return kStages * stage_bytes<Warpgroups>() + kBlockN * static_cast<int>(sizeof(ColumnWindow));
}

/// Of: a type of its own for a program's kernels, as in those that are told a type of elements.
template <class Of, int Warpgroups>
__global__ void __launch_bounds__(128 * Warpgroups) window_kernel(const WindowSum g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kM = 64 * Warpgroups, kWarps = 4 * Warpgroups, kPixels = 32, kRowStep = 16 * Warpgroups;
  constexpr int kNowhere = -(1 << 30);  // added to a row or not, no row of an image
  uint8_t* const memory = shared_memory();
  const uint32_t base = shared_address(memory);
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const ShareTile at = share_tile<Warpgroups>(g.work, g.groups);
  const int area = g.height * g.width;
  const float* const y = g.y + (static_cast<int64_t>(at.group) * g.m + at.m0) * g.plane;
  const float* const x = g.x + static_cast<int64_t>(at.group) * g.channels * area;

  auto* const windows = reinterpret_cast<ColumnWindow*>(memory + kStages * stage_bytes<Warpgroups>());
  if (tid < kBlockN) {
    const int column = at.n0 + tid, tap = static_cast<int>(g.by_padded.divide(static_cast<uint32_t>(column)));
    const int c = column - tap * g.padded, a = static_cast<int>(g.by_kernel_w.divide(static_cast<uint32_t>(tap)));
    const int down = a * g.dilation_h - g.pad_h, right = (tap - a * g.kernel_w) * g.dilation_w - g.pad_w;
    const bool valid = column < g.columns && c < g.channels;
    windows[tid] = {valid ? c * area + down * g.width + right : 0, valid ? down : kNowhere, right, 0};
  }
  __syncthreads();

  const auto load = [&](int block, int stage) {
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    const int n = static_cast<int>(g.by_image.divide(static_cast<uint32_t>(block)));
    const int first = (block - n * static_cast<int>(g.by_image.d)) * kPixels;
    const float* const a = y + static_cast<int64_t>(n) * g.groups * g.m * g.plane;
    const float* const b = x + static_cast<int64_t>(n) * g.groups * g.channels * area;
    const int piece = tid % 8, row0 = tid / 8;
    const auto place = static_cast<uint32_t>(lane % 4 * 4);
    if (g.y_pieces) {
      const int p = first + piece * 4;
#pragma unroll
      for (int r = 0; r < kM / kRowStep; ++r)
        copy_async(a_at + swizzled(row0 + r * kRowStep, piece),
                   a + static_cast<int64_t>(row0 + r * kRowStep) * g.plane + p,
                   p < g.plane && at.m0 + row0 + r * kRowStep < g.m);
    } else {
      const int p = first + lane;
#pragma unroll 4
      for (int row = warp; row < kM; row += kWarps)
        copy_one(a_at + swizzled(row, lane / 4) + place, a + static_cast<int64_t>(row) * g.plane + p,
                 p < g.plane && at.m0 + row < g.m);
    }
    // The input under window (0, 0) of a thread's pixel, or of the first of its four.
    const int p = first + (g.x_pieces ? piece * 4 : lane);
    const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(p))), left = (p - i * g.cols) * g.step_w;
    const int top = p < g.plane ? i * g.step_h : kNowhere / 2;
    const float* const under = b + static_cast<int64_t>(i * g.step_h) * g.width + left;
    const auto inside = [&](const ColumnWindow& window) {
      return static_cast<unsigned>(top + window.down) < static_cast<unsigned>(g.height) &&
             static_cast<unsigned>(left + window.right) < static_cast<unsigned>(g.width);
    };
    if (g.x_pieces) {
#pragma unroll
      for (int r = 0; r < kBlockN / kRowStep; ++r) {
        const ColumnWindow window = windows[row0 + r * kRowStep];
        copy_near(b_at + swizzled(row0 + r * kRowStep, piece), under + window.place, inside(window));
      }
    } else {
#pragma unroll 8
      for (int row = warp; row < kBlockN; row += kWarps) {
        const ColumnWindow window = windows[row];
        copy_one(b_at + swizzled(row, lane / 4) + place, under + window.place, inside(window));
      }
    }
  };

  float sums[64], row_sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  const bool adds_rows = g.rows != nullptr && at.n0 == 0;
  for (int s = 0; s < kStages - 1; ++s) {
    if (at.begin + s < at.end) load(at.begin + s, s);
    commit_copies();
  }
  for (int block = at.begin, stage = 0; block < at.end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<float>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = block + kStages - 1;
    if (next < at.end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    commit_copies();
    if (adds_rows) row_sum += half_row_sum<float>(memory + stage * stage_bytes<Warpgroups>());
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  write_sums(sums, g.sums + (static_cast<int64_t>(at.share) * g.groups + at.group) * g.m * g.columns, g.m, g.columns,
             at.m0 + warpgroup * 64, at.n0);
  if (adds_rows) write_row_sum(row_sum, g.rows, at, g.groups, g.m);
#endif
}

// ---- on the host ----

/// The rows of a sum shared out: 64 or, where there are more than 64 of a group, 128 for a block.
inline SharedOut shared_out(const ConvSizes& s, int64_t columns, int64_t blocks) {
  const int64_t m = s.oc / s.groups, rows = m > 64 ? 128 : 64;
  return {static_cast<int>(blocks), 1, static_cast<int>((columns + kBlockN - 1) / kBlockN),
          static_cast<int>((m + rows - 1) / rows * s.groups)};
}

/// The sum for 1 x 1 kernels that move by one and elements of `bytes`; its pointers and shares are left to the caller.
inline PlaneSum plane_sum(const ConvSizes& s, int64_t bytes) {
  const int64_t plane = s.ih * s.iw, per_image = (plane * bytes + kRowBytes - 1) / kRowBytes;
  PlaneSum g{};
  g.plane = static_cast<int>(plane), g.groups = static_cast<int>(s.groups);
  g.m = static_cast<int>(s.oc / s.groups), g.channels = static_cast<int>(s.ic / s.groups);
  g.columns = (g.channels + 1) / 2 * 2;
  g.work = shared_out(s, g.columns, s.n * per_image);
  g.by_image = FastDivisor(static_cast<uint32_t>(per_image));
  return g;
}

/// The sum for any kernel, of operands that begin at multiples of 16 bytes or not; its pointers and shares are left to
/// the caller.
inline WindowSum window_sum(const ConvSizes& s, bool x_aligned, bool y_aligned) {
  const int64_t plane = s.oh * s.ow, per_image = (plane + 31) / 32;
  WindowSum g{};
  g.height = static_cast<int>(s.ih), g.width = static_cast<int>(s.iw);
  g.plane = static_cast<int>(plane), g.cols = static_cast<int>(s.ow);
  g.m = static_cast<int>(s.oc / s.groups), g.channels = static_cast<int>(s.ic / s.groups);
  g.groups = static_cast<int>(s.groups);
  g.padded = (g.channels + 1) / 2 * 2, g.columns = static_cast<int>(s.kh * s.kw) * g.padded;
  g.kernel_w = static_cast<int>(s.kw);
  g.step_h = static_cast<int>(s.sh), g.step_w = static_cast<int>(s.sw);
  g.pad_h = static_cast<int>(s.ph), g.pad_w = static_cast<int>(s.pw);
  g.dilation_h = static_cast<int>(s.dh), g.dilation_w = static_cast<int>(s.dw);
  g.work = shared_out(s, g.columns, s.n * per_image);
  g.y_pieces = plane % 4 == 0 && y_aligned;
  // Four neighbours of a row of y from a multiple of four on see four of a row of x, all of them or none inside.
  g.x_pieces =
      x_aligned && s.sw == 1 && s.iw % 4 == 0 && s.ow % 4 == 0 && s.pw % 4 == 0 && (s.kw == 1 || s.dw % 4 == 0);
  g.by_image = FastDivisor(static_cast<uint32_t>(per_image)), g.by_col = FastDivisor(static_cast<uint32_t>(g.cols));
  g.by_padded = FastDivisor(static_cast<uint32_t>(g.padded));
  g.by_kernel_w = FastDivisor(static_cast<uint32_t>(g.kernel_w));
  return g;
}

}  // namespace strata::conv_cuda
