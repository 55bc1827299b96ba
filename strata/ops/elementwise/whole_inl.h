// Elementwise kernels of whole numbers and bool, and of what is asked of floats, for one processor level: plain loops,
// which the compiler makes vectors of (this file's .cpp is built with the options for that). Results are those of
// functions_inl.h. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
struct WholeConstants {
  T a, b, c;
  explicit WholeConstants(const MapParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()), c(p.s[2].to<T>()) {}
};

// Integer arithmetic wraps around, as the unsigned one of its size does; small types are computed in 32 bits.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
STRATA_INLINE Wrapping<T> wrap(T v) {
  return static_cast<Wrapping<T>>(v);
}

// Operand k of element i is in[k][i * step[k]], the step 0 or 1: loops with constant steps are those that become
// vectors.
template <class F, class T, class O, bool kOneEach, bool kOneEachMore>
STRATA_INLINE void whole_loop(O* y, const T* a, const T* b, int64_t n, const WholeConstants<T>& c) {
  const F f{};
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<O>(f(a[kOneEach ? i : 0], b[kOneEachMore ? i : 0], c));
}
template <class F, class T, class O>
static void whole_run(O* y, const T* a, const T* b, int64_t n, const WholeConstants<T>& c, bool one, bool one_more) {
  if (one && one_more) return whole_loop<F, T, O, false, false>(y, a, b, n, c);
  if (one) return whole_loop<F, T, O, false, true>(y, a, b, n, c);
  if (one_more) return whole_loop<F, T, O, true, false>(y, a, b, n, c);
  whole_loop<F, T, O, true, true>(y, a, b, n, c);
}
#if STRATA_VEC_LEVEL >= 2
// The first n elements of up to 64 bytes, to and from memory that has all of them.
template <class T>
STRATA_INLINE __m512i some_of(const T* from, int64_t n) {
  const uint64_t mask = (uint64_t{1} << n) - 1;
  if constexpr (sizeof(T) == 1) return _mm512_maskz_loadu_epi8(mask, from);
  if constexpr (sizeof(T) == 2) return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), from);
  if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), from);
  if constexpr (sizeof(T) == 8) return _mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), from);
}
template <class T>
STRATA_INLINE void put_some(T* to, __m512i v, int64_t n) {
  const uint64_t mask = (uint64_t{1} << n) - 1;
  if constexpr (sizeof(T) == 1) _mm512_mask_storeu_epi8(to, mask, v);
  if constexpr (sizeof(T) == 2) _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(mask), v);
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(mask), v);
  if constexpr (sizeof(T) == 8) _mm512_mask_storeu_epi64(to, static_cast<__mmask8>(mask), v);
}
#endif
template <class F, class T, class O>
static void whole_map(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const WholeConstants<T> c(params);
  O* y = static_cast<O*>(out);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = in[1] ? static_cast<const T*>(in[1]) : a;
  const bool one = params.step[0] == 0, one_more = in[1] ? params.step[1] == 0 : one;
#if STRATA_VEC_LEVEL >= 2
  // What is left when whole vectors have been taken goes through one more, instead of up to 31 bytes one by one: rows
  // of 511 bytes took half their time for those.
  constexpr int64_t kCount = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t whole = n / kCount * kCount, left = n - whole;
  if constexpr (sizeof(O) <= sizeof(T)) {
    if (left > 1) {
      if (whole > 0) whole_run<F, T, O>(y, a, b, whole, c, one, one_more);
      alignas(64) T x[kCount], z[kCount];
      alignas(64) O result[64 / sizeof(O)] = {};
      const auto take = [&](T* to, const T* from, bool repeated) {
        if (repeated)
          std::fill_n(to, kCount, *from);
        else
          _mm512_store_si512(to, some_of(from + whole, left));
      };
      take(x, a, one);
      take(z, b, one_more);
      whole_loop<F, T, O, true, true>(result, x, z, kCount, c);
      put_some(y + whole, _mm512_load_si512(result), left);
      return;
    }
  }
#endif
  whole_run<F, T, O>(y, a, b, n, c, one, one_more);
}

template <class T>
static void whole_addcmul(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const WholeConstants<T> c(params);
  T* y = static_cast<T*>(out);
  const T *x = static_cast<const T*>(in[0]), *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  // Loops with constant steps are those that become vectors.
  const auto go = [&]<bool kX, bool kA, bool kB>() {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      y[i] = static_cast<T>(wrap(x[kX ? i : 0]) + wrap(c.a) * wrap(a[kA ? i : 0]) * wrap(b[kB ? i : 0]));
  };
  const auto with_b = [&]<bool kX, bool kA>() {
    params.step[2] ? go.template operator()<kX, kA, true>() : go.template operator()<kX, kA, false>();
  };
  const auto with_a = [&]<bool kX>() {
    params.step[1] ? with_b.template operator()<kX, true>() : with_b.template operator()<kX, false>();
  };
  params.step[0] ? with_a.template operator()<true>() : with_a.template operator()<false>();
}

// |v|, as the smallest number has one too.
template <class T>
STRATA_INLINE uint64_t size_of(T v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}
constexpr int64_t kBlock = 64;
// Divisors of blocks of numbers below 2^22 in float, below 2^51 in double, in which quotients rounded down and what
// remains are exact: a processor divides many of those in the time of one division of integers.
template <class F>
constexpr uint64_t kExact = uint64_t{1} << (sizeof(F) == 4 ? 22 : 51);
template <class F>
static void euclid(const uint64_t* a, const uint64_t* b, uint64_t* divisor) {
  F x[kBlock], y[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) x[i] = static_cast<F>(a[i]), y[i] = static_cast<F>(b[i]);
  // One vector's lanes go on together until the last has its divisor; two vectors, as one waits for its quotients.
  using Vec = V<F>;
  constexpr int64_t W = kLanes<F>;
  const Vec round = set1(static_cast<F>(2 * kExact<F>));
  const auto step = [&](Vec& u, Vec& v) {
    const Vec quotient = u / v;
    Vec whole = quotient + round;
    whole -= round;
    whole = whole > quotient ? whole - F(1) : whole;
    const Vec rest = u - whole * v;
    const auto more = v != F(0);
    u = more ? v : u;
    v = more ? rest : Vec{};
  };
  for (int64_t i = 0; i < kBlock; i += 2 * W) {
    Vec u[2] = {load(x + i), load(x + i + W)}, v[2] = {load(y + i), load(y + i + W)};
    while (reduce_add(v[0] + v[1]) > 0)
      for (int c = 0; c < 2; ++c) step(u[c], v[c]);
    for (int c = 0; c < 2; ++c) store(x + i + c * W, u[c]);
  }
  for (int64_t i = 0; i < kBlock; ++i) divisor[i] = static_cast<uint64_t>(x[i]);
}
template <class T, bool kMultiple>
static void whole_divisor(void* out, const void* const* in, int64_t n, const MapParams& params) {
  T* y = static_cast<T*>(out);
  const T *p = static_cast<const T*>(in[0]), *q = static_cast<const T*>(in[1]);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = std::min(kBlock, n - begin);
    uint64_t a[kBlock] = {}, b[kBlock] = {}, divisor[kBlock], any = 0;
    for (int64_t i = 0; i < m; ++i) {
      a[i] = size_of(p[params.step[0] ? begin + i : 0]), b[i] = size_of(q[params.step[1] ? begin + i : 0]);
      any |= a[i] | b[i];
    }
    if (any < kExact<float>) {
      euclid<float>(a, b, divisor);
    } else if (any < kExact<double>) {
      euclid<double>(a, b, divisor);
    } else {
      for (int64_t i = 0; i < m; ++i) {
        uint64_t x = a[i], rest = b[i];
        while (rest != 0) x %= rest, std::swap(x, rest);
        divisor[i] = x;
      }
    }
    const bool narrow = any < uint64_t{1} << 53;
    for (int64_t i = 0; kMultiple && i < m; ++i) {
      const uint64_t by = divisor[i] == 0 ? 1 : divisor[i];
      const auto share =
          narrow ? static_cast<uint64_t>(static_cast<double>(a[i]) / static_cast<double>(by)) : a[i] / by;
      divisor[i] = share * b[i];
    }
    for (int64_t i = 0; i < m; ++i) y[begin + i] = static_cast<T>(divisor[i]);
  }
}

// Quotients and what remains of them, by floats for 8 and 16 bits, else by doubles, in which quotients of numbers below
// 2^24 and 2^53 are rounded to the same whole numbers; what is larger one by one.
template <class T, Map kFunction>
static void whole_division(void* out, const void* const* in, int64_t n, const MapParams& params) {
  constexpr bool kDown = kFunction == Map::floor_divide || kFunction == Map::remainder;
  constexpr bool kRest = kFunction == Map::remainder || kFunction == Map::fmod;
  constexpr bool kShort = sizeof(T) <= 2;
  using F = std::conditional_t<kShort, float, double>;
  using Whole = std::conditional_t<kShort, int32_t, int64_t>;
  constexpr const char* kName = kFunction == Map::floor_divide   ? "floor_divide"
                                : kFunction == Map::trunc_divide ? "trunc_divide"
                                : kFunction == Map::remainder    ? "remainder"
                                                                 : "fmod";
  T* y = static_cast<T*>(out);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  const auto go = [&]<bool kA, bool kB>() {
    bool zero = false;
    uint64_t any = 0;
    for (int64_t i = 0; i < n; ++i) zero |= b[kB ? i : 0] == 0;
    if constexpr (sizeof(T) == 8)
      for (int64_t i = 0; i < n; ++i) any |= size_of(a[kA ? i : 0]) | size_of(b[kB ? i : 0]);
    check(!zero, kName, "integer division by zero");
    if (any >= uint64_t{1} << 53) {
      for (int64_t i = 0; i < n; ++i) {
        const T top = a[kA ? i : 0], by = b[kB ? i : 0];
        if (std::is_signed_v<T> && by == static_cast<T>(-1)) {
          // The smallest number has no negative: it wraps.
          y[i] = kRest ? T(0) : static_cast<T>(0 - static_cast<uint64_t>(top));
        } else {
          const bool off = kDown && ((top % by != 0) & ((top < 0) != (by < 0)));
          y[i] = static_cast<T>(kRest ? top % by + (off ? by : T(0)) : top / by - off);
        }
      }
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T top = a[kA ? i : 0], by = b[kB ? i : 0];
      const F quotient = static_cast<F>(top) / static_cast<F>(by);
      Whole whole = static_cast<Whole>(quotient);  // towards 0
      if constexpr (kDown && std::is_signed_v<T>) whole -= static_cast<F>(whole) > quotient;
      y[i] = static_cast<T>(kRest ? wrap(top) - static_cast<Wrapping<T>>(whole) * wrap(by)
                                  : static_cast<Wrapping<T>>(whole));
    }
  };
  if (params.step[0])
    params.step[1] ? go.template operator()<true, true>() : go.template operator()<true, false>();
  else
    params.step[1] ? go.template operator()<false, true>() : go.template operator()<false, false>();
}

// where(): the first operand is the condition, the others are chosen from as bits of their size.
template <class Bits, bool kOneEach, bool kOneEachMore>
static void where_loop(Bits* y, const uint8_t* c, const Bits* a, const Bits* b, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const Bits yes = a[kOneEach ? i : 0], no = b[kOneEachMore ? i : 0];
    y[i] = c[i] != 0 ? yes : no;
  }
}
template <class Bits>
static void whole_where(void* out, const void* const* in, int64_t n, const MapParams& params) {
  Bits* y = static_cast<Bits*>(out);
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const Bits *a = static_cast<const Bits*>(in[1]), *b = static_cast<const Bits*>(in[2]);
  const bool one = params.step[1] == 0, one_more = params.step[2] == 0;
  if (params.step[0] == 0) {
    if (n == 0) return;
    const Bits* from = *c != 0 ? a : b;
    if (*c != 0 ? one : one_more)
      std::fill_n(y, n, *from);
    else
      std::memmove(y, from, static_cast<size_t>(n) * sizeof(Bits));
    return;
  }
  if (one && one_more) return where_loop<Bits, false, false>(y, c, a, b, n);
  if (one) return where_loop<Bits, false, true>(y, c, a, b, n);
  if (one_more) return where_loop<Bits, true, false>(y, c, a, b, n);
  where_loop<Bits, true, true>(y, c, a, b, n);
}

// Of bytes, for which vectors have no shifts by different numbers: bit after bit of the number.
template <class T>
STRATA_INLINE T shifted_left(T a, T b) {
  const uint8_t by = static_cast<uint8_t>(b);
  uint8_t x = static_cast<uint8_t>(a);
  x = by & 4 ? static_cast<uint8_t>(x << 4) : x;
  x = by & 2 ? static_cast<uint8_t>(x << 2) : x;
  x = by & 1 ? static_cast<uint8_t>(x << 1) : x;
  return static_cast<T>(by >= 8 ? 0 : x);
}
template <class T>
STRATA_INLINE T shifted_right(T a, T b) {
  const uint8_t given = static_cast<uint8_t>(b), by = given >= 8 ? 7 : given;
  T x = a;
  x = by & 4 ? static_cast<T>(x >> 4) : x;
  x = by & 2 ? static_cast<T>(x >> 2) : x;
  x = by & 1 ? static_cast<T>(x >> 1) : x;
  return !std::is_signed_v<T> && given >= 8 ? T(0) : x;
}

struct WholeTable {
  DenseMap map[static_cast<size_t>(Map::count)][kNumDTypes] = {};
  template <class T, class O, class F>
  void set(Map m, F) {
    map[static_cast<size_t>(m)][static_cast<size_t>(dtype_of<T>)] = whole_map<F, T, O>;
  }
  template <class F>
  void ints(Map m, F f) {
    set<uint8_t, uint8_t>(m, f);
    set<int8_t, int8_t>(m, f);
    set<int16_t, int16_t>(m, f);
    set<int32_t, int32_t>(m, f);
    set<int64_t, int64_t>(m, f);
  }
  template <class... T, class F>
  void questions(Map m, F f) {
    (set<T, uint8_t>(m, f), ...);
  }
  template <class F>
  void whole_questions(Map m, F f) {
    questions<uint8_t, int8_t, int16_t, int32_t, int64_t>(m, f);
  }
  template <class... T>
  void addcmul() {
    ((map[static_cast<size_t>(Map::addcmul)][static_cast<size_t>(dtype_of<T>)] = whole_addcmul<T>), ...);
  }
  template <class... T>
  void divisions() {
    const auto put = [this](Map m, DType t, DenseMap f) { map[static_cast<size_t>(m)][static_cast<size_t>(t)] = f; };
    (put(Map::gcd, dtype_of<T>, whole_divisor<T, false>), ...);
    (put(Map::lcm, dtype_of<T>, whole_divisor<T, true>), ...);
    (put(Map::floor_divide, dtype_of<T>, whole_division<T, Map::floor_divide>), ...);
    (put(Map::trunc_divide, dtype_of<T>, whole_division<T, Map::trunc_divide>), ...);
    (put(Map::remainder, dtype_of<T>, whole_division<T, Map::remainder>), ...);
    (put(Map::fmod, dtype_of<T>, whole_division<T, Map::fmod>), ...);
  }
  template <class... T>
  void where() {
    using std::conditional_t;
    ((map[static_cast<size_t>(Map::where)][static_cast<size_t>(dtype_of<T>)] = whole_where<
          conditional_t<sizeof(T) == 1, uint8_t,
                        conditional_t<sizeof(T) == 2, uint16_t, conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>>),
     ...);
  }
  // bool as the bytes 0 and 1.
  template <class F>
  void boolean(Map m, F) {
    map[static_cast<size_t>(m)][static_cast<size_t>(DType::boolean)] = whole_map<F, uint8_t, uint8_t>;
  }
};

// Questions, answered with bool.
static void question_rows(WholeTable& t) {
  t.questions<float, double>(Map::logical_not, [](auto x, auto, const auto&) { return x == 0; });
  t.questions<float, double>(Map::isnan, [](auto x, auto, const auto&) { return x != x; });
  t.questions<float, double>(Map::isinf, [](auto x, auto, const auto&) {
    constexpr auto most = std::numeric_limits<decltype(x)>::max();
    return (x > most) | (x < -most);
  });
  t.questions<float, double>(Map::isfinite, [](auto x, auto, const auto&) {
    constexpr auto most = std::numeric_limits<decltype(x)>::max();
    return (x <= most) & (x >= -most);
  });
  t.questions<float, double>(Map::isposinf,
                             [](auto x, auto, const auto&) { return x > std::numeric_limits<decltype(x)>::max(); });
  t.questions<float, double>(Map::isneginf,
                             [](auto x, auto, const auto&) { return x < -std::numeric_limits<decltype(x)>::max(); });
  t.questions<float, double>(Map::logical_and, [](auto a, auto b, const auto&) { return (a != 0) & (b != 0); });
  t.questions<float, double>(Map::logical_or, [](auto a, auto b, const auto&) { return (a != 0) | (b != 0); });
  t.questions<float, double>(Map::logical_xor, [](auto a, auto b, const auto&) { return (a != 0) ^ (b != 0); });
  t.whole_questions(Map::logical_not, [](auto x, auto, const auto&) { return x == 0; });
  t.whole_questions(Map::logical_and, [](auto a, auto b, const auto&) { return (a != 0) & (b != 0); });
  t.whole_questions(Map::logical_or, [](auto a, auto b, const auto&) { return (a != 0) | (b != 0); });
  t.whole_questions(Map::logical_xor, [](auto a, auto b, const auto&) { return (a != 0) ^ (b != 0); });
  t.questions<double>(Map::signbit, [](auto x, auto, const auto&) { return std::bit_cast<int64_t>(x) < 0; });
  t.questions<uint8_t, int8_t, int16_t, int32_t, int64_t>(Map::signbit,
                                                          [](auto x, auto, const auto&) { return x < 0; });
}

static void whole_rows(WholeTable& t) {
  // What the second operand is does not matter to functions of one: it is the first.
  t.ints(Map::neg, [](auto x, auto, const auto&) { return static_cast<decltype(x)>(0 - wrap(x)); });
  t.ints(Map::abs, [](auto x, auto, const auto&) {
    const auto minus = static_cast<decltype(x)>(0 - wrap(x));
    return x < 0 ? minus : x;
  });
  t.ints(Map::sign, [](auto x, auto, const auto&) { return (x > 0) - (x < 0); });
  t.ints(Map::square, [](auto x, auto, const auto&) { return wrap(x) * wrap(x); });
  t.ints(Map::relu, [](auto x, auto, const auto&) { return x < 0 ? decltype(x)(0) : x; });
  t.ints(Map::clamp, [](auto x, auto, const auto& c) {
    const auto low = x < c.a ? c.a : x;
    return low > c.b ? c.b : low;
  });
  t.ints(Map::bitwise_not, [](auto x, auto, const auto&) { return ~x; });
  t.ints(Map::add, [](auto a, auto b, const auto& c) { return wrap(a) + wrap(c.a) * wrap(b); });
  t.ints(Map::sub, [](auto a, auto b, const auto& c) { return wrap(a) - wrap(c.a) * wrap(b); });
  t.ints(Map::mul, [](auto a, auto b, const auto&) { return wrap(a) * wrap(b); });
  t.ints(Map::maximum, [](auto a, auto b, const auto&) { return a > b ? a : b; });
  t.ints(Map::minimum, [](auto a, auto b, const auto&) { return a < b ? a : b; });
  t.ints(Map::fmax, [](auto a, auto b, const auto&) { return a > b ? a : b; });
  t.ints(Map::fmin, [](auto a, auto b, const auto&) { return a < b ? a : b; });
  t.ints(Map::bitwise_and, [](auto a, auto b, const auto&) { return a & b; });
  t.ints(Map::bitwise_or, [](auto a, auto b, const auto&) { return a | b; });
  t.ints(Map::bitwise_xor, [](auto a, auto b, const auto&) { return a ^ b; });
  // Shifts by no number of the type's bits give what shifting one by one would.
  t.ints(Map::left_shift, [](auto a, auto b, const auto&) {
    if constexpr (sizeof(a) == 1) {
      return shifted_left(a, b);
    } else {
      const auto by = wrap(b);
      constexpr Wrapping<decltype(a)> width = 8 * sizeof(a);
      const auto shifted = wrap(a) << (by & (width - 1));
      return by >= width ? 0 : shifted;
    }
  });
  t.ints(Map::right_shift, [](auto a, auto b, const auto&) {
    using T = decltype(a);
    if constexpr (sizeof(a) == 1) {
      return shifted_right(a, b);
    } else {
      using Signed = std::make_signed_t<Wrapping<T>>;
      const auto by = wrap(b);
      constexpr Wrapping<T> width = 8 * sizeof(a);
      const auto most = by >= width ? width - 1 : by;
      const auto shifted = static_cast<Signed>(static_cast<Signed>(a) >> (most & (width - 1)));
      return !std::is_signed_v<T> && by >= width ? Signed{0} : shifted;
    }
  });
  t.addcmul<uint8_t, int8_t, int16_t, int32_t, int64_t>();
  t.divisions<uint8_t, int8_t, int16_t, int32_t, int64_t>();
  t.where<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, double>();
  t.boolean(Map::add, [](auto a, auto b, const auto& c) { return c.a != 0 ? a | b : +a; });
  t.boolean(Map::mul, [](auto a, auto b, const auto&) { return a & b; });
  t.boolean(Map::bitwise_not, [](auto x, auto, const auto&) { return x ^ 1; });
  t.boolean(Map::logical_not, [](auto x, auto, const auto&) { return x ^ 1; });
  t.boolean(Map::maximum, [](auto a, auto b, const auto&) { return a | b; });
  t.boolean(Map::minimum, [](auto a, auto b, const auto&) { return a & b; });
  t.boolean(Map::bitwise_and, [](auto a, auto b, const auto&) { return a & b; });
  t.boolean(Map::bitwise_or, [](auto a, auto b, const auto&) { return a | b; });
  t.boolean(Map::bitwise_xor, [](auto a, auto b, const auto&) { return a ^ b; });
}

static DenseMap whole_map_of(Map m, DType type) {
  static const WholeTable table = [] {
    WholeTable t;
    whole_rows(t);
    question_rows(t);
    return t;
  }();
  return table.map[static_cast<size_t>(m)][static_cast<size_t>(type)];
}

}  // namespace strata::STRATA_VEC_NS
