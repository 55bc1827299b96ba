// Rows written into a cache on a CUDA device.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/generation/generation_kernels.h"

namespace strata::generation {
namespace {

constexpr int kThreads = 256;

struct Steps {
  int64_t b, h, t, d;
};
Steps steps_of(const Tensor& t) {
  return {t.strides()[0], t.strides()[1], t.strides()[2], t.strides()[3]};
}

template <class B>
__global__ void __launch_bounds__(kThreads)
    write_kernel(B* y, const B* x, const int64_t* starts, const int64_t* counts, Steps to, Steps from, int64_t heads,
                 int64_t rows, int64_t d, int64_t capacity, int64_t all, cuda::RangeCheck check) {
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  const int64_t j = i % d, t = i / d % rows, h = i / (d * rows) % heads, b = i / (d * rows * heads);
  if (counts != nullptr && t >= counts[b]) return;
  const int64_t place = starts[b] + t;
  if (!check(place, capacity)) return;
  y[b * to.b + h * to.h + place * to.t + j * to.d] = x[b * from.b + h * from.h + t * from.t + j * from.d];
}

}  // namespace

void cache_write_cuda(Tensor& y, const Tensor& x, const Tensor& starts, const Tensor& counts) {
  if (x.numel() == 0) return;
  const Tensor start = starts.contiguous(), count = counts.defined() ? counts.contiguous() : counts;
  dispatch_bytes(y.dtype(), [&]<class B>() {
    cuda::launch_early(write_kernel<B>, cuda::blocks_for(x.numel(), kThreads), kThreads, 0, 1,
                       static_cast<B*>(y.raw_data()), static_cast<const B*>(x.raw_data()),
                       static_cast<const int64_t*>(start.raw_data()),
                       count.defined() ? static_cast<const int64_t*>(count.raw_data()) : nullptr, steps_of(y),
                       steps_of(x), x.size(1), x.size(2), x.size(3), y.size(2), x.numel(), cuda::range_check());
  });
}

}  // namespace strata::generation
