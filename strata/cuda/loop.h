#pragma once
// One source of a loop for the processor and for a card.
//
//     struct Triad {
//       float* a;
//       const float *b, *c;
//       float s;
//       STRATA_LOOP_BODY void operator()(int64_t i) const { a[i] = b[i] + s * c[i]; }
//     };
//     loop::for_each(device, n, Triad{a, b, c, 2});
//
// Compiled by nvcc the body runs wherever `device` says; compiled by a C++ compiler it runs on the processor, and
// another device is a DeviceError. On the processor the iterations are shared out to the library's threads, on a card
// each is a thread of a kernel on the current stream. A body is a struct, whose call both compilers see through; a
// lambda for both sides is called through a pointer by nvcc's host code.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "strata/core/device.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/tensor.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "strata/cuda/runtime.h"
/// Before the call operator of a loop's body: for both sides.
#define STRATA_LOOP_BODY __host__ __device__
#else
#define STRATA_LOOP_BODY
#endif

namespace strata::loop {
#ifdef __CUDACC__
inline namespace everywhere {  // a program may have files of both compilers
#else
inline namespace processor {
#endif

/// Iterations below which a second thread does not pay.
inline constexpr int64_t kLeastPart = 32768;

namespace detail {
#ifdef __CUDACC__
inline constexpr int kThreads = 256;

/// Makes a device current for a scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

template <class Body>
__global__ void __launch_bounds__(kThreads) each_kernel(int64_t n, Body body) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) body(i);
}

/// 16 bytes at a time.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

template <class T, int N, class F, class... In>
__global__ void __launch_bounds__(kThreads) map_kernel(int64_t n, F f, T* y, const In*... x) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i + N <= n) {
    [&](const Pack<In, N>&... p) {
      Pack<T, N> r;
#pragma unroll
      for (int k = 0; k < N; ++k) r.v[k] = f(p.v[k]...);
      *reinterpret_cast<Pack<T, N>*>(y + i) = r;
    }(*reinterpret_cast<const Pack<In, N>*>(x + i)...);
  } else {
    for (int64_t k = i; k < n; ++k) y[k] = f(x[k]...);
  }
}

// Launches with (blocks, stream) and throws what it came to.
template <class Launch>
void launch(Device device, int64_t threads, std::string_view op, Launch&& with) {
  const OnDevice scope(device.index);
  with(static_cast<unsigned>((threads + kThreads - 1) / kThreads),
       static_cast<cudaStream_t>(cuda::current_stream(device.index).handle()));
  const cudaError_t e = cudaGetLastError();
  check<DeviceError>(e == cudaSuccess, op, "the launch failed: ", cudaGetErrorString(e));
}
#endif

[[noreturn]] inline void refuse(std::string_view op, Device device) {
  throw DeviceError(
      op, cat("this file was compiled for the processor alone, and cannot run on ", device, "; let nvcc compile it"));
}
}  // namespace detail

/// body(i) for 0 <= i < n, in any order and at the same time. On a card it is queued on the current stream. Throws
/// DeviceError for a meta device, and for a card where the compiler was not nvcc.
template <class Body>
void for_each(Device device, int64_t n, Body body) {
  if (n <= 0) return;
  if (device.is_cpu()) {
    return parallel_for(0, n, kLeastPart, [&](int64_t begin, int64_t end) {
      const Body own = body;  // on this thread's stack, where no store of the loop can be meant for it
      for (int64_t i = begin; i < end; ++i) own(i);
    });
  }
#ifdef __CUDACC__
  if (device.is_cuda())
    return detail::launch(device, n, "loop::for_each", [&](unsigned blocks, cudaStream_t stream) {
      detail::each_kernel<<<blocks, detail::kThreads, 0, stream>>>(n, body);
    });
#endif
  detail::refuse("loop::for_each", device);
}

/// y[i] = f(x[i]...) for the elements of contiguous tensors of y's shape, dtype (that of T) and device; on a card 16
/// bytes at a time. Throws ShapeError, DTypeError, DeviceError.
template <class T, class F, class... X>
void map(const Tensor& y, F f, const X&... x) {
  constexpr std::string_view op = "loop::map";
  const auto look = [&](const Tensor& t) {
    check<ShapeError>(t.shape() == y.shape() && t.is_contiguous(), op, t, " is not a contiguous tensor of ", y.shape());
    check<DTypeError>(t.dtype() == dtype_of<T>, op, t, " does not hold ", dtype_of<T>);
    check<DeviceError>(t.device() == y.device(), op, t, " is on ", t.device(), ", the result on ", y.device());
  };
  look(y);
  (look(x), ...);
  const int64_t n = y.numel();
  if (n == 0) return;
  const auto run = [&](T* to, const auto*... from) {
    if (y.device().is_cpu()) {
      return parallel_for(0, n, kLeastPart, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = f(from[i]...);
      });
    }
#ifdef __CUDACC__
    if (y.device().is_cuda()) {
      constexpr int kMost = sizeof(T) < 16 ? static_cast<int>(16 / sizeof(T)) : 1;
      const bool aligned = ((reinterpret_cast<uintptr_t>(to) | ... | reinterpret_cast<uintptr_t>(from)) % 16) == 0;
      return detail::launch(
          y.device(), aligned ? (n + kMost - 1) / kMost : n, op, [&](unsigned blocks, cudaStream_t stream) {
            if (aligned) {
              detail::map_kernel<T, kMost><<<blocks, detail::kThreads, 0, stream>>>(n, f, to, from...);
            } else {
              detail::map_kernel<T, 1><<<blocks, detail::kThreads, 0, stream>>>(n, f, to, from...);
            }
          });
    }
#endif
    detail::refuse(op, y.device());
  };
  run(static_cast<T*>(y.raw_data()), static_cast<const T*>(x.raw_data())...);
}

}  // namespace everywhere or processor
}  // namespace strata::loop
