#pragma once
// Which bytes are UTF-8.

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::text {

/// Bytes of the valid UTF-8 sequence at the start of `text`, which is not empty; 0 where there is none.
size_t utf8_length(std::string_view text);

/// Where the first byte is that is no part of valid UTF-8; text.size() where all of it is valid.
size_t invalid_utf8(std::string_view text);

/// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace strata::text
