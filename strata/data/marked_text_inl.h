#pragma once
// A text whose parts have marks, as tokens.

#include <string_view>

#include "strata/data/sequences.h"
#include "strata/text/jinja/template.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

/// Tokens of a text. Names of special tokens become their ids, the longest where several fit, but where they touch
/// `from_data`. What lies between them is encoded as one piece. A token is learned where any of its bytes is in
/// `learned`; of a tokenizer whose tokens do not tell which bytes they stand for (it changes texts), pieces are encoded
/// apart at the ends of `learned`.
MarkedTokens encode_marked(const text::Tokenizer& tokenizer, std::string_view text,
                           const text::jinja::Ranges& from_data, const text::jinja::Ranges& learned);

}  // namespace strata::data
