// Pooling and resizing of a device in a build without CUDA.

#include "strata/core/error.h"
#include "strata/ops/pool/pool_kernels.h"

namespace strata {
namespace {
[[noreturn]] void refuse(std::string_view what) {
  throw DeviceError(what, "this build has no CUDA");
}
}  // namespace

void resample_cuda(const pool::Axes&, int64_t, DType, const void*, void*) {
  refuse("resample");
}
void resample_transposed_cuda(const pool::Axes&, int64_t, DType, const void*, void*) {
  refuse("resample");
}
void window_max_cuda(const pool::Axes&, int64_t, DType, const void*, void*, int64_t*) {
  refuse("max_pool");
}
void plane_scatter_cuda(int64_t, int64_t, int64_t, DType, const void*, const int64_t*, void*) {
  refuse("plane_scatter");
}
void max_backward_cuda(const pool::Axes&, int64_t, DType, const void*, const int64_t*, void*) {
  refuse("max_pool_backward");
}
void plane_gather_cuda(int64_t, int64_t, int64_t, DType, const void*, const int64_t*, void*) {
  refuse("plane_gather");
}

}  // namespace strata
