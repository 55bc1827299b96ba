#pragma once
// Where the products of experts meet adapters (strata/nn/lora.h).

#include <string_view>

#include "strata/nn/module.h"

namespace strata::nn::detail {

/// y, what the experts' `weight` ("gate_up", "down") makes of rows, with what its adapters add; y itself where there
/// are none: then one word is read.
Tensor with_expert_lora(const Module& experts, std::string_view weight, const Tensor& rows, const Tensor& y,
                        const Tensor& offsets);
/// Whether one of its weights has adapters.
bool has_expert_lora(const Module& experts);

}  // namespace strata::nn::detail
