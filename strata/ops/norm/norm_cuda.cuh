#pragma once
// What the CUDA kernels of the norms share.

#include "strata/cuda/current.h"
#include "strata/cuda/row_loops.cuh"

namespace strata::cuda {

/// Two sums at once.
template <class C>
struct PairOf {
  C a, b;
};
struct SumPairs {
  template <class C>
  __device__ PairOf<C> operator()(const PairOf<C>& p, const PairOf<C>& q) const {
    return {p.a + q.a, p.b + q.b};
  }
};

template <class T, class C, int V>
__device__ __forceinline__ void store_narrow(T* p, const Vec<C, V>& v) {
  Vec<T, V> r;
#pragma unroll
  for (int j = 0; j < V; ++j) r.v[j] = narrow<T>(v.v[j]);
  store_vec(p, r);
}

/// Memory for `count` values on the current device, as long as the tensor lives.
template <class C>
Tensor make_workspace(int64_t count) {
  return empty({Shape{count}, dtype_of<C>, Device::cuda(current_device()), std::nullopt});
}

/// Calls f with the element type of a call and that of its weights.
template <class Call, class F>
void dispatch_types(const Call& c, F&& f) {
  dispatch_floats(c.dtype, "norm", [&]<class T>() {
    if constexpr (!std::is_same_v<T, compute_t<T>>)
      if (c.affine == DType::f32) return f.template operator()<T, float>();
    f.template operator()<T, T>();
  });
}

}  // namespace strata::cuda
