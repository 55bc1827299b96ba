#pragma once
// JSON that comes from outside.

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace strata::io {

/// Nesting that no file of ours comes near. The parser itself takes any, but what it made is copied, printed and
/// destroyed by functions that call themselves, and those end with the stack.
inline constexpr int kMaxJsonDepth = 64;

/// Parses a whole text. Throws IoError that names `source` and the byte where it is not JSON, holds a number that no
/// double holds, or nests deeper than kMaxJsonDepth.
nlohmann::json parse_json(std::string_view text, std::string_view source);

}  // namespace strata::io
