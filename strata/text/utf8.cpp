#include "strata/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace strata::text {

// Unicode, table 3-7.
size_t utf8_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  size_t n = 0;
  unsigned char low = 0x80, high = 0xbf;  // limits of the second byte
  if (first >= 0xc2 && first <= 0xdf) n = 2;
  if (first >= 0xe0 && first <= 0xef) n = 3;
  if (first >= 0xf0 && first <= 0xf4) n = 4;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  if (n == 0 || s.size() < n || at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < n; ++i)
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  return n;
}

size_t invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (text.size() - at >= 8) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const size_t n = utf8_length(text.substr(at));
    if (n == 0) return at;
    at += n;
  }
  return text.size();
}

std::string valid_utf8(std::string_view text) {
  std::string s;
  s.reserve(text.size());
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) {
      s += "\xef\xbf\xbd";
    } else {
      s += text.substr(0, n);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return s;
}

}  // namespace strata::text
