// Rows of low-bit matrices as vectors, for one processor level: see levels_inl.h. No include guard.
//
// A codec turns units of 32 columns into vectors: `group(row, g)` prepares what the units of a group have in common,
// `unit(prepared, bytes, emit)` calls emit(i, numbers) for the unit's vectors in order. What they are then used for,
// stored or multiplied, is the caller's.

namespace strata::STRATA_VEC_NS {

constexpr int64_t kUnit = 32;
constexpr int kPer = static_cast<int>(kUnit) / kW;  // vectors of a unit

struct LowbitRow {
  const uint8_t* codes;
  const float* scales;
  const float* zeros;
};

STRATA_INLINE float half_at(const uint8_t* p) {
  uint16_t bits16;
  __builtin_memcpy(&bits16, p, 2);
#if STRATA_VEC_LEVEL >= 1
  return _cvtsh_ss(bits16);
#else
  Half h;
  h.bits = bits16;
  return static_cast<float>(h);
#endif
}

// kW signed or unsigned bytes as floats.
STRATA_INLINE VF signed_bytes(const uint8_t* p) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif STRATA_VEC_LEVEL == 1
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  VF v;
  for (int i = 0; i < kW; ++i) v[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return v;
#endif
}
STRATA_INLINE VI wide_bytes(const uint8_t* p) {
#if STRATA_VEC_LEVEL >= 2
  return bits<VI>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif STRATA_VEC_LEVEL == 1
  return bits<VI>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  VI v;
  for (int i = 0; i < kW; ++i) v[i] = p[i];
  return v;
#endif
}
STRATA_INLINE VF to_float(VI v) {
  return __builtin_convertvector(v, VF);
}
// kW codes of e4m3. As halves, whose exponent's bias is 8 more, they are right but for that: also the small numbers,
// which the conversion takes whatever the processor does to subnormal floats. Two codes are no numbers.
STRATA_INLINE VF e4m3_bytes(const uint8_t* p) {
#if STRATA_VEC_LEVEL >= 2
  const __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_and_si256(v, _mm256_set1_epi16(0x7f));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x80)), 8);
  const __m256i none =
      _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));
  const __m256i half = _mm256_or_si256(_mm256_or_si256(sign, none), _mm256_slli_epi16(magnitude, 7));
  return _mm512_cvtph_ps(half) * 256.f;
#elif STRATA_VEC_LEVEL == 1
  const __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i magnitude = _mm_and_si128(v, _mm_set1_epi16(0x7f));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(v, _mm_set1_epi16(0x80)), 8);
  const __m128i none = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
  const __m128i half = _mm_or_si128(_mm_or_si128(sign, none), _mm_slli_epi16(magnitude, 7));
  return _mm256_cvtph_ps(half) * 256.f;
#else
  VF v;
  for (int i = 0; i < kW; ++i) v[i] = fp8_value(p[i], kE4m3);
  return v;
#endif
}

// ---- 4-bit codes: numbers from a table of sixteen ----

struct Table {
#if STRATA_VEC_LEVEL >= 2
  VF v;
#elif STRATA_VEC_LEVEL == 1
  VF low, high;
#else
  float v[16];
#endif
};
// f of each of sixteen numbers, by vectors.
template <class F>
STRATA_INLINE Table table_of(const float* base, F&& f) {
  Table t;
#if STRATA_VEC_LEVEL >= 2
  t.v = f(load(base));
#elif STRATA_VEC_LEVEL == 1
  t.low = f(load(base));
  t.high = f(load(base + 8));
#else
  for (int i = 0; i < 16; i += kW) store(t.v + i, f(load(base + i)));
#endif
  return t;
}
// The numbers of the low four bits of each lane.
STRATA_INLINE VF looked_up(const Table& t, VI codes) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_permutexvar_ps(bits<__m512i>(codes), t.v);
#elif STRATA_VEC_LEVEL == 1
  const __m256i c = bits<__m256i>(codes);
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, c), _mm256_permutevar8x32_ps(t.high, c),
                          _mm256_castsi256_ps(_mm256_slli_epi32(c, 28)));
#else
  VF v;
  for (int i = 0; i < kW; ++i) v[i] = t.v[codes[i] & 15];
  return v;
#endif
}
// Sixteen bytes: low halves are the first sixteen columns.
template <class Emit>
STRATA_INLINE void four_bits(const Table& t, const uint8_t* p, Emit&& emit) {
  VI c[kPer / 2];
#pragma GCC unroll 4
  for (int i = 0; i < kPer / 2; ++i) c[i] = wide_bytes(p + i * kW);
#pragma GCC unroll 4
  for (int i = 0; i < kPer / 2; ++i) emit(i, looked_up(t, c[i]));
#pragma GCC unroll 4
  for (int i = 0; i < kPer / 2; ++i) emit(kPer / 2 + i, looked_up(t, c[i] >> 4));
}

alignas(64) static constexpr float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// ---- the codecs ----

struct Int8Codec {
  static constexpr int kBytes = 32, kUnitsOfGroup = 0;  // groups of any size
  struct Prepared {
    VF scale, zero;
  };
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return {set1(r.scales[g]), set1(r.zeros[g])}; }
  template <class Emit>
  STRATA_INLINE void unit(const Prepared& s, const uint8_t* p, int64_t, Emit&& emit) {
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) emit(i, (signed_bytes(p + i * kW) - s.zero) * s.scale);
  }
};
struct E4m3Codec {
  static constexpr int kBytes = 32, kUnitsOfGroup = 0;
  using Prepared = VF;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return set1(r.scales[g]); }
  template <class Emit>
  STRATA_INLINE void unit(const Prepared& scale, const uint8_t* p, int64_t, Emit&& emit) {
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) emit(i, e4m3_bytes(p + i * kW) * scale);
  }
};
struct Int4Codec {
  static constexpr int kBytes = 16, kUnitsOfGroup = 0;
  using Prepared = Table;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) {
    const VF scale = set1(r.scales[g]), zero = set1(r.zeros[g]);
    return table_of(kIota, [&](VF v) { return (v - zero) * scale; });
  }
  template <class Emit>
  STRATA_INLINE void unit(const Prepared& t, const uint8_t* p, int64_t, Emit&& emit) {
    four_bits(t, p, emit);
  }
};
struct Nf4Codec {
  static constexpr int kBytes = 16, kUnitsOfGroup = 0;
  using Prepared = Table;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) {
    const VF scale = set1(r.scales[g]);
    return table_of(kNf4, [&](VF v) { return v * scale; });
  }
  template <class Emit>
  STRATA_INLINE void unit(const Prepared& t, const uint8_t* p, int64_t, Emit&& emit) {
    four_bits(t, p, emit);
  }
};
// Blocks of GGUF. Their groups are the blocks; `unit` gets the block and which of its units is wanted.
struct Q8_0Codec {
  static constexpr int kBytes = 34, kUnitsOfGroup = 1;
  using Prepared = const uint8_t*;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return r.codes + g * kBytes; }
  template <class Emit>
  STRATA_INLINE void unit(Prepared b, const uint8_t*, int64_t, Emit&& emit) {
    const VF d = set1(half_at(b));
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) emit(i, signed_bytes(b + 2 + i * kW) * d);
  }
};
struct Q4_0Codec {
  static constexpr int kBytes = 18, kUnitsOfGroup = 1;
  using Prepared = const uint8_t*;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return r.codes + g * kBytes; }
  template <class Emit>
  STRATA_INLINE void unit(Prepared b, const uint8_t*, int64_t, Emit&& emit) {
    const VF d = set1(half_at(b));
    four_bits(table_of(kIota, [&](VF v) { return (v - 8.f) * d; }), b + 2, emit);
  }
};
// The scale and the least of sub-block j: six bits each, in twelve bytes.
struct SubBlock {
  float scale, least;
};
STRATA_INLINE SubBlock sub_block(const uint8_t* b, int64_t j) {
  const uint8_t* s = b + 4;
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  return {half_at(b) * static_cast<float>(scale), half_at(b + 2) * static_cast<float>(least)};
}
struct Q4_KCodec {
  static constexpr int kBytes = 144, kUnitsOfGroup = 8;
  using Prepared = const uint8_t*;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return r.codes + g * kBytes; }
  template <class Emit>
  STRATA_INLINE void unit(Prepared b, const uint8_t*, int64_t j, Emit&& emit) {
    const SubBlock s = sub_block(b, j);
    const VF scale = set1(s.scale), least = set1(s.least);
    const Table t = table_of(kIota, [&](VF v) { return v * scale - least; });
    const uint8_t* q = b + 16 + j / 2 * 32;
    const int shift = static_cast<int>(j % 2) * 4;
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) emit(i, looked_up(t, wide_bytes(q + i * kW) >> shift));
  }
};
#if STRATA_VEC_LEVEL >= 2
// The 32 codes of a unit, put together while they are bytes: four bits of each of `low` from bit `low_shift` on, above
// them those of `high` from bit `high_shift` on that `mask` leaves. Only whole codes need become wider.
STRATA_INLINE __m256i joined_bits(const uint8_t* low, int low_shift, const uint8_t* high, int high_shift, char mask) {
  const auto from = [](const uint8_t* at, int shift) {
    return _mm256_srl_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), _mm_cvtsi32_si128(shift));
  };
  return _mm256_or_si256(_mm256_and_si256(from(low, low_shift), _mm256_set1_epi8(15)),
                         _mm256_slli_epi16(_mm256_and_si256(from(high, high_shift), _mm256_set1_epi8(mask)), 4));
}
// Signed bytes as floats.
STRATA_INLINE VF floats_of(__m128i v) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}
#endif
struct Q5_KCodec {
  static constexpr int kBytes = 176, kUnitsOfGroup = 8;
  using Prepared = const uint8_t*;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) { return r.codes + g * kBytes; }
  template <class Emit>
  STRATA_INLINE void unit(Prepared b, const uint8_t*, int64_t j, Emit&& emit) {
    const SubBlock s = sub_block(b, j);
    const uint8_t *high = b + 16, *q = b + 48 + j / 2 * 32;
    const int shift = static_cast<int>(j % 2) * 4, bit = static_cast<int>(j);
#if STRATA_VEC_LEVEL >= 2
    const __m256i code = joined_bits(q, shift, high, bit, 1);
    emit(0, floats_of(_mm256_castsi256_si128(code)) * s.scale - s.least);
    emit(1, floats_of(_mm256_extracti128_si256(code, 1)) * s.scale - s.least);
#else
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) {
      const VI code = ((wide_bytes(q + i * kW) >> shift) & 15) | ((wide_bytes(high + i * kW) >> bit & 1) << 4);
      emit(i, to_float(code) * s.scale - s.least);
    }
#endif
  }
};
struct Q6_KCodec {
  static constexpr int kBytes = 210, kUnitsOfGroup = 8;
  // Each half of 128 columns: 64 bytes of low bits, whose low halves are its units 0 and 1, and 32 bytes of high bits.
  // Behind both halves: a scale for 16 columns, and one for these.
#if STRATA_VEC_LEVEL >= 2
  struct Prepared {
    const uint8_t* b;
    alignas(64) float scales[16];
  };
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) {
    Prepared p;
    p.b = r.codes + g * kBytes;
    store(p.scales, signed_bytes(p.b + 192) * set1(half_at(p.b + 208)));
    return p;
  }
  template <class Emit>
  STRATA_INLINE void unit(const Prepared& p, const uint8_t*, int64_t j, Emit&& emit) {
    const int64_t half = j / 4, u = j % 4;
    const __m256i code = _mm256_sub_epi8(joined_bits(p.b + half * 64 + u % 2 * 32, static_cast<int>(u / 2) * 4,
                                                     p.b + 128 + half * 32, static_cast<int>(u) * 2, 3),
                                         _mm256_set1_epi8(32));
    emit(0, floats_of(_mm256_castsi256_si128(code)) * set1(p.scales[2 * j]));
    emit(1, floats_of(_mm256_extracti128_si256(code, 1)) * set1(p.scales[2 * j + 1]));
  }
#else
  using Prepared = const uint8_t*;
  STRATA_INLINE Prepared group(const LowbitRow& r, int64_t g) {
    return r.codes + g * kBytes;
  }
  template <class Emit>
  STRATA_INLINE void unit(Prepared b, const uint8_t*, int64_t j, Emit&& emit) {
    const int64_t half = j / 4, u = j % 4;
    const uint8_t *low = b + half * 64 + u % 2 * 32, *high = b + 128 + half * 32;
    const int low_shift = static_cast<int>(u / 2) * 4, high_shift = static_cast<int>(u) * 2;
    const float d = half_at(b + 208);
#pragma GCC unroll 8
    for (int i = 0; i < kPer; ++i) {
      const VI code =
          ((wide_bytes(low + i * kW) >> low_shift) & 15) | ((wide_bytes(high + i * kW) >> high_shift & 3) << 4);
      const auto scale = static_cast<int8_t>(b[192 + j * 2 + i * kW / 16]);
      emit(i, to_float(code - 32) * (d * static_cast<float>(scale)));
    }
  }
#endif
};

// ---- rows ----

// Calls emit(u, parity, i, numbers) for the vectors of units [begin, end) of a row; the parity alternates, so that sums
// may go into twice as many registers.
template <class C, class Emit>
STRATA_INLINE void decode_units(const PackedView& w, const LowbitRow& r, int64_t begin, int64_t end, Emit&& emit) {
  const int64_t whole = C::kBytes == kUnit ? w.columns / kUnit : end;
  const int64_t of_group = C::kUnitsOfGroup > 0 ? C::kUnitsOfGroup : (w.block_columns + kUnit - 1) / kUnit;
  for (int64_t u = begin, g = begin / of_group; u < std::min(end, whole); ++g) {
    const auto prepared = C::group(r, g);
    const int64_t first = g * of_group, stop = std::min(std::min(end, whole), first + of_group);
    for (; u + 2 <= stop; u += 2) {
      C::unit(prepared, r.codes + u * C::kBytes, u - first, [&](int i, VF v) { emit(u, 0, i, v); });
      C::unit(prepared, r.codes + (u + 1) * C::kBytes, u + 1 - first, [&](int i, VF v) { emit(u + 1, 1, i, v); });
    }
    if (u < stop) {
      C::unit(prepared, r.codes + u * C::kBytes, u - first, [&](int i, VF v) { emit(u, 0, i, v); });
      ++u;
    }
  }
  if (whole < end) {  // a last unit whose bytes end with the row's
    uint8_t last[kUnit] = {};
    __builtin_memcpy(last, r.codes + whole * kUnit, static_cast<size_t>(w.columns - whole * kUnit));
    C::unit(C::group(r, whole / of_group), last, 0, [&](int i, VF v) { emit(whole, 0, i, v); });
  }
}

// The scales and zeros of W's rows as floats, in scratch memory; a row's that has the same as the last one stay.
class RowReader {
 public:
  RowReader(const PackedView& w, float* room) : w_(w), scales_(room), zeros_(room + w.grid_columns) {
    for (int64_t g = 0; g < w.grid_columns; ++g) zeros_[g] = w.default_zero();
  }
  static int64_t room(const PackedView& w) { return 2 * w.grid_columns; }
  LowbitRow row(int64_t n) {
    if (w_.scales != nullptr && n / w_.block_rows != block_) read(block_ = n / w_.block_rows);
    return {w_.codes + n * w_.row_bytes, scales_, zeros_};
  }

 private:
  template <class T>
  void widen(const T* from) {
    if constexpr (std::is_same_v<T, double>) {
      for (int64_t g = 0; g < w_.grid_columns; ++g) scales_[g] = static_cast<float>(from[g]);
    } else {
      for_vectors<T>(w_.grid_columns,
                     [&](int64_t g, int64_t n) { store_upto(scales_ + g, load_upto(from + g, n, 0), n); });
    }
  }
  void read(int64_t block) {
    const int64_t at = block * w_.grid_columns;
    if (w_.nested != nullptr) {
      const auto* codes = static_cast<const uint8_t*>(w_.scales) + at;
      for (int64_t g = 0; g < w_.grid_columns;) {
        const int64_t stop = std::min(w_.grid_columns, g + 256 - (at + g) % 256);  // those with one scale of scales
        const float scale = w_.nested[257 + (at + g) / 256];
        for (; g < stop; ++g) scales_[g] = w_.nested[1 + codes[g]] * scale;
      }
      for (int64_t g = 0; g < w_.grid_columns; ++g) scales_[g] += w_.nested[0];
    } else {
      dispatch_floating(w_.scale_dtype, [&]<class T>(T) { widen(static_cast<const T*>(w_.scales) + at); });
    }
    if (w_.zeros == nullptr) return;
    if (w_.kind == WeightCodes::int8)
      for (int64_t g = 0; g < w_.grid_columns; ++g) zeros_[g] = static_cast<int8_t>(w_.zeros[at + g]);
    else
      for (int64_t g = 0; g < w_.grid_columns; ++g) zeros_[g] = w_.zeros[at + g];
  }

  const PackedView& w_;
  float *scales_, *zeros_;
  int64_t block_ = -1;
};

template <class F>
STRATA_INLINE void with_codec(WeightCodes codes, F&& f) {
  switch (codes) {
    case WeightCodes::int8:
      return f(Int8Codec{});
    case WeightCodes::e4m3:
      return f(E4m3Codec{});
    case WeightCodes::int4:
      return f(Int4Codec{});
    case WeightCodes::nf4:
      return f(Nf4Codec{});
    case WeightCodes::q8_0:
      return f(Q8_0Codec{});
    case WeightCodes::q4_0:
      return f(Q4_0Codec{});
    case WeightCodes::q4_k:
      return f(Q4_KCodec{});
    case WeightCodes::q5_k:
      return f(Q5_KCodec{});
    case WeightCodes::q6_k:
      return f(Q6_KCodec{});
  }
}

// Whole units of a row as floats, or rounded to bf16.
template <class C, class E>
void decode_into(const PackedView& w, const LowbitRow& r, int64_t begin, int64_t end, E* to) {
  decode_units<C>(w, r, begin, end, [&](int64_t u, int, int i, VF v) { store(to + (u - begin) * kUnit + i * kW, v); });
}

inline int64_t decode_room(const PackedView& w) {
  return RowReader::room(w) + (w.columns + kUnit - 1) / kUnit * kUnit;
}
inline void decode_rows(const PackedView& w, int64_t begin, int64_t end, DType dtype, void* to, int64_t stride,
                        float* room) {
  RowReader reader(w, room);
  float* const row = room + RowReader::room(w);
  const int64_t units = (w.columns + kUnit - 1) / kUnit;
  for (int64_t n = begin; n < end; ++n) {
    const LowbitRow r = reader.row(n);
    with_codec(w.kind, [&]<class C>(C) { decode_into<C>(w, r, 0, units, row); });
    dispatch_floating(dtype, [&]<class T>(T) {
      T* const y = static_cast<T*>(to) + (n - begin) * stride;
      if (w.order != nullptr) {
        for (int64_t k = 0; k < w.columns; ++k) y[w.order[k]] = T(row[k]);
      } else if constexpr (std::is_same_v<T, double>) {
        for (int64_t k = 0; k < w.columns; ++k) y[k] = row[k];
      } else {
        for_vectors<T>(w.columns, [&](int64_t k, int64_t l) { store_upto(y + k, load_upto(row + k, l, 0), l); });
      }
    });
  }
}

}  // namespace strata::STRATA_VEC_NS
