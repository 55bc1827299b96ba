#include "strata/ops/decoder/decoder.h"

namespace strata::decoder {

std::optional<Tensor> step(const StepTensors&) {
  return std::nullopt;
}

}  // namespace strata::decoder
