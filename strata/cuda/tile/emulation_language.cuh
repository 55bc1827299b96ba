#pragma once
// What CUDA adds to C++, as far as kernels of tiles use it, for emulation.cuh: votes, shuffles, bits, arithmetic.

#include <algorithm>
#include <cfloat>
#include <cstdint>

namespace strata::cuda {

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <int N, class T>
Vec<T, N> load_vec(const T* p) {
  Vec<T, N> v;
  std::memcpy(static_cast<void*>(&v), p, sizeof v);
  return v;
}
template <int N, class T>
void store_vec(T* p, const Vec<T, N>& v) {
  std::memcpy(static_cast<void*>(p), &v, sizeof v);
}
template <class T>
float widen(T v) {
  return static_cast<float>(v);
}
template <class T, class C>
T narrow(C v) {
  return static_cast<T>(v);
}

namespace tile::emulation {

// What f() makes of the values that all lanes of a warp bring: f(values, lane).
template <class T, class F>
auto of_warp(const char* what, const T& value, const F& f) {
  struct Lane {
    T in;
    decltype(f(std::declval<const T (&)[32]>(), 0)) out;
  } lane{value, {}};
  block->meet_warp(what, &lane, [&](void** all) {
    T values[32];
    for (int i = 0; i < 32; ++i) values[i] = static_cast<Lane*>(all[i])->in;
    for (int i = 0; i < 32; ++i) static_cast<Lane*>(all[i])->out = f(values, i);
  });
  return lane.out;
}

}  // namespace tile::emulation
}  // namespace strata::cuda

inline void __syncwarp() {
  using strata::cuda::tile::emulation::block;
  block->meet_warp("__syncwarp", nullptr, [](void**) {});
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return strata::cuda::tile::emulation::of_warp("__shfl_xor_sync", value,
                                                [mask](const T(&all)[32], int lane) { return all[lane ^ mask]; });
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  struct Lane {
    T value;
    int from;
  };
  return strata::cuda::tile::emulation::of_warp(
      "__shfl_sync", Lane{value, from}, [](const Lane(&all)[32], int lane) { return all[all[lane].from % 32].value; });
}
inline int __any_sync(unsigned, int value) {
  return strata::cuda::tile::emulation::of_warp("__any_sync", value, [](const int(&all)[32], int) {
    return static_cast<int>(std::any_of(all, all + 32, [](int v) { return v != 0; }));
  });
}
inline int __all_sync(unsigned, int value) {
  return strata::cuda::tile::emulation::of_warp("__all_sync", value, [](const int(&all)[32], int) {
    return static_cast<int>(std::all_of(all, all + 32, [](int v) { return v != 0; }));
  });
}
/// A bit for each lane with the same value.
inline unsigned __match_any_sync(unsigned, int value) {
  return strata::cuda::tile::emulation::of_warp("__match_any_sync", value, [](const int(&all)[32], int lane) {
    unsigned same = 0;
    for (int i = 0; i < 32; ++i) same |= static_cast<unsigned>(all[i] == all[lane]) << i;
    return same;
  });
}
inline int __reduce_max_sync(unsigned, int value) {
  return strata::cuda::tile::emulation::of_warp(
      "__reduce_max_sync", value, [](const int(&all)[32], int) { return *std::max_element(all, all + 32); });
}

[[noreturn]] inline void __trap() {
  strata::cuda::tile::emulation::block->fail("__trap()");
}
/// Threads of the processor are fibers of one.
inline int atomicAdd(int* p, int v) {
  const int old = *p;
  *p += v;
  return old;
}

inline int __popc(uint32_t v) {
  return __builtin_popcount(v);
}
inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline int __clz(int v) {
  return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline float __uint_as_float(uint32_t v) {
  float f;
  std::memcpy(&f, &v, 4);
  return f;
}
inline uint32_t __float_as_uint(float f) {
  uint32_t v;
  std::memcpy(&v, &f, 4);
  return v;
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
template <class A, class B>
constexpr auto min(A a, B b)
    -> std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> {
  return b < a ? b : a;
}
template <class A, class B>
constexpr auto max(A a, B b)
    -> std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> {
  return a < b ? b : a;
}

namespace strata::cuda {

// A kernel has no other beside it here (strata/cuda/overlap.cuh).
inline void wait_for_previous() {}
inline void let_next_begin() {}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
template <int Width, class T, class Op>
T warp_reduce(T v, Op op) {
  for (int o = Width / 2; o > 0; o /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

}  // namespace strata::cuda
