#pragma once
// Beam search over the rows of a batch.

#include <vector>

#include "strata/generate/sequences.h"

namespace strata {

/// A text that beam search found.
struct Beam {
  std::vector<int64_t> tokens;        ///< behind the prompt, a stop id included
  double score = 0;                   ///< the sum of their logprobs over length^length_penalty
  bool stopped = false;               ///< by a stop id, else by its length
  std::vector<double> logprobs = {};  ///< of each token, where options.adjusted_logprobs asks
};

/// The best texts for a prompt, best first, at most options.beams of them: the likeliest options.beams texts so far are
/// continued in turn, in the rows of `rows`, of which there must be as many. The rule, which texts count as whole and
/// when it ends, is transformers': candidates are the max(2, 1 + stop ids) * beams likeliest continuations, those of
/// the first `beams` that stop are whole, and scores are sums of the logprobs under penalties, in f32. With
/// options.draw_beams the candidates are drawn, without replacement, by the sums of the logprobs under temperature and
/// filters: the largest of sum and Gumbel noise (Vieira, "Gumbel-max trick and weighted reservoir sampling", 2014), of
/// the seed and the number of tokens so far. `most`: tokens to write at most. With `hidden` and `source` as
/// Sequences::start(). Throws what Sequences does.
std::vector<Beam> beam_search(Sequences& rows, const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              int64_t most, Tensor* hidden = nullptr, const Tensor& source = {});

}  // namespace strata
