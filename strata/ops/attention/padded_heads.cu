// Launches of padded_heads.cuh, and when they pay.

#include "strata/ops/attention/padded_heads.cuh"

#include "strata/cuda/runtime.h"

namespace strata::attention_cuda {
namespace {

bool fits_tensor_cores(const AttentionCall& c, bool backward) {
  return fits_mma(c, backward) || fits_mma_f32(c, backward);
}

// Ordinary arithmetic has computed so many scores, or passed over so many keys, by the time the copies' launches take.
constexpr int64_t kFewScores = 1 << 18, kShort = 128;

}  // namespace

bool pads_heads(const AttentionCall& c, bool backward) {
  const bool type = c.dtype == DType::f32 || c.dtype == DType::bf16 || c.dtype == DType::f16;
  const bool pays = std::max(c.tq, c.tk) > kShort || c.batch * c.heads * c.tq * c.tk > kFewScores;
  return type && pays && !fits_tensor_cores(c, backward) &&
         fits_tensor_cores(pad_heads(c, backward, nullptr).call, backward);
}

void copy_heads(const HeadCopies& copies, DType dtype) {
  if (copies.rows() == 0) return;
  const auto queue = [&]<class Word>() {
    constexpr int kRows = kCopyThreads / kCopyLanes<Word>;
    copy_heads_kernel<Word><<<cuda::blocks_for(copies.rows(), kRows), kCopyThreads, 0, cuda::stream()>>>(copies);
  };
  size_of(dtype) == 4 ? queue.operator()<uint32_t>() : queue.operator()<uint16_t>();
}

}  // namespace strata::attention_cuda
