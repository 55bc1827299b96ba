// Masks and classes on a CUDA device.

#include <algorithm>
#include <cstring>

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

template <class B>
struct FillWhere {
  B value;
  __device__ B operator()(B x, bool on) const { return on ? value : x; }
};

// ---- elements that are not 0, in order ----
//
// A block counts those of 4096 elements, one block adds the counts up, and blocks of the same elements go over them
// again and know where theirs begin.

constexpr int kItems = 16, kChunk = kThreads * kItems, kWarpChunk = kItems * cuda::kWarp;
constexpr int kScanThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffffu;

// Bit j says whether element 32 j of a warp's part of the block's chunk, counted from the lane, is not 0: nothing but
// the bits of `mask` counts, so that a zero may have a sign.
template <class B>
__device__ __forceinline__ unsigned bits_of(const B* x, int64_t n, B mask, int64_t& first) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp, lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  first = static_cast<int64_t>(blockIdx.x) * kChunk + warp * kWarpChunk + lane;
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int64_t i = first + j * cuda::kWarp;
    if (i < n && static_cast<B>(x[i] & mask) != 0) bits |= 1u << j;
  }
  return bits;
}

template <class B>
__global__ void __launch_bounds__(kThreads) count_kernel(const B* x, int64_t n, B mask, int64_t* counts) {
  __shared__ int shared[kThreads / cuda::kWarp];
  int64_t first;
  const int count = cuda::block_reduce<kThreads>(__popc(bits_of(x, n, mask, first)), cuda::Sum(), shared);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// counts[k] = the sum of the counts before k; counts[chunks] = that of all.
__global__ void __launch_bounds__(kScanThreads) begin_kernel(int64_t* counts, int64_t chunks) {
  __shared__ int64_t warps[kScanThreads / cuda::kWarp];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  int64_t passed = 0;
  for (int64_t from = 0; from < chunks; from += kScanThreads) {
    const int64_t k = from + threadIdx.x, own = k < chunks ? counts[k] : 0;
    int64_t upto = own;
#pragma unroll
    for (int o = 1; o < cuda::kWarp; o *= 2) {
      const int64_t earlier = __shfl_up_sync(kAllLanes, upto, o);
      if (lane >= o) upto += earlier;
    }
    if (lane == cuda::kWarp - 1) warps[warp] = upto;
    __syncthreads();
    int64_t before = passed + upto - own;
#pragma unroll
    for (int w = 0; w < kScanThreads / cuda::kWarp; ++w) {
      if (w < warp) before += warps[w];
      passed += warps[w];
    }
    if (k < chunks) counts[k] = before;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[chunks] = passed;
}

// f(how many stand before it, its place) for each element that is not 0.
template <class B, class F>
__global__ void __launch_bounds__(kThreads) visit_kernel(const B* x, int64_t n, B mask, const int64_t* begins, F f) {
  __shared__ int warps[kThreads / cuda::kWarp];
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp, lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  int64_t first;
  const unsigned bits = bits_of(x, n, mask, first);
  const int own = cuda::warp_reduce(__popc(bits), cuda::Sum());
  if (lane == 0) warps[warp] = own;
  __syncthreads();
  int64_t rank = begins[blockIdx.x];
  for (int w = 0; w < warp; ++w) rank += warps[w];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const bool on = (bits >> j & 1) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, on);
    if (on) f(rank + __popc(lanes & ((1u << lane) - 1)), first + j * cuda::kWarp);
    rank += __popc(lanes);
  }
}

// x, dense, with the counts of its chunks.
struct Counted {
  Tensor x, begins;
  int64_t chunks = 0;
};
template <class B>
B counting_bits(DType t) {
  return static_cast<B>(is_floating(t) ? static_cast<B>(~B(0)) >> 1 : static_cast<B>(~B(0)));
}
Counted counted(const Tensor& given) {
  Counted c{contiguous(given), {}, (given.numel() + kChunk - 1) / kChunk};
  c.begins = empty({{c.chunks + 1}, DType::i64, given.device(), std::nullopt});
  auto* const counts = static_cast<int64_t*>(c.begins.raw_data());
  dispatch_bytes(given.dtype(), [&]<class B>() {
    count_kernel<B><<<static_cast<unsigned>(c.chunks), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(c.x.raw_data()), c.x.numel(), counting_bits<B>(c.x.dtype()), counts);
  });
  begin_kernel<<<1, kScanThreads, 0, cuda::stream()>>>(counts, c.chunks);
  return c;
}
template <class F>
void visit(const Counted& c, const F& f) {
  dispatch_bytes(c.x.dtype(), [&]<class B>() {
    visit_kernel<B, F><<<static_cast<unsigned>(c.chunks), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(c.x.raw_data()), c.x.numel(), counting_bits<B>(c.x.dtype()),
        static_cast<const int64_t*>(c.begins.raw_data()), f);
  });
}

// Waits for the device.
int64_t count_of(const Counted& c) {
  cuda::refuse_in_capture("nonzero or masked_select", "the result's size depends on values of the device");
  int64_t v = 0;
  cuda::copy_bytes(&v, Device::cpu(), static_cast<const int64_t*>(c.begins.raw_data()) + c.chunks, c.begins.device(),
                   sizeof v);
  return v;
}

// A record that works its shapes out itself has no launch scope around it.
template <class F>
Tensor on_device_of(const Tensor& x, std::string_view op, F&& f) {
  const cuda::LaunchScope scope(op, x.device());
  const Tensor r = f();
  if (const char* failure = scope.failure()) throw DeviceError(op, failure);
  return r;
}

template <class B>
struct Select {
  const B* x;
  B* y;
  __device__ void operator()(int64_t rank, int64_t i) const { y[rank] = x[i]; }
};

template <class B>
struct Expand {
  const B* source;
  int64_t have;
  B* y;
  cuda::RangeCheck in_range;
  __device__ void operator()(int64_t rank, int64_t i) const {
    if (in_range(rank, have)) y[i] = source[rank];
  }
};

struct Positions {
  int64_t* y;
  int dims;
  cuda::Divisor by[kMaxDims];
  __device__ void operator()(int64_t rank, int64_t i) const {
#pragma unroll
    for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d >= dims) continue;
      int64_t rest;
      i = by[d].split(i, rest);
      y[rank * dims + d] = rest;
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(const int64_t* x, int64_t* y, int64_t total, int64_t classes, cuda::RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const int64_t r = i / classes, j = i - r * classes, c = x[r];
  if (j == 0) in_range(c, classes);
  y[i] = c == j;
}

}  // namespace

void masked_fill_cuda(Tensor& y, const Tensor& x, const Tensor& mask, Scalar value) {
  const Tensor one = empty({{}, y.dtype(), Device::cpu(), std::nullopt});
  fill_elements(one, value);
  dispatch_bytes(y.dtype(), [&]<class B>() {
    FillWhere<B> f;
    std::memcpy(&f.value, one.raw_data(), sizeof(B));
    cuda::elementwise<B, B, bool>("masked_fill", y, f, x, mask);
  });
}

void masked_scatter_cuda(Tensor& y, const Tensor& x, const Tensor& mask, const Tensor& source) {
  const Tensor on = contiguous(mask), in = contiguous(source);
  const Tensor dense = y.is_contiguous() ? y : empty(like(y).with_shape(y.shape()));
  if (!dense.same_as(x)) copy_elements(dense, x);
  if (on.numel() > 0) {
    const Counted c = counted(on);
    dispatch_bytes(y.dtype(), [&]<class B>() {
      visit(c, Expand<B>{static_cast<const B*>(in.raw_data()), in.numel(), static_cast<B*>(dense.raw_data()),
                         cuda::range_check()});
    });
  }
  if (!dense.same_as(y)) copy_elements(y, dense);
}

Tensor masked_select_cuda(const Tensor& x, const Tensor& mask) {
  const auto make = [&](int64_t count) { return empty(TensorMeta{{count}, x.dtype(), x.device(), std::nullopt}); };
  if (mask.numel() == 0) return make(0);
  return on_device_of(x, "masked_select", [&] {
    const Counted c = counted(mask);
    const Tensor in = contiguous(x), y = make(count_of(c));
    if (y.numel() > 0)
      dispatch_bytes(y.dtype(), [&]<class B>() {
        visit(c, Select<B>{static_cast<const B*>(in.raw_data()), static_cast<B*>(y.raw_data())});
      });
    return y;
  });
}

Tensor nonzero_cuda(const Tensor& x) {
  const auto make = [&](int64_t count) {
    return empty(TensorMeta{{count, x.dim()}, DType::i64, x.device(), std::nullopt});
  };
  if (x.numel() == 0) return make(0);
  return on_device_of(x, "nonzero", [&] {
    const Counted c = counted(x);
    const Tensor y = make(count_of(c));
    Positions p{static_cast<int64_t*>(y.raw_data()), static_cast<int>(x.dim()), {}};
    for (int d = 0; d < p.dims; ++d) p.by[d] = cuda::Divisor(x.shape()[d]);
    if (y.numel() > 0) visit(c, p);
    return y;
  });
}

void one_hot_cuda(Tensor& y, const Tensor& x, int64_t num_classes) {
  if (y.numel() == 0) return;
  const Tensor dense = contiguous(to(x, DType::i64));
  one_hot_kernel<<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const int64_t*>(dense.raw_data()), static_cast<int64_t*>(y.raw_data()), y.numel(), num_classes,
      cuda::range_check());
}

}  // namespace strata
