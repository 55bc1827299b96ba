// Values at positions, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// to[i] = the sum over the taps of weight times from[at], for one channel; what is not read does not count, not even
// where it is no number.
template <class T>
static void sample_row(const SampleReads& r, const T* from, T* to) {
  using R = Real<T>;
  const R* weight = static_cast<const R*>(r.weight);
#if STRATA_VEC_LEVEL >= 2
  if constexpr (std::is_same_v<T, float>) {
    for (int64_t i = 0; i < r.points; i += 16) {
      const int64_t n = std::min<int64_t>(16, r.points - i);
      const auto lanes = static_cast<__mmask16>((1u << n) - 1);
      __m512 sum = _mm512_setzero_ps();
      for (int t = 0; t < r.taps; ++t) {
        const __m512i at = _mm512_maskz_loadu_epi32(lanes, r.at + t * r.step + i);
        const __mmask16 read = _mm512_mask_cmpge_epi32_mask(lanes, at, _mm512_setzero_si512());
        const __m512 v = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), read, at, from, 4);
        sum = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(lanes, weight + t * r.step + i), v, sum, read);
      }
      _mm512_mask_storeu_ps(to + i, lanes, sum);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < r.points; ++i) {
    R sum = 0;
    for (int t = 0; t < r.taps; ++t) {
      const int32_t at = r.at[t * r.step + i];
      if (at >= 0) sum += weight[t * r.step + i] * get(from[at]);
    }
    put(to[i], sum);
  }
}

static void sample_rows(DType t, const SampleReads& r, const void* from, void* to) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    sample_row<T>(r, static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace strata::STRATA_VEC_NS
