#pragma once
// The table of map_cuda()'s kernels.

#include <array>

#include "strata/ops/elementwise/kernels.h"

namespace strata {

/// Writes f of the inputs, which have y's shape and any strides, to y.
using CudaMap = void (*)(Tensor& y, const Tensor* const* in, const MapParams& params);
/// By function and by the dtype of the last input; nullptr where there is no kernel.
using CudaMaps = std::array<std::array<CudaMap, kNumDTypes>, static_cast<size_t>(Map::count)>;

void add_unary_maps(CudaMaps& table);
void add_activation_maps(CudaMaps& table);
void add_arithmetic_maps(CudaMaps& table);
void add_comparison_maps(CudaMaps& table);
void add_special_maps(CudaMaps& table);

}  // namespace strata
