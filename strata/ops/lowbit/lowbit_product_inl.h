// Kernels of low-bit products, for one processor level: see levels_inl.h. No include guard.
//
// Few rows of x: W's numbers are multiplied in the registers that they are decoded in. More: a tile of kTile rows of W
// is decoded into the first cache, and multiplied with every row of x from there. Both go by spans of columns, of which
// x stays in the caches for many rows of W. x lies in the same spans; its rows there are a cache line longer than a
// span, since multiples of 4 KiB would all want the same places in the caches. A single row of x lies as it is, and W's
// are read from end to end.

#include "strata/ops/lowbit/lowbit_inl.h"

namespace strata::STRATA_VEC_NS {

constexpr int64_t kTile = 4;  // rows of W together
#if STRATA_VEC_LEVEL >= 2
constexpr int64_t kMostTogether = 6;  // rows of x: 4 x 6 sums, 4 numbers of W and one of x fit 32 registers
constexpr int64_t kFew = 8;           // rows of x: 2 sums each
#elif STRATA_VEC_LEVEL == 1
constexpr int64_t kMostTogether = 2;
constexpr int64_t kFew = 4;
#else
constexpr int64_t kMostTogether = 1;
constexpr int64_t kFew = 2;
#endif
constexpr int64_t kSpan = 512;
constexpr int64_t kPlaces = 64;  // rows of W whose products are put into y together
template <class E>
constexpr int64_t kStride = kSpan + 64 / static_cast<int64_t>(sizeof(E));

inline int64_t units_of(const PackedView& w) {
  return (w.columns + kUnit - 1) / kUnit;
}
inline int64_t spans_of(const PackedView& w) {
  return (w.columns + kSpan - 1) / kSpan;
}
// Elements from one row of a span of x to the next.
template <class E>
constexpr int64_t stride_of(int64_t m) {
  return m == 1 ? kSpan : kStride<E>;
}

// to[t] += the sum of s[t].
STRATA_INLINE void add_sums(const VF (&s)[kTile], float* to) {
#if STRATA_VEC_LEVEL >= 2
  const VF ab = _mm512_unpacklo_ps(s[0], s[1]) + _mm512_unpackhi_ps(s[0], s[1]);
  const VF cd = _mm512_unpacklo_ps(s[2], s[3]) + _mm512_unpackhi_ps(s[2], s[3]);
  const VF four = _mm512_shuffle_ps(ab, cd, 0x44) + _mm512_shuffle_ps(ab, cd, 0xee);  // sums of each 128 bits
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(four), _mm512_extractf32x8_ps(four, 1));
  const __m128 all = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), all));
#else
  for (int t = 0; t < kTile; ++t) to[t] += reduce_add(s[t]);
#endif
}

// Asks for the codes of a row's span. A span is short and the next row's lies elsewhere, which processors do not
// foresee.
STRATA_INLINE void ask_for(const PackedView& w, const LowbitRow& r, int64_t begin, int64_t end) {
  const int64_t units = units_of(w);
  const uint8_t* const stop = r.codes + w.row_bytes * end / units;
  for (const uint8_t* p = r.codes + w.row_bytes * begin / units; p < stop; p += 64) __builtin_prefetch(p);
}
constexpr int64_t kAhead = 8;  // rows before they are used

template <class C>
void one_row_product(const PackedView& w, const LowbitRow* rows, int64_t count, const float* x, float* y) {
  const int64_t units = units_of(w);
  for (int64_t n = 0; n < count; ++n) {
    if (n + 1 < count) ask_for(w, rows[n + 1], 0, units);
    VF sums[2 * kPer] = {};
    decode_units<C>(w, rows[n], 0, units, [&](int64_t u, int parity, int i, VF v) {
      sums[parity * kPer + i] = fma(v, load(x + u * kUnit + i * kW), sums[parity * kPer + i]);
    });
#pragma GCC unroll 16
    for (int i = 1; i < 2 * kPer; ++i) sums[0] += sums[i];
    y[n] = reduce_add(sums[0]);
  }
}

// sums[n, i] += the products of W's rows with M rows of x over units [begin, end), which begin a span.
template <class C, int M>
void few_rows_product(const PackedView& w, const LowbitRow* rows, int64_t count, const float* x, int64_t begin,
                      int64_t end, float* sums) {
  constexpr int kSums = M * 2 * kPer <= 16 ? 2 * kPer : M * kPer <= 16 ? kPer : 2;  // of a row, so that none waits
  constexpr int kAll = (M + kTile - 1) / kTile * kTile;
  for (int64_t n = 0; n < count; ++n, sums += kAll) {
    if (n + kAhead < count)
      ask_for(w, rows[n + kAhead], begin, end);
    else if (end < units_of(w))
      ask_for(w, rows[std::min(n + kAhead - count, count - 1)], end, std::min(units_of(w), end + kSpan / kUnit));
    VF s[kAll][kSums] = {};
    decode_units<C>(w, rows[n], begin, end, [&](int64_t u, int parity, int i, VF v) {
      const float* const from = x + (u - begin) * kUnit + i * kW;
      const int at = (parity * kPer + i) % kSums;
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) s[m][at] = fma(v, load(from + m * kStride<float>), s[m][at]);
    });
#pragma GCC unroll 8
    for (int m = 0; m < kAll; m += kTile) {
      VF all[kTile];
#pragma GCC unroll 4
      for (int t = 0; t < kTile; ++t) {
        all[t] = s[m + t][0];
#pragma GCC unroll 16
        for (int i = 1; i < kSums; ++i) all[t] += s[m + t][i];
      }
      add_sums(all, sums + m);
    }
  }
}

// A step along a row: how many elements, and the products of two vectors of them added to sums.
template <class E>
struct Step {
  static constexpr int64_t kElements = kW;
  using Vector = VF;
  STRATA_INLINE Vector at(const float* p) { return load(p); }
  STRATA_INLINE VF add(Vector a, Vector b, VF sums) { return fma(a, b, sums); }
};
#if STRATA_VEC_LEVEL >= 3
template <>
struct Step<BFloat16> {
  static constexpr int64_t kElements = 2 * kW;
  using Vector = __m512bh;
  STRATA_INLINE Vector at(const BFloat16* p) { return bits<__m512bh>(_mm512_loadu_si512(p)); }
  STRATA_INLINE VF add(Vector a, Vector b, VF sums) { return _mm512_dpbf16_ps(sums, a, b); }
};
#endif

// sums[i, t] += the products of kTile rows of W with M rows of x, over n elements.
template <int M, class E>
void tile_product(const E* rows, const E* x, int64_t n, float* sums) {
  VF s[M][kTile] = {};
  for (int64_t k = 0; k < n; k += Step<E>::kElements) {
    typename Step<E>::Vector v[kTile];
#pragma GCC unroll 4
    for (int t = 0; t < kTile; ++t) v[t] = Step<E>::at(rows + t * kStride<E> + k);
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      const auto from = Step<E>::at(x + i * kStride<E> + k);
#pragma GCC unroll 4
      for (int t = 0; t < kTile; ++t) s[i][t] = Step<E>::add(v[t], from, s[i][t]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) add_sums(s[i], sums + i * kTile);
}
// The same with m rows of x, in groups that differ by one at most.
template <class E>
void tile_products(const E* rows, const E* x, int64_t m, int64_t n, float* sums) {
  const int64_t groups = (m + kMostTogether - 1) / kMostTogether;
  for (int64_t i = 0, left = groups; left > 0; --left) {
    const int64_t now = (m - i + left - 1) / left;
    const auto call = [&]<int M>() { tile_product<M>(rows, x + i * kStride<E>, n, sums + i * kTile); };
    switch (now) {
#if STRATA_VEC_LEVEL >= 2
      case 6:
        call.template operator()<6>();
        break;
      case 5:
        call.template operator()<5>();
        break;
      case 4:
        call.template operator()<4>();
        break;
      case 3:
        call.template operator()<3>();
        break;
#endif
#if STRATA_VEC_LEVEL >= 1
      case 2:
        call.template operator()<2>();
        break;
#endif
      default:
        call.template operator()<1>();
    }
    i += now;
  }
}

// Whether x of this dtype is multiplied as it is, in pairs.
inline bool multiplies_bf16(DType dtype, int64_t m) {
  return STRATA_VEC_LEVEL >= 3 && dtype == DType::bf16 && m > kMostFusedRows;
}

inline int64_t product_room(const PackedView& w, int64_t m) {
  return kPlaces * (RowReader::room(w) + m + kTile) + kTile * kStride<float>;
}
// W's rows [begin, end), at most kPlaces of them, with their scales.
inline void read_rows(const PackedView& w, int64_t begin, int64_t end, LowbitRow* rows, float* scales) {
  for (int64_t n = begin; n < end; ++n) {
    RowReader reader(w, scales + (n - begin) * RowReader::room(w));
    rows[n - begin] = reader.row(n);
  }
}
// Their products with m rows of x into sums [tiles of W's rows, m, kTile].
template <class E>
void many_rows_products(const PackedView& w, const LowbitRow* rows, int64_t count, const E* x, int64_t m, float* sums,
                        E* tile) {
  const int64_t units = units_of(w);
  std::fill(tile, tile + kTile * kStride<E>, E(0.0f));  // of rows that a last tile lacks
  for (int64_t u = 0; u < units; u += kSpan / kUnit, x += m * kStride<E>) {
    const int64_t stop = std::min(units, u + kSpan / kUnit);
    for (int64_t n = 0; n < count; n += kTile) {
      for (int64_t t = n + kTile; t < std::min(count, n + 2 * kTile); ++t) ask_for(w, rows[t], u, stop);
      with_codec(w.kind, [&]<class C>(C) {
        for (int64_t t = 0; t < std::min(kTile, count - n); ++t)
          decode_into<C>(w, rows[n + t], u, stop, tile + t * kStride<E>);
      });
      tile_products(tile, x, m, (stop - u) * kUnit, sums + n * m);
    }
  }
}
// Their products with m <= kFew rows of x into sums [W's rows, m up to a multiple of kTile].
inline void few_rows_products(const PackedView& w, const LowbitRow* rows, int64_t count, const float* x, int64_t m,
                              float* sums) {
  const int64_t units = units_of(w);
  with_codec(w.kind, [&]<class C>(C) {
    for (int64_t u = 0; u < units; u += kSpan / kUnit, x += m * kStride<float>) {
      const int64_t stop = std::min(units, u + kSpan / kUnit);
      const auto call = [&]<int M>() { few_rows_product<C, M>(w, rows, count, x, u, stop, sums); };
      switch (m) {
        case 2:
          call.template operator()<2>();
          break;
#if STRATA_VEC_LEVEL >= 1
        case 3:
          call.template operator()<3>();
          break;
        case 4:
          call.template operator()<4>();
          break;
#endif
#if STRATA_VEC_LEVEL >= 2
        case 5:
          call.template operator()<5>();
          break;
        case 6:
          call.template operator()<6>();
          break;
        case 7:
          call.template operator()<7>();
          break;
        case 8:
          call.template operator()<8>();
          break;
#endif
      }
    }
  });
}

// y[i, n] for W's rows [begin, end), at most kPlaces of them, and all rows of x, from spread_x().
inline void product_rows(const PackedView& w, DType dtype, const void* x, int64_t m, int64_t begin, int64_t end,
                         const void* bias, void* y, float* room) {
  const int64_t count = end - begin, width = (m + kTile - 1) / kTile * kTile;
  float *const out = room, *const sums = out + kPlaces, *const scales = sums + kPlaces * width;
  float* const tile = scales + kPlaces * RowReader::room(w);
  LowbitRow rows[kPlaces];
  read_rows(w, begin, end, rows, scales);
  std::memset(sums, 0, static_cast<size_t>(kPlaces * width) * sizeof(float));
  if (m == 1) {
    with_codec(w.kind, [&]<class C>(C) { one_row_product<C>(w, rows, count, static_cast<const float*>(x), out); });
  } else if (m <= kFew) {
    few_rows_products(w, rows, count, static_cast<const float*>(x), m, sums);
  } else if (multiplies_bf16(dtype, m)) {
#if STRATA_VEC_LEVEL >= 3
    many_rows_products(w, rows, count, static_cast<const BFloat16*>(x), m, sums, reinterpret_cast<BFloat16*>(tile));
#endif
  } else {
    many_rows_products(w, rows, count, static_cast<const float*>(x), m, sums, tile);
  }
  dispatch_floating(dtype, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      for (int64_t i = 0; i < m; ++i) {
        if (m <= kFew && m > 1)
          for (int64_t n = 0; n < count; ++n) out[n] = sums[n * width + i];
        else if (m > 1)
          for (int64_t n = 0; n < count; n += kTile)
            std::memcpy(out + n, sums + n * m + i * kTile, kTile * sizeof(float));
        T* const to = static_cast<T*>(y) + i * w.rows + begin;
        for_vectors<T>(count, [&](int64_t n, int64_t k) {
          V<T> v = load_upto(out + n, k, 0);
          if (bias != nullptr) v += load_upto(static_cast<const T*>(bias) + begin + n, k, 0);
          store_upto(to + n, v, k);
        });
      }
    }
  });
}

// Rows [begin, end) of x [m, columns] as floats, or as they are where multiplies_bf16(), in the order of the codes'
// columns: spans of m rows, whose last ends in zeros up to whole units.
inline int64_t spread_size(const PackedView& w, int64_t m) {
  return spans_of(w) * m * kStride<float>;  // floats; enough for bf16
}
template <class T, class E>
void spread_rows(const PackedView& w, const T* x, int64_t m, int64_t begin, int64_t end, E* to) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t s = 0; s < spans_of(w); ++s) {
      E* const row = to + (s * m + i) * stride_of<E>(m);
      const int64_t first = s * kSpan, n = std::min(kSpan, w.columns - first);
      const T* const from = x + i * w.columns;
      if (w.order != nullptr) {
        for (int64_t k = 0; k < n; ++k) row[k] = static_cast<E>(from[w.order[first + k]]);
      } else if constexpr (std::is_same_v<T, E>) {
        std::memcpy(static_cast<void*>(row), from + first, static_cast<size_t>(n) * sizeof(T));
      } else {
        for_vectors<T>(n, [&](int64_t k, int64_t l) { store_upto(row + k, load_upto(from + first + k, l, 0), l); });
      }
      std::fill(row + n, row + (n + kUnit - 1) / kUnit * kUnit, E(0.0f));
    }
}
inline void spread_x(const PackedView& w, DType dtype, const void* from, int64_t m, int64_t begin, int64_t end,
                     void* to) {
  dispatch_floating(dtype, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      if (std::is_same_v<T, BFloat16> && multiplies_bf16(dtype, m))
        spread_rows(w, static_cast<const T*>(from), m, begin, end, static_cast<T*>(to));
      else
        spread_rows(w, static_cast<const T*>(from), m, begin, end, static_cast<float*>(to));
    }
  });
}

}  // namespace strata::STRATA_VEC_NS
