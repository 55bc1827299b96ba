// Launches of mma_pairs.cuh.

#include <algorithm>

#include "strata/cuda/runtime.h"
#include "strata/ops/attention/mma_pairs.cuh"
#include "strata/ops/attention/padded_heads.cuh"

namespace strata {
namespace attention_cuda::mma_pairs {

__global__ void __launch_bounds__(256) add_parts_kernel(const __grid_constant__ Pairs p) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (at >= p.numel) return;
  float x = 0;
#pragma unroll 4
  for (int i = 0; i < p.parts; ++i) x += p.part_results[i * p.numel + at];
  put_result(p, at, x);
}

}  // namespace attention_cuda::mma_pairs

namespace {

// Blocks that fill a card, tiles that are worth a part of their own, and bytes that the parts' results may take.
constexpr int64_t kBlocksWanted = 264, kLeastSums = 4, kMostPartBytes = 64 << 20;

}  // namespace

bool attention_pairs_cuda(const AttentionCall& c, const AttentionPairs& what, const Tensor& like_this) {
  using namespace attention_cuda;
  using namespace attention_cuda::mma_pairs;
  if (what.dtype != DType::f64 && pads_heads(c, what.gradient))
    return with_padded_heads(c, what.gradient, like_this, [&](const AttentionCall& padded) {
      return attention_pairs_cuda(padded, what, like_this);
    });
  const bool singles = fits_mma_f32(c, what.gradient) && c.d <= 128;  // a stage of larger ones has no room
  if ((!singles && !fits_mma(c, what.gradient)) || what.dtype == DType::f64) return false;
  const int64_t full[4] = {c.batch, c.heads, c.tq, c.tk},
                tiles[4] = {c.batch, c.heads, (c.tq + kRows - 1) / kRows, (c.tk + kKeys - 1) / kKeys};
  Pairs p{};
  p.to = what.to, p.dtype = what.dtype;
  p.gradient = what.gradient, p.factor = static_cast<float>(what.factor);
  int64_t stride = 1, strides[4], blocks = 1, sums = 1;
  for (int i = 3; i >= 0; --i) {
    const bool all = what.shape[i] == full[i] && full[i] > 1;
    strides[i] = all ? stride : 0;
    if (all) stride *= full[i];
    p.blocks[i] = static_cast<int>(all ? tiles[i] : 1), p.sums[i] = static_cast<int>(all ? 1 : tiles[i]);
    blocks *= p.blocks[i], sums *= p.sums[i];
  }
  if (blocks >= INT32_MAX || sums >= INT32_MAX) return false;
  p.batch = strides[0], p.head = strides[1], p.query = strides[2], p.key = strides[3];
  p.numel = stride;
  const int64_t most = std::min({(kBlocksWanted + blocks - 1) / blocks, sums / kLeastSums,
                                 kMostPartBytes / (stride * static_cast<int64_t>(sizeof(float)))});
  const int64_t wanted = std::max<int64_t>(most, 1);
  p.part_sums = static_cast<int>(std::max<int64_t>((sums + wanted - 1) / wanted, 1));
  p.parts = static_cast<int>(std::max<int64_t>((sums + p.part_sums - 1) / p.part_sums, 1));  // of none: zeros
  Tensor bits, terms, part_results;
  if (p.parts > 1) {
    part_results = empty({Shape{p.parts, stride}, DType::f32, like_this.device(), std::nullopt});
    p.part_results = static_cast<float*>(part_results.raw_data());
  }
  const Options options = options_of(c, kRows, kKeys, false, like_this, bits);
  const float* delta = nullptr;
  if (what.gradient) {
    terms = row_terms(c, 1, like_this);
    delta = static_cast<const float*>(terms.raw_data());
  }
  const auto queue = [&]<class M, int D>() {
    const auto kernel = pairs_kernel<M, D>;
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<M, D>),
                     "scaled_dot_product_attention", "cudaFuncSetAttribute");
    const dim3 grid(cuda::blocks_for(blocks, 1), static_cast<unsigned>(p.parts));
    kernel<<<grid, kThreads, kSharedBytes<M, D>, cuda::stream()>>>(c, p, delta, options);
  };
  const auto with = [&]<class M>() {
    if (c.d <= 64) return queue.template operator()<M, 64>();
    if (c.d <= 128) return queue.template operator()<M, 128>();
    if constexpr (M::kPiece == 8) queue.template operator()<M, 256>();
  };
  if (singles) {
    cuda::allow_tf32() ? with.template operator()<Singles<1>>() : with.template operator()<Singles<2>>();
  } else {
    c.dtype == DType::bf16 ? with.template operator()<Sixteen<BFloat16>>() : with.template operator()<Sixteen<Half>>();
  }
  if (p.parts > 1) add_parts_kernel<<<cuda::blocks_for(stride, 256), 256, 0, cuda::stream()>>>(p);
  return true;
}

}  // namespace strata
