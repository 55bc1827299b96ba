// Embeddings on a CUDA device.

#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/rows.h"
#include "strata/ops/embedding/embedding_kernel.h"

namespace strata {

void embedding_cuda(Tensor& y, const Tensor& indices, const Tensor& weight, std::optional<int64_t>) {
  if (cuda::has_far_rows(weight)) return cuda::take_far_rows(y, weight, indices.contiguous());
  const Tensor w = weight.contiguous();
  cuda::take_rows(weight.dtype(), w.raw_data(), {1, weight.shape()[0], weight.shape()[1]}, indices.contiguous(),
                  y.raw_data());
}

void embedding_backward_cuda(Tensor& gw, const Tensor& gy, const Tensor& indices, int64_t rows,
                             std::optional<int64_t> padding) {
  cuda::fill_bytes(gw.device(), gw.raw_data(), 0, static_cast<size_t>(gw.nbytes()));
  if (gw.numel() == 0 && indices.numel() == 0) return;
  const Tensor g = gy.contiguous();
  const int64_t skip = !padding ? -1 : *padding < 0 ? *padding + rows : *padding;
  cuda::add_rows(gy.dtype(), gw.raw_data(), {1, rows, gy.shape().back()}, cuda::sort_index(indices.contiguous(), rows),
                 g.raw_data(), 1, {skip, true});
}

}  // namespace strata
