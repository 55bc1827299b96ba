// Dropout, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// keep[i] = whether number i of blocks [block, block + blocks) is not below p. Plain loops over independent counters,
// which the compiler turns into vectors.
static void keep_flags(RngKey key, uint64_t block, int64_t blocks, float p, uint32_t* keep) {
  constexpr int64_t kBatch = 64;
  // uniform_f32(bits) < p, as a comparison of integers: bits >> 8 is exact in f32, and so is p * 2^24.
  const uint32_t limit = static_cast<uint32_t>(std::ceil(static_cast<double>(p) * 16777216.0));
  for (int64_t done = 0; done < blocks; done += kBatch) {
    uint32_t c0[kBatch], c1[kBatch], c2[kBatch] = {}, c3[kBatch] = {};
    for (int64_t i = 0; i < kBatch; ++i) {
      const uint64_t counter = key.offset + block + static_cast<uint64_t>(done + i);
      c0[i] = static_cast<uint32_t>(counter);
      c1[i] = static_cast<uint32_t>(counter >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kBatch; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i], p1 = uint64_t{0xCD9E8D57u} * c2[i];
        const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0,
                       n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c1[i] = static_cast<uint32_t>(p1);
        c3[i] = static_cast<uint32_t>(p0);
        c0[i] = n0;
        c2[i] = n2;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const int64_t n = std::min(kBatch, blocks - done);
    for (int64_t i = 0; i < n; ++i) {
      uint32_t* to = keep + 4 * (done + i);
      to[0] = (c0[i] >> 8) >= limit;
      to[1] = (c1[i] >> 8) >= limit;
      to[2] = (c2[i] >> 8) >= limit;
      to[3] = (c3[i] >> 8) >= limit;
    }
  }
}

template <class T>
static void dropout_of(const T* x, T* y, int64_t n, float p, Real<T> scale, RngKey key) {
  constexpr int64_t kPart = 1024;
  const int64_t parts = (n + kPart - 1) / kPart;
  parallel_for(0, parts, 8, [&](int64_t from, int64_t to) {
    uint32_t keep[kPart];
    for (int64_t part = from; part < to; ++part) {
      const int64_t begin = part * kPart, m = std::min(kPart, n - begin);
      keep_flags(key, static_cast<uint64_t>(begin / 4), (m + 3) / 4, p, keep);
      for (int64_t i = 0; i < m; ++i) put(y[begin + i], keep[i] ? get(x[begin + i]) * scale : Real<T>(0));
    }
  });
}

static void dropout(DType t, const void* x, void* y, int64_t n, float p, double scale, RngKey key) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    dropout_of(static_cast<const T*>(x), static_cast<T*>(y), n, p, static_cast<Real<T>>(scale), key);
  });
}

}  // namespace strata::STRATA_VEC_NS
