// Cross entropy over planes on a CUDA device. A thread has a row: neighbours read neighbouring elements of each plane,
// so the logits are read once and need not be turned. The sum over the rows has a fixed order: within a block, then
// over the blocks.

#include <cmath>
#include <limits>

#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/loss/planes_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // planes whose loads are under way together

struct Counted {
  double sum;
  int64_t count;
};

// The block's sum, for thread 0.
__device__ __forceinline__ Counted block_sum(Counted mine) {
  __shared__ Counted all[kThreads];
  all[threadIdx.x] = mine;
  for (int o = kThreads / 2; o > 0; o /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < o) {
      all[threadIdx.x].sum += all[threadIdx.x + o].sum;
      all[threadIdx.x].count += all[threadIdx.x + o].count;
    }
  }
  return threadIdx.x == 0 ? all[0] : mine;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const CrossEntropyCall c, int64_t inner, Counted* parts, RangeCheck in_range) {
  using C = compute_t<T>;
  constexpr C kLeast = -std::numeric_limits<C>::infinity();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  Counted mine{0, 0};
  if (r < c.rows) {
    const T* const x = static_cast<const T*>(c.x) + r / inner * inner * c.classes + r % inner;
    C top = kLeast, sum = 0, total = 0;
    const auto take = [&](C v) {
      total += v;
      if (v > top) {
        sum = sum * exp(top - v) + 1;
        top = v;
      } else if (v != kLeast) {
        sum += exp(v - top);
      }
    };
    int64_t k = 0;
    for (; k + kAhead <= c.classes; k += kAhead) {
      T v[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) v[u] = x[(k + u) * inner];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) take(widen(v[u]));
    }
    for (; k < c.classes; ++k) take(widen(x[k * inner]));
    const C lse = top + log(sum);
    static_cast<C*>(c.lse)[r] = lse;
    const int64_t t = c.target[r];
    C loss = 0;
    if (t != c.ignore_index) {
      loss = in_range(t, c.classes) ? lse - widen(x[t * inner]) : std::numeric_limits<C>::quiet_NaN();
      if (c.smoothing > 0) {
        const C e = static_cast<C>(c.smoothing);
        loss = loss * (1 - e) + e * (lse - total / static_cast<C>(c.classes));
      }
      mine = {static_cast<double>(loss), 1};
    }
    if (c.reduction == Reduction::none) static_cast<C*>(c.loss)[r] = loss;
  }
  const Counted all = block_sum(mine);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

// One block: the loss from the blocks' sums, and the share.
template <class C>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const Counted* parts, int64_t count, Reduction reduction, C* loss, C* share) {
  Counted mine{0, 0};
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    mine.sum += parts[i].sum;
    mine.count += parts[i].count;
  }
  const Counted all = block_sum(mine);
  if (threadIdx.x != 0) return;
  const double rows = static_cast<double>(all.count);
  *share = reduction == Reduction::mean ? static_cast<C>(1.0 / rows) : C(1);
  if (reduction == Reduction::none) return;
  *loss = static_cast<C>(reduction == Reduction::mean ? all.sum / rows : all.sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const CrossEntropyCall c, int64_t inner, const compute_t<T>* share) {
  using C = compute_t<T>;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= c.rows) return;
  const int64_t first = r / inner * inner * c.classes + r % inner, t = c.target[r];
  const T* const x = static_cast<const T*>(c.x) + first;
  T* const gx = static_cast<T*>(c.grad_x) + first;
  const bool used = t != c.ignore_index;
  C g = used ? static_cast<const C*>(c.grad_loss)[c.reduction == Reduction::none ? r : 0] * *share : C(0);
  if (used && !is_in_range(t, c.classes)) g = std::numeric_limits<C>::quiet_NaN();
  const C lse = static_cast<const C*>(c.lse)[r], e = static_cast<C>(c.smoothing);
  const C even = e / static_cast<C>(c.classes);
  const auto gradient = [&](C v, int64_t k) {
    return narrow<T>(used ? (exp(v - lse) - even - (k == t ? 1 - e : C(0))) * g : C(0));
  };
  int64_t k = 0;
  for (; k + kAhead <= c.classes; k += kAhead) {
    T v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) v[u] = x[(k + u) * inner];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) gx[(k + u) * inner] = gradient(widen(v[u]), k + u);
  }
  for (; k < c.classes; ++k) gx[k * inner] = gradient(widen(x[k * inner]), k);
}

}  // namespace

void cross_entropy_planes_cuda(const PlanesCall& call) {
  const CrossEntropyCall& c = call.rows;
  dispatch_floats(c.dtype, "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    const unsigned blocks = c.rows > 0 ? blocks_for(c.rows, kThreads) : 0;
    const Tensor workspace = empty({{std::max<int64_t>(1, static_cast<int64_t>(blocks * sizeof(Counted)))},
                                    DType::u8,
                                    Device::cuda(current_device()),
                                    std::nullopt});
    auto* const parts = static_cast<Counted*>(workspace.raw_data());
    if (blocks > 0) forward_kernel<T><<<blocks, kThreads, 0, stream()>>>(c, call.inner, parts, range_check());
    finish_kernel<C><<<1, kThreads, 0, stream()>>>(parts, blocks, c.reduction, static_cast<C*>(c.loss),
                                                   static_cast<C*>(call.share));
  });
}

void cross_entropy_planes_backward_cuda(const PlanesCall& call) {
  const CrossEntropyCall& c = call.rows;
  if (c.rows == 0) return;
  dispatch_floats(c.dtype, "cross_entropy_backward", [&]<class T>() {
    using C = compute_t<T>;
    backward_kernel<T>
        <<<blocks_for(c.rows, kThreads), kThreads, 0, stream()>>>(c, call.inner, static_cast<const C*>(call.share));
  });
}

}  // namespace strata
