#pragma once
// Element types, their C++ representations, and PyTorch's promotion rules.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace strata {

/// Element type of a tensor. The order is part of the promotion table; do not reorder.
enum class DType : uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64, boolean };

/// How many there are, and all of them in order.
inline constexpr int kNumDTypes = 10;
inline constexpr DType kAllDTypes[kNumDTypes] = {DType::u8,  DType::i8,   DType::i16, DType::i32, DType::i64,
                                                 DType::f16, DType::bf16, DType::f32, DType::f64, DType::boolean};

/// IEEE binary16, storage only: arithmetic happens in f32.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  operator float() const;
};

/// bfloat16, storage only: arithmetic happens in f32. Conversion rounds to nearest even.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t u;
    std::memcpy(&u, &value, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40);  // keep NaN quiet, never round it to infinity
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
  }
  operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};

inline Half::Half(float value) {
  uint32_t u;
  std::memcpy(&u, &value, 4);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (mag >= 0x47800000u) {
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (mag >= 0x38800000u) {
    const uint32_t rounded = mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1);
    bits = static_cast<uint16_t>(sign | (rounded >> 13));
  } else if (mag < 0x33000000u) {
    bits = static_cast<uint16_t>(sign);
  } else {
    const uint32_t shift = 126 - (mag >> 23);
    const uint32_t man = (mag & 0x7fffffu) | 0x800000u;
    uint32_t half = man >> shift;
    const uint32_t rest = man & ((1u << shift) - 1);
    const uint32_t mid = 1u << (shift - 1);
    half += (rest > mid) || (rest == mid && (half & 1));
    bits = static_cast<uint16_t>(sign | half);
  }
}

inline Half::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exp = (bits >> 10) & 0x1f;
  uint32_t man = bits & 0x3ffu;
  uint32_t u;
  if (exp == 0x1f) {
    u = sign | 0x7f800000u | (man << 13);
  } else if (exp != 0) {
    u = sign | ((exp + 112) << 23) | (man << 13);
  } else if (man == 0) {
    u = sign;
  } else {
    int e = 113;
    while (!(man & 0x400u)) {
      man <<= 1;
      --e;
    }
    u = sign | (static_cast<uint32_t>(e) << 23) | ((man & 0x3ffu) << 13);
  }
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

/// Maps a C++ element type to its DType: dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not a tensor element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

/// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t sizes[kNumDTypes] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1};
  return sizes[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) {
  return t >= DType::f16 && t <= DType::f64;
}
constexpr bool is_integral(DType t, bool include_bool = false) {
  return t <= DType::i64 || (include_bool && t == DType::boolean);
}
/// f16 and bf16: types whose arithmetic is done in f32.
constexpr bool is_reduced_floating(DType t) {
  return t == DType::f16 || t == DType::bf16;
}

/// The type that sums and statistics over elements of a floating type are kept in: f64 for f64, else f32.
constexpr DType statistic_dtype(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

/// Short name: "f32", "bf16", "bool".
std::string_view name_of(DType t);
/// Inverse of name_of; also takes PyTorch's and safetensors' spellings ("float32", "F32"). Throws ValueError.
DType parse_dtype(std::string_view text);
/// PyTorch's promotion of two tensor dtypes (https://pytorch.org/docs/stable/tensor_attributes.html).
DType promote_types(DType a, DType b);

}  // namespace strata
