#pragma once
// What is evaluated: a language model and its tokenizer, as evaluations see them.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::eval {

/// A causal language model as a few functions, whatever made it.
struct Subject {
  /// Token ids i64 [B, T] (T <= context) to logits [B, T, vocabulary] of the token after each position. Rows shorter
  /// than T are filled up at their ends, which must not change what stands before.
  std::function<Tensor(const Tensor& tokens)> logits;
  /// Text to ids, with the special tokens that the tokenizer puts around a text by itself (a beginning of text).
  std::function<std::vector<int32_t>(std::string_view text)> encode;
  /// Text to ids, without them.
  std::function<std::vector<int32_t>(std::string_view text)> encode_plain;
  /// The likeliest continuation of `prompt`, up to `tokens` tokens or before the first of `stops`. Undefined: none of
  /// the evaluations that write text.
  std::function<std::string(const std::vector<int32_t>& prompt, int64_t tokens, const std::vector<std::string>& stops)>
      generate;
  int32_t prefix = 0;   ///< what stands before a text that has nothing before it: beginning of text, else end of text
  int64_t context = 0;  ///< most positions
  Device device;        ///< of the token ids that `logits` takes
};

}  // namespace strata::eval
