#pragma once
// Bytes as text for JSON.

#include <optional>
#include <string>
#include <string_view>

namespace strata::detail {

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);
/// Back; nothing for text that is not what base64() gives.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace strata::detail
