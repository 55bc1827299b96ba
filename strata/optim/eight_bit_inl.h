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

/// Of a magnitude's bits the upper half is its key: between two keys there is at most one place where another value
/// becomes the nearest. Numbers up to the first key are nearest to 0, those from the last one on to 1.
inline constexpr uint32_t kFirstKey = 0x342d, kLastKey = 0x3f80;
inline constexpr int kKeys = kLastKey - kFirstKey + 1;
inline constexpr int kCodes = 256;
/// The code of 0 where values have a sign; without one it is 0.
inline constexpr uint32_t kZeroCode = 127;

/// Seven decades below 1, and 1 itself: index j, from first[d] to last[d], has the magnitude j * width[d] + start[d],
/// and numbers y from least[d] on, below the next decade's, have the index floor(y * parts[d] + shift[d]), at most
/// last[d]. f32; each product and sum together is rounded once.
inline constexpr int kDecades = 8;
struct Decades {
  float width[kDecades] = {}, start[kDecades] = {}, parts[kDecades] = {}, shift[kDecades] = {}, least[kDecades] = {};
  int first[kDecades] = {}, last[kDecades] = {};

  // f64 has the sums exactly.
  constexpr float value(int d, int j) const { return static_cast<float>(double{width[d]} * j + double{start[d]}); }
  constexpr int index(int d, uint32_t bits) const {
    const double y = std::bit_cast<float>(bits);
    const auto j = static_cast<int>(static_cast<float>(y * double{parts[d]} + double{shift[d]}));
    return j < last[d] ? j : last[d];
  }
  /// The bits of the least number that has an index.
  constexpr uint32_t begin(int d, int j) const {
    if (j == first[d]) return std::bit_cast<uint32_t>(least[d]);
    auto bits = std::bit_cast<uint32_t>(static_cast<float>((j - double{shift[d]}) / double{parts[d]}));
    while (index(d, bits - 1) >= j) --bits;
    while (index(d, bits) < j) ++bits;
    return bits;
  }
};

/// The dynamic map of the paper's section 1.3: seven decades below 1, each with twice the values of the one below it,
/// in the middle of equal parts of [0.1, 1] times its power of ten; and 0 and 1. With a sign, of the largest decade's
/// 128 parts 64 are left, and -1 has no code.
constexpr Decades make_decades(bool has_sign) {
  constexpr double powers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  Decades r;
  double below = 0;  // the value before
  for (int d = 0, n = 1; d < kDecades; ++d) {
    const bool top = d + 1 == kDecades;
    const int parts = top ? 1 : 1 << (has_sign ? d : d + 1);
    const double width = top ? 0 : powers[d] * 0.9 / parts, low = top ? 1 : powers[d] * 0.1;
    r.width[d] = static_cast<float>(width);
    r.start[d] = static_cast<float>(low + width / 2 - width * n);
    r.parts[d] = top ? 0 : static_cast<float>(1 / width);
    r.shift[d] = top ? static_cast<float>(n) : static_cast<float>(n - low / width);
    r.least[d] = static_cast<float>((below + low + width / 2) / 2);
    r.first[d] = n;
    n += parts;
    r.last[d] = n - 1;
    below = low + width * (parts - 0.5);
  }
  return r;
}

struct alignas(16) EightBitMap {
  float values[kCodes] = {};  ///< by code, ascending
  /// By key: the index, among the magnitudes in order, of the one that numbers at its beginning are rounded to, times
  /// 2^16; and, where the numbers of the next one begin, what the lower half of their bits is short of 2^16, so that
  /// the sum with the lower half of a number carries from there on.
  uint32_t steps[kKeys] = {};
  int magnitudes = 0;  ///< 0 and 1 among them
  bool complete = false;
};

constexpr EightBitMap make_eight_bit_map(bool has_sign) {
  const Decades decades = make_decades(has_sign);
  EightBitMap map;
  float magnitude[kCodes] = {};
  uint32_t begin[kCodes] = {};
  int n = 1;
  for (int d = 0; d < kDecades; ++d)
    for (; n <= decades.last[d]; ++n) {
      magnitude[n] = decades.value(d, n);
      begin[n] = decades.begin(d, n);
    }
  map.magnitudes = n;
  for (int i = 0; i < n; ++i) map.values[(has_sign ? static_cast<int>(kZeroCode) : 0) + i] = magnitude[i];
  for (int i = 1; has_sign && i <= static_cast<int>(kZeroCode); ++i)
    map.values[static_cast<int>(kZeroCode) - i] = -magnitude[i];
  int at = 0;
  for (uint32_t key = 0; key < kKeys; ++key) {
    map.steps[key] = static_cast<uint32_t>(at) << 16;
    if (at + 1 == n) continue;
    const uint32_t bits = begin[at + 1];
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

/// The bits of x's magnitude relative to its scale, where it is looked up; of the first key's beginning for what is
/// less and for what is NaN, beside a scale of NaN.
constexpr uint32_t place_of(float x, float inverse) {
  constexpr float least = std::bit_cast<float>(kFirstKey << 16);
  const float y = (x < 0 ? -x : x) * inverse;
  return std::bit_cast<uint32_t>(y > least ? y : least);
}
/// The index of the magnitude that is nearest; halfway between two, up to f32's rounding of where that is, the larger.
constexpr uint32_t nearest_of(const EightBitMap& map, uint32_t place) {
  return (map.steps[(place >> 16) - kFirstKey] + (place & 0xffffu)) >> 16;
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
