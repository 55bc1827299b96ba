// The CPU's kernels of rows of functions (functions_inl.h): plain loops. Each .cpp that has rows includes this and
// fills its part of the table.

#include <array>
#include <cstdint>
#include <type_traits>

#include "strata/ops/elementwise/kernels.h"

namespace strata {

/// By function and by the dtype that it computes in; nullptr where there is no kernel.
using ScalarMaps = std::array<std::array<DenseMap, kNumDTypes>, static_cast<size_t>(Map::count)>;
void add_special_maps(ScalarMaps& table);

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

class Rows {
 public:
  explicit Rows(ScalarMaps& table) : table_(table) {}

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
  void bits(Map m, F f) {
    ints<N>(m, f);
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

 private:
  template <class T, int N, class F>
  void set(Map m) {
    table_[static_cast<size_t>(m)][static_cast<size_t>(dtype_of<T>)] = dense<F, T, N>;
  }
  ScalarMaps& table_;
};

}  // namespace
}  // namespace strata
