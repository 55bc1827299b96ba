// The CUDA kernels of functions_inl.h's rows. Each map_*.cu says which rows it takes and includes this, so that they
// compile side by side.

#include <array>
#include <bit>
#include <utility>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/elementwise/map_cuda.h"

namespace strata {
namespace {

template <class T>
struct Constants {
  T a, b, c;
  explicit Constants(const MapParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()), c(p.s[2].to<T>()) {}
};

// A function of each bit alone, which takes words as it takes elements.
template <class F>
struct OfBits : F {
  static constexpr bool kOfBits = true;
};

// A row's function with its constants.
template <class F, class T>
struct Bound {
  static constexpr bool kOfBits = requires { F::kOfBits; };
  F f;
  Constants<T> c;
  template <class... V>
  __device__ auto operator()(V... v) const {
    if constexpr (std::is_invocable_v<const F&, V..., const Constants<T>&>) {
      return f(v..., c);
    } else {
      return f(v...);
    }
  }
};

template <class F, class T, class... In>
void launch(Tensor& y, const Tensor* const* in, const MapParams& params) {
  using C = compute_t<T>;
  // A device lambda has no default constructor, nor a state.
  static_assert(sizeof(F) == 1 && std::is_trivially_copyable_v<F>);
  const Bound<F, C> f{std::bit_cast<F>(char{}), Constants<C>(params)};
  [&]<size_t... I>(std::index_sequence<I...>) {
    cuda::elementwise<cuda::BoolOr<T>, In...>("map", y, f, *in[I]...);
  }
  (std::index_sequence_for<In...>());
}

class Rows {
 public:
  explicit Rows(CudaMaps& table) : table_(table) {}

  template <int N, class F>
  void floats(Map m, F) {
    set<N, F, float, double, BFloat16, Half>(m);
  }
  /// Another form for results of bf16 and f16, whose arithmetic in f32 need not be good to the last bit.
  template <int N, class F>
  void reduced(Map m, F) {
    set<N, F, BFloat16, Half>(m);
  }
  template <int N, class F>
  void ints(Map m, F) {
    set<N, F, uint8_t, int8_t, int16_t, int32_t, int64_t>(m);
  }
  template <int N, class F>
  void bits(Map m, F) {
    set<N, OfBits<F>, uint8_t, int8_t, int16_t, int32_t, int64_t>(m);
  }
  template <int N, class F>
  void boolean(Map m, F) {
    set<N, F, bool>(m);
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
  template <int N, class F, class... T>
  void set(Map m) {
    ((at(m, dtype_of<T>) = kernel<N, F, T>()), ...);
  }
  template <int N, class F, class T>
  static CudaMap kernel() {
    if constexpr (N == 1) {
      return launch<F, T, T>;
    } else if constexpr (N == 2) {
      return launch<F, T, T, T>;
    } else {
      return launch<F, T, T, T, T>;
    }
  }
  CudaMap& at(Map m, DType t) { return table_[static_cast<size_t>(m)][static_cast<size_t>(t)]; }
  CudaMaps& table_;
};

}  // namespace
}  // namespace strata
