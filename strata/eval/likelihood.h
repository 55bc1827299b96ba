#pragma once
// How likely texts are to a language model.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/eval/subject.h"

namespace strata::eval {

/// A continuation whose probability after a context is asked for.
struct LikelihoodRequest {
  std::vector<int32_t> context;       ///< at least one token
  std::vector<int32_t> continuation;  ///< at least one
};

/// What a model says of a continuation.
struct Likelihood {
  double log_probability = 0;  ///< natural logarithm, of all its tokens together
  bool greedy = true;          ///< whether each of them is the likeliest where it stands
};

/// Of each request, in their order; up to `batch` at once, those of like length together, which changes no result but
/// by rounding; those that read the same tokens (answers of one token to one question) are read once. The end of
/// context and continuation is read where both do not fit the model's context. Throws ValueError for an empty part or a
/// continuation longer than the context, and where `watch` stops it, IndexError for ids outside the logits.
std::vector<Likelihood> log_likelihoods(const Subject& subject, const std::vector<LikelihoodRequest>& requests,
                                        int64_t batch = 8, const Watch& watch = {});

/// A text's tokens as requests that together ask for each of them once: after the subject's prefix, and then with as
/// much before it as the context holds. With `overlap` 1 windows share one token, as language models are compared by;
/// more gives each token at least so much before it, for more windows. Throws ValueError unless 1 <= overlap <=
/// context.
std::vector<LikelihoodRequest> rolling_windows(const std::vector<int32_t>& tokens, const Subject& subject,
                                               int64_t overlap = 1);

/// Context and continuation as ids. Blanks at the context's end go to the continuation, which tokenizers join with the
/// word that follows; an empty context is the subject's prefix.
LikelihoodRequest encode_pair(const Subject& subject, std::string context, std::string continuation);

}  // namespace strata::eval
