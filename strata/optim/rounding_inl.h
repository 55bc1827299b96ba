#pragma once
// Numbers of 16 bits from f32, and the random bits of stochastic rounding: the same lines on the host and on a device.

#include <cstdint>

#include "strata/core/rng.h"

namespace strata::optim {

/// The key of one tensor's random bits in its update number `t`: three numbers made one (Steele et al., "Fast
/// splittable pseudorandom number generators", 2014).
inline constexpr uint64_t kRoundingStride = 0x9e3779b97f4a7c15u;
constexpr uint64_t rounding_key(uint64_t seed, uint64_t t) {
  uint64_t x = seed + t * kRoundingStride;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Elements that share one block of random numbers, each with 32 bits: the lower half for the parameter, the upper one
/// for the first state. The second and third state take the halves of remixed() ones.
inline constexpr int64_t kRandomElements = 4;

/// Another number with every bit changed by every other: MurmurHash3's last step (Appleby, 2011). It costs a twentieth
/// of another block.
constexpr uint32_t remixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

/// The upper half of an f32's bits, rounded away from zero with the probability that the lower half says; `random`
/// holds a uniform number in its lower 16 bits. A NaN stays one; what is added to an infinity stays below its upper
/// half.
constexpr uint16_t stochastic_bf16(uint32_t bits, uint32_t random) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((bits + (random & 0xffffu)) >> 16);
}

// ---- an f32 in two halves: a bf16 that is its rounding, and how many of f32's steps away it is, as an i16 ----

struct Halves {
  uint16_t upper;
  int16_t lower;
};
/// `upper` is rounded to nearest even. 65537 numbers round to a bf16 that is even, one more than `lower` has: the one
/// half a step above it in magnitude is taken for its neighbour below. A NaN is only that.
constexpr Halves split(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fc0, 0};
  const uint32_t upper = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  const auto lower = static_cast<int32_t>(bits - (upper << 16));
  return {static_cast<uint16_t>(upper), static_cast<int16_t>(lower > 0x7fff ? 0x7fff : lower)};
}
/// The bits of the f32. Of a bf16 that was written since, where a number below 0 or above infinity in magnitude would
/// come out, `lower` counts for nothing.
constexpr uint32_t joined(uint16_t upper, int16_t lower) {
  const uint32_t magnitude = upper & 0x7fffu;
  const bool fits = lower < 0 ? magnitude != 0 : magnitude < 0x7f80u;
  return (static_cast<uint32_t>(upper) << 16) + (fits ? static_cast<uint32_t>(static_cast<int32_t>(lower)) : 0u);
}

}  // namespace strata::optim
