// Products of up to 32 rows of x with low-bit matrices on tensor cores: how they are launched.

#include "strata/ops/lowbit/lowbit_tiles.cuh"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "strata/ops/lowbit/lowbit_tiles_kernel.h"

namespace strata {
namespace {

constexpr int kMostBlocks = 8;  // of a cluster

const cuda::DeviceProperties& card_here() {
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "packed_linear", "cudaGetDevice");
  return cuda::properties(device);
}

template <WeightCodes kKind, class T, int kTiles, int kKept>
void launch(const cuda::LowbitProduct& p) {
  using S = cuda::lowbit_tiles::Shape<kKind, kTiles, kKept>;
  const auto kernel = cuda::lowbit_tiles_kernel<kKind, T, kTiles, kKept>;
  if constexpr (S::kSharedBytes > 48 * 1024)
    cuda::check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(S::kSharedBytes)),
        "packed_linear", "cudaFuncSetAttribute");
  const cuda::DeviceProperties& card = card_here();
  const int64_t blocks = (p.w.rows + S::kBlockRows - 1) / S::kBlockRows;
  // Up to fourteen blocks for each multiprocessor, a few of which are there at a time: measured on an H200, one row and
  // eight blocks a cluster are 1.2 to 1.6 times as fast as two for each multiprocessor. A block's steps are its share of
  // x's way to shared memory, too, which counts where there are several rows.
  constexpr int kLeastSteps = kKept == 1 ? 4 : 8;
  int ranks = 1;
  while (card.major >= 9 && ranks < kMostBlocks && blocks * ranks * 2 <= 14 * card.multiprocessors &&
         p.steps >= 2 * ranks * kLeastSteps)
    ranks *= 2;
  cuda::launch_early(kernel, cuda::blocks_for(blocks * ranks, 1), cuda::lowbit_tiles::kThreads, S::kSharedBytes, ranks,
                     p);
}

template <WeightCodes kKind, class T>
void by_rows(const cuda::LowbitProduct& p) {
  if (p.m == 1) return launch<kKind, T, 1, 1>(p);
  if (p.m <= 8) return launch<kKind, T, 1, 8>(p);
  if (p.m <= 16) return launch<kKind, T, 2, 8>(p);
  if (card_here().shared_bytes_per_block >= static_cast<int64_t>(cuda::lowbit_tiles::Shape<kKind, 4, 8>::kSharedBytes))
    return launch<kKind, T, 4, 8>(p);
  cuda::LowbitProduct part = p;  // W is read twice
  part.m = 16;
  launch<kKind, T, 2, 8>(part);
  part.x = static_cast<const T*>(p.x) + part.m * p.w.columns;
  part.y = static_cast<T*>(p.y) + part.m * p.w.rows;
  part.m = p.m - part.m;
  by_rows<kKind, T>(part);
}

}  // namespace

bool lowbit_tiles_cuda(const PackedView& w, DType t, const void* x, int64_t m, const void* bias, void* y) {
  const bool four = w.kind == WeightCodes::int4;
  if ((!four && w.kind != WeightCodes::int8 && w.kind != WeightCodes::e4m3) || !is_reduced_floating(t) || m > 32 ||
      w.scales == nullptr || w.nested != nullptr || w.scale_dtype == DType::f64)
    return false;
  const int64_t step = four ? 128 : 64, block = std::min(w.block_columns, w.columns);
  if (w.columns % step != 0 || block % step != 0 || w.row_bytes % 16 != 0 || !cuda::aligned16(w.codes) ||
      !cuda::aligned16(x))
    return false;
  const cuda::LowbitProduct p{w,
                              x,
                              bias,
                              y,
                              static_cast<int>(m),
                              static_cast<int>(w.columns / step),
                              static_cast<int>(block / step),
                              std::has_single_bit(static_cast<uint64_t>(block / step))
                                  ? std::countr_zero(static_cast<uint64_t>(block / step))
                                  : -1};
  const auto with = [&]<class T>() {
    if (four)
      by_rows<WeightCodes::int4, T>(p);
    else if (w.kind == WeightCodes::int8)
      by_rows<WeightCodes::int8, T>(p);
    else
      by_rows<WeightCodes::e4m3, T>(p);
  };
  t == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
  return true;
}

}  // namespace strata
