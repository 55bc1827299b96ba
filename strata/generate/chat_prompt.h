#pragma once
// A conversation as the tokens that a model continues.

#include <cstdint>
#include <string_view>
#include <vector>

#include "strata/text/tokenizer_folder.h"

namespace strata {

/// The tokens of a conversation through the folder's chat template, ending where the assistant is to write. `messages`
/// is a JSON list of {"role", "content", ..}; `more` a JSON object of further variables ("tools", "documents", what
/// this model's template knows), of which "template" chooses one of the folder's templates by name. Special tokens
/// that a message spells stay text. Throws ValueError for a folder without a template, and what the template throws;
/// IoError for what is no JSON of that form.
///
///     const text::TokenizerFolder folder = text::load_tokenizer_folder(dir);
///     chat_prompt(folder, R"([{"role": "user", "content": "Hello"}])");
std::vector<int64_t> chat_prompt(const text::TokenizerFolder& folder, std::string_view messages,
                                 std::string_view more = "{}");

}  // namespace strata
