#include <algorithm>

#include "strata/eval/blanks_inl.h"

namespace strata::eval {
namespace {

// In UTF-8, those beyond ASCII.
constexpr std::string_view kLong[] = {
    "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000",
};
constexpr size_t kLongest = 3;

}  // namespace

size_t blank_at(std::string_view text) {
  if (text.empty()) return 0;
  const char c = text.front();
  if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F')) return 1;
  if (static_cast<unsigned char>(c) < 0x80) return 0;
  for (const std::string_view blank : kLong)
    if (text.starts_with(blank)) return blank.size();
  return 0;
}

size_t without_blanks(std::string_view text) {
  size_t end = text.size();
  for (size_t n = 1; n <= std::min(end, kLongest);) {
    if (blank_at(text.substr(end - n, n)) == n) {
      end -= n;
      n = 1;
    } else {
      ++n;
    }
  }
  return end;
}

int64_t count_words(std::string_view text) {
  int64_t n = 1;
  bool in_blanks = false;
  for (size_t i = 0; i < text.size();) {
    const size_t blank = blank_at(text.substr(i));
    n += blank > 0 && !in_blanks;
    in_blanks = blank > 0;
    i += std::max<size_t>(blank, 1);
  }
  return n;
}

}  // namespace strata::eval
