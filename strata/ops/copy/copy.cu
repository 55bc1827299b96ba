// Copies, conversions and fills on a CUDA device.

#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/memory.h"

namespace strata {
namespace {
using cuda::elementwise;

// As the CPU's: floating to integer through double and int64, with saturation; any number but 0 is true.
template <class D, class S>
struct Convert {
  __device__ compute_t<D> operator()(compute_t<S> v) const {
    if constexpr (std::is_same_v<D, bool>) {
      return v != 0;
    } else if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
      const double d = static_cast<double>(v);
      if (!(d == d)) return 0;
      if (d >= 9.2233720368547758e18) return static_cast<D>(INT64_MAX);
      if (d <= -9.2233720368547758e18) return static_cast<D>(INT64_MIN);
      return static_cast<D>(static_cast<int64_t>(d));
    } else {
      return static_cast<compute_t<D>>(v);
    }
  }
};
struct Same {
  template <class T>
  __device__ T operator()(T v) const {
    return v;
  }
};

void copy_within(const Tensor& dst, const Tensor& src) {
  if (dst.dtype() == src.dtype()) {
    if (dst.is_contiguous() && src.is_contiguous())
      return cuda::copy_bytes(dst.raw_data(), dst.device(), src.raw_data(), src.device(),
                              static_cast<size_t>(dst.nbytes()));
    return dispatch_bytes(dst.dtype(), [&]<class T>() { elementwise<T, T>("copy", dst, Same{}, src); });
  }
  dispatch_all(dst.dtype(), "copy", [&]<class D>() {
    dispatch_all(src.dtype(), "copy", [&]<class S>() { elementwise<D, S>("copy", dst, Convert<D, S>{}, src); });
  });
}

template <class T>
struct Constant {
  compute_t<T> value;
  __device__ compute_t<T> operator()() const { return value; }
};
}  // namespace

void copy_elements_cuda(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  if (dst.device() == src.device()) return copy_within(dst, src);
  // Across devices whole blocks of bytes move: what is strided or of another dtype is brought in line on its own side.
  const Tensor from = src.dtype() == dst.dtype() ? src.contiguous() : src.to(dst.dtype()).contiguous();
  if (dst.is_contiguous()) {
    cuda::copy_bytes(dst.raw_data(), dst.device(), from.raw_data(), from.device(), static_cast<size_t>(dst.nbytes()));
    return;
  }
  const Tensor landed = empty({dst.shape(), dst.dtype(), dst.device(), std::nullopt});
  cuda::copy_bytes(landed.raw_data(), dst.device(), from.raw_data(), from.device(), static_cast<size_t>(dst.nbytes()));
  copy_elements(dst, landed);
}

void fill_elements_cuda(const Tensor& dst, Scalar value) {
  dispatch_all(dst.dtype(), "fill", [&]<class T>() {
    elementwise<T>("fill", dst, Constant<T>{static_cast<compute_t<T>>(value.to<compute_t<T>>())});
  });
}

}  // namespace strata
