// Convolutions of a device in a build without CUDA.

#include "strata/core/error.h"
#include "strata/ops/conv/conv_cuda.h"

namespace strata {
namespace {
[[noreturn]] void refuse(std::string_view what) {
  throw DeviceError(what, "this build has no CUDA");
}
}  // namespace

void conv_forward_cuda(const cpu::ConvSizes&, DType, Device, const void*, const void*, const void*, void*) {
  refuse("convolution");
}
void conv_transpose_cuda(const cpu::ConvSizes&, DType, Device, const void*, const void*, const void*, void*) {
  refuse("convolution_transpose");
}
void conv_weight_cuda(const cpu::ConvSizes&, DType, Device, const void*, const void*, void*) {
  refuse("convolution_weight");
}

}  // namespace strata
