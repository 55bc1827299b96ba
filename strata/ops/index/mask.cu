// Masks and classes on a CUDA device.

#include <algorithm>
#include <cstring>

#include <cub/device/device_scan.cuh>

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

__global__ void __launch_bounds__(kThreads) widen_kernel(const bool* on, int64_t* to, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) to[i] = on[i];
}

// How many of the first i + 1 elements are true, for each i.
Tensor counts_of(const Tensor& on) {
  const int64_t n = on.numel();
  const TensorMeta meta{{n}, DType::i64, on.device(), std::nullopt};
  const Tensor flags = empty(meta), counts = empty(meta);
  if (n == 0) return counts;
  auto* from = static_cast<int64_t*>(flags.raw_data());
  widen_kernel<<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(static_cast<const bool*>(on.raw_data()),
                                                                               from, n);
  size_t bytes = 0;
  const auto scan = [&](void* workspace) {
    cuda::check_cuda(cub::DeviceScan::InclusiveSum(workspace, bytes, from, static_cast<int64_t*>(counts.raw_data()), n,
                                                   cuda::stream()),
                     "nonzero", "cub::DeviceScan::InclusiveSum");
  };
  scan(nullptr);
  const Tensor workspace =
      empty({{std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, on.device(), std::nullopt});
  scan(workspace.raw_data());
  return counts;
}

// Waits for the device.
int64_t element(const Tensor& t, int64_t i) {
  cuda::refuse_in_capture("nonzero or masked_select", "the result's size depends on values of the device");
  int64_t v = 0;
  cuda::copy_bytes(&v, Device::cpu(), static_cast<const int64_t*>(t.raw_data()) + i, t.device(), sizeof v);
  return v;
}

Tensor dense_mask(const Tensor& x) {
  return contiguous(to(x, DType::boolean));
}

// A record that works its shapes out itself has no launch scope around it.
template <class F>
auto on_device_of(const Tensor& x, std::string_view op, F&& f) {
  const cuda::LaunchScope scope(op, x.device());
  const auto check_launch = [&] {
    if (const char* failure = scope.failure()) throw DeviceError(op, failure);
  };
  if constexpr (std::is_void_v<decltype(f())>) {
    f();
    check_launch();
  } else {
    auto r = f();
    check_launch();
    return r;
  }
}

template <class B>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const bool* on, const int64_t* counts, const B* x, B* y, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n && on[i]) y[counts[i] - 1] = x[i];
}

template <class B>
__global__ void __launch_bounds__(kThreads) expand_kernel(const bool* on, const int64_t* counts, const B* source,
                                                          int64_t have, B* y, int64_t n, cuda::RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n || !on[i]) return;
  const int64_t k = counts[i] - 1;
  if (in_range(k, have)) y[i] = source[k];
}

struct Sizes {
  int dims;
  int64_t size[kMaxDims];
};
__global__ void __launch_bounds__(kThreads)
    positions_kernel(const bool* on, const int64_t* counts, int64_t* y, int64_t n, Sizes s) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n || !on[i]) return;
  int64_t* row = y + (counts[i] - 1) * s.dims;
  int64_t rest = i;
  for (int d = s.dims - 1; d >= 0; --d) {
    row[d] = rest % s.size[d];
    rest /= s.size[d];
  }
}

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
  const int64_t n = on.numel();
  if (n > 0) {
    const Tensor counts = counts_of(on);
    dispatch_bytes(y.dtype(), [&]<class B>() {
      expand_kernel<B><<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(
          static_cast<const bool*>(on.raw_data()), static_cast<const int64_t*>(counts.raw_data()),
          static_cast<const B*>(in.raw_data()), in.numel(), static_cast<B*>(dense.raw_data()), n, cuda::range_check());
    });
  }
  if (!dense.same_as(y)) copy_elements(y, dense);
}

int64_t count_nonzero_cuda(const Tensor& x) {
  if (x.numel() == 0) return 0;
  return on_device_of(x, "nonzero", [&] { return element(counts_of(dense_mask(x)), x.numel() - 1); });
}

void masked_select_into_cuda(Tensor& y, const Tensor& x, const Tensor& mask) {
  if (y.numel() == 0) return;
  on_device_of(x, "masked_select", [&] {
    const Tensor on = contiguous(mask), in = contiguous(x), counts = counts_of(on);
    dispatch_bytes(y.dtype(), [&]<class B>() {
      select_kernel<B><<<cuda::blocks_for(on.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
          static_cast<const bool*>(on.raw_data()), static_cast<const int64_t*>(counts.raw_data()),
          static_cast<const B*>(in.raw_data()), static_cast<B*>(y.raw_data()), on.numel());
    });
  });
}

void nonzero_into_cuda(Tensor& y, const Tensor& x) {
  if (y.numel() == 0) return;
  on_device_of(x, "nonzero", [&] {
    const Tensor on = dense_mask(x), counts = counts_of(on);
    Sizes s{};
    s.dims = static_cast<int>(x.dim());
    for (int d = 0; d < s.dims; ++d) s.size[d] = x.shape()[d];
    positions_kernel<<<cuda::blocks_for(on.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<const bool*>(on.raw_data()), static_cast<const int64_t*>(counts.raw_data()),
        static_cast<int64_t*>(y.raw_data()), on.numel(), s);
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
