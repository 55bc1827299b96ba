#pragma once
// What a program does once and the host waits for: memory mapped, libraries loaded, kernels chosen. Who asks why the
// first result was late finds the times here.

#include <chrono>
#include <utility>
#include <vector>

namespace strata::detail {

/// Adds the time of its life to that of `part`, a literal. Of scopes of a thread inside each other each counts what is
/// its own: the times of a thread's parts add up.
class OnceScope {
 public:
  explicit OnceScope(const char* part);
  ~OnceScope();
  OnceScope(const OnceScope&) = delete;
  OnceScope& operator=(const OnceScope&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  const char* part_;
  OnceScope* outer_;
  Clock::time_point begin_ = Clock::now();
  Clock::duration inner_{};
};

/// Seconds by part, of all threads so far, in the order in which the parts ended first.
std::vector<std::pair<const char*, double>> once_seconds();

}  // namespace strata::detail
