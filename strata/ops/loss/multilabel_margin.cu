// The rows of multilabel_margin_loss on a CUDA device: a block has a row, its scores and its targets' bounds in shared
// memory. Counts are integers, so that their order does not matter; sums have one order.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 128;

// Classes c and targets k of a row: shared memory holds score[c], bound[k] = score of target k less 1, slope[c], and
// whether c is named. The row's result is y[row] (its loss), or with kSlopes gx[row][c].
template <class T, bool kSlopes>
__global__ void __launch_bounds__(kThreads)
    row_kernel(T* y, const T* g, const T* x, const int64_t* target, int classes, cuda::RangeCheck in_range) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* const score = reinterpret_cast<T*>(memory);
  T* const bound = score + classes;
  int* const slope = reinterpret_cast<int*>(bound + classes);
  int* const named = slope + classes;
  __shared__ int count;
  __shared__ T partial[kThreads / cuda::kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const T* const from = x + row * classes;
  const int64_t* const t = target + row * classes;
  if (thread == 0) count = classes;
  __syncthreads();
  for (int c = thread; c < classes; c += kThreads) {
    score[c] = from[c];
    slope[c] = 0;
    named[c] = 0;
    if (t[c] < 0) atomicMin(&count, c);
  }
  __syncthreads();
  const int targets = count;
  for (int k = thread; k < targets; k += kThreads) {
    const int64_t c = t[k];
    const bool is_class = in_range(c, classes);
    bound[k] = is_class ? score[c] - 1 : T(HUGE_VALF);  // nothing is above it
    if (is_class) named[c] = 1;
  }
  __syncthreads();
  if constexpr (!kSlopes) {
    T sum = 0;
    for (int c = thread; c < classes; c += kThreads) {
      const T v = score[c];
      if (v != v) sum += v;
      if (named[c]) continue;
      T part = 0;
      for (int k = 0; k < targets; ++k) part += v > bound[k] ? v - bound[k] : T(0);
      sum += part;
    }
    sum = cuda::block_reduce<kThreads>(sum, cuda::Sum(), partial);
    if (thread == 0) y[row] = sum;
  } else {
    for (int c = thread; c < classes; c += kThreads) {
      if (named[c]) continue;
      const T v = score[c];
      int above = 0;
      for (int k = 0; k < targets; ++k) above += v > bound[k] ? 1 : 0;
      slope[c] = above;  // of a class that is not named nobody else writes
    }
    for (int k = thread; k < targets; k += kThreads) {
      const int64_t c = t[k];
      if (!cuda::is_in_range(c, classes)) continue;
      const T least = bound[k];
      int above = 0;
      for (int other = 0; other < classes; ++other) above += !named[other] && score[other] > least ? 1 : 0;
      atomicSub(slope + c, above);
    }
    __syncthreads();
    const T by = g[row];
    for (int c = thread; c < classes; c += kThreads) y[row * classes + c] = by * static_cast<T>(slope[c]);
  }
}

template <bool kSlopes>
void launch(const Tensor& y, const Tensor& g, const Tensor& x, const Tensor& target) {
  if (y.numel() == 0) return;
  const Tensor scores = contiguous(x), targets = contiguous(target), weights = g.defined() ? contiguous(g) : Tensor();
  const auto classes = static_cast<int>(x.size(1));
  dispatch_wide_floats(x.dtype(), "multilabel_margin_loss", [&]<class T>() {
    const auto kernel = row_kernel<T, kSlopes>;
    const int memory = classes * static_cast<int>(2 * sizeof(T) + 2 * sizeof(int));
    if (memory > 46 * 1024)
      cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory),
                       "multilabel_margin_loss", "cudaFuncSetAttribute");
    kernel<<<static_cast<unsigned>(x.size(0)), kThreads, static_cast<size_t>(memory), cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), kSlopes ? static_cast<const T*>(weights.raw_data()) : nullptr,
        static_cast<const T*>(scores.raw_data()), static_cast<const int64_t*>(targets.raw_data()), classes,
        cuda::range_check());
  });
}

}  // namespace

void multilabel_margin_rows_cuda(Tensor& y, const Tensor& x, const Tensor& target) {
  launch<false>(y, {}, x, target);
}
void multilabel_margin_rows_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target) {
  launch<true>(gx, g, x, target);
}

}  // namespace strata
