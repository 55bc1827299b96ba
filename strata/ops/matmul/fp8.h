#pragma once
// Numbers of eight bits: e4m3 (NVIDIA's and OCP's e4m3fn: no infinity, largest 448) and e5m2 (IEEE-like, largest
// 57344), as in "FP8 Formats for Deep Learning", https://arxiv.org/abs/2209.05433. Stored as u8.

#include <bit>
#include <cstdint>

namespace strata {

/// How a format divides its bits.
struct Fp8 {
  int mantissa_bits, least_exponent;  ///< the exponent of the smallest normal number
  uint8_t largest, first_nan;         ///< codes without sign; codes from first_nan on are NaN
};
inline constexpr Fp8 kE4m3{3, -6, 0x7e, 0x7f};
inline constexpr Fp8 kE5m2{2, -14, 0x7b, 0x7d};  // 0x7c is infinity

/// 2^exponent, for exponents from -126 to 127.
constexpr float fp8_power(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

/// The value of a code.
constexpr float fp8_value(uint8_t code, Fp8 f) {
  const int bits = code & 0x7f;
  float v = 0;
  if (bits >= f.first_nan) {
    v = std::bit_cast<float>(0x7fc00000u);
  } else if (bits > f.largest) {
    v = std::bit_cast<float>(0x7f800000u);
  } else {
    const int exponent = bits >> f.mantissa_bits, mantissa = bits & ((1 << f.mantissa_bits) - 1);
    v = exponent == 0 ? static_cast<float>(mantissa) * fp8_power(f.least_exponent - f.mantissa_bits)
                      : static_cast<float>(mantissa + (1 << f.mantissa_bits)) *
                            fp8_power(exponent - 1 + f.least_exponent - f.mantissa_bits);
  }
  return code & 0x80 ? -v : v;
}

/// The code nearest to v, ties to the even one. What lies past the largest number, infinity too, becomes that number;
/// NaN becomes NaN.
constexpr uint8_t fp8_code(float v, Fp8 f) {
  const uint32_t u = std::bit_cast<uint32_t>(v), magnitude = u & 0x7fffffffu;
  const auto sign = static_cast<uint8_t>(u >> 24 & 0x80);
  if (magnitude > 0x7f800000u) return 0x7f;
  const int own = static_cast<int>(magnitude >> 23) - 127;
  const int exponent = own > f.least_exponent ? own : f.least_exponent;
  const int shift = 23 - f.mantissa_bits + (exponent - own);
  if (own > 64) return static_cast<uint8_t>(sign | f.largest);
  if (shift > 24) return sign;  // below half of the smallest number
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u, half = 1u << (shift - 1);
  uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  kept += rest > half || (rest == half && (kept & 1) != 0);
  const uint32_t code = (static_cast<uint32_t>(exponent - f.least_exponent) << f.mantissa_bits) + kept;
  return static_cast<uint8_t>(sign | (code < f.largest ? code : f.largest));
}

/// What numbers up to `amax` (0 or more) in magnitude are divided by before they are rounded to codes: the least power
/// of two that leaves none past the largest number, so that dividing is exact. 1 where all are zero; NaN, and so NaN
/// for every code, where one of them is not finite.
constexpr float fp8_scale(float amax, Fp8 f) {
  const uint32_t u = std::bit_cast<uint32_t>(amax);
  if (u == 0) return 1;
  if (u >= 0x7f800000u) return std::bit_cast<float>(0x7fc00000u);
  const int mantissa_mask = (1 << f.mantissa_bits) - 1, most = (f.largest >> f.mantissa_bits) - 1 + f.least_exponent;
  const uint32_t most_mantissa = static_cast<uint32_t>(f.largest & mantissa_mask) << (23 - f.mantissa_bits);
  const int power = static_cast<int>(u >> 23) - 127 - most + ((u & 0x7fffffu) > most_mantissa ? 1 : 0);
  return fp8_power(power > -126 ? power : -126);
}

}  // namespace strata
