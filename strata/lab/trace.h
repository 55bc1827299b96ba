#pragma once
// What ran when: compute, copies and disks of a step on one time line.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/recording.h"

namespace strata::lab {

/// One thing that took time; seconds since the trace began.
struct TraceSpan {
  std::string name;  ///< "linear in blocks.3"
  double begin = 0, end = 0;
  int64_t bytes = 0;  ///< moved; 0 for compute
  Phase phase = Phase::forward;
};

/// A row of the picture: what cannot run beside itself.
struct TraceTrack {
  std::string name;  ///< "compute", "to host", "from disk"
  std::vector<TraceSpan> spans;
  /// Seconds during which at least one of its spans runs.
  double busy() const;
};

/// Tracks in the order in which they are to be drawn.
struct Trace {
  std::vector<TraceTrack> tracks;

  /// The track of that name, made where there is none.
  TraceTrack& track(std::string_view name);
  /// The work of a timed recording on the track "compute", one call after the other from `begin` seconds on, named
  /// after op and module.
  void add_calls(const Recording& step, double begin = 0);
  /// Seconds during which both tracks are busy; 0 where one does not exist.
  double overlap(std::string_view a, std::string_view b) const;
  /// When the last span ends.
  double end() const;

  /// The format that chrome://tracing and Perfetto open: a JSON object with a list of complete events, a thread a
  /// track, microseconds.
  std::string to_chrome_json() const;
  /// The same as a picture for a page, `width` pixels wide: a bar a span, coloured by track and phase, with a scale of
  /// time. Spans thinner than a quarter of a pixel are put together. Colours are the page's variables (--blue, --muted,
  /// ..).
  std::string to_svg(int width = 900) const;
};

}  // namespace strata::lab
