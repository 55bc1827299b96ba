#pragma once
// Where the time of a program goes, op by op.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/cuda/runtime.h"

namespace strata::lab {

/// Times every op that its thread calls while it lives, backward passes included (their ops are ops like any other).
/// Time inside an op that calls ops counts for those; the rest, from the first to the last call's end, is `outside`:
/// optimizer updates, data, autograd's own work. For a CUDA device the times are those of its current stream, taken
/// with events between the calls; where the stream waits for the host, the wait counts for what was queued last.
///
///     lab::OpProfile profile;
///     train_step();
///     std::puts(profile.table().c_str());
class OpProfile final : public CallObserver {
 public:
  /// One op's part.
  struct Row {
    const OpBase* op = nullptr;
    int64_t calls = 0;
    double seconds = 0;  ///< without the ops that it called
  };

  /// Throws DeviceError for a CUDA device that is not there.
  explicit OpProfile(Device device = Device::cpu());

  void before(const Call& call) override;
  void after(const Call& call, std::span<const Tensor> results) override;
  void failed(const Call& call) override;

  /// Forgets what was timed so far: called after a few steps, libraries are loaded and kernels chosen.
  void reset();
  /// Slowest first. For a CUDA device they wait for it.
  std::vector<Row> rows();
  /// Seconds from construction or reset() until now (a CUDA device: until the last op's end).
  double elapsed();
  /// rows() as text: op, calls, milliseconds, share of elapsed(), microseconds a call; `outside` last.
  std::string table();

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    const OpBase* op;
    Clock::time_point begin;
    double inner = 0;  // of the calls in it
  };
  // A point in the device's stream; the time from it to the next one belongs to `op` (none: outside).
  struct Mark {
    std::unique_ptr<cuda::Event> at;
    const OpBase* op = nullptr;
  };
  Row& row(const OpBase& op);
  void mark();
  void settle();

  Device device_;
  ObserverScope scope_;
  Clock::time_point begin_;
  std::vector<Open> open_;
  std::vector<Row> rows_;
  std::vector<Mark> marks_;
  std::vector<std::unique_ptr<cuda::Event>> spare_;
  double device_seconds_ = 0;
};

}  // namespace strata::lab
