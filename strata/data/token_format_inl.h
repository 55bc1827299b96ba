#pragma once
// How a token file begins (token_file.h has the layout).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "strata/io/hash.h"

namespace strata::data {

inline constexpr char kTokenMagic[8] = {'S', 'T', 'R', 'A', 'T', 'T', 'O', 'K'};
inline constexpr uint64_t kTokenBlock = uint64_t{64} << 10;     // bytes that share a checksum: read where one is wanted
inline constexpr uint64_t kMaxTokenBlock = uint64_t{64} << 20;  // that we read in other's files
inline constexpr uint64_t kMaxIdentity = 255;

/// Of version 3. Version 2 ends with the table's checksum, version 1 with the source's; each has its own checksum then.
struct TokenHeader {
  char magic[8];
  uint32_t version = 3;
  uint32_t token_bytes = 2;
  uint64_t vocab = 0;
  uint64_t count = 0;
  uint64_t source = 0;
  uint64_t block = kTokenBlock;
  uint64_t table = 0;
  uint64_t documents = 0;
  int64_t separator = -1;  // -1 for none
  uint64_t identity_bytes = 0;
  uint64_t checksum = 0;

  uint64_t checksum_of(size_t bytes) const {
    return io::xxh64(std::string_view(reinterpret_cast<const char*>(this), bytes));
  }
};
static_assert(sizeof(TokenHeader) == 88);
inline constexpr uint64_t kTokenHeader1 = 48, kTokenHeader2 = 64, kTokenHeader3 = sizeof(TokenHeader);

inline uint64_t padded_to_8(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

}  // namespace strata::data
