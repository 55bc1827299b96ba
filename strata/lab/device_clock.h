#pragma once
// A RecordClock of a device's own time.

#include <cstdint>
#include <memory>
#include <vector>

#include "strata/core/device.h"
#include "strata/core/recording.h"
#include "strata/cuda/runtime.h"

namespace strata::lab {

/// A stretch of time that belonged to a call, in seconds of the host's steady clock.
struct CallStretch {
  int32_t call = -1;
  double begin = 0, end = 0;
};

/// A RecordClock that remembers when it was marked.
class LineClock : public RecordClock {
 public:
  /// The stretches of calls since it was made, in order; waits for the device. What belonged to none is left out.
  virtual std::vector<CallStretch> line() = 0;
};

/// Times calls by the current stream of a CUDA device, with an event between any two of them: the device runs as it
/// would without. Where the stream waits for the host, the wait counts for what was queued last. read() waits for the
/// device, and so does every 8,192nd mark.
class DeviceClock final : public LineClock {
 public:
  /// Throws DeviceError for a CUDA device that is not there.
  /// `line`: whether line() will be asked for.
  explicit DeviceClock(Device device, bool line = false);
  void mark(int32_t call) override;
  double read(std::span<double> seconds) override;
  std::vector<CallStretch> line() override;

 private:
  // A point in the stream; the time from it to the next one belongs to `call`.
  struct Mark {
    std::unique_ptr<cuda::Event> at;
    int32_t call = -1;
  };
  void settle();

  Device device_;
  std::vector<Mark> marks_;
  std::vector<std::unique_ptr<cuda::Event>> spare_;
  std::vector<double> calls_;
  double none_ = 0;
  bool keeps_line_ = false;
  double at_ = 0;  // when the oldest mark was
  std::vector<CallStretch> line_;
};

/// The clock that tells how long a device works: of a CUDA device a DeviceClock, of others none, which means the
/// host's.
std::unique_ptr<RecordClock> clock_of(Device device);
/// The same, of the host too, which remembers: a DeviceClock or the host's clock. Throws as DeviceClock.
std::unique_ptr<LineClock> line_clock_of(Device device);

}  // namespace strata::lab
