#pragma once
// Requests as forward passes, and where in them the model is asked.

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/eval/likelihood.h"

namespace strata::eval {

/// One pass: rows of like length, and the places whose next token is asked for, of a request side by side.
struct Pass {
  Tensor tokens;                 ///< i64 [B, T] on the host, rows filled up at their ends
  std::vector<int64_t> places;   ///< of the B * T
  std::vector<int64_t> targets;  ///< the token that follows there
  std::vector<size_t> requests;  ///< whose it is
};

/// Some places of a pass: the first of them, and which they are, on a device.
struct Stretch {
  size_t first = 0;
  Tensor places, targets;  ///< i64 [N]
};

/// Calls f with each pass of at most `batch` rows, the longest first. Requests that read the same tokens are one row.
/// Throws as log_likelihoods; `op` is its name.
void for_each_pass(const char* op, const std::vector<LikelihoodRequest>& requests, int64_t context, int32_t filler,
                   int64_t batch, const Watch& watch, const std::function<void(const Pass&)>& f);

/// A pass's places in stretches whose logits are small beside the model.
std::vector<Stretch> stretches(const Pass& pass, Device device);

/// The logits [N, vocabulary] in f32 at some places of what Subject::hidden gave [B, T, dim]. Throws ShapeError and
/// IndexError where they do not fit the tokens.
Tensor logits_at(const char* op, const Subject& subject, const Tensor& hidden, const Pass& pass,
                 const Stretch& stretch);

}  // namespace strata::eval
