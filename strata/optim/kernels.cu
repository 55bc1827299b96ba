// The fused update loops on a CUDA device: a launch takes many tensors, whose addresses are its parameters, and a block
// takes a chunk of one of them. The rules' constants are read from the device, where another launch has put them: a
// graph that holds the loops goes on with other constants.

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/memory.h"
#include "strata/optim/kernels.h"
#include "strata/optim/verdict_inl.h"

namespace strata::optim {
namespace {
using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::widen;

constexpr int kThreads = 256;
constexpr int64_t kChunk = 4096;
constexpr int kTableBytes = 32000;  // a launch's parameters hold 32764 bytes

constexpr int kConstants = 10;  // of each slab, as the parameter's dtype, in as many bytes as f64 needs

struct Entry {
  void* param;
  void* grad;
  void* state[2];
  int64_t numel;
  int64_t* step;
  void* low;
  uint32_t first_chunk;
  uint32_t index : 31;  // among the call's slabs
  uint32_t low_f16 : 1;
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

// Each rule changes parameter, gradient and states of one element.
struct AdamRule {
  static constexpr int states = 2;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T& v) {
    g = fma(k[9], p, g);
    m = fma(k[1], m, k[2] * g);
    v = fma(k[3], v, k[4] * (g * g));
    p = fma(-k[5], m / fma(sqrt(v), k[6], k[7]), p * k[8]);
  }
};
struct LionRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& m, T&) {
    const T c = fma(k[1], m, k[2] * g);
    p = p * k[6] - (c == 0 ? c : copysign(k[5], c));
    m = fma(k[3], m, k[4] * g);
  }
};
struct SgdRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&) {
    p = fma(-k[1], fma(k[2], p, g), p);
  }
};
struct SgdMomentumRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T& b, T&) {
    g = fma(k[2], p, g);
    b = fma(k[3], b, k[4] * g);
    p = fma(-k[1], k[5] != 0 ? fma(k[3], b, g) : b, p);
  }
};
struct ScaleGradRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = true;
  template <class T>
  __device__ static void apply(const T*, T&, T&, T&, T&) {}
};
struct ClampGradRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = true;
  template <class T>
  __device__ static void apply(const T* k, T&, T& g, T&, T&) {
    g = g > k[1] ? k[1] : g < -k[1] ? -k[1] : g;
  }
};

struct MuonMomentumRule {
  static constexpr int states = 1;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& d, T& g, T& b, T&) {
    b = fma(k[1], b, g);
    d = k[2] != 0 ? fma(k[1], b, g) : b;
  }
};
struct MuonApplyRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&) {
    p = fma(-k[2], g, p * k[1]);
  }
};

struct AdafactorTakeRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T*, T& p, T& g, T&, T&) {
    p = g;
  }
};
struct AdafactorBlendRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&) {
    p = fma(k[4], p, k[5] * (g + k[3]));
  }
};
struct AdafactorApplyRule {
  static constexpr int states = 0;
  static constexpr bool writes_grad = false;
  template <class T>
  __device__ static void apply(const T* k, T& p, T& g, T&, T&) {
    p = fma(-k[6], g, p * k[1]);
  }
};
// Whether what the rule reads as a gradient is one, which a factor scales.
template <class R>
inline constexpr bool reads_gradient = !std::is_same_v<R, MuonApplyRule> && !std::is_same_v<R, AdafactorBlendRule> &&
                                       !std::is_same_v<R, AdafactorApplyRule>;

// Writes the parameters' copy in low precision, if there is one.
template <int V>
__device__ __forceinline__ void store_low(const Entry& e, int64_t i, const cuda::Vec<float, V>& p) {
  const auto as = [&]<class L>(L* low) {
    cuda::Vec<L, V> v;
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = narrow<L>(p.v[j]);
    store_vec(low + i, v);
  };
  if (e.low_f16) {
    as(static_cast<Half*>(e.low));
  } else {
    as(static_cast<BFloat16*>(e.low));
  }
}

template <class R, class T, class G>
__global__ void __launch_bounds__(kThreads)
    rule_kernel(const __grid_constant__ Table<Entry> table, const double* constants, const double* factor) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  const Entry& e = table.of(blockIdx.x);
  T k[kConstants];
#pragma unroll
  for (int i = 0; i < kConstants; ++i) k[i] = reinterpret_cast<const T*>(constants + kConstants * e.index)[i];
  if (factor) {
    const double f = *factor;
    if (f != f) return;
    if constexpr (reads_gradient<R>) k[0] *= static_cast<T>(f);
  }
  if (e.step && blockIdx.x == e.first_chunk && threadIdx.x == 0) ++*e.step;
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk, end = min(begin + kChunk, e.numel);
  T* p = static_cast<T*>(e.param);
  G* g = static_cast<G*>(e.grad);
  T* a = static_cast<T*>(e.state[0]);
  T* b = static_cast<T*>(e.state[1]);
  const auto one = [&](T& vp, G& stored, T& va, T& vb) {
    T vg = static_cast<T>(widen(stored)) * k[0];
    R::apply(k, vp, vg, va, vb);
    if constexpr (R::writes_grad) stored = narrow<G>(vg);
  };
  const uintptr_t all = reinterpret_cast<uintptr_t>(p) | reinterpret_cast<uintptr_t>(g) |
                        reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                        reinterpret_cast<uintptr_t>(e.low);
  const bool vectors = all % 16 == 0;
  for (int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V) {
    if (vectors && i + V <= end) {
      auto vg = load_vec<V>(g + i);
      cuda::Vec<T, V> vp{}, va{}, vb{};
      if constexpr (!R::writes_grad) vp = load_vec<V>(p + i);
      if constexpr (R::states > 0) va = load_vec<V>(a + i);
      if constexpr (R::states > 1) vb = load_vec<V>(b + i);
#pragma unroll
      for (int j = 0; j < V; ++j) one(vp.v[j], vg.v[j], va.v[j], vb.v[j]);
      if constexpr (R::writes_grad) store_vec(g + i, vg);
      if constexpr (!R::writes_grad) store_vec(p + i, vp);
      if constexpr (!R::writes_grad && std::is_same_v<T, float>) {
        if (e.low) store_low<V>(e, i, vp);
      }
      if constexpr (R::states > 0) store_vec(a + i, va);
      if constexpr (R::states > 1) store_vec(b + i, vb);
    } else {
      for (int64_t j = i; j < i + V && j < end; ++j) {
        T none = 0, none_a = 0, none_b = 0;
        one(R::writes_grad ? none : p[j], g[j], R::states > 0 ? a[j] : none_a, R::states > 1 ? b[j] : none_b);
        if constexpr (!R::writes_grad && std::is_same_v<T, float>) {
          if (e.low) store_low<1>(e, j, {{p[j]}});
        }
      }
    }
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
                                {s.state[0], s.state[1]},
                                s.numel,
                                s.step,
                                s.low,
                                chunks,
                                static_cast<uint32_t>(&s - slabs.data()),
                                s.low_dtype == DType::f16};
    chunks += cuda::blocks_for(s.numel, kChunk);
  }
  flush();
}

template <class R, class T, class G>
void queue(std::span<const Slab> slabs, const double* constants, const double* factor) {
  const auto takes = [](const Slab& s) {
    return s.grad_dtype == dtype_of<G> && (R::writes_grad || s.dtype == dtype_of<T>);
  };
  for_tables(slabs, takes, [&](const Table<Entry>& table, uint32_t chunks) {
    rule_kernel<R, T, G><<<chunks, kThreads, 0, cuda::stream()>>>(table, constants, factor);
  });
}
template <class R>
void queue_all(std::span<const Slab> slabs, const double* constants, const double* factor) {
  queue<R, float, float>(slabs, constants, factor);
  queue<R, float, BFloat16>(slabs, constants, factor);
  queue<R, double, double>(slabs, constants, factor);
}

struct Constants {
  double k[kConstants];
  const int64_t *step, *count;
  bool wide;  // of f64
};
struct ConstantsTable {
  static constexpr int kMost = kTableBytes / static_cast<int>(sizeof(Constants));
  int n = 0;
  Constants entries[kMost];
};
__global__ void __launch_bounds__(kThreads) constants_kernel(const __grid_constant__ ConstantsTable table, double* to) {
  for (int i = static_cast<int>(threadIdx.x); i < table.n; i += kThreads) {
    const Constants& c = table.entries[i];
    double k[kConstants];
#pragma unroll
    for (int j = 0; j < kConstants; ++j) k[j] = c.k[j];
    if (c.count) {
      const double t = static_cast<double>(*c.count + 1);
      k[5] = pow(t, -k[9]);
      k[4] = 1 - k[5];
      k[6] = k[8] * fmin(k[7], 1 / sqrt(t));
    } else if (c.step) {
      const double t = static_cast<double>(*c.step + 1);
      k[5] /= 1 - pow(k[1], t);
      k[6] = 1 / sqrt(1 - pow(k[3], t));
    }
    double* out = to + kConstants * i;
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
  return empty({{static_cast<int64_t>(n), kConstants}, DType::f64, device, std::nullopt});
}

void write_constants(const Tensor& constants, std::span<const Slab> slabs) {
  const cuda::DeviceScope scope(constants.device().index);
  auto* to = static_cast<double*>(constants.raw_data());
  for (size_t begin = 0; begin < slabs.size(); begin += ConstantsTable::kMost) {
    ConstantsTable table;
    table.n = static_cast<int>(std::min<size_t>(ConstantsTable::kMost, slabs.size() - begin));
    for (int i = 0; i < table.n; ++i) {
      const Slab& s = slabs[begin + static_cast<size_t>(i)];
      Constants& c = table.entries[i];
      std::copy(std::begin(s.k), std::end(s.k), c.k);
      c.step = s.step;
      c.count = s.count;
      c.wide = s.dtype == DType::f64 || s.grad_dtype == DType::f64;
    }
    constants_kernel<<<1, kThreads, 0, cuda::stream()>>>(table, to + kConstants * begin);
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
    case Rule::adam:
      queue_all<AdamRule>(slabs, k, factor);
      break;
    case Rule::lion:
      queue_all<LionRule>(slabs, k, factor);
      break;
    case Rule::sgd:
      queue_all<SgdRule>(slabs, k, factor);
      break;
    case Rule::sgd_momentum:
      queue_all<SgdMomentumRule>(slabs, k, factor);
      break;
    case Rule::scale_grad:
      queue_all<ScaleGradRule>(slabs, k, factor);
      break;
    case Rule::clamp_grad:
      queue_all<ClampGradRule>(slabs, k, factor);
      break;
    case Rule::muon_momentum:
      queue_all<MuonMomentumRule>(slabs, k, factor);
      break;
    case Rule::muon_apply:
      queue_all<MuonApplyRule>(slabs, k, factor);
      break;
    case Rule::adafactor_take:
      queue_all<AdafactorTakeRule>(slabs, k, factor);
      break;
    case Rule::adafactor_blend:
      queue_all<AdafactorBlendRule>(slabs, k, factor);
      break;
    case Rule::adafactor_apply:
      queue_all<AdafactorApplyRule>(slabs, k, factor);
      break;
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
  part.operator()<double>();
  total_kernel<<<1, kTotalThreads, 0, cuda::stream()>>>(to, at - to, static_cast<double*>(sum.raw_data()));
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the sum of squares");
  return sum;
}

}  // namespace strata::optim
