#include "strata/core/html_text.h"

#include <cstdio>

namespace strata::detail {

std::string html_text(std::string_view s) {
  std::string text;
  text.reserve(s.size());
  for (const char c : s) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '"':
        text += "&quot;";
        break;
      case '\'':
        text += "&#39;";
        break;
      default:
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
          char picture[12];
          std::snprintf(picture, sizeof picture, "&#x%x;", byte == 0x7f ? 0x2421u : 0x2400u + byte);
          text += picture;
        } else {
          text += c;
        }
    }
  }
  return text;
}

}  // namespace strata::detail
