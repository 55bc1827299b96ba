#pragma once
// What kernels share: element types on the device, vector loads, launch sizes, warp and block reductions.

#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "strata/core/dispatch.h"
#include "strata/core/dtype.h"
#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"

namespace strata::cuda {

inline constexpr int kWarp = 32;

/// Blocks of `per_block` that cover n.
inline unsigned blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// ---- elements: stored as T, computed with as compute_t<T> ----

template <class T>
__device__ __forceinline__ compute_t<T> widen(T v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(static_cast<uint32_t>(v.bits) << 16);
  } else if constexpr (std::is_same_v<T, Half>) {
    return __half2float(__ushort_as_half(v.bits));
  } else {
    return v;
  }
}
/// Rounds to nearest even.
template <class T, class C>
__device__ __forceinline__ T narrow(C v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    T r;
    r.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(v)));
    return r;
  } else if constexpr (std::is_same_v<T, Half>) {
    T r;
    r.bits = __half_as_ushort(__float2half_rn(static_cast<float>(v)));
    return r;
  } else {
    return static_cast<T>(v);
  }
}

namespace detail {
/// An integer of `Bytes` bytes.
template <int Bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<8> {
  using type = uint64_t;
};
template <>
struct WordOf<16> {
  using type = unsigned __int128;
};
}  // namespace detail

/// N elements, loaded and stored in one instruction where N * sizeof(T) is 1, 2, 4, 8 or 16.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <int N, class T>
__device__ __forceinline__ Vec<T, N> load_vec(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <int N, class T>
__device__ __forceinline__ void store_vec(T* p, const Vec<T, N>& v) {
  // Whole words: a struct is stored by its elements, and where other code stores single elements too, the compiler may
  // share those stores and never put them together again. Words are put together in registers: a copy of a struct goes
  // through local memory where what computes its elements is long.
  constexpr int kBytes = sizeof v < 16 ? sizeof v : 16, kPart = kBytes < 4 ? kBytes : 4;
  using Word = typename detail::WordOf<kBytes>::type;
  if constexpr (sizeof(T) >= 4) {
    using Bits = typename detail::WordOf<sizeof(T)>::type;
    constexpr int kInWord = kBytes / static_cast<int>(sizeof(T));
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof v) / kBytes; ++k) {
      Word word = 0;
#pragma unroll
      for (int e = 0; e < kInWord; ++e) {
        Bits bits;
        memcpy(&bits, &v.v[k * kInWord + e], sizeof bits);
        word |= static_cast<Word>(bits) << (8 * static_cast<int>(sizeof(T)) * e % (8 * kBytes));
      }
      reinterpret_cast<Word*>(p)[k] = word;
    }
  } else {
    using Bits = typename detail::WordOf<sizeof(T)>::type;
    constexpr int kInPart = kPart / static_cast<int>(sizeof(T)), kInWord = kBytes / kPart;
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof v) / kBytes; ++k) {
      Word word = 0;
#pragma unroll
      for (int i = 0; i < kInWord; ++i) {
        uint32_t part = 0;
#pragma unroll
        for (int e = 0; e < kInPart; ++e) {
          Bits bits;
          memcpy(&bits, &v.v[(k * kInWord + i) * kInPart + e], sizeof bits);
          part |= static_cast<uint32_t>(bits) << (8 * static_cast<int>(sizeof(T)) * e);
        }
        word |= static_cast<Word>(static_cast<Word>(part) << (8 * kPart * i % (8 * kBytes)));
      }
      reinterpret_cast<Word*>(p)[k] = word;
    }
  }
}
/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kVec = 16 / static_cast<int>(sizeof(T));

inline bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// ---- reductions ----

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

/// Every lane gets the reduction over its group of `Width` lanes.
template <int Width = kWarp, class T, class Op>
__device__ __forceinline__ T warp_reduce(T v, Op op) {
#pragma unroll
  for (int o = Width / 2; o > 0; o /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

/// Every thread gets the reduction over the block of `Threads` threads (a multiple of 32). `shared` holds
/// Threads / 32 values; it may be used again at once.
template <int Threads, class T, class Op>
__device__ __forceinline__ T block_reduce(T v, Op op, T* shared) {
  constexpr int kWarps = Threads / kWarp;
  v = warp_reduce(v, op);
  if constexpr (kWarps == 1) return v;
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) v = op(v, shared[w]);
  __syncthreads();
  return v;
}

/// Tensor for every T: for parameter packs that pair tensors with element types.
template <class T>
using TensorOf = Tensor;

/// The product of all sizes but the last: rows of a row-major matrix view.
inline int64_t rows_of(const Tensor& t) {
  return t.dim() == 0 ? 1 : t.numel() / (t.size(-1) == 0 ? 1 : t.size(-1));
}

}  // namespace strata::cuda
