// The least that a kernel costs the host: a launch with as many parameters as a small add has.

#include <cuda.h>
#include <cuda_runtime.h>

namespace strata {
namespace {
__global__ void nothing(long long n, float c, void* y, const float* a, const float* b) {}
}  // namespace

void bare_launch(void* stream) {
  nothing<<<1, 256, 0, static_cast<cudaStream_t>(stream)>>>(4, 1.f, nullptr, nullptr, nullptr);
}

// Through the driver, as small elementwise kernels go.
void driver_launch(void* stream) {
  using Launch = decltype(&cuLaunchKernel);
  static cudaFunction_t function = nullptr;
  static Launch launch = nullptr;
  if (function == nullptr) {
    cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&nothing));
    void* p = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuLaunchKernel", &p, 4000, cudaEnableDefault, &result);
#else
    cudaGetDriverEntryPoint("cuLaunchKernel", &p, cudaEnableDefault, &result);
#endif
    launch = reinterpret_cast<Launch>(p);
  }
  long long n = 4;
  float f = 1;
  void* y = nullptr;
  const float *a = nullptr, *b = nullptr;
  void* params[] = {&n, &f, &y, &a, &b};
  launch(function, 1, 1, 1, 256, 1, 1, 0, static_cast<CUstream>(stream), params, nullptr);
}

}  // namespace strata
