#pragma once
// A step of generation through all layers of a decoder in one launch: docs/design/decoder_step.md.

#include <optional>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata::decoder {

/// A layer's matrix [rows, columns]: bf16, or of few bits.
struct Matrix {
  Tensor dense;
  std::optional<PackedWeight> packed = {};
};

/// A layer of Llama's kind: x + out(attention(qkv(RMSNorm(x)))), then x + down(silu(gate) up) of that, where gate_up
/// has gate's rows above up's.
struct LayerTensors {
  Tensor norm1, norm2;  ///< [dim]
  Matrix qkv, out, gate_up, down;
  Tensor k, v;  ///< [1, kv_heads, capacity, head size]: the step's own are written into them
};

/// One token of one text.
struct StepTensors {
  std::vector<LayerTensors> layers;
  int64_t heads = 0, kv_heads = 0;
  double eps = 1e-5;
  Tensor x;         ///< bf16 [.., dim], one row
  Tensor cos, sin;  ///< f32 [1, head size / 2]: its turns
  Tensor place;     ///< i64 [1]: where it stands, below the capacity
  Tensor starts;    ///< i64 [1]: the same, but IndexError where it is not below the capacity and the text runs
  Tensor running;   ///< i64 [1]: 0 leaves the caches as they are; undefined: it runs
};

/// What comes behind the last layer, bf16 of x's shape, the last sum made; or nothing, and nothing was done, where no
/// kernel is for it: it takes a card of compute capability 9 that is this process's alone, dense matrices that all are
/// bf16, or matrices that all are e4m3 or all int4 whose scales, of one dtype, are for 128 columns or a larger power of
/// two; heads of 64 or 128; at most kMostLayers layers. Sums are in f32 in a fixed order, and only what passes between
/// phases is rounded to bf16 (normalised x, the cache, attention's result, the gated numbers), so results differ in the
/// last bits from those of the layers' ops. A captured graph keeps the memory's addresses, as it does for those.
std::optional<Tensor> step(const StepTensors& step);

}  // namespace strata::decoder
