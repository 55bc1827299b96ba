#pragma once
// Where a device has a way of its own, a dry run has to take it too.

#include "strata/core/device.h"

namespace strata {

/// While it lives, tensors of the meta device stand for those of a device of this type on its thread; otherwise for the
/// CPU's.
class DryRunAs {
 public:
  explicit DryRunAs(DeviceType type);
  ~DryRunAs();
  DryRunAs(const DryRunAs&) = delete;

 private:
  DeviceType previous_;
};

/// The type of device whose way a composed record takes for tensors of `device`.
DeviceType way_of(Device device);

}  // namespace strata
