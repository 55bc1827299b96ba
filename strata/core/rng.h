#pragma once
// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11): a counter-based generator.
// A random tensor is a pure function of a key: element i of a tensor drawn with key (seed, offset) depends on
// (seed, offset, i) only, so results are the same on any number of threads and on any device.

#include <array>
#include <cstdint>
#include <mutex>

namespace strata {

/// Names one stream of random numbers: what a random op's record takes as its argument.
struct RngKey {
  uint64_t seed = 0;
  uint64_t offset = 0;  ///< in units of counter blocks (4 numbers of 32 bits each)
  /// In a CUDA graph only, nullptr elsewhere: an address on the device of the seed and of what is added to `offset`,
  /// which each replay sets. Kernels need not look: philox() does.
  const RngKey* base = nullptr;
  friend bool operator==(const RngKey&, const RngKey&) = default;
};

/// The key without `base`: on the device only. A kernel that calls philox() often begins with it.
constexpr RngKey resolved(RngKey key) {
  return key.base == nullptr ? key : RngKey{key.base->seed, key.offset + key.base->offset};
}

/// The four 32-bit numbers of counter block `key.offset + block` under `key.seed`.
constexpr std::array<uint32_t, 4> philox(RngKey key, uint64_t block) {
#ifdef __CUDA_ARCH__
  key = resolved(key);
#endif
  const uint64_t counter = key.offset + block;
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Uniform in [0, 1) with 24 bits, from one 32-bit number.
constexpr float uniform_f32(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}
/// Uniform in [0, 1) with 53 bits, from two 32-bit numbers.
constexpr double uniform_f64(uint32_t hi, uint32_t lo) {
  return static_cast<double>(((static_cast<uint64_t>(hi) << 32) | lo) >> 11) * 0x1p-53;
}

/// A position in a seed's stream; thread-safe. Each random op takes the next stretch of blocks.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : key_{seed, 0} {}
  /// Reserves `blocks` counter blocks and returns the key that names them.
  RngKey next(uint64_t blocks);
  void set_seed(uint64_t seed);
  /// Seed and offset: all there is to save and restore.
  RngKey state() const;
  void set_state(RngKey key);

 private:
  mutable std::mutex mutex_;
  RngKey key_;
};

/// What a CUDA graph's capture does to random numbers: while one lives, the keys that default_generator() gives to this
/// thread carry `base`, and other generators refuse (ValueError).
class RngBaseScope {
 public:
  explicit RngBaseScope(const RngKey* base);
  ~RngBaseScope();
  RngBaseScope(const RngBaseScope&) = delete;
};

/// The generator that random functions use unless given another.
Generator& default_generator();
/// Same as default_generator().set_seed(seed).
void manual_seed(uint64_t seed);

}  // namespace strata
