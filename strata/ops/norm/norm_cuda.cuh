#pragma once
// What the CUDA kernels of the norms share.

#include "strata/cuda/current.h"
#include "strata/cuda/magnitudes.cuh"
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

/// 16 bytes as words: values of two bytes are else loaded and stored one by one where the compiler sees fit.
__device__ __forceinline__ uint4 load_words(const void* p) {
  const uint4* from = static_cast<const uint4*>(p);
  return {from->x, from->y, from->z, from->w};
}
template <class T>
__device__ __forceinline__ Vec<compute_t<T>, kVec<T>> widen_words(const uint4& v) {
  Vec<T, kVec<T>> r;
  memcpy(&r, &v, 16);
  return widen_all(r);
}

/// Rounds to nearest even; bf16 and f16 by pairs. What is stored is taken into `most`.
template <class T, class C, int V>
__device__ __forceinline__ void store_narrow(T* p, const Vec<C, V>& v, Most<T>& most) {
  if constexpr (V == 8 && (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)) {
    uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(v.v[2 * k], v.v[2 * k + 1]);
        memcpy(&words[k], &two, 4);
      } else {
        const __half2 two = __floats2half2_rn(v.v[2 * k], v.v[2 * k + 1]);
        memcpy(&words[k], &two, 4);
      }
      most.take_word(words[k]);
    }
    *reinterpret_cast<uint4*>(p) = {words[0], words[1], words[2], words[3]};
  } else {
    Vec<T, V> r;
#pragma unroll
    for (int j = 0; j < V; ++j) r.v[j] = narrow<T>(v.v[j]);
    most.take(r);
    store_vec(p, r);
  }
}
template <class T, class C, int V>
__device__ __forceinline__ void store_narrow(T* p, const Vec<C, V>& v) {
  Most<T> none(nullptr);
  store_narrow(p, v, none);
}

/// Memory for `count` values on the current device, as long as the tensor lives.
template <class C>
Tensor make_workspace(int64_t count) {
  return empty({Shape{count}, dtype_of<C>, Device::cuda(current_device()), std::nullopt});
}

/// Whether all that are given start at multiples of 16 bytes.
template <class... P>
bool all_aligned(const P*... p) {
  return (aligned16(p) && ...);
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
