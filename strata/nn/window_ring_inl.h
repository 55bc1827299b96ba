#pragma once
// Where keys and values lie whose layer sees a window of positions: in a ring, so that a text of any length takes no
// more memory than some windows.
//
// Position p is at place p % turn and again at turn + p % turn. So the last `turn` positions always lie one behind
// another somewhere, and attention reads them as it reads a cache that never turns: no kernel knows of rings. A chunk
// of tokens that passes the ring's end is written a third time, a turn earlier, where its tokens behind the end belong;
// `chunk` more places on either side take what these writes put past the ends, and are never read.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace strata::nn::detail {

struct WindowRing {
  int64_t window = 0;  ///< positions that a query sees
  int64_t chunk = 0;   ///< tokens that are written and read together at most

  static WindowRing of(int64_t window) { return {window, std::clamp<int64_t>(window / 8, 2, 256)}; }
  /// That of a cache with so many places; none has them where there is nothing.
  static std::optional<WindowRing> with_places(int64_t places) {
    for (int64_t w = std::max<int64_t>(1, places / 2 + 1 - 512); w <= places / 2; ++w)
      if (of(w).places() == places) return of(w);
    return {};
  }

  /// Positions until a place is used again: the first query of a chunk still has its window.
  int64_t turn() const { return window + chunk - 1; }
  int64_t places() const { return 2 * (turn() + chunk); }
  /// Whether of a text of `length` positions the first `kept` can go on: the window before them is still there.
  bool keeps(int64_t kept, int64_t length) const { return length <= turn() || length - kept <= chunk; }
};

}  // namespace strata::nn::detail
