#pragma once
// What a PipelineTokenizer consists of.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/text/pipeline/added_tokens_inl.h"
#include "strata/text/pipeline/decoder_inl.h"
#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/post_processor_inl.h"
#include "strata/text/pipeline/pre_tokenizer_inl.h"
#include "strata/text/pipeline/token_model.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::text::pipeline {

struct TokenizerParts {
  /// PipelineTokenizer::parse of what is parsed already.
  static std::unique_ptr<PipelineTokenizer> parse(const Json& root, std::string_view source);

  std::unique_ptr<const TokenModel> model;
  Parsed<Normalizer> normalizer;  // no part: none
  PreTokenizers pre_tokenizers;
  Json pre_tokenizer;         // as it is written back
  bool spells_bytes = false;  // the last pre-tokeniser's spelling is done word by word
  Parsed<Decoder> decoder;
  std::optional<AddedTokens> added;
  std::map<std::string, int32_t> special;
  /// Special tokens that the model makes of their own spelling, sorted, and those spellings.
  std::vector<int32_t> guarded;
  std::optional<TokenFinder> guarded_spellings;
  Json truncation, padding;
  int64_t vocab_size = 0;

  /// What decoding takes an id for; nullopt for a gap.
  std::optional<std::string_view> decoded(int32_t id) const;
};

/// The post-processor stands apart: with_template() changes nothing else.
struct Around : Parsed<PostProcessor> {};

}  // namespace strata::text::pipeline
