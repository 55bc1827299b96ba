#pragma once
// The table of map()'s CUDA kernels.

#include <array>
#include <initializer_list>

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

/// map() for tensors on a CUDA device.
void map_cuda(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params);

}  // namespace strata
