#pragma once
// What kernels of low-bit products on tensor cores share: how codes of a row become exact numbers of x's dtype in
// registers, and scales.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/matmul/fp8.h"

namespace strata::lowbit {
using cuda::tile::pack2;

inline constexpr int kTileRows = 16, kTileColumns = 8;  // of mma: rows of W, rows of x

struct Product {
  PackedView w;
  const void *x, *bias;
  void* y;
  int m;
  int steps;        // of all columns
  int block_steps;  // that a scale is for
};

// Columns that a lane has in a step, pieces of 16 bytes of x that they are, and columns of all four lanes of a row.
template <WeightCodes kKind>
inline constexpr int kOwn = kKind == WeightCodes::int4 ? 32 : 16;
template <WeightCodes kKind>
inline constexpr int kPieces = kOwn<kKind> / 8;
template <WeightCodes kKind>
inline constexpr int kStepColumns = 4 * kOwn<kKind>;

// A scale as it lies, and its zero, on their way.
struct Block {
  uint32_t scale, zero;
};
__device__ __forceinline__ Block load_block(const PackedView& w, int64_t at) {
  Block b;
  b.scale = w.scale_dtype == DType::f32 ? static_cast<const uint32_t*>(w.scales)[at]
                                        : static_cast<const uint16_t*>(w.scales)[at];
  b.zero = w.zeros == nullptr ? 0 : w.zeros[at];
  return b;
}
__device__ __forceinline__ float scale_of(const PackedView& w, uint32_t bits) {
  if (w.scale_dtype == DType::f32) return __uint_as_float(bits);
  if (w.scale_dtype == DType::f16) return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  return __uint_as_float(bits << 16);
}

// Two numbers of T side by side, less two others.
template <class T>
__device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    __nv_bfloat162 x, y;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    const __nv_bfloat162 r = __hsub2(x, y);
    memcpy(&a, &r, 4);
  } else {
    __half2 x, y;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    const __half2 r = __hsub2(x, y);
    memcpy(&a, &r, 4);
  }
  return a;
}
__device__ __forceinline__ float2 two_e4m3(uint32_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(two)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
#else
  return {fp8_value(static_cast<uint8_t>(two), kE4m3), fp8_value(static_cast<uint8_t>(two >> 8), kE4m3)};
#endif
}

// The numbers of a word of codes, in pairs: pairs 2 i and 2 i + 1 meet the same pieces of x's order, see lay().
template <WeightCodes kKind, class T>
struct Numbers;
// Columns 4 i + 0, 1; 16 + 4 i + 0, 1; 4 i + 2, 3; 16 + 4 i + 2, 3 of word i.
template <class T>
struct Numbers<WeightCodes::int4, T> {
  static constexpr int kPairs = 4;
  uint32_t zeros;
  __device__ explicit Numbers(const PackedView& w, uint32_t zero) {
    // 128 + code is a number of bf16, 1024 + code one of f16, with the code in its lowest bits.
    const uint32_t z = w.zeros == nullptr ? 8 : zero;
    zeros = (kBase | z) * 0x10001u;
  }
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const uint32_t turned = __byte_perm(word, 0, 0x3120);
    v[0] = minus<T>((turned & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[1] = minus<T>((turned >> 4 & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[2] = minus<T>((turned >> 8 & 0x000f000fu) | kBase * 0x10001u, zeros);
    v[3] = minus<T>((turned >> 12 & 0x000f000fu) | kBase * 0x10001u, zeros);
  }
  static constexpr uint32_t kBase = std::is_same_v<T, BFloat16> ? 0x4300u : 0x6400u;
};
// Columns 4 i + 0, 1; 4 i + 2, 3.
template <class T>
struct Numbers<WeightCodes::int8, T> {
  static constexpr int kPairs = 2;
  float zero;
  __device__ explicit Numbers(const PackedView&, uint32_t z)
      : zero(8388608.0f + 128.0f + static_cast<float>(static_cast<int8_t>(z))) {}
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const uint32_t u = word ^ 0x80808080u;  // code + 128, behind 2^23 a number of f32
    const auto number = [&](uint32_t i) { return __uint_as_float(__byte_perm(u, 0x4b000000u, 0x7440u | i)) - zero; };
    v[0] = pack2<T>(number(0), number(1));
    v[1] = pack2<T>(number(2), number(3));
  }
};
template <class T>
struct Numbers<WeightCodes::e4m3, T> {
  static constexpr int kPairs = 2;
  __device__ explicit Numbers(const PackedView&, uint32_t) {}
  __device__ __forceinline__ void operator()(uint32_t word, uint32_t (&v)[kPairs]) const {
    const float2 a = two_e4m3(word & 0xffffu), b = two_e4m3(word >> 16);
    v[0] = pack2<T>(a.x, a.y);
    v[1] = pack2<T>(b.x, b.y);
  }
};

}  // namespace strata::lowbit
