#pragma once
// What ran when: compute, copies and disks of a step on one time line.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/recording.h"

namespace strata::lab {

struct CallStretch;

/// One thing that took time; seconds since the trace began.
struct TraceSpan {
  std::string name;  ///< "linear in blocks.3", "state of blocks.3.weight"
  double begin = 0, end = 0;
  int64_t bytes = 0;  ///< moved; 0 for compute
  Phase phase = Phase::forward;
  double queued = 0;  ///< seconds that it waited for others before `begin`
};

/// What a track's spans take the time of.
enum class TrackKind : uint8_t {
  compute,    ///< the device that the calls run on
  wait,       ///< nobody: calls wait for bytes, during which compute is not busy
  processor,  ///< threads of the host beside the calls
  copy,       ///< a bus, or the host's memory
  disk,       ///< files
};
/// "compute", "wait", "processor", "copy", "disk".
std::string_view name_of(TrackKind kind);

/// A row of the picture.
struct TraceTrack {
  std::string name;  ///< "compute", "to host", "read /scratch"
  std::vector<TraceSpan> spans;
  TrackKind kind = TrackKind::copy;
  /// Seconds during which at least one of its spans runs.
  double busy() const;
};

/// What of a trace's time is whose, in seconds. What is hidden was done while calls computed.
struct TraceSummary {
  double seconds = 0;  ///< from 0 to the last end
  double compute = 0;  ///< calls ran, and did not wait
  double copies = 0, copies_hidden = 0;
  double disk = 0, disk_hidden = 0;
  double processor = 0;  ///< threads of the host worked beside the calls
};
/// "compute busy 92%; copies 41 ms, 97% hidden under it; disk 0.3 s, 88% hidden": parts that there are.
std::string to_text(const TraceSummary& summary);

/// Tracks in the order in which they are to be drawn.
struct Trace {
  std::vector<TraceTrack> tracks;

  /// The track of that name, made where there is none: of kind compute where it is "compute".
  TraceTrack& track(std::string_view name);
  /// The same, made with this kind.
  TraceTrack& track(std::string_view name, TrackKind kind);
  /// The work of a timed recording on the track "compute", one call after the other from `begin` seconds on, named
  /// after op and module.
  void add_calls(const Recording& step, double begin = 0);
  /// The same where it was: stretches that a LineClock has of the recording, less `zero`. What a kernel calls inside
  /// counts as the kernel's.
  void add_calls(const Recording& step, std::span<const CallStretch> line, double zero);
  /// Seconds during which both tracks are busy; 0 where one does not exist.
  double overlap(std::string_view a, std::string_view b) const;
  /// When the last span ends.
  double end() const;
  TraceSummary summary() const;

  /// The format that chrome://tracing and Perfetto open: a JSON object with a list of complete events, microseconds. A
  /// track is a thread; spans that run beside each other have threads of their own.
  std::string to_chrome_json() const;
  /// Reads that again. Throws IoError for a text that is none.
  static Trace from_chrome_json(std::string_view text);
  /// A picture by itself, `width` pixels wide: a bar a span, coloured by kind and phase, with a legend, the summary and
  /// a scale of time. Spans of less than a pixel are put together, so that it stays small. Colours are the page's
  /// variables (--blue, --faint, ..) where it has them.
  std::string to_svg(int width = 960) const;
  /// The same as a part of a page, which has styles for it: as wide as there is room, its text of the page's size.
  std::string to_html() const;
};

}  // namespace strata::lab
