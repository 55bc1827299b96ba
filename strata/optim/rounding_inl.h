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

}  // namespace strata::optim
