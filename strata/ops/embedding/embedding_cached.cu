// Embeddings through a cache on a CUDA device.

#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/memory.h"
#include "strata/ops/embedding/embedding_cached_kernel.h"

namespace strata {

void embedding_cached_cuda(Tensor& y, Tensor& hits, const Tensor& indices, const Tensor& table, const Tensor& cache,
                           const Tensor& slots) {
  cuda::fill_bytes(hits.device(), hits.raw_data(), 0, static_cast<size_t>(hits.nbytes()));
  cuda::take_rows_through_cache(y, table.contiguous(), indices.contiguous(), cache.contiguous(), slots.contiguous(),
                                static_cast<int64_t*>(hits.raw_data()));
}

}  // namespace strata
