// Sums and products of mixed dtypes, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
inline constexpr bool kIsFloat = std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

template <class T>
static float widened(const T& v) {
  return static_cast<float>(v);
}

// Runs of n elements of y, a and b, `strides` bytes apart; f takes and returns numbers or vectors of f32.
template <class Y, class B, class F>
static void mixed_run(char* const* p, const int64_t* strides, int64_t n, F f) {
  if constexpr (kIsFloat<B>) {
    if (strides[0] == static_cast<int64_t>(sizeof(Y)) && strides[1] == 0 &&
        strides[2] == static_cast<int64_t>(sizeof(B))) {  // a factor of a whole row
      auto* const y = reinterpret_cast<Y*>(p[0]);
      const auto* const b = reinterpret_cast<const B*>(p[2]);
      const V<float> all = set1(*reinterpret_cast<const float*>(p[1]));
      for_vectors<float>(n, [&](int64_t i, int64_t k) { store_upto(y + i, f(all, load_upto(b + i, k, 0)), k); });
      return;
    }
    if (strides[0] == static_cast<int64_t>(sizeof(Y)) && strides[1] == static_cast<int64_t>(sizeof(float))) {
      auto* const y = reinterpret_cast<Y*>(p[0]);
      const auto* const a = reinterpret_cast<const float*>(p[1]);
      const auto* const b = reinterpret_cast<const B*>(p[2]);
      if (strides[2] == static_cast<int64_t>(sizeof(B))) {
        for_vectors<float>(
            n, [&](int64_t i, int64_t k) { store_upto(y + i, f(load_upto(a + i, k, 0), load_upto(b + i, k, 0)), k); });
        return;
      }
      if (strides[2] == 0) {
        const V<float> all = set1(widened(*b));
        for_vectors<float>(n, [&](int64_t i, int64_t k) { store_upto(y + i, f(load_upto(a + i, k, 0), all), k); });
        return;
      }
    }
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Y*>(p[0] + i * strides[0]) = Y(f(*reinterpret_cast<const float*>(p[1] + i * strides[1]),
                                                       widened(*reinterpret_cast<const B*>(p[2] + i * strides[2]))));
}

template <class F>
static void mixed_of(DType t, char* const* p, const int64_t* strides, int64_t n, F f) {
  switch (t) {
    case DType::f32:
      return mixed_run<float, float>(p, strides, n, f);
    case DType::bf16:
      return mixed_run<float, BFloat16>(p, strides, n, f);
    case DType::f16:
      return mixed_run<float, Half>(p, strides, n, f);
    case DType::boolean:
      return mixed_run<float, bool>(p, strides, n, f);
    case DType::u8:
      return mixed_run<float, uint8_t>(p, strides, n, f);
    case DType::i8:
      return mixed_run<float, int8_t>(p, strides, n, f);
    case DType::i16:
      return mixed_run<float, int16_t>(p, strides, n, f);
    case DType::i32:
      return mixed_run<float, int32_t>(p, strides, n, f);
    default:
      return mixed_run<float, int64_t>(p, strides, n, f);
  }
}

static void add_mixed_rows(DType t, char* const* p, const int64_t* strides, int64_t n, float alpha) {
  mixed_of(t, p, strides, n, [alpha](auto a, auto b) { return a + b * alpha; });
}
static void mul_mixed_rows(DType t, char* const* p, const int64_t* strides, int64_t n, float) {
  mixed_of(t, p, strides, n, [](auto a, auto b) { return a * b; });
}
static void mul_narrow_rows(DType to, char* const* p, const int64_t* strides, int64_t n, float) {
  const auto f = [](auto a, auto b) { return a * b; };
  if (to == DType::bf16)
    mixed_run<BFloat16, float>(p, strides, n, f);
  else
    mixed_run<Half, float>(p, strides, n, f);
}
static void mul_rounded_rows(DType t, char* const* p, const int64_t* strides, int64_t n, float) {
  const auto f = [](auto a, auto b) { return a * b; };
  if (t == DType::bf16)
    mixed_run<BFloat16, BFloat16>(p, strides, n, f);
  else
    mixed_run<Half, Half>(p, strides, n, f);
}

}  // namespace strata::STRATA_VEC_NS
