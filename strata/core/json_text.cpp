#include "strata/core/json_text.h"

namespace strata::detail {

std::string json_string(std::string_view s) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (u < 0x20) {
      text += "\\u00";
      text += kHex[u >> 4];
      text += kHex[u & 15];
    } else {
      text += c;
    }
  }
  return text + '"';
}

}  // namespace strata::detail
