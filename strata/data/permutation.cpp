#include "strata/data/permutation.h"

#include "strata/core/error.h"

namespace strata::data {
namespace {
uint64_t finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
}  // namespace

uint64_t mix(uint64_t a, uint64_t b) {
  return finalise(finalise(a + 0x9e3779b97f4a7c15u) ^ (b * 0x9e3779b97f4a7c15u));
}

KeyedPermutation::KeyedPermutation(int64_t size, uint64_t key) : size_(size), half_bits_(1) {
  check(size >= 0, "KeyedPermutation", "size must be at least 0, got ", size);
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  for (int i = 0; i < kRounds; ++i) keys_[i] = mix(key, static_cast<uint64_t>(i) + 1);
}

int64_t KeyedPermutation::operator()(int64_t index) const {
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_, right = x & half_mask_;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (finalise(right ^ key) & half_mask_);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(x);
}

}  // namespace strata::data
