#include "strata/core/dry_run.h"

#include <utility>

namespace strata {
namespace {
thread_local DeviceType t_stands_for = DeviceType::cpu;
}  // namespace

DryRunAs::DryRunAs(DeviceType type) : previous_(std::exchange(t_stands_for, type)) {}
DryRunAs::~DryRunAs() {
  t_stands_for = previous_;
}
DeviceType way_of(Device device) {
  return device.is_meta() ? t_stands_for : device.type;
}

}  // namespace strata
