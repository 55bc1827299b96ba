// The losses of a device in a build without CUDA. (A file of its own: Reduction is another type beside ops/reduce.)

#include "strata/core/error.h"
#include "strata/ops/loss/ctc_kernel.h"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {
namespace {
[[noreturn]] void refuse(std::string_view what) {
  throw DeviceError(what, "this build has no CUDA");
}
}  // namespace

void cross_entropy_cuda(const CrossEntropyCall&) {
  refuse("cross_entropy");
}
void cross_entropy_backward_cuda(const CrossEntropyCall&) {
  refuse("cross_entropy_backward");
}
void cross_entropy_both_cuda(const CrossEntropyCall&) {
  refuse("linear_cross_entropy");
}
void cross_entropy_share_cuda(const CrossEntropyCall&, void*) {
  refuse("linear_cross_entropy");
}
void cross_entropy_total_cuda(const CrossEntropyCall&, const void*) {
  refuse("linear_cross_entropy");
}
void scale_cuda(const Tensor&, const Tensor&, const Tensor&) {
  refuse("scaled");
}
void scale_in_place_cuda(const Tensor&, const Tensor&) {
  refuse("scaled");
}
void ctc_forward_cuda(const CtcCall&) {
  refuse("ctc_loss");
}
void ctc_backward_cuda(const CtcCall&) {
  refuse("ctc_loss");
}
void nll_loss_cuda(const CrossEntropyCall&) {
  refuse("nll_loss");
}
void pair_loss_cuda(PairLoss, DType, const void*, const void*, int64_t, double, Reduction, double, void*) {
  refuse("loss");
}

}  // namespace strata
