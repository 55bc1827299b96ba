// Philox's numbers by the vector, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

typedef uint64_t Words __attribute__((vector_size(kVecBytes)));
constexpr int kWords = kLanes<double>;

#if STRATA_VEC_LEVEL >= 1
// The product of the low halves of each lane.
STRATA_INLINE Words product_of_halves(Words a, uint64_t b) {
#if STRATA_VEC_LEVEL >= 2
  return (Words)_mm512_mul_epu32((__m512i)a, (__m512i)(Words{} + b));
#else
  return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)(Words{} + b));
#endif
}
template <size_t... I>
STRATA_INLINE Words interleaved(Words a, Words b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(I % 2 * kWords + I / 2)...);
}
template <size_t... I>
STRATA_INLINE Words interleaved_above(Words a, Words b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(I % 2 * kWords + I / 2 + kWords / 2)...);
}
// Of each lane the low half counts; what stands above it is not looked at.
struct Blocks {
  Words c0, c1, c2, c3;
  __attribute__((always_inline)) void round(uint64_t k0, uint64_t k1) {
    const Words p0 = product_of_halves(c0, 0xD2511F53u), p1 = product_of_halves(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1;
    c3 = p0;
  }
  __attribute__((always_inline)) void write(uint32_t* out) const {
    const Words a = (c0 & 0xffffffffu) | (c1 << 32), b = (c2 & 0xffffffffu) | (c3 << 32);
    const Words first = interleaved(a, b, std::make_index_sequence<kWords>{});
    const Words second = interleaved_above(a, b, std::make_index_sequence<kWords>{});
    __builtin_memcpy(out, &first, sizeof first);
    __builtin_memcpy(out + 2 * kWords, &second, sizeof second);
  }
};
#endif

// Writes the numbers of the first blocks from `counter` on and says of how many; the rest is left to the caller.
static int64_t draw_blocks(uint64_t counter, uint64_t seed, int64_t blocks, uint32_t* out) {
  int64_t b = 0;
#if STRATA_VEC_LEVEL >= 1
  constexpr int kGroups = 2;  // side by side: a product takes several cycles
  Words lane;
  for (int i = 0; i < kWords; ++i) lane[i] = static_cast<uint64_t>(i);
  for (; b + kGroups * kWords <= blocks; b += kGroups * kWords) {
    Blocks group[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      const Words c = lane + (counter + static_cast<uint64_t>(b + g * kWords));
      group[g] = {c, c >> 32, Words{}, Words{}};
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int g = 0; g < kGroups; ++g) group[g].round(k0, k1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int g = 0; g < kGroups; ++g) group[g].write(out + (b + g * kWords) * 4);
  }
#else
  (void)counter, (void)seed, (void)blocks, (void)out;
#endif
  return b;
}

}  // namespace strata::STRATA_VEC_NS
