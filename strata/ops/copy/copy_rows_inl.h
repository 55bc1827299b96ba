// Conversions of dense runs from and to f32, and transposed blocks, for one processor level. No include guard: see
// strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// ---- conversions: the results are those of convert() in copy_cpu.cpp ---------------------------------------------

// Truncated, saturated to i64, of which D takes the low bits; NaN is 0. What fits in i32 is the same without that way.
template <class D>
static void from_f32(void* to, const void* from, int64_t n) {
  D* y = static_cast<D*>(to);
  const float* x = static_cast<const float*>(from);
  if constexpr (std::is_same_v<D, Half> || std::is_same_v<D, BFloat16>) {
    int64_t i = 0;
    for (; i + kW <= n; i += kW) {
      if constexpr (std::is_same_v<D, Half>) {
        store(y + i, load(x + i));
      } else {
        // The processor's own instruction, which store() has, takes the smallest numbers as 0.
        const V16 h = __builtin_convertvector(bf16_round(load(x + i)), V16);
        __builtin_memcpy(static_cast<void*>(y + i), &h, sizeof h);
      }
    }
    for (; i < n; ++i) y[i] = D(x[i]);
  } else if constexpr (std::is_same_v<D, bool>) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] != 0;
  } else if constexpr (std::is_floating_point_v<D>) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<D>(x[i]);
  } else {
    constexpr int64_t kBlock = 128;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t m = std::min(kBlock, n - begin);
      const float* in = x + begin;
      D* out = y + begin;
      int32_t wide = 0;
      for (int64_t i = 0; i < m; ++i) wide |= !(std::fabs(in[i]) < 2147483648.f);
      if (!wide) {
        if constexpr (sizeof(D) == sizeof(int32_t)) {
          for (int64_t i = 0; i < m; ++i) out[i] = static_cast<int32_t>(in[i]);
          continue;
        }
        int32_t whole[kBlock];
        for (int64_t i = 0; i < m; ++i) whole[i] = static_cast<int32_t>(in[i]);
        for (int64_t i = 0; i < m; ++i) out[i] = static_cast<D>(whole[i]);
        continue;
      }
      for (int64_t i = 0; i < m; ++i) {
        const float v = in[i];
        const int64_t whole = v != v                         ? 0
                              : v >= 9.2233720368547758e18f  ? INT64_MAX
                              : v <= -9.2233720368547758e18f ? INT64_MIN
                                                             : static_cast<int64_t>(v);
        out[i] = static_cast<D>(whole);
      }
    }
  }
}
template <class S>
static void to_f32(void* to, const void* from, int64_t n) {
  float* y = static_cast<float*>(to);
  const S* x = static_cast<const S*>(from);
  int64_t i = 0;
  if constexpr (std::is_same_v<S, Half> || std::is_same_v<S, BFloat16>)
    for (; i + kW <= n; i += kW) store(y + i, load(x + i));
  for (; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

// Whether each is not 0. Bytes and numbers of other sizes share no memory here, which the compiler cannot know of
// bytes.
template <class S>
static void to_bits(void* to, const void* from, int64_t n) {
  uint8_t* y = static_cast<uint8_t*>(to);
  const S* x = static_cast<const S*>(from);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] != 0;
}

using ConvertRun = void (*)(void* to, const void* from, int64_t n);
struct ConvertRuns {
  ConvertRun from_f32[kNumDTypes] = {}, to_f32[kNumDTypes] = {}, to_bits[kNumDTypes] = {};
  template <class... T>
  void fill_bits() {
    ((to_bits[static_cast<size_t>(dtype_of<T>)] = &STRATA_VEC_NS::to_bits<T>), ...);
  }
  template <class... T>
  void fill() {
    ((from_f32[static_cast<size_t>(dtype_of<T>)] = &STRATA_VEC_NS::from_f32<T>), ...);
    ((to_f32[static_cast<size_t>(dtype_of<T>)] = &STRATA_VEC_NS::to_f32<T>), ...);
  }
};
// The conversion between f32 and another type, or of numbers to bits; nullptr for others.
static ConvertRun convert_run_of(DType to, DType from) {
  static const ConvertRuns runs = [] {
    ConvertRuns r;
    r.fill<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, Half, BFloat16, double>();
    r.fill_bits<uint8_t, int8_t, int16_t, int32_t, int64_t, double>();
    return r;
  }();
  if (to == DType::boolean && runs.to_bits[static_cast<size_t>(from)]) return runs.to_bits[static_cast<size_t>(from)];
  if (from == DType::f32) return runs.from_f32[static_cast<size_t>(to)];
  return to == DType::f32 ? runs.to_f32[static_cast<size_t>(from)] : nullptr;
}

// ---- runs that do not lie side by side ---------------------------------------------------------------------------

template <class T>
static void reversed(void* to, const void* last, int64_t n) {
  T* y = static_cast<T*>(to);
  const T* x = static_cast<const T*>(last);
  for (int64_t i = 0; i < n; ++i) y[i] = x[-i];
}

// Every second element of 2 n - 1, as many as a vector of kBytes has. The last pair may end with the memory: its second
// element is not read, so that the second vector begins one element before the first one's end.
template <class T, int kBytes, size_t... I>
STRATA_INLINE void second_vector(T* to, const char* from, std::index_sequence<I...>) {
  typedef T Lanes __attribute__((vector_size(kBytes)));
  constexpr size_t kCount = sizeof...(I);
  Lanes a, b;
  __builtin_memcpy(&a, from, sizeof a);
  __builtin_memcpy(&b, from + (kCount - 1) * sizeof(T), sizeof b);
  const Lanes v = __builtin_shufflevector(a, b, static_cast<int>(I < kCount / 2 ? 2 * I : 2 * I + 1)...);
  __builtin_memcpy(to, &v, sizeof v);
}
// Whole vectors, of which the last one ends where the elements do; false if there are too few for one.
template <class T, int kBytes>
STRATA_INLINE bool second_vectors(T* to, const char* from, int64_t n) {
  constexpr int64_t kCount = kBytes / static_cast<int64_t>(sizeof(T));
  if constexpr (kCount >= 2) {
    if (n < kCount) return false;
    constexpr int64_t step = 2 * static_cast<int64_t>(sizeof(T));
    int64_t i = 0;
    for (; i + kCount <= n; i += kCount)
      second_vector<T, kBytes>(to + i, from + i * step, std::make_index_sequence<kCount>{});
    if (i < n)
      second_vector<T, kBytes>(to + n - kCount, from + (n - kCount) * step, std::make_index_sequence<kCount>{});
    return true;
  } else {
    return false;
  }
}
template <class T>
STRATA_INLINE void second(void* to, const char* from, int64_t n) {
  T* const y = static_cast<T*>(to);
  if (second_vectors<T, kVecBytes>(y, from, n) || second_vectors<T, kVecBytes / 2>(y, from, n)) return;
  for (int64_t i = 0; i < n; ++i) __builtin_memcpy(y + i, from + 2 * i * static_cast<int64_t>(sizeof(T)), sizeof(T));
}
template <class T>
static void second_lines_of(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) second<T>(to + i * to_step, from + i * from_step, n);
}
static void second_lines(int64_t size, char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n,
                         int64_t lines) {
  if (size == 1) return second_lines_of<uint8_t>(to, to_step, from, from_step, n, lines);
  if (size == 2) return second_lines_of<uint16_t>(to, to_step, from, from_step, n, lines);
  if (size == 4) return second_lines_of<uint32_t>(to, to_step, from, from_step, n, lines);
  second_lines_of<uint64_t>(to, to_step, from, from_step, n, lines);
}
static void second_sized(int64_t size, void* to, const char* from, int64_t n) {
  second_lines(size, static_cast<char*>(to), 0, from, 0, n, 1);
}

// The other way: elements side by side to every second place. What lies between is neither read nor written.
template <class T>
STRATA_INLINE void spread(char* to, const char* from, int64_t n) {
  constexpr int64_t size = sizeof(T);
  int64_t i = 0;
#if STRATA_VEC_LEVEL >= 2
  for (constexpr int64_t kCount = 32 / size; i + kCount <= n; i += kCount) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * size));
    char* const at = to + 2 * i * size;
    if constexpr (size == 1)
      _mm512_mask_storeu_epi8(at, 0x5555555555555555u, _mm512_cvtepu8_epi16(v));
    else if constexpr (size == 2)
      _mm512_mask_storeu_epi16(at, 0x55555555u, _mm512_cvtepu16_epi32(v));
    else if constexpr (size == 4)
      _mm512_mask_storeu_epi32(at, 0x5555u, _mm512_cvtepu32_epi64(v));
    else
      _mm512_mask_storeu_epi64(
          at, 0x55u, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castsi256_si512(v)));
  }
#endif
  for (; i < n; ++i) __builtin_memcpy(to + 2 * i * size, from + i * size, size);
}
template <class T>
static void spread_lines_of(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) spread<T>(to + i * to_step, from + i * from_step, n);
}
static void spread_lines(int64_t size, char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n,
                         int64_t lines) {
  if (size == 1) return spread_lines_of<uint8_t>(to, to_step, from, from_step, n, lines);
  if (size == 2) return spread_lines_of<uint16_t>(to, to_step, from, from_step, n, lines);
  if (size == 4) return spread_lines_of<uint32_t>(to, to_step, from, from_step, n, lines);
  spread_lines_of<uint64_t>(to, to_step, from, from_step, n, lines);
}

// A long run. The library's copy of one knows more than this loop (it writes lines without reading them first, where
// that pays: rows of 1 to 8 KiB that the caches do not hold go two to four times as fast), but goes through an
// instruction that takes thirteen times as long where the run ends up a few bytes further on, counted in pages.
STRATA_INLINE void copy_run(char* to, const char* from, int64_t bytes) {
  typedef uint8_t Lanes __attribute__((vector_size(kVecBytes)));
  constexpr int64_t kStep = 4 * kVecBytes;
  const uintptr_t further = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % 4096;
  int64_t i = 0;
  if (further > 0 && further < 64) {
    for (; i + kStep <= bytes; i += kStep) {
      Lanes v[4];
      __builtin_memcpy(v, from + i, sizeof v);
      __builtin_memcpy(to + i, v, sizeof v);
    }
  }
  __builtin_memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}
// Lines of a few vectors, `bytes` each: a call of memcpy() for each would take as long as the copy.
static void copy_lines(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t bytes, int64_t lines) {
  typedef uint8_t Lanes __attribute__((vector_size(kVecBytes)));
  if (bytes > 8 * kVecBytes) {
    for (int64_t i = 0; i < lines; ++i) copy_run(to + i * to_step, from + i * from_step, bytes);
    return;
  }
  if (bytes < kVecBytes) {
    for (int64_t i = 0; i < lines; ++i) __builtin_memcpy(to + i * to_step, from + i * from_step, bytes);
    return;
  }
  for (int64_t i = 0; i < lines; ++i, to += to_step, from += from_step) {
    // The last vector ends where the line does.
    Lanes v, last;
    __builtin_memcpy(&last, from + bytes - kVecBytes, sizeof last);
    for (int64_t b = 0; b + kVecBytes < bytes; b += kVecBytes) {
      __builtin_memcpy(&v, from + b, sizeof v);
      __builtin_memcpy(to + b, &v, sizeof v);
    }
    __builtin_memcpy(to + bytes - kVecBytes, &last, sizeof last);
  }
}

// Lines of one number each, n times. The last vector ends where the line does.
template <class T>
static void repeated_lines_of(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n,
                              int64_t lines) {
  typedef T Lanes __attribute__((vector_size(kVecBytes)));
  const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < lines; ++i, to += to_step, from += from_step) {
    T one;
    __builtin_memcpy(&one, from, sizeof one);
    if (bytes < kVecBytes) {
      for (int64_t j = 0; j < n; ++j) __builtin_memcpy(to + j * static_cast<int64_t>(sizeof(T)), &one, sizeof one);
      continue;
    }
    const Lanes v = Lanes{} + one;
    for (int64_t b = 0; b + kVecBytes < bytes; b += kVecBytes) __builtin_memcpy(to + b, &v, sizeof v);
    __builtin_memcpy(to + bytes - kVecBytes, &v, sizeof v);
  }
}
static void repeated_lines(int64_t size, char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n,
                           int64_t lines) {
  if (size == 1) return repeated_lines_of<uint8_t>(to, to_step, from, from_step, n, lines);
  if (size == 2) return repeated_lines_of<uint16_t>(to, to_step, from, from_step, n, lines);
  if (size == 4) return repeated_lines_of<uint32_t>(to, to_step, from, from_step, n, lines);
  repeated_lines_of<uint64_t>(to, to_step, from, from_step, n, lines);
}

// n times the `size` bytes that `value` begins with.
template <class T>
static void fill(void* to, uint64_t value, int64_t n) {
  typedef T Lanes __attribute__((vector_size(kVecBytes)));
  constexpr int64_t kCount = kVecBytes / sizeof(T);
  T* y = static_cast<T*>(to);
  const T one = static_cast<T>(value);
  // Stores that cross lines of the cache cost twice.
  for (; n > 0 && reinterpret_cast<uintptr_t>(y) % kVecBytes != 0; --n) *y++ = one;
  const Lanes v = Lanes{} + one;
  for (; n >= kCount; n -= kCount, y += kCount) __builtin_memcpy(y, &v, sizeof v);
  for (; n > 0; --n) *y++ = one;
}
static void fill_sized(int64_t size, void* to, uint64_t value, int64_t n) {
  if (size == 1) return fill<uint8_t>(to, value, n);
  if (size == 2) return fill<uint16_t>(to, value, n);
  if (size == 4) return fill<uint32_t>(to, value, n);
  fill<uint64_t>(to, value, n);
}

constexpr int64_t kTile = 16;

template <class T>
STRATA_INLINE void transpose_tile(const char* from, int64_t from_step, char* to, int64_t to_step) {
#if STRATA_VEC_LEVEL >= 2
  if constexpr (sizeof(T) == 4) {
    __m512i lines[kTile];
    for (int i = 0; i < kTile; ++i) lines[i] = _mm512_loadu_si512(from + i * from_step);
    transpose16(lines);
    for (int i = 0; i < kTile; ++i) _mm512_storeu_si512(to + i * to_step, lines[i]);
    return;
  }
#endif
  T tile[kTile][kTile];
  for (int64_t i = 0; i < kTile; ++i) __builtin_memcpy(tile[i], from + i * from_step, sizeof tile[i]);
  for (int64_t i = 0; i < kTile; ++i) {
    T line[kTile];
    for (int64_t j = 0; j < kTile; ++j) line[j] = tile[j][i];
    __builtin_memcpy(to + i * to_step, line, sizeof line);
  }
}
// The same of less than a tile, which goes through whole lines where those are long enough to be worth it.
template <class T>
STRATA_INLINE void transpose_part(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t height,
                                  int64_t width) {
#if STRATA_VEC_LEVEL >= 2
  if constexpr (sizeof(T) == 4) {
    const __mmask16 high = static_cast<__mmask16>((1u << height) - 1), wide = static_cast<__mmask16>((1u << width) - 1);
    __m512i lines[kTile];
    for (int i = 0; i < kTile; ++i)
      lines[i] = i < width ? _mm512_maskz_loadu_epi32(high, from + i * from_step) : _mm512_setzero_si512();
    transpose16(lines);
    for (int i = 0; i < kTile; ++i)
      if (i < height) _mm512_mask_storeu_epi32(to + i * to_step, wide, lines[i]);
    return;
  }
#endif
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j)
      __builtin_memcpy(to + i * to_step + j * static_cast<int64_t>(sizeof(T)),
                       from + j * from_step + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
}
// ---- few lines woven into one, and back: channels of images, narrow matrices --------------------------------------

// What holds kWoven numbers of each of two to four lines: a vector. Bytes are looked up in short ones only.
template <class T>
constexpr int kWovenBytes = STRATA_VEC_LEVEL >= 2 && sizeof(T) > 1 ? kVecBytes : 16;
template <class T>
constexpr int kWoven = kWovenBytes<T> / static_cast<int>(sizeof(T));
template <class T>
struct WovenLanes {
  typedef T type __attribute__((vector_size(kWovenBytes<T>)));
};

// Vector `Out` of N lines' next numbers in turns: number g of the result is number g / N of line g % N.
template <class T, int N, int Out, size_t... I>
STRATA_INLINE void weave_vector(const typename WovenLanes<T>::type* v, char* to, std::index_sequence<I...>) {
  constexpr int K = kWoven<T>;
  constexpr auto line = [](size_t i) { return (Out * K + static_cast<int>(i)) % N; };
  constexpr auto at = [](size_t i) { return (Out * K + static_cast<int>(i)) / N; };
  auto y = __builtin_shufflevector(v[0], v[1], (line(I) < 2 ? line(I) * K + at(I) : 0)...);
  if constexpr (N == 3) y = __builtin_shufflevector(y, v[2], (line(I) < 2 ? static_cast<int>(I) : K + at(I))...);
  if constexpr (N == 4) {
    const auto z = __builtin_shufflevector(v[2], v[3], (line(I) < 2 ? 0 : (line(I) - 2) * K + at(I))...);
    y = __builtin_shufflevector(y, z, (static_cast<int>(I) + (line(I) < 2 ? 0 : K))...);
  }
  __builtin_memcpy(to + Out * kWovenBytes<T>, &y, sizeof y);
}
// Of N vectors of numbers in turns those of one line.
template <class T, int N, int Line, size_t... I>
STRATA_INLINE void part_vector(const typename WovenLanes<T>::type* v, char* to, std::index_sequence<I...>) {
  constexpr int K = kWoven<T>;
  constexpr auto at = [](size_t i) { return static_cast<int>(i) * N + Line; };
  auto y = __builtin_shufflevector(v[0], v[1], (at(I) < 2 * K ? at(I) : 0)...);
  if constexpr (N == 3) y = __builtin_shufflevector(y, v[2], (at(I) < 2 * K ? static_cast<int>(I) : at(I) - K)...);
  if constexpr (N == 4) {
    const auto z = __builtin_shufflevector(v[2], v[3], (at(I) < 2 * K ? 0 : at(I) - 2 * K)...);
    y = __builtin_shufflevector(y, z, (static_cast<int>(I) + (at(I) < 2 * K ? 0 : K))...);
  }
  __builtin_memcpy(to, &y, sizeof y);
}
// N lines of n numbers, `step` bytes apart, to one of N n numbers, or back.
template <class T, int N, bool Back, int... Each>
STRATA_INLINE void weave_lines(const char* from, char* to, int64_t step, int64_t n,
                               std::integer_sequence<int, Each...>) {
  constexpr int64_t K = kWoven<T>, size = sizeof(T);
  constexpr auto all = std::make_index_sequence<kWoven<T>>{};
  typename WovenLanes<T>::type v[N];
  int64_t i = 0;
  for (; i + K <= n; i += K) {
    for (int k = 0; k < N; ++k)
      __builtin_memcpy(&v[k], from + (Back ? (N * i + k * K) * size : k * step + i * size), sizeof v[k]);
    if constexpr (Back)
      (part_vector<T, N, Each>(v, to + Each * step + i * size, all), ...);
    else
      (weave_vector<T, N, Each>(v, to + N * i * size, all), ...);
  }
  for (; i < n; ++i)
    for (int k = 0; k < N; ++k)
      __builtin_memcpy(to + (Back ? k * step + i * size : (N * i + k) * size),
                       from + (Back ? (N * i + k) * size : k * step + i * size), size);
}
template <class T, bool Back>
static void weave(const char* from, char* to, int64_t step, int64_t n, int64_t lines) {
  if (lines == 2) return weave_lines<T, 2, Back>(from, to, step, n, std::make_integer_sequence<int, 2>{});
  if (lines == 3) return weave_lines<T, 3, Back>(from, to, step, n, std::make_integer_sequence<int, 3>{});
  weave_lines<T, 4, Back>(from, to, step, n, std::make_integer_sequence<int, 4>{});
}

template <class T>
static void transpose(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows, int64_t cols) {
  constexpr int64_t size = sizeof(T);
#if STRATA_VEC_LEVEL >= 1
  if (cols >= 2 && cols <= 4 && to_step == cols * size) return weave<T, false>(from, to, from_step, rows, cols);
  if (rows >= 2 && rows <= 4 && from_step == rows * size) return weave<T, true>(from, to, to_step, cols, rows);
#endif
  for (int64_t r = 0; r < rows; r += kTile) {
    for (int64_t c = 0; c < cols; c += kTile) {
      const char* in = from + c * from_step + r * size;
      char* out = to + r * to_step + c * size;
      const int64_t height = std::min(kTile, rows - r), width = std::min(kTile, cols - c);
      if (height == kTile && width == kTile)
        transpose_tile<T>(in, from_step, out, to_step);
      else
        transpose_part<T>(in, from_step, out, to_step, height, width);
    }
  }
}
static void transpose_sized(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows,
                            int64_t cols) {
  if (size == 1) return transpose<uint8_t>(from, from_step, to, to_step, rows, cols);
  if (size == 2) return transpose<uint16_t>(from, from_step, to, to_step, rows, cols);
  if (size == 4) return transpose<uint32_t>(from, from_step, to, to_step, rows, cols);
  transpose<uint64_t>(from, from_step, to, to_step, rows, cols);
}
static void reversed_sized(int64_t size, void* to, const void* last, int64_t n) {
  if (size == 1) return reversed<uint8_t>(to, last, n);
  if (size == 2) return reversed<uint16_t>(to, last, n);
  if (size == 4) return reversed<uint32_t>(to, last, n);
  reversed<uint64_t>(to, last, n);
}

}  // namespace strata::STRATA_VEC_NS
