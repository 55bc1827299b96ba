#pragma once

#include <atomic>

namespace strata::memory {

namespace detail {
inline constinit std::atomic<int> g_poison{-1};
}
/// The byte that a PoisonScope wants new memory filled with; -1 while none lives.
inline int poison_pattern() {
  return detail::g_poison.load(std::memory_order_relaxed);
}

/// While one lives, kernels that are not the engine's own write between guards, and what they write beyond a result is
/// an error. For `strata lab verify`.
class GuardScope {
 public:
  GuardScope();
  ~GuardScope();
  GuardScope(const GuardScope&) = delete;
};
/// Whether a GuardScope lives, on any thread.
bool guards_wanted();

}  // namespace strata::memory
