// The fused update loops on a CUDA device: a launch takes many tensors, whose addresses are its parameters, and a block
// takes a chunk of one of them. The rules' constants are read from the device, where another launch has put them: a
// graph that holds the loops goes on with other constants.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/magnitudes.h"
#include "strata/cuda/memory.h"
#include "strata/optim/count_inl.h"
#include "strata/optim/kernels.h"
#include "strata/optim/rounding_inl.h"
#include "strata/optim/verdict_inl.h"

namespace strata::optim {
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

// How an array is stored: as what the rule computes with (f32 or f64), or in 16 bits.
enum Format : uint32_t { kPlain, kBf16, kF16 };
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
    if (format == kBf16) {
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

template <class R, class T>
__global__ void __launch_bounds__(kThreads)
    rule_kernel(const __grid_constant__ Table<Entry> table, const double* constants, const double* factor) {
  constexpr int V = kLanes<T>;
  const Entry& e = table.of(blockIdx.x);
  Numbers<T> k;
  constants += kRow * e.index;
#pragma unroll
  for (int i = 0; i < kConstants; ++i) k.v[i] = reinterpret_cast<const T*>(constants)[i];
  if (factor) {
    const double f = *factor;
    if (f != f) return;
    if constexpr (reads_gradient<R>) k.v[0] *= static_cast<T>(f);
  }
  const bool stochastic = !writes_grad<R> && std::is_same_v<T, float> && e.stochastic;
  const uint64_t key = stochastic ? static_cast<uint64_t>(__double_as_longlong(constants[kConstants])) : 0;
  if (blockIdx.x == e.first_chunk && threadIdx.x == 0) {
    if (e.step) ++*e.step;
    if (e.rate) *e.rate = constants[kConstants + 1];
  }
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk, end = min(begin + kChunk, e.numel);
  const uintptr_t all = reinterpret_cast<uintptr_t>(e.param) | reinterpret_cast<uintptr_t>(e.grad) |
                        reinterpret_cast<uintptr_t>(e.state[0]) | reinterpret_cast<uintptr_t>(e.state[1]) |
                        reinterpret_cast<uintptr_t>(e.state[2]) | reinterpret_cast<uintptr_t>(e.low);
  const bool vectors = all % 16 == 0;
  // Calls f(rounding of the parameter, of the first state, the second, the third) for elements from i on.
  const auto rounded = [&](int64_t i, auto&& f) {
    if constexpr (!writes_grad<R> && std::is_same_v<T, float>) {
      if (stochastic) {
        const Stochastic<0> r = random_at(key, i);
        const Stochastic<16> upper{r.x, r.y, r.z, r.w};
        if (R::states > 1 && e.state_format != kPlain) {
          const Stochastic<0> again{remixed(r.x), remixed(r.y), remixed(r.z), remixed(r.w)};
          f(r, upper, again, Stochastic<16>{again.x, again.y, again.z, again.w});
        } else {
          f(r, upper, Nearest{}, Nearest{});
        }
        return;
      }
    }
    f(Nearest{}, Nearest{}, Nearest{}, Nearest{});
  };
  uint32_t most = 0;  // the largest magnitude of what the thread leaves of an f32 parameter
  const auto take = [&](T p) {
    if constexpr (std::is_same_v<T, float>) most = max(most, __float_as_uint(p) & 0x7fffffffu);
  };
  for (int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V) {
    if (vectors && i + V <= end) {
      T p[V] = {}, g[V], a[V] = {}, b[V] = {}, c[V] = {};
      if constexpr (!writes_grad<R>) fetch(p, e.param, i, e.format);
      fetch(g, e.grad, i, e.grad_format);
      if constexpr (R::states > 0) fetch(a, e.state[0], i, e.state_format);
      if constexpr (R::states > 1) fetch(b, e.state[1], i, e.state_format);
      if constexpr (R::states > 2) fetch(c, e.state[2], i, e.state_format);
      if constexpr (!writes_grad<R>) unpack(p, e.format);
      unpack(g, e.grad_format);
      if constexpr (R::states > 0) unpack(a, e.state_format);
      if constexpr (R::states > 1) unpack(b, e.state_format);
      if constexpr (R::states > 2) unpack(c, e.state_format);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        g[j] *= k[0];
        R::apply(k, p[j], g[j], a[j], b[j], c[j]);
      }
      if constexpr (writes_grad<R>) {
        put(e.grad, i, e.grad_format, g, Nearest{});
      } else {
        rounded(i, [&](const auto& of_param, const auto& of_a, const auto& of_b, const auto& of_c) {
          put(e.param, i, e.format, p, of_param);
          if constexpr (R::states > 0) put(e.state[0], i, e.state_format, a, of_a);
          if constexpr (R::states > 1) put(e.state[1], i, e.state_format, b, of_b);
          if constexpr (R::states > 2) put(e.state[2], i, e.state_format, c, of_c);
        });
        if (e.low) put(e.low, i, e.low_format, p, Nearest{});
#pragma unroll
        for (int j = 0; j < V; ++j) take(p[j]);
      }
    } else {
      for (int64_t j = i; j < i + V && j < end; ++j) {
        T p = 0, a = 0, b = 0, c = 0;
        if constexpr (!writes_grad<R>) p = get_one<T>(e.param, j, e.format);
        T g = get_one<T>(e.grad, j, e.grad_format) * k[0];
        if constexpr (R::states > 0) a = get_one<T>(e.state[0], j, e.state_format);
        if constexpr (R::states > 1) b = get_one<T>(e.state[1], j, e.state_format);
        if constexpr (R::states > 2) c = get_one<T>(e.state[2], j, e.state_format);
        R::apply(k, p, g, a, b, c);
        if constexpr (writes_grad<R>) {
          put_one(e.grad, j, e.grad_format, g, Nearest{});
        } else {
          rounded(j, [&](const auto& of_param, const auto& of_a, const auto& of_b, const auto& of_c) {
            put_one(e.param, j, e.format, p, of_param);
            if constexpr (R::states > 0) put_one(e.state[0], j, e.state_format, a, of_a);
            if constexpr (R::states > 1) put_one(e.state[1], j, e.state_format, b, of_b);
            if constexpr (R::states > 2) put_one(e.state[2], j, e.state_format, c, of_c);
          });
          if (e.low) put_one(e.low, j, e.low_format, p, Nearest{});
          take(p);
        }
      }
    }
  }
  if constexpr (!writes_grad<R> && std::is_same_v<T, float>) {
    if (e.most == nullptr) return;
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % cuda::kWarp == 0)
      e.most[(blockIdx.x - e.first_chunk) * cuda::kParameterWarps + threadIdx.x / cuda::kWarp] = most;
  }
}

// Calls launch(table, chunks) with tables of all slabs for which `takes` holds.
template <class Takes, class Launch>
void for_tables(std::span<const Slab> slabs, Takes&& takes, Launch&& launch) {
  Table<Entry> table;
  uint32_t chunks = 0;
  const auto flush = [&] {
    if (table.n > 0) launch(table, chunks);
    table.n = 0, chunks = 0;
  };
  for (const Slab& s : slabs) {
    if (s.numel == 0 || !takes(s)) continue;
    if (table.n == Table<Entry>::kMost) flush();
    table.entries[table.n++] = {s.param,
                                s.grad,
                                {s.state[0], s.state[1], s.state[2]},
                                s.numel,
                                s.step,
                                s.rate,
                                s.low,
                                s.most,
                                chunks,
                                static_cast<uint32_t>(&s - slabs.data()),
                                format_of(s.dtype),
                                format_of(s.grad_dtype),
                                format_of(s.state_dtype),
                                format_of(s.low_dtype),
                                s.stochastic};
    chunks += cuda::blocks_for(s.numel, kChunk);
  }
  flush();
}

template <class R, class T>
void queue(std::span<const Slab> slabs, const double* constants, const double* factor) {
  constexpr bool wide = std::is_same_v<T, double>;
  const auto takes = [](const Slab& s) { return ((writes_grad<R> ? s.grad_dtype : s.dtype) == DType::f64) == wide; };
  for_tables(slabs, takes, [&](const Table<Entry>& table, uint32_t chunks) {
    rule_kernel<R, T><<<chunks, kThreads, 0, cuda::stream()>>>(table, constants, factor);
  });
}
template <class R>
void queue_all(std::span<const Slab> slabs, const double* constants, const double* factor) {
  queue<R, float>(slabs, constants, factor);
  queue<R, double>(slabs, constants, factor);
}

struct Constants {
  double k[kConstants];
  const int64_t* count;
  const double* rate;
  uint64_t seed;
  bool wide;  // of f64
};
struct ConstantsTable {
  static constexpr int kMost = kTableBytes / static_cast<int>(sizeof(Constants));
  int n = 0;
  Constants entries[kMost];
};
__global__ void __launch_bounds__(kThreads)
    constants_kernel(const __grid_constant__ ConstantsTable table, Rule rule, double* to) {
  for (int i = static_cast<int>(threadIdx.x); i < table.n; i += kThreads) {
    const Constants& c = table.entries[i];
    double k[kConstants];
#pragma unroll
    for (int j = 0; j < kConstants; ++j) k[j] = c.k[j];
    const int64_t t = c.count ? *c.count + 1 : 1;
    if (c.rate) k[kRate] = *c.rate;
    complete(rule, k, static_cast<double>(t));
    double* out = to + kRow * i;
    out[kConstants + 1] = k[kNextRate];
    out[kConstants] = __longlong_as_double(static_cast<int64_t>(rounding_key(c.seed, static_cast<uint64_t>(t))));
#pragma unroll
    for (int j = 0; j < kConstants; ++j) {
      if (c.wide) {
        out[j] = k[j];
      } else {
        reinterpret_cast<float*>(out)[j] = static_cast<float>(k[j]);
      }
    }
  }
}

__global__ void judge_kernel(Verdict* v, const double* sum, const float* loss, const double* wide_loss, double max_norm,
                             ScaleRule rule) {
  judge(*v, *sum, loss ? static_cast<double>(*loss) : wide_loss ? *wide_loss : 0, max_norm, rule);
}

template <class G>
__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ Table<Entry> table, double* parts) {
  __shared__ double shared[kThreads / cuda::kWarp];
  constexpr int V = cuda::kVec<G>;
  const Entry& e = table.of(blockIdx.x);
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk, end = min(begin + kChunk, e.numel);
  const G* g = static_cast<const G*>(e.grad);
  const bool vectors = reinterpret_cast<uintptr_t>(g) % 16 == 0;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V) {
    if (vectors && i + V <= end) {
      const auto v = load_vec<V>(g + i);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const double x = widen(v.v[j]);
        sum += x * x;
      }
    } else {
      for (int64_t j = i; j < i + V && j < end; ++j) {
        const double x = widen(g[j]);
        sum += x * x;
      }
    }
  }
  sum = cuda::block_reduce<kThreads>(sum, cuda::Sum{}, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

constexpr int kTotalThreads = 1024;
__global__ void __launch_bounds__(kTotalThreads) total_kernel(const double* parts, int64_t n, double* to) {
  __shared__ double shared[kTotalThreads / cuda::kWarp];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kTotalThreads) sum += parts[i];
  sum = cuda::block_reduce<kTotalThreads>(sum, cuda::Sum{}, shared);
  if (threadIdx.x == 0) *to = sum;
}

}  // namespace

Tensor empty_constants(size_t n, Device device) {
  const cuda::OutsidePoolScope outside;
  return empty({{static_cast<int64_t>(n), kRow}, DType::f64, device, std::nullopt});
}

void write_constants(Rule rule, const Tensor& constants, std::span<const Slab> slabs) {
  const cuda::DeviceScope scope(constants.device().index);
  auto* to = static_cast<double*>(constants.raw_data());
  for (size_t begin = 0; begin < slabs.size(); begin += ConstantsTable::kMost) {
    ConstantsTable table;
    table.n = static_cast<int>(std::min<size_t>(ConstantsTable::kMost, slabs.size() - begin));
    for (int i = 0; i < table.n; ++i) {
      const Slab& s = slabs[begin + static_cast<size_t>(i)];
      Constants& c = table.entries[i];
      std::copy(std::begin(s.k), std::end(s.k), c.k);
      c.count = s.count;
      c.rate = s.rate;
      c.seed = s.seed;
      c.wide = s.dtype == DType::f64 || s.grad_dtype == DType::f64;
    }
    constants_kernel<<<1, kThreads, 0, cuda::stream()>>>(table, rule, to + kRow * begin);
  }
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the constants");
}

void judge_cuda(const Tensor& to, const Tensor& sum_of_squares, const Tensor& loss, double max_norm, ScaleRule rule) {
  const cuda::DeviceScope scope(to.device().index);
  const void* at = loss.defined() ? loss.raw_data() : nullptr;
  const bool wide = loss.defined() && loss.dtype() == DType::f64;
  judge_kernel<<<1, 1, 0, cuda::stream()>>>(
      static_cast<Verdict*>(to.raw_data()), static_cast<const double*>(sum_of_squares.raw_data()),
      wide ? nullptr : static_cast<const float*>(at), wide ? static_cast<const double*>(at) : nullptr, max_norm, rule);
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the verdict");
}

void run_rule_cuda(Rule rule, std::span<const Slab> slabs, const Tensor& constants, const double* factor) {
  const cuda::DeviceScope scope(constants.device().index);
  const auto* k = static_cast<const double*>(constants.raw_data());
  switch (rule) {
#define STRATA_ONE_RULE(name, type)    \
  case Rule::name:                     \
    queue_all<type>(slabs, k, factor); \
    break;
    STRATA_RULES
#undef STRATA_ONE_RULE
  }
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the update");
}

Tensor sum_of_squares_cuda(std::span<const Slab> slabs, Device device) {
  const cuda::DeviceScope scope(device.index);
  int64_t n = 0;
  for (const Slab& s : slabs) n += (s.numel + kChunk - 1) / kChunk;
  const Tensor sum = empty({Shape{}, DType::f64, device, std::nullopt});
  const Tensor parts = empty({Shape{n}, DType::f64, device, std::nullopt});
  double* to = static_cast<double*>(parts.raw_data());
  double* at = to;
  const auto part = [&]<class G>() {
    for_tables(
        slabs, [](const Slab& s) { return s.grad_dtype == dtype_of<G>; },
        [&](const Table<Entry>& table, uint32_t chunks) {
          squares_kernel<G><<<chunks, kThreads, 0, cuda::stream()>>>(table, at);
          at += chunks;
        });
  };
  part.operator()<float>();
  part.operator()<BFloat16>();
  part.operator()<Half>();
  part.operator()<double>();
  total_kernel<<<1, kTotalThreads, 0, cuda::stream()>>>(to, at - to, static_cast<double*>(sum.raw_data()));
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the sum of squares");
  return sum;
}

}  // namespace strata::optim
