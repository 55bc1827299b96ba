// Orthogonal polynomials of whole orders on a CUDA device, f32. Orders are mostly small: a kernel that knows the family
// takes two operations a step, where the map of all families asks at each step which one it is, and has the registers
// of all that it may need. That map's function is called here for other orders.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/special/polynomials_kernel.h"
#include "strata/ops/special/special_card_inl.h"

namespace strata {
namespace {

constexpr int kThreads = 256, kEach = 4;
constexpr int64_t kMostOwnSteps = 16;  // as card_polynomial() has it for float

__device__ __noinline__ float any_polynomial(int family, float x, int64_t n) {
  return card_polynomial<float>(family, 0, x, static_cast<float>(n));
}

template <int kKind>
__device__ __forceinline__ float polynomial_of(int family, float given, int64_t n) {
  if (!(given == given) || n > kMostOwnSteps) return any_polynomial(family, given, n);
  const bool shifted = family >= 4 && family < 8;
  return n < 0 ? 0.f : polynomial_by_steps<float>(kKind, 0, shifted ? 2 * given - 1 : given, static_cast<int>(n));
}

template <int kKind>
__global__ void __launch_bounds__(kThreads, 4)
    polynomial_kernel(int64_t count, int family, const float* x, const int64_t* n, float* y) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (i + kEach > count) {
    for (; i < count; ++i) y[i] = polynomial_of<kKind>(family, x[i], n[i]);
    return;
  }
  const auto at = cuda::load_vec<kEach>(x + i);
  const cuda::Vec<int64_t, 2> order[2] = {cuda::load_vec<2>(n + i), cuda::load_vec<2>(n + i + 2)};
  cuda::Vec<float, kEach> r;
#pragma unroll
  for (int k = 0; k < kEach; ++k) r.v[k] = polynomial_of<kKind>(family, at.v[k], order[k / 2].v[k % 2]);
  cuda::store_vec(y + i, r);
}

}  // namespace

bool polynomials_cuda(const Tensor& y, const Tensor& x, const Tensor& n, int family) {
  const auto lies = [&](const Tensor& t) {
    return t.is_contiguous() && t.shape() == y.shape() && cuda::aligned16(t.raw_data());
  };
  if (y.dtype() != DType::f32 || x.dtype() != DType::f32 || n.dtype() != DType::i64 || !lies(y) || !lies(x) || !lies(n))
    return false;
  const int64_t count = y.numel();
  if (count == 0) return true;
  const auto launch = [&]<int kKind>() {
    polynomial_kernel<kKind><<<cuda::blocks_for(count, kThreads * kEach), kThreads, 0, cuda::stream()>>>(
        count, family, static_cast<const float*>(x.raw_data()), static_cast<const int64_t*>(n.raw_data()),
        static_cast<float*>(y.raw_data()));
  };
  switch (family >= 4 && family < 8 ? family - 4 : family) {
    case kChebyshevT:
      launch.template operator()<kChebyshevT>();
      break;
    case kChebyshevU:
      launch.template operator()<kChebyshevU>();
      break;
    case kChebyshevV:
      launch.template operator()<kChebyshevV>();
      break;
    case kChebyshevW:
      launch.template operator()<kChebyshevW>();
      break;
    case kHermiteH:
      launch.template operator()<kHermiteH>();
      break;
    case kHermiteHe:
      launch.template operator()<kHermiteHe>();
      break;
    case kLaguerre:
      launch.template operator()<kLaguerre>();
      break;
    default:
      launch.template operator()<kLegendre>();
      break;
  }
  return true;
}

}  // namespace strata
