#pragma once
// Beams that are drawn.

#include <cstdint>
#include <tuple>

#include "strata/core/tensor.h"
#include "strata/generate/options.h"

namespace strata::detail {

/// Scores [rows, vocabulary] f32 over the temperature, minus infinity where a filter leaves a token out: transformers'
/// filters in their order, each among what the earlier left. As there, at least one token more stays than there are
/// stop ids, and at least two where there are none, so that a text can always go on.
Tensor filtered_scores(const Tensor& scores, const GenerationOptions& options);

/// `keep` of `sums` [N] f32, drawn without replacement by the softmax of them: values and places, the largest first.
/// The numbers are those of `seed` at step `step`.
std::tuple<Tensor, Tensor> drawn(const Tensor& sums, int64_t keep, uint64_t seed, int64_t step);

}  // namespace strata::detail
