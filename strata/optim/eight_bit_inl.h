#pragma once
// Numbers in 8 bits by blocks that share a scale, with a code for each of 256 values whose spacing grows with them
// (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022): the same lines on the host and on a device.

#include <bit>
#include <cstdint>

namespace strata::optim {

/// Elements that share a scale, the largest magnitude among them; the last block of a tensor may have fewer.
inline constexpr int64_t kScaleBlock = 256;
constexpr int64_t scale_blocks(int64_t numel) {
  return (numel + kScaleBlock - 1) / kScaleBlock;
}

/// Of a magnitude's bits the upper half is its key: between two keys there is at most one midpoint of two values.
/// Numbers below the first key are nearest to 0, those from the last one on to 1.
inline constexpr uint32_t kFirstKey = 0x342d, kLastKey = 0x3f80;
inline constexpr int kKeys = kLastKey - kFirstKey + 1;
inline constexpr int kCodes = 256;
/// The code of 0 where values have a sign; without one it is 0.
inline constexpr uint32_t kZeroCode = 127;

/// The dynamic map of the paper's section 1.3: seven decades below 1, each with twice the values of the one below it,
/// in the middle of equal parts of [0.1, 1] times its power of ten; and 0 and 1. With a sign, of the largest decade's
/// 128 parts 64 are left, and -1 has no code.
struct alignas(16) EightBitMap {
  float values[kCodes] = {};  ///< by code, ascending
  /// By key: the index, among the magnitudes in order, of the one that numbers at its beginning are nearest to, times
  /// 2^16; and, where a midpoint follows, what the lower half of its bits is short of 2^16, so that the sum with the
  /// lower half of a number carries from there on.
  uint32_t steps[kKeys] = {};
  int magnitudes = 0;  ///< 0 and 1 among them
  bool complete = false;
};

constexpr EightBitMap make_eight_bit_map(bool has_sign) {
  constexpr double decades[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  EightBitMap map;
  float magnitude[kCodes] = {};
  int n = 1;
  for (int d = 0; d < 7; ++d) {
    const int parts = 1 << (has_sign ? d : d + 1);
    for (int i = 0; i < parts; ++i) magnitude[n++] = static_cast<float>(decades[d] * (0.1 + 0.9 * (i + 0.5) / parts));
  }
  magnitude[n++] = 1;
  map.magnitudes = n;
  for (int i = 0; i < n; ++i) map.values[(has_sign ? static_cast<int>(kZeroCode) : 0) + i] = magnitude[i];
  for (int i = 1; has_sign && i <= static_cast<int>(kZeroCode); ++i)
    map.values[static_cast<int>(kZeroCode) - i] = -magnitude[i];
  int at = 0;
  for (uint32_t key = 0; key < kKeys; ++key) {
    map.steps[key] = static_cast<uint32_t>(at) << 16;
    if (at + 1 == n) continue;
    // The least f32 from the midpoint on; f64 has that exactly.
    const double middle = (static_cast<double>(magnitude[at]) + static_cast<double>(magnitude[at + 1])) / 2;
    const float rounded = static_cast<float>(middle);
    const uint32_t bits = std::bit_cast<uint32_t>(rounded) + (static_cast<double>(rounded) < middle ? 1 : 0);
    if (bits >> 16 != kFirstKey + key) continue;
    map.steps[key] += 0x10000 - (bits & 0xffffu);
    ++at;
  }
  map.complete = at + 1 == n && map.steps[0] == 0;
  return map;
}

/// The scale of a block, from the bits of its largest magnitude (NaN above all): NaN where one is not finite, which all
/// of the block then is, and 0 where 1 / scale would not be.
constexpr float scale_of(uint32_t most) {
  if (most >= 0x7f800000u) return std::bit_cast<float>(0x7fc00000u);
  return most < 0x00800000u ? 0.f : std::bit_cast<float>(most);
}
/// What the block's numbers are multiplied by.
constexpr float inverse_scale(float scale) {
  return scale > 0 ? 1 / scale : 0.f;
}

/// Where a number's magnitude, relative to its scale, is looked up: `bits` are those of it.
constexpr uint32_t key_of(uint32_t bits) {
  const uint32_t key = bits >> 16;
  return key < kFirstKey ? 0 : key > kLastKey ? kKeys - 1 : key - kFirstKey;
}
/// The index of the magnitude nearest to it (the larger of two that are equally near), from `step` at its key.
constexpr uint32_t nearest_of(uint32_t step, uint32_t bits) {
  return (step + (bits & 0xffffu)) >> 16;
}
/// The code of x whose magnitude's is `index`. Without a sign what is not 0 does not become 0: such numbers are
/// divided by.
template <bool HasSign>
constexpr uint32_t code_of(float x, uint32_t index) {
  if constexpr (HasSign) {
    return x < 0 ? kZeroCode - (index < kZeroCode ? index : kZeroCode) : kZeroCode + index;
  } else {
    return x > 0 ? (index > 1 ? index : 1) : 0;
  }
}

}  // namespace strata::optim
