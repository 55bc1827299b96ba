#include "strata/core/base64_inl.h"

#include <cstdint>

namespace strata::detail {

namespace {
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](size_t k) { return k < bytes.size() ? static_cast<uint8_t>(bytes[k]) : 0u; };
    const uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    for (int k = 0; k < 4; ++k)
      text += i + static_cast<size_t>(k) > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t four = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = i + padding < text.size() ? kDigits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    four = four << 6 | static_cast<uint32_t>(digit);
    if (i % 4 == 3)
      for (const int shift : {16, 8, 0}) bytes += static_cast<char>(four >> shift & 255);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace strata::detail
