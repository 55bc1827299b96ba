// Padding by what a tensor holds itself, of all dimensions in a launch: each element of the result knows its place.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/ops/shape/pad_kernel.h"

namespace strata {
namespace {

// Of each dimension, the last first: the size of the result's, and where its elements come from.
struct Places {
  int dims = 0;
  PadMode mode = PadMode::reflect;
  cuda::Divisor by[kMaxDims];
  int64_t begin[kMaxDims] = {}, size[kMaxDims] = {}, before[kMaxDims] = {}, step[kMaxDims] = {};
};

template <class B>
__global__ void __launch_bounds__(cuda::kEachThreads) pad_kernel(Places places, int64_t total, const B* x, B* y) {
  cuda::for_each(total, [&](int64_t e) {
    int64_t rest = e, from = 0;
#pragma unroll
    for (int d = 0; d < kMaxDims; ++d) {
      if (d >= places.dims) break;
      int64_t at = 0;
      rest = places.by[d].split(rest, at);
      from += (places.begin[d] + pad_place(places.mode, at - places.before[d], places.size[d])) * places.step[d];
    }
    y[e] = x[from];
  });
}

}  // namespace

void pad_by_itself_cuda(Tensor& y, const Tensor& x, PadMode mode, const std::vector<PadSpan>& spans) {
  if (y.numel() == 0) return;
  Places places;
  places.mode = mode;
  places.dims = static_cast<int>(x.dim());
  for (int d = 0; d < places.dims; ++d) {
    const int k = places.dims - 1 - d;
    places.by[d] = cuda::Divisor(y.shape()[k]);
    places.size[d] = x.shape()[k];
    places.step[d] = x.strides()[k];
  }
  for (const PadSpan& s : spans) {
    const auto d = static_cast<size_t>(x.dim() - 1 - s.dim);
    places.begin[d] = s.begin, places.size[d] = s.size, places.before[d] = s.before;
  }
  dispatch_bytes(x.dtype(), [&]<class B>() {
    pad_kernel<B><<<cuda::each_blocks(y.numel()), cuda::kEachThreads, 0, cuda::stream()>>>(
        places, y.numel(), static_cast<const B*>(x.raw_data()), static_cast<B*>(y.raw_data()));
  });
}

}  // namespace strata
