#pragma once
// A decoder's step of generation in one launch, where there is a kernel for it: docs/design/decoder_step.md.

#include <optional>

#include "strata/models/spec.h"
#include "strata/models/token_decoder.h"
#include "strata/nn/container.h"
#include "strata/nn/transformer.h"

namespace strata::detail {

/// x of one token of one text behind all blocks, which write its keys and values into `cache`; or nothing, and nothing
/// was done: the blocks then run one by one.
std::optional<Tensor> decoder_step(const nn::ModuleList<nn::TransformerBlock>& blocks, const ModelSpec& spec,
                                   const Tensor& x, const nn::Places& places, const ModelCache& cache);

}  // namespace strata::detail
