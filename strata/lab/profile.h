#pragma once
// Where the time of a program goes, op by op.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/recording.h"
#include "strata/lab/step_costs.h"

namespace strata::lab {

/// Times every op that its thread calls while it lives, backward passes and updates included (their ops are ops like
/// any other): a Recorder whose recordings are put together as they come, so that it may run for days. Time inside a
/// composed op counts for the ops that it calls, time inside one with a kernel for that one; the rest is `outside`:
/// data, autograd's own work, the recorder's. For a CUDA device the times are those of its current stream
/// (DeviceClock).
///
///     lab::OpProfile profile;
///     train_step();
///     std::puts(profile.table().c_str());
class OpProfile final : private RecordSink {
 public:
  /// One op's part.
  struct Row {
    const OpBase* op = nullptr;
    int64_t calls = 0;
    double seconds = 0;
  };

  /// With `limits` the tables say how far each row is from them. Throws DeviceError for a CUDA device that is not
  /// there.
  explicit OpProfile(Device device = Device::cpu(), const Limits& limits = {});

  /// Forgets what was timed so far: called after a few steps, libraries are loaded and kernels chosen.
  void reset();
  /// Slowest first. For a CUDA device they wait for it.
  std::vector<Row> rows();
  /// By op, module and phase, with bytes and operations. For a CUDA device it waits for it.
  const StepCosts& costs();
  /// Seconds from construction or reset() until now (a CUDA device: until the last op's end).
  double elapsed();
  /// Calls, milliseconds, share of elapsed(), microseconds a call, operations, bytes, with limits their part of the
  /// time; `most` rows and the rest as one, `outside` last.
  std::string table(CostBy by = CostBy::op, size_t most = 60);

 private:
  void take(Recording&& part) override { costs_.add(part); }

  std::unique_ptr<RecordClock> clock_;
  StepCosts costs_;
  std::optional<Recorder> recorder_;
};

}  // namespace strata::lab
