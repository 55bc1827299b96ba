#pragma once
// Error checks and the driver's functions, for the .cu files of this room and the launch helpers.

#include <atomic>
#include <string_view>

#include <cuda.h>
#include <cuda_runtime.h>

#include "strata/core/error.h"
#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// Throws DeviceError("op: what failed: CUDA's text") unless `e` is cudaSuccess.
inline void check_cuda(cudaError_t e, std::string_view op, std::string_view what) {
  if (e == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // a launch error would be reported again by the next call
  throw DeviceError(op, cat(what, " failed: ", cudaGetErrorName(e), ", ", cudaGetErrorString(e)));
}
/// The same for the driver's results.
void check_driver(CUresult e, std::string_view op, std::string_view what);

/// Functions of the driver, found at run time: linking libcuda would keep the program from starting without a driver.
struct Driver {
  decltype(&cuMemAddressReserve) mem_address_reserve;
  decltype(&cuMemAddressFree) mem_address_free;
  decltype(&cuMemCreate) mem_create;
  decltype(&cuMemRelease) mem_release;
  decltype(&cuMemMap) mem_map;
  decltype(&cuMemUnmap) mem_unmap;
  decltype(&cuMemSetAccess) mem_set_access;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuLaunchKernel) launch_kernel;
};
/// Throws DeviceError where there is no driver.
const Driver& driver();

inline cudaStream_t raw(const Stream& s) {
  return static_cast<cudaStream_t>(s.handle());
}
/// The current stream of the current device.
cudaStream_t stream();

/// Launches of one kernel through the driver, which take the host 0.2 us less than <<<>>>: for kernels of small ops.
/// One static object for each kernel.
class Launcher {
 public:
  constexpr explicit Launcher(const void* kernel) : kernel_(kernel) {}
  Launcher(const Launcher&) = delete;
  /// On the current stream of the current device; `parameters` are the addresses of the kernel's. DeviceError where it
  /// cannot be launched.
  void operator()(unsigned blocks, unsigned threads, void** parameters);

 private:
  const void* kernel_;
  std::atomic<CUfunction> functions_[64] = {};  // of each device
};

/// The pool that this thread's blocks come from; 0 for none: no graph is captured, or an OutsidePoolScope lives.
int capture_pool();
/// Throws DeviceError naming the op that runs, or `where` outside one, if this thread is capturing a graph: `what`
/// cannot be recorded.
void refuse_in_capture(std::string_view where, std::string_view what);

/// Makes a device current for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check_cuda(cudaGetDevice(&previous_), "cuda", "cudaGetDevice");
    if (previous_ != device) check_cuda(cudaSetDevice(device), "cuda", "cudaSetDevice");
    changed_ = previous_ != device;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace strata::cuda
