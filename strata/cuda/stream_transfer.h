#pragma once
// What a stream does, for a memory::TransferLog, by the host's clock.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "strata/cuda/runtime.h"
#include "strata/memory/transfers.h"

namespace strata::cuda {

/// A point of a device's time that is known by the host's clock, to some ten microseconds: of an event that the host
/// has waited for.
class ClockPoint {
 public:
  explicit ClockPoint(int device);
  /// One of at most ten seconds ago: the difference of two events has seven digits.
  static std::shared_ptr<const ClockPoint> recent(int device);
  /// memory::host_seconds() at which a stream came to `event`, which is timed and has been reached.
  double host_seconds(const Event& event) const { return at_ + event.elapsed_ms(event_) * 1e-3; }

 private:
  Event event_;
  double at_ = 0;
};

/// What a stream gets while one lives goes into the log as one transfer, under this thread's memory::moved_name().
/// Nothing where there is no log, or a graph is being captured.
class StreamTransfer {
 public:
  StreamTransfer(memory::TransferKind kind, std::string_view track, int64_t bytes, const Stream& stream);
  ~StreamTransfer();
  StreamTransfer(const StreamTransfer&) = delete;

 private:
  struct Times;
  const Stream stream_;
  memory::Transfer transfer_;
  std::unique_ptr<Times> times_;
};

}  // namespace strata::cuda
