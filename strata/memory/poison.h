#pragma once

namespace strata::memory {

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
