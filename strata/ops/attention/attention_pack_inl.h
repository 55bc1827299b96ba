// How the attention kernels prepare their operands, for one processor level. An engine says in which form the small
// matrix products want them:
//   Rows      A operand, [time][size]: keys and values as they come
//   Columns   A operand, its transpose [size][time]
//   Lanes     B operand, [size][32]: a block of 32 queries side by side in the vector lanes
//   Steps     B operand, [time][size]: queries one after the other
// No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

constexpr int64_t kQueries = 32;  // queries of a block, side by side in vector lanes

STRATA_INLINE int64_t round_up(int64_t n, int64_t m) {
  return (n + m - 1) / m * m;
}

template <class P>
struct Operand {
  const P* p = nullptr;
  int64_t sm = 0, sk = 0;  // strides of A's rows and of its inner index
};

// One head of a [batch, heads, time, size] operand.
template <class T>
struct Head {
  T* p;
  int64_t time;
  T* row(int64_t t) const { return p + t * time; }
};
template <class T>
STRATA_INLINE Head<T> head_of(const AttentionView& v, int64_t b, int64_t h) {
  return {static_cast<T*>(v.data) + b * v.batch + h * v.head, v.time};
}

template <class T>
static void copy_row(Real<T>* to, const T* from, int64_t n) {
  for_vectors<T>(n, [&](int64_t i, int64_t m) { store_upto(to + i, load_upto(from + i, m, 0), m); });
}

// f32 or f64 arithmetic on any storage type.
template <class T_>
struct FmaEngine {
  using T = T_;
  using R = Real<T>;
  using P = R;                          // what the packed operands are made of
  using L = R;                          // element of a Lanes or Steps operand
  static constexpr int64_t kSteps = 1;  // keys and queries are processed in multiples of this
  static constexpr bool kInPlace = std::is_same_v<T, R>;
  static constexpr int64_t kWidth = kLanesOf<R>;

  static int64_t size_steps(int64_t size) { return round_up(size, kWidth); }
  static int64_t size_rows(int64_t size) { return size; }
  static int64_t lanes_count(int64_t size) { return size * kQueries; }

  // keys [t0, t1)
  static Operand<P> rows(const Head<T>& x, int64_t t0, int64_t t1, int64_t size, ScratchFrame& frame) {
    if constexpr (kInPlace) {
      return {x.row(t0), x.time, 1};
    } else {
      R* to = frame.take<R>((t1 - t0) * size);
      for (int64_t t = t0; t < t1; ++t) copy_row(to + (t - t0) * size, static_cast<const T*>(x.row(t)), size);
      return {to, size, 1};
    }
  }
  static Operand<P> columns(const Head<T>& x, int64_t t0, int64_t t1, int64_t size, ScratchFrame& frame,
                            const Operand<P>* same_rows) {
    const Operand<P> r = same_rows ? *same_rows : rows(x, t0, t1, size, frame);
    return {r.p, 1, r.sm};
  }

  // lanes: element (i, q) = x[q0 + q][i]; queries from n on are 0.
  static void lanes(const Head<T>& x, int64_t q0, int64_t n, int64_t size, L* to) {
#if STRATA_VEC_LEVEL >= 2
    if constexpr (std::is_same_v<R, float>) {
      for (int64_t i = 0; i < size; i += 16) {
        const int64_t m = std::min<int64_t>(16, size - i);
        for (int64_t h = 0; h < kQueries; h += 16) {
          __m512i r[16];
          for (int64_t q = 0; q < 16; ++q)
            r[q] = h + q < n ? _mm512_castps_si512(load_upto(x.row(q0 + h + q) + i, m, 0)) : _mm512_setzero_si512();
          transpose16(r);
          for (int64_t j = 0; j < m; ++j) _mm512_storeu_si512(to + (i + j) * kQueries + h, r[j]);
        }
      }
      return;
    }
#endif
    for (int64_t q = 0; q < kQueries; ++q)
      for (int64_t i = 0; i < size; ++i) to[i * kQueries + q] = q < n ? get(x.row(q0 + q)[i]) : R(0);
  }

  struct StepsOperand {
    const L* p;
    int64_t ld;
  };
  static StepsOperand steps(const Head<T>& x, int64_t n, int64_t size, ScratchFrame& frame) {
    const int64_t width = size_steps(size);
    if constexpr (kInPlace)
      if (width == size) return {x.p, x.time};
    R* to = frame.take<R>(n * width);
    for (int64_t t = 0; t < n; ++t) {
      copy_row(to + t * width, static_cast<const T*>(x.row(t)), size);
      for (int64_t i = size; i < width; ++i) to[t * width + i] = 0;
    }
    return {to, width};
  }
  static const L* steps_at(const StepsOperand& s, int64_t t) {
    return s.p + t * s.ld;
  }

  static void begin() {}
  static void end() {}
  static void gemm(int64_t M, int64_t N, int64_t K, const P* A, int64_t sm, int64_t sk, const L* B, int64_t ldb, R* C,
                   int64_t ldc, bool acc) {
    gemm_fma<R>(M, N, K, A, sm, sk, B, ldb, C, ldc, acc);
  }
};

#if STRATA_VEC_LEVEL >= 3
// bf16 products with f32 sums, by AVX512-BF16 or by AMX tiles. Everything is padded with zeros to multiples of 32.
template <bool kTiles>
struct PairEngine {
  using T = BFloat16;
  using R = float;
  using P = uint16_t;
  using L = uint32_t;  // a pair of bf16 that are neighbours along the inner index
  static constexpr int64_t kSteps = 32;
  static constexpr bool kInPlace = false;

  static int64_t size_steps(int64_t size) { return round_up(size, 32); }
  static int64_t size_rows(int64_t size) { return round_up(size, 32); }
  static int64_t lanes_count(int64_t size) { return round_up(size, 32) / 2 * kQueries; }

  static __mmask32 first(int64_t n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1; }

  static Operand<P> rows(const Head<T>& x, int64_t t0, int64_t t1, int64_t size, ScratchFrame& frame) {
    if (size % 32 == 0 && (t1 - t0) % 32 == 0) return {reinterpret_cast<const P*>(x.row(t0)), x.time, 1};
    const int64_t width = round_up(size, 32), n = round_up(t1 - t0, 32);
    P* to = frame.take<P>(n * width);
    for (int64_t t = 0; t < n; ++t)
      for (int64_t i = 0; i < width; i += 32)
        _mm512_storeu_si512(to + t * width + i, t0 + t < t1
                                                    ? _mm512_maskz_loadu_epi16(first(size - i), x.row(t0 + t) + i)
                                                    : _mm512_setzero_si512());
    return {to, width, 1};
  }

  // 16 pairs: elements i .. i + 15 of rows t (low halves) and t + 1 (high halves); rows from `end` on are 0.
  static __m512i pairs(const Head<T>& x, int64_t t, int64_t end, int64_t i, int64_t size) {
    const __mmask16 m = static_cast<__mmask16>(first(size - i));
    const __m256i z = _mm256_setzero_si256();
    const __m256i lo = t < end ? _mm256_maskz_loadu_epi16(m, x.row(t) + i) : z;
    const __m256i hi = t + 1 < end ? _mm256_maskz_loadu_epi16(m, x.row(t + 1) + i) : z;
    return _mm512_or_si512(_mm512_cvtepu16_epi32(lo), _mm512_slli_epi32(_mm512_cvtepu16_epi32(hi), 16));
  }

  static Operand<P> columns(const Head<T>& x, int64_t t0, int64_t t1, int64_t size, ScratchFrame& frame,
                            const Operand<P>*) {
    const int64_t height = round_up(size, 32), n = round_up(t1 - t0, 32);
    P* to = frame.take<P>(height * n);
    for (int64_t t = 0; t < n; t += 32) {
      for (int64_t i = 0; i < height; i += 16) {
        __m512i r[16];
        for (int j = 0; j < 16; ++j) r[j] = pairs(x, t0 + t + 2 * j, t1, i, size);
        transpose16(r);
        for (int j = 0; j < 16; ++j) _mm512_storeu_si512(to + (i + j) * n + t, r[j]);
      }
    }
    return {to, n, 1};
  }

  static void lanes(const Head<T>& x, int64_t q0, int64_t n, int64_t size, L* to) {
    for (int64_t i = 0; i < size; i += 32) {
      for (int64_t h = 0; h < kQueries; h += 16) {
        __m512i r[16];
        for (int64_t q = 0; q < 16; ++q)
          r[q] = h + q < n ? _mm512_maskz_loadu_epi16(first(size - i), x.row(q0 + h + q) + i) : _mm512_setzero_si512();
        transpose16(r);
        for (int j = 0; j < 16; ++j) _mm512_storeu_si512(to + (i / 2 + j) * kQueries + h, r[j]);
      }
    }
  }

  struct StepsOperand {
    const L* p;
    int64_t ld;
  };
  static StepsOperand steps(const Head<T>& x, int64_t n, int64_t size, ScratchFrame& frame) {
    const int64_t width = round_up(size, 32), height = round_up(n, 32);
    L* to = frame.take<L>(height / 2 * width);
    for (int64_t t = 0; t < height; t += 2)
      for (int64_t i = 0; i < width; i += 16) _mm512_storeu_si512(to + t / 2 * width + i, pairs(x, t, n, i, size));
    return {to, width};
  }
  static const L* steps_at(const StepsOperand& s, int64_t t) { return s.p + t / 2 * s.ld; }

  // Rows k (a) and k + 1 (b) of a block, rounded to bf16: as pairs, and one row as it lies in memory.
  static __m512i interleave(VF a, VF b) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
  }
  static __m512i row(VF low, VF high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

  static void begin() {
    if constexpr (kTiles) tiles_begin();
  }
  static void end() {
    if constexpr (kTiles) tiles_end();
  }
  static void gemm(int64_t M, int64_t N, int64_t K, const P* A, int64_t sm, int64_t, const L* B, int64_t ldb, R* C,
                   int64_t ldc, bool acc) {
    if constexpr (kTiles)
      gemm_amx(M, N, K, A, sm, B, ldb, C, ldc, acc);
    else
      gemm_dot(M, N, K, A, sm, B, ldb, C, ldc, acc);
  }
};
#endif

}  // namespace strata::STRATA_VEC_NS
