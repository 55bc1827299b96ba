#pragma once
// Hashes of short texts and of pairs for the tables that files from strangers fill.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace strata::text::detail {

/// Drawn once in this process, so that nobody can choose keys that all fall together. No result depends on it.
uint64_t hash_seed();

inline uint64_t fold_product(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t load8(const char* at) {
  uint64_t v;
  std::memcpy(&v, at, 8);
  return v;
}

/// Up to 8 bytes as a number that, with n beside it, differs for different bytes; the reads overlap.
inline uint64_t load_upto8(const char* at, size_t n) {
  if (n >= 4) {
    uint32_t first, last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + n - 4, 4);
    return static_cast<uint64_t>(first) << 32 | last;
  }
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(at[i])); };
  return n == 0 ? 0 : byte(0) << 16 | byte(n / 2) << 8 | byte(n - 1);
}

/// Products of 64-bit halves folded together, as wyhash does (Wang Yi, https://github.com/wangyi-fudan/wyhash).
inline uint64_t hash_bytes(std::string_view s, uint64_t seed) {
  constexpr uint64_t kOne = 0xa0761d6478bd642full, kTwo = 0xe7037ed1a0b428dbull;
  const char* at = s.data();
  size_t n = s.size();
  uint64_t h = seed ^ kOne;
  for (; n > 16; n -= 16, at += 16) h = fold_product(load8(at) ^ h, load8(at + 8) ^ kTwo);
  const uint64_t a = n > 8 ? load8(at) : load_upto8(at, n);
  const uint64_t b = n > 8 ? load8(at + n - 8) : 0;
  return fold_product(fold_product(a ^ kTwo, b ^ h), s.size() ^ kOne);
}

inline uint64_t hash_word(uint64_t key, uint64_t seed) {
  return fold_product(key ^ seed, 0x9e3779b97f4a7c15ull);
}

}  // namespace strata::text::detail
