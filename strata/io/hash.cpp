#include "strata/io/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>

namespace strata::io {

uint64_t xxh64(std::span<const std::byte> bytes) {
  const void* data = bytes.data();
  return XXH64(data ? data : "", bytes.size(), 0);
}
uint64_t xxh64(std::string_view text) {
  return xxh64(std::as_bytes(std::span(text)));
}

struct Hasher::State {
  XXH64_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH64_reset(&state_->xxh, 0);
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH64_update(&state_->xxh, data, bytes);
}

uint64_t Hasher::digest() const {
  return XXH64_digest(&state_->xxh);
}

std::string to_hex(uint64_t value) {
  std::string s(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) s[i] = "0123456789abcdef"[value & 15];
  return s;
}

bool parse_hex(std::string_view text, uint64_t& value) {
  if (text.size() != 16) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 16, value, 16);
  return error == std::errc() && end == text.data() + 16;
}

}  // namespace strata::io
