#include "strata/nn/dry_run.h"

#include <utility>

namespace strata::nn {
namespace {
thread_local bool t_cuda = false;
}  // namespace

DryRunOfCuda::DryRunOfCuda(bool on) : previous_(std::exchange(t_cuda, on)) {}
DryRunOfCuda::~DryRunOfCuda() {
  t_cuda = previous_;
}
bool as_on_cuda(Device device) {
  return device.is_cuda() || (device.is_meta() && t_cuda);
}

}  // namespace strata::nn
