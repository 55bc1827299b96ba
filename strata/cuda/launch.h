#pragma once
// What stands around a kernel on a CUDA device. The call path has it through core/launch.h, where this room registers.

#include <string_view>

#include "strata/core/device.h"

namespace strata::cuda {

/// Makes `device` current for a call of `op` and opens its NVTX range.
class LaunchScope {
 public:
  LaunchScope(std::string_view op, Device device);
  ~LaunchScope();
  LaunchScope(const LaunchScope&) = delete;
  /// The error that the launches left, nullptr for none; in launch-blocking mode that of their execution.
  const char* failure() const;

 private:
  int previous_ = -1;
  bool range_ = false;
};

}  // namespace strata::cuda
