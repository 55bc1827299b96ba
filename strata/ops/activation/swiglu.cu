// SwiGLU and GEGLU on a CUDA device.

#include <cmath>

#include "strata/cuda/magnitudes.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/ops/activation/swiglu_kernel.h"
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

// The gate's value of a and, backward, its slope there.
template <Gate kGate, class C>
struct Gated {
  C value, slope;
  __device__ __forceinline__ explicit Gated(C a) {
    if constexpr (kGate == Gate::gelu) {
      const C cdf = normal_cdf(a);
      value = a * cdf, slope = cdf + a * normal_pdf(a);
    } else {
      const TanhGelu<C> t(a);
      const C half = C(0.5) * (C(1) + t.tanh_u);
      value = a * half, slope = half + C(0.5) * a * (C(1) - t.tanh_u * t.tanh_u) * t.du;
    }
  }
};

template <class T, Gate kGate, bool Backward>
__device__ __forceinline__ void gated_one(T a_, T b_, T g_, T& first, T& second) {
  using C = compute_t<T>;
  const C a = cuda::widen(a_), b = cuda::widen(b_);
  if constexpr (kGate == Gate::silu) {
    const C s = C(1) / (C(1) + std::exp(-a));
    if constexpr (Backward) {
      const C g = cuda::widen(g_);
      first = cuda::narrow<T>(g * b * s * (C(1) + a * (C(1) - s)));
      second = cuda::narrow<T>(g * a * s);
    } else {
      first = cuda::narrow<T>(a * s * b);
    }
  } else {
    const Gated<kGate, C> of(a);
    if constexpr (Backward) {
      const C g = cuda::widen(g_);
      first = cuda::narrow<T>(g * b * of.slope);
      second = cuda::narrow<T>(g * of.value);
    } else {
      first = cuda::narrow<T>(of.value * b);
    }
  }
}

// Pieces of V values; `pieces` of them make a row.
template <class T, int V, Gate kGate, bool Backward>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(SwigluCall c, int64_t pieces, int64_t total) {
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  cuda::Most<T> most(c.most);
  if (i < total) {
    const int64_t r = i / pieces, j = (i - r * pieces) * V;
    const auto a = cuda::load_vec<V>(static_cast<const T*>(c.a) + r * c.a_row + j);
    const auto b = cuda::load_vec<V>(static_cast<const T*>(c.b) + r * c.b_row + j);
    cuda::Vec<T, V> g{}, first, second;
    if constexpr (Backward) g = cuda::load_vec<V>(static_cast<const T*>(c.grad_y) + r * c.n + j);
#pragma unroll
    for (int k = 0; k < V; ++k) gated_one<T, kGate, Backward>(a.v[k], b.v[k], g.v[k], first.v[k], second.v[k]);
    most.take(first);
    if constexpr (Backward) {
      most.take(second);
      cuda::store_vec(static_cast<T*>(c.grad_a) + r * c.grad_a_row + j, first);
      cuda::store_vec(static_cast<T*>(c.grad_b) + r * c.grad_b_row + j, second);
    } else {
      cuda::store_vec(static_cast<T*>(c.y) + r * c.n + j, first);
    }
  }
  most.leave();
}

template <Gate kGate, bool Backward>
void launch_gated(const SwigluCall& c) {
  if (c.rows * c.n == 0) return;
  dispatch_floats(c.dtype, "swiglu", [&]<class T>() {
    constexpr int V = cuda::kVec<T>;
    bool wide = c.n % V == 0;
    if (c.rows > 1) {
      for (int64_t row : {c.a_row, c.b_row}) wide = wide && row % V == 0;
      if (Backward)
        for (int64_t row : {c.grad_a_row, c.grad_b_row}) wide = wide && row % V == 0;
    }
    for (const void* p : {c.a, c.b, static_cast<const void*>(c.y), c.grad_y, static_cast<const void*>(c.grad_a),
                          static_cast<const void*>(c.grad_b)})
      wide = wide && cuda::aligned16(p);  // what a call lacks is null
    const int64_t pieces = wide ? c.n / V : c.n, total = c.rows * pieces;
    const unsigned blocks = cuda::blocks_for(total, kThreads);
    if (wide) {
      cuda::launch_early(swiglu_kernel<T, V, kGate, Backward>, blocks, kThreads, 0, 1, c, pieces, total);
    } else {
      cuda::launch_early(swiglu_kernel<T, 1, kGate, Backward>, blocks, kThreads, 0, 1, c, pieces, total);
    }
  });
}

template <bool Backward>
void launch_swiglu(const SwigluCall& c) {
  switch (c.gate) {
    case Gate::silu:
      return launch_gated<Gate::silu, Backward>(c);
    case Gate::gelu:
      return launch_gated<Gate::gelu, Backward>(c);
    case Gate::gelu_tanh:
      return launch_gated<Gate::gelu_tanh, Backward>(c);
  }
}

}  // namespace

void swiglu_cuda(const SwigluCall& c) {
  launch_swiglu<false>(c);
}
void swiglu_backward_cuda(const SwigluCall& c) {
  launch_swiglu<true>(c);
}

}  // namespace strata
