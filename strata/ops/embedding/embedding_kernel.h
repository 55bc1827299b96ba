#pragma once
// Embedding kernels on raw, contiguous memory.

#include <cstdint>

#include <optional>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {

/// out[i] = weight[index[i]], rows of `row_bytes` bytes. Throws IndexError where an index is not in [0, vocabulary).
void embedding_cpu(const int64_t* index, int64_t n, const void* weight, int64_t vocabulary, int64_t row_bytes,
                   void* out);
/// grad_weight[v] = sum of grad_out[i] over index[i] == v, in the order of i; row padding_index (if >= 0) is 0.
void embedding_backward_cpu(DType t, const int64_t* index, int64_t n, const void* grad_out, int64_t vocabulary,
                            int64_t d, int64_t padding_index, void* grad_weight);

// The same on a CUDA device.
void embedding_cuda(Tensor& y, const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding);
void embedding_backward_cuda(Tensor& gw, const Tensor& gy, const Tensor& indices, int64_t rows,
                             std::optional<int64_t> padding);

}  // namespace strata
