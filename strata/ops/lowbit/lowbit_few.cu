// Products of up to eight rows of x with low-bit matrices: a block has 16 rows of W, its warps take the columns in
// turn, and each lane brings its codes into shared memory some steps ahead, so that enough of W is always on its way.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/ops/lowbit/lowbit_few.h"
#include "strata/ops/lowbit/lowbit_numbers.cuh"

namespace strata {
namespace {
using namespace lowbit;

constexpr int kThreads = 256, kWarps = kThreads / cuda::kWarp;
constexpr int kStages = 8;                  // steps that are on their way
constexpr size_t kMostOfScales = 24 << 10;  // bytes: with the codes less than any card of 8.0 on has

struct Product {
  PackedView w;
  const void *x, *bias;
  void* y;
  int m;
  int steps;        // of all columns
  int block_steps;  // that a scale is for
  int groups;       // scales of a row
  bool staged;      // they have room in shared memory
};

// Shared memory: codes [kStages][2][kThreads], scales and zeros [groups][16] each.
template <WeightCodes kKind, class T>
__global__ void __launch_bounds__(kThreads) few_kernel(const Product p) {
  using N = Numbers<kKind, T>;
  constexpr int kLine = 128;
  extern __shared__ uint4 shared[];
  __shared__ float sums[kWarps][kTileColumns][kTileRows];
  float* const scales = reinterpret_cast<float*>(shared + kStages * 2 * kThreads);
  uint32_t* const zeros = reinterpret_cast<uint32_t*>(scales + p.groups * kTileRows);
  const PackedView& w = p.w;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileRows;
  const auto row_of = [&](int r) { return min(first + r, w.rows - 1); };  // what is behind the last is not stored
  if (const int64_t at = thread / kTileRows * kLine; at < w.row_bytes)
    cuda::fetch_line(w.codes + row_of(thread % kTileRows) * w.row_bytes + at);
  cuda::wait_for_previous();

  const uint8_t* const low = w.codes + row_of(lane / 4) * w.row_bytes + lane % 4 * 16;
  const uint8_t* const high = w.codes + row_of(lane / 4 + 8) * w.row_bytes + lane % 4 * 16;
  const int own_steps = p.steps > warp ? (p.steps - warp + kWarps - 1) / kWarps : 0;
  const auto bring = [&](int i) {  // the warp's step i
    if (i < own_steps) {
      const int64_t at = static_cast<int64_t>(i * kWarps + warp) * 64;
      uint4* const to = shared + i % kStages * 2 * kThreads + thread;
      copy_piece(to, low + at, true);
      copy_piece(to + kThreads, high + at, true);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) bring(i);

  // Row r's, of a group of columns.
  const auto block_of = [&](int r, int group) {
    return load_block(w, row_of(r) / w.block_rows * w.grid_columns + group);
  };
  for (int i = thread; p.staged && i < p.groups * kTileRows; i += kThreads) {
    const Block b = block_of(i % kTileRows, i / kTileRows);
    scales[i] = scale_of(w, b.scale);
    zeros[i] = b.zero;
  }
  __syncthreads();

  // The lane's row of x, in pieces of 16 bytes of each step.
  const bool there = lane / 4 < p.m;
  const T* const x = static_cast<const T*>(p.x) + (there ? lane / 4 : 0) * w.columns + lane % 4 * kOwn<kKind>;
  const auto read = [&](int i, uint4(&to)[kPieces<kKind>]) {
#pragma unroll
    for (int j = 0; j < kPieces<kKind>; ++j) {
      to[j] = uint4{};
      if (there && i < own_steps)
        to[j] =
            *reinterpret_cast<const uint4*>(x + static_cast<int64_t>(i * kWarps + warp) * kStepColumns<kKind> + 8 * j);
    }
  };
  uint4 next[kPieces<kKind>];
  read(0, next);
  float sum[4] = {};
  for (int i = 0; i < own_steps; ++i) {
    uint32_t own[1][kPieces<kKind> * 4];
#pragma unroll
    for (int j = 0; j < kPieces<kKind>; ++j)
      own[0][4 * j] = next[j].x, own[0][4 * j + 1] = next[j].y, own[0][4 * j + 2] = next[j].z,
                 own[0][4 * j + 3] = next[j].w;
    read(i + 1, next);
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");  // a lane reads what it brought itself
    const uint4* const from = shared + i % kStages * 2 * kThreads + thread;
    const uint4 low_codes = from[0], high_codes = from[kThreads];
    bring(i + kStages - 1);
    const int group = (i * kWarps + warp) / p.block_steps, at = group * kTileRows + lane / 4;
    float low_scale, high_scale;
    uint32_t low_zero, high_zero;
    if (p.staged) {
      low_scale = scales[at], high_scale = scales[at + 8];
      low_zero = zeros[at], high_zero = zeros[at + 8];
    } else {
      const Block of_low = block_of(lane / 4, group), of_high = block_of(lane / 4 + 8, group);
      low_scale = scale_of(w, of_low.scale), high_scale = scale_of(w, of_high.scale);
      low_zero = of_low.zero, high_zero = of_high.zero;
    }
    float part[1][4] = {};
    multiply<kKind, T, 1>(low_codes, high_codes, N(w, low_zero), N(w, high_zero), own, part);
    sum[0] = fmaf(low_scale, part[0][0], sum[0]);
    sum[1] = fmaf(low_scale, part[0][1], sum[1]);
    sum[2] = fmaf(high_scale, part[0][2], sum[2]);
    sum[3] = fmaf(high_scale, part[0][3], sum[3]);
  }
  cuda::let_next_begin();  // not before: its blocks would take the place of this kernel's that are still to come
#pragma unroll
  for (int e = 0; e < 4; ++e) sums[warp][lane % 4 * 2 + e % 2][e / 2 * 8 + lane / 4] = sum[e];
  __syncthreads();
  if (thread >= p.m * kTileRows) return;
  const int n = thread / kTileRows, r = thread % kTileRows;
  if (first + r >= w.rows) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += sums[i][n][r];
  if (p.bias != nullptr) total += cuda::widen(static_cast<const T*>(p.bias)[first + r]);
  static_cast<T*>(p.y)[n * w.rows + first + r] = cuda::narrow<T>(total);
}

template <WeightCodes kKind, class T>
void launch(Product p) {
  p.steps = static_cast<int>(p.w.columns / kStepColumns<kKind>);
  p.block_steps = static_cast<int>(std::min(p.w.block_columns, p.w.columns) / kStepColumns<kKind>);
  p.groups = (p.steps + p.block_steps - 1) / p.block_steps;
  size_t shared = size_t{kStages} * 2 * kThreads * sizeof(uint4);
  const size_t more = static_cast<size_t>(p.groups) * kTileRows * (sizeof(float) + sizeof(uint32_t));
  p.staged = more <= kMostOfScales;
  if (p.staged) shared += more;
  const auto kernel = few_kernel<kKind, T>;
  cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                   "packed_linear", "cudaFuncSetAttribute");
  cuda::launch_early(kernel, cuda::blocks_for(p.w.rows, kTileRows), kThreads, shared, 1, p);
}

}  // namespace

void lowbit_few_cuda(const PackedView& w, DType t, const void* x, int64_t m, const void* bias, void* y) {
  const Product p{w, x, bias, y, static_cast<int>(m), 0, 0, 0, false};
  const auto with = [&]<class T>() {
    if (w.kind == WeightCodes::int4)
      launch<WeightCodes::int4, T>(p);
    else if (w.kind == WeightCodes::int8)
      launch<WeightCodes::int8, T>(p);
    else
      launch<WeightCodes::e4m3, T>(p);
  };
  t == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
}

}  // namespace strata
