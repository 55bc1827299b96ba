#pragma once
// "decoder" of tokenizer.json: from tokens to text, as they come.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/fields_inl.h"

namespace strata::text::pipeline {

/// Takes tokens, each in one or more parts. A part is whole characters.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// More of the token that is open, or the begin of one.
  virtual void part(std::string_view text) = 0;
  /// The end of a token (it may have had no part).
  virtual void end() = 0;
  /// There are no more tokens.
  virtual void finish() = 0;
};

/// One step of decoding at work: passes on what can no longer change, so that a stream of tokens and all of them at
/// once are one thing.
class DecodeStage : public TokenSink {
 public:
  explicit DecodeStage(TokenSink& next) : next_(next) {}

 protected:
  void pass(std::string_view token) {
    next_.part(token);
    next_.end();
  }
  TokenSink& next_;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends its stages in front: stages.back() is where tokens enter; `sink` takes what leaves the last.
  virtual void start(std::vector<std::unique_ptr<TokenSink>>& stages) const = 0;
};

Parsed<Decoder> parse_decoder(const Json& node, std::string path, std::string_view source);

/// What stands for an absent decoder: a blank between tokens.
std::unique_ptr<const Decoder> blanks_between();
/// `clean_up_tokenization_spaces`: no blanks before punctuation and English contractions.
std::unique_ptr<const Decoder> clean_up_spaces();

}  // namespace strata::text::pipeline
