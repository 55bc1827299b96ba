#pragma once
// XXH64 checksums: of memory, of a stream of chunks, of a file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace strata::io {

/// XXH64 (seed 0) of `bytes`.
uint64_t xxh64(std::span<const std::byte> bytes);
uint64_t xxh64(std::string_view text);

/// XXH64 of data that arrives in chunks; the result does not depend on where the chunks were cut.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  /// Appends to what is hashed.
  void update(const void* data, size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Hashes the number itself, so that ("ab", "c") and ("a", "bc") differ when lengths are fed in between.
  void update_u64(uint64_t value) { update(&value, sizeof value); }
  /// The checksum of everything so far; more may follow.
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 16 lower-case hexadecimal digits.
std::string to_hex(uint64_t value);
/// Inverse of to_hex. False where `text` is not exactly 16 hexadecimal digits.
bool parse_hex(std::string_view text, uint64_t& value);

}  // namespace strata::io
