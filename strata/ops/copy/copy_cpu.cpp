#include <cstring>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/ops/copy/copy_kernels.h"

namespace strata {
namespace {

template <class D, class S>
D convert(S v) {
  if constexpr (std::is_same_v<D, bool>) {
    return static_cast<compute_t<S>>(v) != 0;
  } else if constexpr (std::is_same_v<D, Half> || std::is_same_v<D, BFloat16>) {
    return D(static_cast<float>(v));
  } else if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
    // Out-of-range conversions are undefined in C++; through int64 with saturation they are merely surprising.
    const double d = static_cast<double>(static_cast<compute_t<S>>(v));
    if (!(d == d)) return 0;
    if (d >= 9.2233720368547758e18) return static_cast<D>(INT64_MAX);
    if (d <= -9.2233720368547758e18) return static_cast<D>(INT64_MIN);
    return static_cast<D>(static_cast<int64_t>(d));
  } else {
    return static_cast<D>(static_cast<compute_t<S>>(v));
  }
}

template <class D, class S>
void convert_run(char** p, const int64_t* st, int64_t n) {
  if (st[0] == sizeof(D) && st[1] == sizeof(S)) {
    D* d = reinterpret_cast<D*>(p[0]);
    const S* s = reinterpret_cast<const S*>(p[1]);
    for (int64_t i = 0; i < n; ++i) d[i] = convert<D>(s[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<D*>(p[0] + i * st[0]) = convert<D>(*reinterpret_cast<const S*>(p[1] + i * st[1]));
}

template <class T>
void move_run(char** p, const int64_t* st, int64_t n) {
  constexpr int64_t size = sizeof(T);
  if (st[0] == size && st[1] == size) {
    std::memcpy(p[0], p[1], static_cast<size_t>(n * size));
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(p[0] + i * st[0], p[1] + i * st[1], size);
}

}  // namespace

void copy_elements_cpu(const Tensor& dst, const Tensor& src) {
  const std::array<const Tensor*, 2> ts{&dst, &src};
  if (dst.dtype() == src.dtype()) {
    dispatch_bytes(dst.dtype(), [&]<class T>() { for_each_strided(dst.shape(), ts, kGrain, move_run<T>); });
    return;
  }
  dispatch_all(dst.dtype(), "copy", [&]<class D>() {
    dispatch_all(src.dtype(), "copy", [&]<class S>() { for_each_strided(dst.shape(), ts, kGrain, convert_run<D, S>); });
  });
}

void fill_elements_cpu(const Tensor& dst, Scalar value) {
  dispatch_all(dst.dtype(), "fill", [&]<class T>() {
    const T v = static_cast<T>(value.to<T>());
    for_each_strided(dst.shape(), std::array<const Tensor*, 1>{&dst}, kGrain,
                     [v](char** p, const int64_t* s, int64_t n) {
                       if (s[0] == sizeof(T)) {
                         std::fill_n(reinterpret_cast<T*>(p[0]), n, v);
                       } else {
                         for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(p[0] + i * s[0]) = v;
                       }
                     });
  });
}

}  // namespace strata
