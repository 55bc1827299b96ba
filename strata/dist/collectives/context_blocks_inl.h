#pragma once
// Which queries of one rank see which keys of another, where each has two chunks of a sequence (zig-zag).

#include <cstdint>
#include <vector>

namespace strata::distributed::detail {

/// One call of attention: queries [q, q + queries) and keys [k, k + keys) of two ranks' parts. `offset` is the position
/// of the first query behind the first key, where `distances` count; elsewhere all is seen, or is_causal says it.
struct ContextBlock {
  int64_t q = 0, queries = 0, k = 0, keys = 0;
  bool causal = false;
  int64_t offset = 0;
};

/// Of chunks of `half` positions in a ring of n: the first position of a rank's chunk 0 or 1.
constexpr int64_t chunk_begin(int64_t n, int64_t rank, int64_t chunk, int64_t half) {
  return (chunk == 0 ? rank : 2 * n - 1 - rank) * half;
}

/// Of parts of `length` positions in a ring of n: what rank `own`'s queries do with rank `other`'s keys. Without a window
/// it is one call at most: under a causal mask half of the pairs, whatever the two ranks. `by_chunks` makes it up to four
/// calls, each of one chunk's queries and one chunk's keys.
inline std::vector<ContextBlock> context_blocks(int64_t n, int64_t own, int64_t other, int64_t length, bool causal,
                                                int64_t window, bool by_chunks = false) {
  if (length == 0) return {};
  if (n == 1) return {{.queries = length, .keys = length, .causal = causal}};
  const int64_t half = length / 2;
  if (window == 0 && !by_chunks) {
    if (!causal || own == other) return {{.queries = length, .keys = length, .causal = causal}};
    if (other < own) return {{.queries = length, .keys = half}};
    return {{.q = half, .queries = half, .keys = length}};
  }
  std::vector<ContextBlock> all;
  for (int64_t a = 0; a < 2; ++a)
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t offset = chunk_begin(n, own, a, half) - chunk_begin(n, other, b, half);
      const int64_t nearest = (offset < 0 ? -offset : offset) - (half - 1);
      if ((causal && offset < 0) || (window > 0 && nearest >= window)) continue;
      all.push_back({.q = a * half,
                     .queries = half,
                     .k = b * half,
                     .keys = half,
                     .causal = causal && offset == 0,
                     .offset = offset});
    }
  return all;
}

}  // namespace strata::distributed::detail
