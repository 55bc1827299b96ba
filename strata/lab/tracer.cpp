#include "strata/lab/tracer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "strata/core/error.h"
#include "strata/lab/device_clock.h"
#include "strata/memory/transfers.h"

namespace strata::lab {
namespace {

// Waits that nobody could see: an event that had passed.
constexpr double kLeastWait = 2e-6;

TrackKind kind_of(memory::TransferKind kind) {
  switch (kind) {
    case memory::TransferKind::copy:
      return TrackKind::copy;
    case memory::TransferKind::disk:
      return TrackKind::disk;
    case memory::TransferKind::processor:
      return TrackKind::processor;
    case memory::TransferKind::wait:
      return TrackKind::wait;
  }
  return TrackKind::copy;
}

}  // namespace

struct Tracer::State {
  explicit State(Device device) : clock(line_clock_of(device)) {
    recorder.emplace(RecordOptions{.clock = clock.get()});
  }
  memory::TransferLog log;
  std::unique_ptr<LineClock> clock;
  std::optional<Recorder> recorder;
  Recording recording;
};

Tracer::Tracer(Device device) : state_(std::make_unique<State>(device)) {}
Tracer::~Tracer() = default;

Trace Tracer::finish() {
  State& s = *state_;
  check(s.recorder.has_value(), "Tracer", "finish() was called before");
  s.recording = s.recorder->finish();
  s.recorder.reset();
  Trace trace;
  trace.add_calls(s.recording, s.clock->line(), s.log.begun());
  // What nobody's forward or backward is: the phase in which it began.
  const std::vector<TraceSpan> calls = trace.track("compute").spans;  // tracks move
  for (memory::Transfer& t : s.log.take()) {
    if (t.kind == memory::TransferKind::wait && t.end - t.begin < kLeastWait) continue;
    const auto after = std::upper_bound(calls.begin(), calls.end(), t.begin,
                                        [](double at, const TraceSpan& c) { return at < c.begin; });
    const Phase phase = after == calls.begin() ? Phase::forward : std::prev(after)->phase;
    trace.track(t.track, kind_of(t.kind))
        .spans.push_back({std::move(t.name), t.begin, t.end, t.bytes, phase, t.queued});
  }
  std::stable_sort(trace.tracks.begin(), trace.tracks.end(), [](const TraceTrack& a, const TraceTrack& b) {
    return std::pair(a.kind, a.name) < std::pair(b.kind, b.name);
  });
  return trace;
}

const Recording& Tracer::recording() const {
  return state_->recording;
}
double Tracer::begun() const {
  return state_->log.begun();
}

}  // namespace strata::lab
