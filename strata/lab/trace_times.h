#pragma once
// Times of a trace: sets of them, and how they are written.

#include <string>
#include <utility>
#include <vector>

#include "strata/lab/trace.h"

namespace strata::lab {

/// A set of times, as stretches that do not touch, in order.
class Stretches {
 public:
  Stretches() = default;
  /// When a track has a span.
  explicit Stretches(const TraceTrack& track) { add(track); }
  void add(const TraceTrack& track);
  /// Those of both.
  Stretches common(const Stretches& other) const;
  /// Those that `other` does not have.
  Stretches without(const Stretches& other) const;
  double seconds() const;

 private:
  void join();
  std::vector<std::pair<double, double>> all_;
};

/// "1.5 s", "20 ms", "300 us": three digits; "0" for nothing.
std::string time_text(double seconds);

}  // namespace strata::lab
