// Resizing along one dimension on a CUDA device: every element of a result gathers what belongs to it, in a fixed
// order.

#include "strata/ops/pool/pool_cuda.cuh"
#include "strata/ops/pool/resize_axis_kernel.h"

namespace strata {
namespace {
using namespace cuda;
using namespace pool;

template <class T>
__global__ void __launch_bounds__(kThreads) filter_kernel(Filter f, Grid out, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<1>(out.total, [&](int64_t e) {
    const auto at = out.at<int64_t>(e);
    const int64_t inner = out.col.d;
    const FilterWindow w = filter_window(f, at.i);
    const T* from = x + at.plane * f.in * inner + at.j;
    C sum = 0;
    for (int64_t j = w.start; j < w.start + w.count; ++j)
      sum += static_cast<C>(filter_weight(f, w, j)) * widen(from[pool::inside(f, j) * inner]);
    y[e] = narrow<T>(sum);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) filter_transposed_kernel(Filter f, Grid in, const T* y, T* x) {
  using C = compute_t<T>;
  for_elements<1>(in.total, [&](int64_t e) {
    const auto at = in.at<int64_t>(e);
    const int64_t inner = in.col.d;
    const pool::Outputs<int64_t> outputs = filter_outputs(f, at.i);
    const T* from = y + at.plane * f.out * inner + at.j;
    C sum = 0;
    for (int64_t i = outputs.low; i <= outputs.high; ++i) {
      const double weight = weight_of_input(f, filter_window(f, i), at.i);
      if (weight != 0) sum += static_cast<C>(weight) * widen(from[i * inner]);
    }
    x[e] = narrow<T>(sum);
  });
}

}  // namespace

void filter_axis_cuda(const Filter& f, int64_t outer, int64_t inner, DType t, const void* x, void* y) {
  const Grid out(outer, f.out, inner);
  if (out.total == 0) return;
  dispatch_floats(t, "resize_axis", [&]<class T>() {
    filter_kernel<T>
        <<<blocks_of<1>(out.total), kThreads, 0, stream()>>>(f, out, static_cast<const T*>(x), static_cast<T*>(y));
  });
}
void filter_axis_transposed_cuda(const Filter& f, int64_t outer, int64_t inner, DType t, const void* y, void* x) {
  const Grid in(outer, f.in, inner);
  if (in.total == 0) return;
  dispatch_floats(t, "resize_axis", [&]<class T>() {
    filter_transposed_kernel<T>
        <<<blocks_of<1>(in.total), kThreads, 0, stream()>>>(f, in, static_cast<const T*>(y), static_cast<T*>(x));
  });
}

}  // namespace strata
