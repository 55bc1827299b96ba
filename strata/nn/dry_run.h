#pragma once
// Where a device has a way of its own, a dry run has to take it too.

#include "strata/core/device.h"

namespace strata::nn {

/// While it lives, dry runs of its thread stand for runs on a CUDA device, otherwise for the CPU's.
class DryRunOfCuda {
 public:
  explicit DryRunOfCuda(bool on);
  ~DryRunOfCuda();
  DryRunOfCuda(const DryRunOfCuda&) = delete;

 private:
  bool previous_;
};

/// Whether tensors of `device` go a CUDA device's way.
bool as_on_cuda(Device device);

}  // namespace strata::nn
