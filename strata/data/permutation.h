#pragma once
// A random order of 0..n-1 that is computed, not stored.

#include <cstdint>

namespace strata::data {

/// A bijection of [0, size) chosen by `key`: a balanced Feistel network on the next power of 4, walked until it lands
/// inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Constant memory, below 4 steps on average.
/// Not for secrets.
class KeyedPermutation {
 public:
  /// Throws ValueError for a negative size.
  KeyedPermutation(int64_t size, uint64_t key);
  /// Where `index` goes; 0 <= index < size().
  int64_t operator()(int64_t index) const;
  int64_t size() const { return size_; }

 private:
  // Fewer than 8 rounds are visibly uneven on domains of a few elements (sampler_test.cpp measures it).
  static constexpr int kRounds = 12;
  int64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  uint64_t keys_[kRounds];
};

/// One 64-bit value from two, well mixed (the finaliser of SplitMix64, Steele et al. 2014).
uint64_t mix(uint64_t a, uint64_t b);

}  // namespace strata::data
