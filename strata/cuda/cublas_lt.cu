// Loading cuBLASLt.

#include "strata/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <array>
#include <mutex>
#include <string>
#include <system_error>

#include "strata/core/once.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/libraries.h"

namespace strata::cuda {

const CublasLt& cublas_lt() {
  static const CublasLt table = [] {
    void* library = nullptr;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"}) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    const char* reason = library == nullptr ? dlerror() : nullptr;
    check<DeviceError>(library != nullptr, "matmul",
                       "products on a CUDA device need cuBLASLt (libcublasLt.so.13 or .12), which cannot be loaded: ",
                       reason != nullptr ? reason : "not found");
    CublasLt t{};
    const auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
      check<DeviceError>(f != nullptr, "matmul", "cuBLASLt has no ", name);
    };
    find(t.create, "cublasLtCreate");
    find(t.matmul, "cublasLtMatmul");
    find(t.desc_create, "cublasLtMatmulDescCreate");
    find(t.desc_destroy, "cublasLtMatmulDescDestroy");
    find(t.desc_set, "cublasLtMatmulDescSetAttribute");
    find(t.layout_create, "cublasLtMatrixLayoutCreate");
    find(t.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(t.layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(t.preference_create, "cublasLtMatmulPreferenceCreate");
    find(t.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(t.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(t.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(t.check, "cublasLtMatmulAlgoCheck");
    find(t.version, "cublasLtGetVersion");
    find(t.status_name, "cublasLtGetStatusName");
    return t;
  }();
  return table;
}

cublasLtHandle_t cublas_lt_handle(int device) {
  struct Slot {
    std::once_flag once;
    cublasLtHandle_t handle = nullptr;
  };
  static auto* slots = new std::array<Slot, 64>;
  Slot& s = (*slots)[static_cast<size_t>(device)];
  std::call_once(s.once, [&] {
    const DeviceScope scope(device);
    const strata::detail::OnceScope once("cuBLASLt");
    check_lt(cublas_lt().create(&s.handle), "cublasLtCreate");
  });
  return s.handle;
}

std::jthread detail::load_libraries(Device device) {
  if (!device.is_cuda()) return {};
  try {
    return std::jthread([device] {
      try {
        properties(device.index);  // makes the context
        cublas_lt_handle(device.index);
      } catch (const Error&) {
      }
    });
  } catch (const std::system_error&) {  // no thread: later, then
    return {};
  }
}

}  // namespace strata::cuda
