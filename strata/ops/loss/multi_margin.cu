// The rows of multi_margin_loss on a CUDA device: a block has a row. Sums have one order.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multi_margin_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 128;

// y[row] = the row's loss, or with kSlopes gx[row][c] = its slopes times g[row].
template <class T, bool kSlopes>
__global__ void __launch_bounds__(kThreads)
    row_kernel(T* y, const T* g, const T* x, const int64_t* target, int64_t classes, bool squared, T margin,
               cuda::RangeCheck in_range) {
  __shared__ T partial[kThreads / cuda::kWarp];
  const int64_t row = blockIdx.x, t = target[row];
  const T* const from = x + row * classes;
  const bool is_class = cuda::is_in_range(t, classes);
  if (threadIdx.x == 0) in_range(t, classes);
  const T bound = is_class ? margin - from[t] : T(NAN);
  T sum = 0;
  [[maybe_unused]] const T by = kSlopes ? g[row] / static_cast<T>(classes) : T(0);
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < classes; c += kThreads) {
    if (c == t) continue;
    const T above = bound + from[c];
    if constexpr (kSlopes) {
      const T slope = above > 0 ? (squared ? 2 * above : T(1)) : T(0);
      y[row * classes + c] = by * slope;
      sum += slope;
    } else {
      const T part = above > 0 || above != above ? above : T(0);
      sum += squared ? part * part : part;
    }
  }
  sum = cuda::block_reduce<kThreads>(sum, cuda::Sum(), partial);
  if (threadIdx.x != 0) return;
  if constexpr (!kSlopes)
    y[row] = sum / static_cast<T>(classes);
  else if (is_class)
    y[row * classes + t] = -by * sum;
}

template <bool kSlopes>
void launch(const Tensor& y, const Tensor& g, const Tensor& x, const Tensor& target, int64_t p, double margin) {
  if (y.numel() == 0) return;
  const Tensor scores = contiguous(x), targets = contiguous(target), weights = g.defined() ? contiguous(g) : Tensor();
  dispatch_wide_floats(x.dtype(), "multi_margin_loss", [&]<class T>() {
    row_kernel<T, kSlopes><<<static_cast<unsigned>(x.size(0)), kThreads, 0, cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), kSlopes ? static_cast<const T*>(weights.raw_data()) : nullptr,
        static_cast<const T*>(scores.raw_data()), static_cast<const int64_t*>(targets.raw_data()), x.size(1), p == 2,
        static_cast<T>(margin), cuda::range_check());
  });
}

}  // namespace

void multi_margin_rows_cuda(Tensor& y, const Tensor& x, const Tensor& target, int64_t p, double margin) {
  launch<false>(y, {}, x, target, p, margin);
}
void multi_margin_rows_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target, int64_t p,
                                     double margin) {
  launch<true>(gx, g, x, target, p, margin);
}

}  // namespace strata
