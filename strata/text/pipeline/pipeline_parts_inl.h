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

namespace strata::text {

struct PipelineTokenizer::Parts {
  /// PipelineTokenizer::parse of what is parsed already.
  static std::unique_ptr<PipelineTokenizer> parse(const pipeline::Json& root, std::string_view source);

  std::unique_ptr<const TokenModel> model;
  pipeline::Parsed<pipeline::Normalizer> normalizer;  // no part: none
  pipeline::PreTokenizers pre_tokenizers;
  pipeline::Json pre_tokenizer;  // as it is written back
  bool spells_bytes = false;     // the last pre-tokeniser's spelling is done word by word
  pipeline::Parsed<pipeline::Decoder> decoder;
  std::optional<pipeline::AddedTokens> added;
  std::map<std::string, int32_t> special;
  /// Special tokens that the model makes of their own spelling, and that spelling in its vocabulary.
  std::vector<std::pair<int32_t, std::string>> guarded;
  pipeline::Json truncation, padding;
  int64_t vocab_size = 0;

  /// What decoding takes an id for; nullopt for a gap.
  std::optional<std::string_view> decoded(int32_t id) const;
};

/// The post-processor stands apart: with_template() changes nothing else.
struct PipelineTokenizer::Post : pipeline::Parsed<pipeline::PostProcessor> {};

}  // namespace strata::text
