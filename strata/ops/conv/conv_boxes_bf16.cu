// The kernels of conv_boxes_kernel.cuh for bf16: files of their own, as they take long to compile.

#include "strata/ops/conv/conv_boxes_kernel.cuh"

namespace strata::conv_cuda {

template void run_boxes<BFloat16>(int shape, bool across, const Boxes& g, int blocks, int bytes);

}  // namespace strata::conv_cuda
