#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/ops/elementwise/elementwise_kernels.h"

namespace strata {
namespace {

template <class T, class F>
void map1(Tensor& y, const Tensor& x, F f) {
  for_each_strided(y.shape(), std::array<const Tensor*, 2>{&y, &x}, kGrain, [f](char** p, const int64_t* s, int64_t n) {
    if (s[0] == sizeof(T) && s[1] == sizeof(T)) {
      T* o = reinterpret_cast<T*>(p[0]);
      const T* a = reinterpret_cast<const T*>(p[1]);
      for (int64_t i = 0; i < n; ++i) o[i] = static_cast<T>(f(static_cast<compute_t<T>>(a[i])));
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(p[0] + i * s[0]) =
          static_cast<T>(f(static_cast<compute_t<T>>(*reinterpret_cast<const T*>(p[1] + i * s[1]))));
  });
}

template <class T, class F>
void map2(Tensor& y, const Tensor& a, const Tensor& b, F f) {
  using C = compute_t<T>;
  for_each_strided(y.shape(), std::array<const Tensor*, 3>{&y, &a, &b}, kGrain, [f](char** p, const int64_t* s, int64_t n) {
    if (s[0] == sizeof(T) && s[1] == sizeof(T) && s[2] == sizeof(T)) {
      T* o = reinterpret_cast<T*>(p[0]);
      const T* l = reinterpret_cast<const T*>(p[1]);
      const T* r = reinterpret_cast<const T*>(p[2]);
      for (int64_t i = 0; i < n; ++i) o[i] = static_cast<T>(f(static_cast<C>(l[i]), static_cast<C>(r[i])));
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(p[0] + i * s[0]) =
          static_cast<T>(f(static_cast<C>(*reinterpret_cast<const T*>(p[1] + i * s[1])),
                           static_cast<C>(*reinterpret_cast<const T*>(p[2] + i * s[2]))));
  });
}

}  // namespace

void add_cpu(Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) {
  dispatch_all(y.dtype(), "add", [&]<class T>() {
    const auto k = alpha.to<compute_t<T>>();
    if (k == 1) map2<T>(y, a, b, [](auto l, auto r) { return l + r; });
    else map2<T>(y, a, b, [k](auto l, auto r) { return l + k * r; });
  });
}

void mul_cpu(Tensor& y, const Tensor& a, const Tensor& b) {
  dispatch_all(y.dtype(), "mul", [&]<class T>() { map2<T>(y, a, b, [](auto l, auto r) { return l * r; }); });
}

void neg_cpu(Tensor& y, const Tensor& x) {
  dispatch_all(y.dtype(), "neg", [&]<class T>() { map1<T>(y, x, [](auto v) { return -v; }); });
}

}  // namespace strata
