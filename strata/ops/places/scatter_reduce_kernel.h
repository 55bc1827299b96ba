#pragma once
#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// scatter_reduce's arguments. With from_end negative places count from the end; the CPU's kernel knows none.
void scatter_reduce_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                        const std::string& reduce, bool include_self);
void scatter_reduce_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                         const std::string& reduce, bool include_self, bool from_end);

}  // namespace strata
