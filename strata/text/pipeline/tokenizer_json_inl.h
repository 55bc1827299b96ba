#pragma once
// Parts of a tokenizer.json that is made from another format.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "strata/text/pipeline/sentencepiece.h"

namespace strata::text::detail {

std::string base64(std::string_view bytes);

/// `normalized`: looked for in the normalised text.
nlohmann::json added_token(size_t id, std::string_view text, bool special, bool normalized);

struct TokenizerParts {
  nlohmann::json model, normalizer, pre_tokenizer, decoder, added_tokens;
};
/// The whole of it; ids of `ends` go around every text.
nlohmann::json tokenizer_file(TokenizerParts parts, const AddedEnds& ends);

}  // namespace strata::text::detail
