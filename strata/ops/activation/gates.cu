// Activations of one launch that the processor composes.

#include <cmath>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/activation/gates_kernel.h"

namespace strata {
namespace {

struct Tanhshrink {
  template <class C>
  __device__ C operator()(C x) const {
    return x - std::tanh(x);
  }
};
struct Gate {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a / (1 + std::exp(-b));
  }
};

}  // namespace

void tanhshrink_cuda(Tensor& y, const Tensor& x) {
  dispatch_floats(y.dtype(), "tanhshrink",
                  [&]<class T>() { cuda::elementwise<T, T>("tanhshrink", y, Tanhshrink{}, x); });
}
void glu_cuda(Tensor& y, const Tensor& a, const Tensor& b) {
  dispatch_floats(y.dtype(), "glu", [&]<class T>() { cuda::elementwise<T, T, T>("glu", y, Gate{}, a, b); });
}

}  // namespace strata
