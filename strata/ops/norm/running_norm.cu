// Normalisation by given statistics, and slices scaled down to a norm, on a CUDA device: one launch each, with the
// numbers of channels and slices broadcast.

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/norm/scale_shift_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

template <class C>
struct ByRunning {
  C eps;
  bool scaled, shifted;
  __device__ C operator()(C x, C mean, C var, C weight, C bias) const {
    const C y = (x - mean) / sqrt(var + eps);
    return (scaled ? y * weight : y) + (shifted ? bias : C(0));
  }
};
template <class C>
struct LimitedTo {
  C most;
  __device__ C operator()(C x, C length) const { return length > most ? x * (most / (length + C(1e-7))) : x; }
};

}  // namespace

void by_running_cuda(Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps) {
  dispatch_floats(x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    Shape shape = Shape::filled(static_cast<int>(x.dim()), 1);
    shape[1] = x.size(1);
    const auto beside = [&](const Tensor& t) {
      return expand(reshape(t.defined() ? t.to(dtype_of<C>) : mean.to(dtype_of<C>), shape), x.shape());
    };
    const Tensor m = beside(mean), v = beside(var), w = beside(weight), b = beside(bias);
    const ByRunning<C> f{static_cast<C>(eps), weight.defined(), bias.defined()};
    cuda::elementwise<T, T, C, C, C, C>("batch_norm", y, f, x, m, v, w, b);
  });
}

void limit_lengths_cuda(Tensor& y, const Tensor& x, const Tensor& lengths, double most) {
  dispatch_floats(x.dtype(), "renorm", [&]<class T>() {
    using C = compute_t<T>;
    cuda::elementwise<T, T, C>("renorm", y, LimitedTo<C>{static_cast<C>(most)}, x, expand(lengths, x.shape()));
  });
}

}  // namespace strata
