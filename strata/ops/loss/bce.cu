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

}  // namespace

void bce_pairs_cuda(Tensor& y, const Tensor& p, const Tensor& t) {
  dispatch_floats(p.dtype(), "bce_pairs",
                  [&]<class T>() { cuda::elementwise<T, T, T>("bce_pairs", y, BinaryCrossEntropy(), p, t); });
}

}  // namespace strata
