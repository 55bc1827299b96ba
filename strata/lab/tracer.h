#pragma once
// Looking at a step: its calls and everything that moves meanwhile.

#include <memory>

#include "strata/core/device.h"
#include "strata/lab/trace.h"

namespace strata::lab {

/// Records a piece of program with what moves beside it:
///
///     lab::Tracer tracer(device);
///     train_step(batch);
///     io::write_file("step.trace.json", tracer.finish().to_chrome_json());
///
/// On the track "compute" are the calls of this thread, by the clock of `device`. The others are of the whole program:
/// "waiting" (calls for bytes), "processor" (optimizer updates and gathers by the host), "to host" and "from host" (a
/// card's copies), "to tier" and "from tier" of one, "read FOLDER" and "write FOLDER" (files, what a request waited in
/// the queue apart). Names say which tensor moved. Nothing of this is recorded where no Tracer lives.
class Tracer {
 public:
  /// Begins. Throws DeviceError for a CUDA device that is not there.
  explicit Tracer(Device device = Device::cpu());
  ~Tracer();
  Tracer(const Tracer&) = delete;

  /// Ends, on the same thread: waits for the device and gives the trace; what a disk has still under way is not in it.
  /// Once.
  Trace finish();
  /// The calls, timed, after finish().
  const Recording& recording() const;
  /// When it began, in seconds of the host's steady clock.
  double begun() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::lab
