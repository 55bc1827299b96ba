// Binary cross entropy of pairs on a CUDA device.

#include <cmath>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {
namespace {

// PyTorch's bound of the logarithms; NaN stays.
template <class C>
__device__ __forceinline__ C at_least(C v, C least) {
  return v < least ? least : v;
}
struct BinaryCrossEntropy {
  template <class C>
  __device__ C operator()(C p, C t) const {
    return (t - 1) * at_least(std::log1p(-p), C(-100)) - t * at_least(std::log(p), C(-100));
  }
};
struct OfInput {
  template <class C>
  __device__ C operator()(C g, C p, C t) const {
    return g * (p - t) / at_least((1 - p) * p, C(1e-12));
  }
};
struct OfTarget {
  template <class C>
  __device__ C operator()(C g, C p, C) const {
    return g * (at_least(std::log1p(-p), C(-100)) - at_least(std::log(p), C(-100)));
  }
};

}  // namespace

void bce_pairs_cuda(Tensor& y, const Tensor& p, const Tensor& t) {
  dispatch_floats(p.dtype(), "bce_pairs",
                  [&]<class T>() { cuda::elementwise<T, T, T>("bce_pairs", y, BinaryCrossEntropy(), p, t); });
}

void bce_pairs_backward_cuda(Tensor& y, const Tensor& g, const Tensor& p, const Tensor& t, bool of_target) {
  dispatch_floats(p.dtype(), "bce_pairs_backward", [&]<class T>() {
    of_target ? cuda::elementwise<T, T, T, T>("bce_pairs_backward", y, OfTarget(), g, p, t)
              : cuda::elementwise<T, T, T, T>("bce_pairs_backward", y, OfInput(), g, p, t);
  });
}

}  // namespace strata
