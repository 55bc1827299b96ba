// Windows of volumes added up on a CUDA device. Every element of the result gathers what belongs to it, in a fixed
// order.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/fold_volume_kernel.h"
#include "strata/ops/copy/copy.h"

namespace strata {
namespace {
using namespace cuda;

struct Axis {
  int32_t kernel, padding, dilation, places;
  Divisor size, stride;

  /// The place whose tap reaches element `at`; -1 for none.
  __device__ __forceinline__ int32_t place(int64_t at, int32_t tap) const {
    const int64_t from = at + padding - static_cast<int64_t>(tap) * dilation;
    if (from < 0) return -1;
    int64_t rest;
    const int64_t i = stride.split(from, rest);
    return rest == 0 && i < places ? static_cast<int32_t>(i) : -1;
  }
};
struct Volume {
  Axis d, h, w;
  Divisor channels;
};

template <class T>
__global__ void __launch_bounds__(kEachThreads)
    fold_kernel(const Volume v, int64_t total, const T* windows, const T* bias, T* y) {
  using C = compute_t<T>;
  const int64_t places = static_cast<int64_t>(v.d.places) * v.h.places * v.w.places;
  for_each(total, [&](int64_t e) {
    int64_t column, row, layer, channel;
    const int64_t plane = v.d.size.split(v.h.size.split(v.w.size.split(e, column), row), layer);
    v.channels.split(plane, channel);
    C sum = 0;
    for (int32_t a = 0; a < v.d.kernel; ++a) {
      const int32_t i = v.d.place(layer, a);
      if (i < 0) continue;
      for (int32_t b = 0; b < v.h.kernel; ++b) {
        const int32_t j = v.h.place(row, b);
        if (j < 0) continue;
        for (int32_t c = 0; c < v.w.kernel; ++c) {
          const int32_t k = v.w.place(column, c);
          if (k < 0) continue;
          const int64_t tap = ((plane * v.d.kernel + a) * v.h.kernel + b) * v.w.kernel + c;
          sum += widen(windows[tap * places + (static_cast<int64_t>(i) * v.h.places + j) * v.w.places + k]);
        }
      }
    }
    if (bias != nullptr) sum += widen(bias[channel]);
    y[e] = narrow<T>(sum);
  });
}

}  // namespace

void fold_volume_cuda(Tensor& y, const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel,
                      const Dims& stride, const Dims& padding, const Dims& dilation) {
  const auto axis = [&](int i) {
    const int64_t places = (size[i] + 2 * padding[i] - extent(kernel[i], dilation[i])) / stride[i] + 1;
    return Axis{static_cast<int32_t>(kernel[i]),
                static_cast<int32_t>(padding[i]),
                static_cast<int32_t>(dilation[i]),
                static_cast<int32_t>(places),
                Divisor(size[i]),
                Divisor(stride[i])};
  };
  const Volume v{axis(0), axis(1), axis(2), Divisor(y.size(1))};
  const int64_t total = y.numel();
  const Tensor add = bias.defined() ? contiguous(bias) : Tensor();
  dispatch_floats(y.dtype(), "fold_volume", [&]<class T>() {
    fold_kernel<T><<<each_blocks(total), kEachThreads, 0, stream()>>>(
        v, total, static_cast<const T*>(windows.raw_data()),
        add.defined() ? static_cast<const T*>(add.raw_data()) : nullptr, static_cast<T*>(y.raw_data()));
  });
}

}  // namespace strata
