#pragma once
// Shard rules written as dimensions: "m k, n k -> m n". strata/core/shard_rule.h says what the text means.

#include <string_view>
#include <utility>

#include "strata/core/sharding.h"

namespace strata::detail {

/// How many patterns stand before and behind the arrow. Throws ValueError where the text is none, or its forms differ.
std::pair<size_t, size_t> count_patterns(std::string_view text);
/// Adds what the text says of this call; nothing where its arguments fit none of its forms.
void apply_text(std::string_view text, Sharding& s);

}  // namespace strata::detail
