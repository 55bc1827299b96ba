#pragma once
// What train.dtype means: the precision of a step's products.

#include <optional>

#include "strata/core/autocast.h"
#include "strata/models/language_model.h"
#include "strata/train/config.h"

namespace strata {

/// The dtype of activations: bf16 for "fp8", in which linear layers alone compute.
DType activation_dtype(const TrainConfig& config);

/// Autocast for a pass of `model`, whose weights it may name; nothing for f32. Throws ValueError where a name in
/// train.fp8_exclude is no layer's.
std::optional<AutocastSettings> autocast_of(const TrainConfig& config, TokenDecoder& model);

}  // namespace strata
