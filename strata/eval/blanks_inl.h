#pragma once
// White space as the harness has it, which is Python's.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::eval {

/// Bytes of the blank that text begins with; 0 where it begins with none. Python's str.isspace: White_Space of Unicode,
/// and the four separators of ASCII.
size_t blank_at(std::string_view text);

/// Bytes before the blanks at the end.
size_t without_blanks(std::string_view text);

/// Parts between runs of blanks, those at the ends included: what the harness counts as words.
int64_t count_words(std::string_view text);

}  // namespace strata::eval
