#pragma once
// Batches on the device of a model, at the same addresses each time, copied while the step before them computes.

#include <memory>
#include <vector>

#include "strata/core/device.h"
#include "strata/data/loader.h"

namespace strata {

/// Takes `count` batches a step from a loader. On a CUDA device the next step's are copied on a stream of their own to
/// a second set of tensors, which next() copies, within the device, to those that the model reads.
class BatchFeeder {
 public:
  /// The loader must outlive the feeder and, for a CUDA device, have pin_memory.
  BatchFeeder(data::DataLoader& loader, int64_t count, Device device);
  ~BatchFeeder();

  /// The next step's batches on the device: the same tensors with each call there, whose contents are replaced when the
  /// work queued so far is done. Throws as DataLoader::next().
  const std::vector<data::Batch>& next();
  /// Begins to fetch the batches of the call of next() that follows; without it that call does. Nothing on the CPU.
  void prefetch();
  /// What the last call of next() gave, on the host. The copy to a device may still read it: hold it until the step
  /// that uses these batches is over.
  const std::vector<data::Batch>& host() const { return host_; }
  /// The loader's place after those, whatever was fetched since.
  const data::SamplerState& state() const { return state_; }

 private:
  struct Cuda;
  std::vector<data::Batch> take();

  data::DataLoader& loader_;
  int64_t count_;
  Device device_;
  std::vector<data::Batch> host_, here_;
  data::SamplerState state_;
  std::unique_ptr<Cuda> cuda_;
};

}  // namespace strata
