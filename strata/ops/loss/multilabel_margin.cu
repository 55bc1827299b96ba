// The rows of multilabel_margin_loss on a CUDA device: a block has a row, its scores and its targets' bounds in shared
// memory. Scores of named classes become so low that nothing is above any bound, and a thread has four classes (or
// targets) at once, so that a number from shared memory serves four pairs. Counts are integers, so that their order
// does not matter; sums have one order.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 4;

// f(numbers of up to kAtOnce of n, this thread's; how many) for all of them.
template <class F>
__device__ __forceinline__ void each_few(int n, F&& f) {
  for (int first = static_cast<int>(threadIdx.x); first < n; first += kAtOnce * kThreads) {
    int at[kAtOnce], count = 0;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const bool is = first + u * kThreads < n;
      at[u] = is ? first + u * kThreads : first;
      count += is ? 1 : 0;
    }
    f(at, count);
  }
}

// Adds to above[u] of how many of n numbers is_above(u, number) is true.
template <class T, class F>
__device__ __forceinline__ void count_above(const T* numbers, int n, int (&above)[kAtOnce], F&& is_above) {
#pragma unroll 4
  for (int i = 0; i < n; ++i) {
    const T number = numbers[i];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) above[u] += is_above(u, number) ? 1 : 0;
  }
}

// Classes c and targets k of a row: shared memory holds score[c], of a class that is named in the end -inf; bound[k] =
// score of target k less 1; slope[c]; and whether c is named. The row's result is y[row] (its loss), or with kSlopes
// gx[row][c].
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
  for (int c = thread; c < classes; c += kThreads)
    if (named[c]) score[c] = score[c] != score[c] && !kSlopes ? score[c] : -T(HUGE_VALF);
  __syncthreads();
  if constexpr (!kSlopes) {
    T sum = 0;
    each_few(classes, [&](const int(&at)[kAtOnce], int count) {
      T v[kAtOnce], part[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) v[u] = score[at[u]];
#pragma unroll 4
      for (int k = 0; k < targets; ++k) {
        const T least = bound[k];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) part[u] += fmax(v[u] - least, T(0));  // 0 of NaN
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (u < count) sum += v[u] != v[u] ? v[u] : part[u];
    });
    sum = cuda::block_reduce<kThreads>(sum, cuda::Sum(), partial);
    if (thread == 0) y[row] = sum;
  } else {
    each_few(classes, [&](const int(&at)[kAtOnce], int count) {
      T v[kAtOnce];
      int above[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) v[u] = score[at[u]];
      count_above(bound, targets, above, [&](int u, T least) { return v[u] > least; });
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (u < count && !named[at[u]]) slope[at[u]] = above[u];  // of such a class nobody else writes
    });
    each_few(targets, [&](const int(&at)[kAtOnce], int count) {
      T least[kAtOnce];
      int above[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) least[u] = bound[at[u]];
      count_above(score, classes, above, [&](int u, T v) { return v > least[u]; });
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int64_t c = t[at[u]];
        if (u < count && cuda::is_in_range(c, classes)) atomicSub(slope + c, above[u]);
      }
    });
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
