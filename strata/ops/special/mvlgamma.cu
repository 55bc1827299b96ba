// The multivariate gamma function on a CUDA device, all dimensions of an element in one launch.

#include <cmath>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/special/mvlgamma_kernel.h"

namespace strata {
namespace {

struct SumOfDimensions {
  int p;
  double constant;
  template <class C>
  __device__ C operator()(C x) const {
    const double wide = x;
    double sum = ::lgamma(wide) + constant;
    for (int j = 1; j < p; ++j) sum += ::lgamma(wide - 0.5 * j);
    return static_cast<C>(sum);
  }
};

}  // namespace

void mvlgamma_cuda(Tensor& y, const Tensor& x, int64_t p, double constant) {
  dispatch_floats(y.dtype(), "mvlgamma", [&]<class T>() {
    cuda::elementwise<T, T>("mvlgamma", y, SumOfDimensions{static_cast<int>(p), constant}, x);
  });
}

}  // namespace strata
