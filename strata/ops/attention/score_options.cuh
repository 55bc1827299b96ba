#pragma once
// What else becomes of scores in the tensor-core kernels: the soft cap, and distances that are taken off. A thread's
// part of a tile is laid out as options.cuh says.

#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda {

/// s becomes tanh(s * in). Scores are mostly small beside the cap: where all of a warp's are, a polynomial serves (of
/// degree 7, error 3e-7 below 0.5), as there is one unit for exponentials to four for products. That times a cap of 50
/// is more than f32 loses elsewhere: kExact has the library's.
template <bool kExact = false, int kCount>
__device__ __forceinline__ void soft_cap(float (&s)[kCount], float in) {
  if constexpr (kExact) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) s[i] = tanhf(s[i] * in);
    return;
  }
  float most[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kCount; ++i) most[i % 2] = fmaxf(most[i % 2], fabsf(s[i]));
  if (__any_sync(0xffffffffu, !(fmaxf(most[0], most[1]) * in <= 0.5f))) {
    const float doubled = in * static_cast<float>(2 * kLog2e);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = fmaf(cuda::tile::fast_reciprocal(fast_exp2(s[i] * doubled) + 1), -2.f, 1.f);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float u = s[i] * in, v = u * u;
      s[i] = u * fmaf(fmaf(fmaf(v, -0.044392738f, 0.131899394f), v, -0.333262842f), v, 0.999999451f);
    }
  }
}

/// How far a thread's rows lie from the first of its columns, times the slope; `first` is the difference of row 0's
/// position and that column's. What a score loses is |of row r - slope * (8 j + e)|.
struct Distances {
  float slope, first[2];

  template <class Int>
  __device__ __forceinline__ Distances(float slope, Int from) : slope(slope) {
    first[0] = slope * static_cast<float>(from), first[1] = slope * static_cast<float>(from + 8);
  }
  __device__ __forceinline__ float at(int r, int column) const {
    return fabsf(fmaf(-slope, static_cast<float>(column), first[r]));
  }
  template <int kCount>
  __device__ __forceinline__ void take(float (&s)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) s[i] -= at(i / 2 % 2, i / 4 * 8 + i % 2);
  }
};

/// Makes a call that of batch `b`, whose keys may be fewer.
__device__ __forceinline__ void take_length(AttentionCall& c, int64_t b) {
  if (c.key_lengths == nullptr) return;
  const int64_t all = c.tk + c.hidden_keys;
  c.tk = max(int64_t{0}, min(all, c.key_lengths[b]));
  c.hidden_keys = all - c.tk;
}

}  // namespace strata::attention_cuda
