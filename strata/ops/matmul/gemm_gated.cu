// linear_swiglu from tiles.

#include "strata/ops/matmul/gemm_gated.h"

#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/matmul/gated_tiles.cuh"

namespace strata::cuda {

bool gated_tiles(Tensor& y, const Tensor& x, const Tensor& weight) {
  if (x.dtype() != DType::bf16 && x.dtype() != DType::f16) return false;
  if (!y.is_contiguous() || weight.strides()[1] != 1 || !tile::has_tiles()) return false;
  const int64_t k = weight.shape()[1], h = weight.shape()[0] / 2, m = y.numel() / h;
  if (k == 0 || (m > 1 && (k % 8 != 0 || h % 8 != 0)) || (m + 127) / 128 * ((h + 127) / 128) >= 1 << 30) return false;
  const Tensor rows = x.contiguous();
  const tile::Matrices from{rows.raw_data(), 2, k, m, 1, 2 * k, 0},
      weights{weight.raw_data(), 2, k, 2 * h, 1, 2 * weight.strides()[0], 0}, to{y.raw_data(), 2, h, m, 1, 2 * h, 0};
  if (!tile::fits_copies(from) || !tile::fits_copies(weights) || !tile::fits_copies(to)) return false;

  using S = GatedShape;
  const GatedMaps maps{tile::tensor_map(from, S::kRows), tile::tensor_map(weights, S::kColumns),
                       tile::tensor_map(to, 64)};
  const tile::Bands bands{static_cast<int>((m + S::kRows - 1) / S::kRows),
                          static_cast<int>((h + S::kColumns - 1) / S::kColumns), 1, 16};
  const auto launch = [&]<class T>() {
    tile::launch<gated_tiles_kernel<T, S>>(tile::staying_blocks(bands.total()), S::kThreads, S::kSharedBytes, maps,
                                           bands, static_cast<int>(m), static_cast<int>(h), static_cast<int>(k));
  };
  x.dtype() == DType::bf16 ? launch.template operator()<BFloat16>() : launch.template operator()<Half>();
  return true;
}

}  // namespace strata::cuda
