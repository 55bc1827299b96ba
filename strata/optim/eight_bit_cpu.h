#pragma once
// Arrays of f32 to and from 8 bits by blocks: docs/design/optimizers.md.

#include <cstdint>
#include <utility>

#include "strata/core/tensor.h"

namespace strata::optim {

/// Values of `n` codes that begin with a block, and with it with `scales`.
void dequantize(const uint8_t* codes, const float* scales, bool has_sign, int64_t n, float* to);
/// The nearest codes, and the scales of the blocks that they make.
void quantize(const float* from, bool has_sign, int64_t n, uint8_t* codes, float* scales);

/// The same for tensors of any device: codes u8 of the shape of `t`, which is floating, and scales f32
/// [scale_blocks(numel)].
std::pair<Tensor, Tensor> quantized(const Tensor& t, bool has_sign);
/// Throws ShapeError or DTypeError where `scales` are not those of `codes`.
Tensor dequantized(const Tensor& codes, const Tensor& scales, bool has_sign, DType dtype);

}  // namespace strata::optim
