// The dense kernels of functions_inl.h's rows: plain loops, for the types that the vectorised kernels lack.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "strata/core/error.h"
#include "strata/ops/elementwise/kernels.h"

namespace strata {
namespace {

template <class T>
struct Constants {
  T a, b, c;
  explicit Constants(const MapParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()), c(p.s[2].to<T>()) {}
};

// Functions may take the constants last or leave them out. A bool result is stored as bool, any other as T.
template <class F, class T, int N>
void dense(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const F f{};
  const Constants<T> c(params);
  const auto call = [&](auto... v) {
    if constexpr (std::is_invocable_v<F, decltype(v)..., const Constants<T>&>)
      return f(v..., c);
    else
      return f(v...);
  };
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T* d = static_cast<const T*>(in[2]);
  const auto store = [&](auto result_at) {
    using O = std::conditional_t<std::is_same_v<decltype(result_at(0)), bool>, bool, T>;
    O* y = static_cast<O*>(out);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<O>(result_at(i));
  };
  if constexpr (N == 1)
    store([&](int64_t i) { return call(a[i]); });
  else if constexpr (N == 2)
    store([&](int64_t i) { return call(a[i], b[i]); });
  else
    store([&](int64_t i) { return call(a[i], b[i], d[i]); });
}

// where(): the first operand is the condition.
template <class T>
void dense_where(void* out, const void* const* in, int64_t n, const MapParams&) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = c[i] ? a[i] : b[i];
}

using Table = std::array<std::array<DenseMap, kNumDTypes>, static_cast<size_t>(Map::count)>;

class Rows {
 public:
  Table table{};

  template <int N, class F>
  void floats(Map m, F) {
    set<float, N, F>(m);
    set<double, N, F>(m);
  }
  template <int N, class F>
  void ints(Map m, F) {
    set<uint8_t, N, F>(m);
    set<int8_t, N, F>(m);
    set<int16_t, N, F>(m);
    set<int32_t, N, F>(m);
    set<int64_t, N, F>(m);
  }
  template <int N, class F>
  void boolean(Map m, F) {
    set<bool, N, F>(m);
  }
  template <int N, class F>
  void numbers(Map m, F f) {
    floats<N>(m, f);
    ints<N>(m, f);
  }
  template <int N, class F>
  void everything(Map m, F f) {
    numbers<N>(m, f);
    boolean<N>(m, f);
  }
  template <class T>
  void where() {
    table[static_cast<size_t>(Map::where)][static_cast<size_t>(dtype_of<T>)] = dense_where<T>;
  }

 private:
  template <class T, int N, class F>
  void set(Map m) {
    table[static_cast<size_t>(m)][static_cast<size_t>(dtype_of<T>)] = dense<F, T, N>;
  }
};

}  // namespace
}  // namespace strata

#define STRATA_MAP_UNARY
#define STRATA_MAP_ACTIVATION
#define STRATA_MAP_ARITHMETIC
#define STRATA_MAP_COMPARISON
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {

Table make_table() {
  Rows r;
  unary_rows(r);
  activation_rows(r);
  arithmetic_rows(r);
  comparison_rows(r);
  r.where<bool>();
  r.where<uint8_t>();
  r.where<int8_t>();
  r.where<int16_t>();
  r.where<int32_t>();
  r.where<int64_t>();
  r.where<float>();
  r.where<double>();
  return r.table;
}

}  // namespace

DenseMap scalar_map(Map f, DType type) {
  static const Table table = make_table();
  return table[static_cast<size_t>(f)][static_cast<size_t>(type)];
}

}  // namespace strata
