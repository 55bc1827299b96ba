#include "strata/ops/decoder/decoder_inl.h"

namespace strata::decoder {

std::optional<Tensor> step(const StepTensors&) {
  return std::nullopt;
}

}  // namespace strata::decoder
