#pragma once
// What is evaluated: a language model and its tokenizer, as evaluations see them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/generate/options.h"

namespace strata {
class LanguageModel;
}
namespace strata::text {
class Tokenizer;
struct TokenizerFolder;
}  // namespace strata::text

namespace strata::eval {

/// Called as an evaluation goes on, with what is done and all there is (tokens that are read, or documents where texts
/// are written); false stops it, which is a ValueError.
using Watch = std::function<bool(int64_t done, int64_t all)>;

/// A causal language model as a few functions, whatever made it.
struct Subject {
  /// Token ids i64 [B, T] (T <= context) to what the output layer reads, [B, T, dim]. Rows shorter than T are filled up
  /// at their ends, which must not change what stands before.
  std::function<Tensor(const Tensor& tokens)> hidden;
  /// Some of its rows [N, dim] to logits [N, vocabulary] of the token after each.
  std::function<Tensor(const Tensor& hidden)> logits;
  /// Text to ids, with the special tokens that the tokenizer puts around a text by itself (a beginning of text).
  std::function<std::vector<int32_t>(std::string_view text)> encode;
  /// Text to ids, without them.
  std::function<std::vector<int32_t>(std::string_view text)> encode_plain;
  /// The likeliest continuation of each prompt, up to `tokens` tokens or before the first of `stops`; `watch`, where
  /// there is one, is told of texts that are finished. Undefined: none of the evaluations that write text.
  std::function<std::vector<std::string>(const std::vector<std::vector<int32_t>>& prompts, int64_t tokens,
                                         const std::vector<std::string>& stops, const Watch& watch)>
      generate;
  int32_t prefix = 0;   ///< what stands before a text that has nothing before it: beginning of text, else end of text
  int64_t context = 0;  ///< most positions
  Device device;        ///< of the token ids that `hidden` takes
};

/// How make_subject() takes a model.
struct SubjectOptions {
  int64_t context = 0;         ///< most positions; 0: the model's
  bool special_tokens = true;  ///< `encode` puts the tokenizer's special tokens around a text
  /// Subject::prefix; none: the tokenizer's special token where it has one alone, else the first of a line break.
  std::optional<int32_t> prefix{};
  /// What texts are written with: stop ids and penalties. The likeliest token is taken whatever it says of drawing.
  GenerationOptions generation{};
  int64_t batch = 8;  ///< texts that are written at a time
};

/// With what a folder says of it: where no prefix is given its beginning of text, else its end of text, and the latter
/// as one of the stop ids.
SubjectOptions with_folder(SubjectOptions options, const text::TokenizerFolder& folder);

/// A model of ours, in evaluation mode from then on. A text that begins with the prefix's own text gets no special
/// tokens around it, as it has them. Throws ValueError for a context below 1 and a prefix that is no id of the model.
Subject make_subject(const std::shared_ptr<LanguageModel>& model,
                     const std::shared_ptr<const text::Tokenizer>& tokenizer, const SubjectOptions& options = {});

}  // namespace strata::eval
