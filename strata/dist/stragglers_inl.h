#pragma once
// Who waits least while others wait for it.

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "strata/dist/coordinator.h"

namespace strata::distributed::detail {

/// What one rank's heartbeats said of its waits.
class Waits {
 public:
  using Clock = std::chrono::steady_clock;
  /// A heartbeat that came at `when`: seconds in collectives so far, and the step of training (-1 outside).
  void add(Clock::time_point when, double waited, int64_t step, std::chrono::milliseconds window);
  /// The part of the last `window` in collectives, or of a longer time where no step has ended within it; -1 where
  /// that is not known.
  double share(std::chrono::milliseconds window) const;

 private:
  struct Sample {
    Clock::time_point when;
    double waited;
    int64_t step;
  };
  std::deque<Sample> samples_;
};

/// Sets RankState::straggler where the shares tell: of all ranks that live, and at least two.
void name_straggler(std::vector<RankState>& ranks);

/// What to tell people of a straggler: once, until another rank is it.
class StragglerNews {
 public:
  /// straggler_text(), or nothing where that was told last.
  std::string take(const std::vector<RankState>& ranks);

 private:
  int told_ = -1;
};

}  // namespace strata::distributed::detail
