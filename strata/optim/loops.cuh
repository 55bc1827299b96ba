#pragma once
// What the fused update loops on a CUDA device share: the rules for one number, tables of tensors as a launch's
// parameters, elements in every form that they are stored in.

#include <algorithm>
#include <cmath>
#include <span>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/magnitudes.h"
#include "strata/optim/kernels.h"
#include "strata/optim/rounding_inl.h"
#include "strata/optim/rule_defaults_inl.h"

namespace strata::optim {

/// Whether its states are codes of 8 bits.
inline bool in_codes(const Slab& s) {
  return s.state_dtype == DType::u8;
}
/// The loops of the slabs whose states are (kernels_8bit.cu).
void queue_eight_bit(Rule rule, std::span<const Slab> slabs, const double* constants, const double* factor);

namespace {
using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::widen;

// The vocabulary of the rules, for one number.
template <class T>
__device__ __forceinline__ T muladd(T a, T b, T c) {
  return fma(a, b, c);
}
template <class T>
__device__ __forceinline__ T negmuladd(T a, T b, T c) {
  return fma(-a, b, c);
}
template <class T>
__device__ __forceinline__ T add(T a, T b) {
  return a + b;
}
template <class T>
__device__ __forceinline__ T sub(T a, T b) {
  return a - b;
}
template <class T>
__device__ __forceinline__ T mul(T a, T b) {
  return a * b;
}
template <class T>
__device__ __forceinline__ T quotient(T a, T b) {
  return a / b;
}
template <class T>
__device__ __forceinline__ T root(T a) {
  return sqrt(a);
}
template <class T>
__device__ __forceinline__ T absolute(T a) {
  return abs(a);
}
template <class T>
__device__ __forceinline__ T negated(T a) {
  return -a;
}
template <class T>
__device__ __forceinline__ T if_greater(T a, T b, T x, T y) {
  return a > b ? x : y;
}
template <class T>
__device__ __forceinline__ T if_zero(T a, T x, T y) {
  return a == 0 ? x : y;
}
template <class T>
__device__ __forceinline__ T with_sign(T x, T s) {
  return copysign(x, s);
}
template <class T>
struct Numbers {
  T v[kConstants];
  __device__ __forceinline__ T operator[](int i) const { return v[i]; }
  __device__ __forceinline__ bool on(int i) const { return v[i] != 0; }
};

#define STRATA_RULE_FN __device__ __forceinline__ static
#include "strata/optim/all_rules.inc"
#undef STRATA_RULE_FN

constexpr int kThreads = cuda::kParameterWarps * cuda::kWarp;
constexpr int64_t kChunk = cuda::kParameterChunk;
constexpr int kTableBytes = 32000;  // a launch's parameters hold 32764 bytes

// Of each slab: the constants as what the rule computes with, in as many bytes as f64 needs, the key of its random
// bits, and in f64 what its rate becomes.
constexpr int kRow = kConstants + 2;

// How an array is stored: as what the rule computes with (f32 or f64), in 16 bits, or, a parameter, as the upper halves
// of f32 whose lower ones are at `low` (rounding_inl.h).
enum Format : uint32_t { kPlain, kBf16, kF16, kSplit };
Format format_of(DType dtype) {
  return dtype == DType::bf16 ? kBf16 : dtype == DType::f16 ? kF16 : kPlain;
}

struct Entry {
  void* param;
  void* grad;
  void* state[kMostStates];
  int64_t numel;
  int64_t* step;
  double* rate;
  void* low;
  uint32_t* most;
  uint32_t first_chunk;
  uint32_t index : 23;  // among the call's slabs
  uint32_t format : 2, grad_format : 2, state_format : 2, low_format : 2, stochastic : 1;
};

template <class E>
struct Table {
  static constexpr int kMost = kTableBytes / static_cast<int>(sizeof(E));
  int n = 0;
  E entries[kMost];

  // The entry that chunk c belongs to.
  __device__ const E& of(uint32_t c) const {
    int low = 0, high = n - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (entries[middle].first_chunk <= c) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return entries[low];
  }
};

// ---- elements of an array, stored in any format, as T: arrays of V in registers ----

template <class T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

// As they are stored: loads follow one another, unpack() waits for them.
template <int V, class T>
__device__ __forceinline__ void fetch(T (&v)[V], const void* array, int64_t i, uint32_t format) {
  if constexpr (std::is_same_v<T, float>) {
    if (format != kPlain) {
      const auto half = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(array) + i);
      v[0] = __uint_as_float(half.x);
      v[1] = __uint_as_float(half.y);
      return;
    }
  }
  const auto words = load_vec<V>(static_cast<const T*>(array) + i);
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] = words.v[j];
}
template <int V, class T>
__device__ __forceinline__ void unpack(T (&v)[V], uint32_t format) {
  if constexpr (std::is_same_v<T, float>) {
    if (format == kPlain) return;
    const uint32_t a = __float_as_uint(v[0]), b = __float_as_uint(v[1]);
    if (format != kF16) {
      v[0] = __uint_as_float(a << 16);
      v[1] = __uint_as_float(a & 0xffff0000u);
      v[2] = __uint_as_float(b << 16);
      v[3] = __uint_as_float(b & 0xffff0000u);
    } else {
      const auto half = [](uint32_t bits) { return __half2float(__ushort_as_half(static_cast<uint16_t>(bits))); };
      v[0] = half(a);
      v[1] = half(a >> 16);
      v[2] = half(b);
      v[3] = half(b >> 16);
    }
  }
}

// How results are rounded to bf16: the j-th of four.
struct Nearest {
  __device__ uint16_t operator()(float v, int) const { return narrow<BFloat16>(v).bits; }
};
template <int Shift>
struct Stochastic {
  uint32_t x, y, z, w;
  __device__ uint16_t operator()(float v, int j) const {
    const uint32_t word = j == 0 ? x : j == 1 ? y : j == 2 ? z : w;
    return stochastic_bf16(__float_as_uint(v), word >> Shift);
  }
};
__device__ __forceinline__ Stochastic<0> random_at(uint64_t key, int64_t i) {
  const auto words = philox({.seed = key}, static_cast<uint64_t>(i / kRandomElements));
  return {words[0], words[1], words[2], words[3]};
}

template <int V, class T, class Round>
__device__ __forceinline__ void put(void* array, int64_t i, uint32_t format, const T (&v)[V], const Round& round) {
  if constexpr (std::is_same_v<T, float>) {
    if (format != kPlain) {
      uint32_t bits[V];
#pragma unroll
      for (int j = 0; j < V; ++j) bits[j] = format == kBf16 ? round(v[j], j) : narrow<Half>(v[j]).bits;
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(array) + i) = {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16};
      return;
    }
  }
  cuda::Vec<T, V> words;
#pragma unroll
  for (int j = 0; j < V; ++j) words.v[j] = v[j];
  store_vec(static_cast<T*>(array) + i, words);
}

// A parameter's numbers, and the copy that is written with them.
template <int V, class T>
__device__ __forceinline__ uint2 fetch_weights(T (&p)[V], const Entry& e, int64_t i, uint32_t format) {
  fetch(p, e.param, i, format);
  if (format != kSplit) return {};
  return *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(e.low) + i);
}
template <int V, class T>
__device__ __forceinline__ void unpack_weights(T (&p)[V], uint2 lower, uint32_t format) {
  unpack(p, format);
  if constexpr (std::is_same_v<T, float>) {
    if (format != kSplit) return;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const uint32_t word = j < 2 ? lower.x : lower.y;
      const auto half = static_cast<int16_t>(static_cast<uint16_t>(j % 2 == 0 ? word : word >> 16));
      p[j] = __uint_as_float(joined(static_cast<uint16_t>(__float_as_uint(p[j]) >> 16), half));
    }
  }
}
template <int V, class T, class Round>
__device__ __forceinline__ void put_weights(const Entry& e, int64_t i, const T (&p)[V], const Round& round,
                                            uint32_t format) {
  if constexpr (std::is_same_v<T, float>) {
    if (format == kSplit) {
      uint32_t upper[V], lower[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const Halves halves = split(__float_as_uint(p[j]));
        upper[j] = halves.upper;
        lower[j] = static_cast<uint16_t>(halves.lower);
      }
      const auto store = [&](void* array, const uint32_t(&v)[V]) {
        *reinterpret_cast<uint2*>(static_cast<uint16_t*>(array) + i) = {v[0] | v[1] << 16, v[2] | v[3] << 16};
      };
      store(e.param, upper);
      store(e.low, lower);
      return;
    }
  }
  put(e.param, i, format, p, round);
  if (e.low) put(e.low, i, e.low_format, p, Nearest{});
}

// One element, where vectors do not fit.
template <class T>
__device__ __forceinline__ T get_one(const void* array, int64_t i, uint32_t format) {
  if constexpr (std::is_same_v<T, float>) {
    if (format == kBf16) return widen(static_cast<const BFloat16*>(array)[i]);
    if (format == kF16) return widen(static_cast<const Half*>(array)[i]);
  }
  return static_cast<const T*>(array)[i];
}
template <class T, class Round>
__device__ __forceinline__ void put_one(void* array, int64_t i, uint32_t format, T v, const Round& round) {
  if constexpr (std::is_same_v<T, float>) {
    if (format != kPlain) {
      static_cast<uint16_t*>(array)[i] =
          format == kBf16 ? round(v, static_cast<int>(i % kRandomElements)) : narrow<Half>(v).bits;
      return;
    }
  }
  static_cast<T*>(array)[i] = v;
}
template <class T>
__device__ __forceinline__ T get_weight(const Entry& e, int64_t i) {
  if constexpr (std::is_same_v<T, float>) {
    if (e.format == kSplit)
      return __uint_as_float(joined(static_cast<const uint16_t*>(e.param)[i], static_cast<const int16_t*>(e.low)[i]));
  }
  return get_one<T>(e.param, i, e.format);
}
template <class T, class Round>
__device__ __forceinline__ void put_weight(const Entry& e, int64_t i, T p, const Round& round) {
  if constexpr (std::is_same_v<T, float>) {
    if (e.format == kSplit) {
      const Halves halves = split(__float_as_uint(p));
      static_cast<uint16_t*>(e.param)[i] = halves.upper;
      static_cast<int16_t*>(e.low)[i] = halves.lower;
      return;
    }
  }
  put_one(e.param, i, e.format, p, round);
  if (e.low) put_one(e.low, i, e.low_format, p, Nearest{});
}

// Calls launch(table, chunks) with tables of all slabs for which `takes` holds.
template <class E, class Takes, class Launch>
void for_tables(std::span<const Slab> slabs, Takes&& takes, Launch&& launch) {
  Table<E> table;
  uint32_t chunks = 0;
  const auto flush = [&] {
    if (table.n > 0) launch(table, chunks);
    table.n = 0, chunks = 0;
  };
  for (const Slab& s : slabs) {
    // Where there is nothing to update, that is still counted.
    if ((s.numel == 0 && !s.step && !s.rate) || !takes(s)) continue;
    if (table.n == Table<E>::kMost) flush();
    E& entry = table.entries[table.n++];
    static_cast<Entry&>(entry) = {s.param,
                                  s.grad,
                                  {s.state[0], s.state[1], s.state[2]},
                                  s.numel,
                                  s.step,
                                  s.rate,
                                  s.low,
                                  s.numel > 0 ? s.most : nullptr,
                                  chunks,
                                  static_cast<uint32_t>(&s - slabs.data()),
                                  is_split(s) ? kSplit : format_of(s.dtype),
                                  format_of(s.grad_dtype),
                                  format_of(s.state_dtype),
                                  format_of(s.low_dtype),
                                  s.stochastic};
    if constexpr (requires { entry.scale; }) std::copy(s.scale, s.scale + kMostStates, entry.scale);
    chunks += std::max(1u, cuda::blocks_for(s.numel, kChunk));
  }
  flush();
}

}  // namespace
}  // namespace strata::optim
