#pragma once
// Single codes: what rounding, files' orders and GPTQ share.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "strata/core/dtype.h"
#include "strata/core/error.h"

// NF4's numbers, for a table on the host and one on the card.
#define STRATA_NF4_VALUES                                                                             \
  -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,    \
      -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, \
      0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f

namespace strata::lowbit {

/// Puts the 4-bit code of `column` into a row of codes that was zero there: units of 32 columns in 16 bytes, the low
/// halves first.
inline void put_four_bits(uint8_t* row, int64_t column, int code) {
  row[column / 32 * 16 + column % 16] |= static_cast<uint8_t>(column % 32 < 16 ? code : code << 4);
}
inline int get_four_bits(const uint8_t* row, int64_t column) {
  const uint8_t byte = row[column / 32 * 16 + column % 16];
  return column % 32 < 16 ? byte & 15 : byte >> 4;
}
/// The unit of 32 columns whose codes lie eight in a word, in order from the lowest bits.
inline void put_unit(uint8_t* unit, const uint32_t (&words)[4]) {
  const auto spread = [](uint64_t w) {  // byte i is code i
    w = (w | w << 16) & 0x0000ffff0000ffffu;
    w = (w | w << 8) & 0x00ff00ff00ff00ffu;
    return (w | w << 4) & 0x0f0f0f0f0f0f0f0fu;
  };
  const uint64_t halves[2] = {spread(words[0]) | spread(words[2]) << 4, spread(words[1]) | spread(words[3]) << 4};
  std::memcpy(unit, halves, 16);
}
/// A scale as a part of `t` will hold it, so that codes are those of what is read again. 1 where it becomes 0, which
/// codes cannot be divided by: all of them are then 0. Throws ValueError in the name of `op` where it becomes infinite.
inline float stored_scale(float v, DType t, std::string_view op) {
  const float s = t == DType::f16    ? static_cast<float>(Half(v))
                  : t == DType::bf16 ? static_cast<float>(BFloat16(v))
                                     : v;
  check(std::isfinite(s), op, "a scale of ", v, " is too large for ", t);
  return s == 0 ? 1.0f : s;
}
/// The code, from `least` to `most`, whose number (code - zero) scale is nearest to v; ties to the even quotient.
inline int nearest_code(float v, float scale, float zero, int least, int most) {
  return static_cast<int>(
      std::clamp(std::nearbyint(v / scale) + zero, static_cast<float>(least), static_cast<float>(most)));
}

}  // namespace strata::lowbit
