#pragma once
// A run of ours as weights of few bits, whose dense weights are never there together.

#include <memory>
#include <string_view>

#include "strata/models/encoder_decoder.h"
#include "strata/nn/packed.h"
#include "strata/train/fine_tune_inl.h"

namespace strata {

/// The model that the run of `init` trained, its adapters in the weights, with parameters of `dtype`, and the layers
/// that quantize() takes rounded to `format` as it would: read one after the other, each packed before the next is
/// read, so that at most one weight is there in its own dtype, and once more where adapters are added or that is not
/// `dtype`. On the meta device its shapes. What a checkpoint does not hold, of a run with adapters or frozen parts, is
/// read from what the run began from, which must be what it was. nullptr for a run on weights of few bits, which
/// adapters cannot be merged into. Throws as find_run, load_run and check_base do, and as quantize_weight(), naming the
/// layer.
std::shared_ptr<TokenDecoder> load_rounded_run(const InitModel& init, DType dtype, std::string_view format,
                                               const nn::PackOptions& options);

}  // namespace strata
