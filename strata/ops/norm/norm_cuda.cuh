#pragma once
// What the CUDA kernels of the norms share.

#include "strata/cuda/rows.cuh"

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

inline int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "norm", "cudaGetDevice");
  return device;
}
/// Memory for `count` values on the current device, as long as the tensor lives.
template <class C>
Tensor make_workspace(int64_t count) {
  return empty({Shape{count}, dtype_of<C>, Device::cuda(current_device()), std::nullopt});
}

}  // namespace strata::cuda
