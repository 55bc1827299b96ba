// The fused update loops on a CUDA device: a launch takes many tensors, whose addresses are its parameters, and a block
// takes a chunk of one of them. The rules' constants are read from the device, where another launch has put them: a
// graph that holds the loops goes on with other constants.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "strata/cuda/memory.h"
#include "strata/optim/count_inl.h"
#include "strata/optim/groups_inl.h"
#include "strata/optim/loops.cuh"
#include "strata/optim/verdict_inl.h"

namespace strata::optim {
namespace {

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
      uint2 lower = {};
      if constexpr (!writes_grad<R>) lower = fetch_weights(p, e, i, e.format);
      fetch(g, e.grad, i, e.grad_format);
      if constexpr (R::states > 0) fetch(a, e.state[0], i, e.state_format);
      if constexpr (R::states > 1) fetch(b, e.state[1], i, e.state_format);
      if constexpr (R::states > 2) fetch(c, e.state[2], i, e.state_format);
      if constexpr (!writes_grad<R>) unpack_weights(p, lower, e.format);
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
          put_weights(e, i, p, of_param, e.format);
          if constexpr (R::states > 0) put(e.state[0], i, e.state_format, a, of_a);
          if constexpr (R::states > 1) put(e.state[1], i, e.state_format, b, of_b);
          if constexpr (R::states > 2) put(e.state[2], i, e.state_format, c, of_c);
        });
#pragma unroll
        for (int j = 0; j < V; ++j) take(p[j]);
      }
    } else {
      for (int64_t j = i; j < i + V && j < end; ++j) {
        T p = 0, a = 0, b = 0, c = 0;
        if constexpr (!writes_grad<R>) p = get_weight<T>(e, j);
        T g = get_one<T>(e.grad, j, e.grad_format) * k[0];
        if constexpr (R::states > 0) a = get_one<T>(e.state[0], j, e.state_format);
        if constexpr (R::states > 1) b = get_one<T>(e.state[1], j, e.state_format);
        if constexpr (R::states > 2) c = get_one<T>(e.state[2], j, e.state_format);
        R::apply(k, p, g, a, b, c);
        if constexpr (writes_grad<R>) {
          put_one(e.grad, j, e.grad_format, g, Nearest{});
        } else {
          rounded(j, [&](const auto& of_param, const auto& of_a, const auto& of_b, const auto& of_c) {
            put_weight(e, j, p, of_param);
            if constexpr (R::states > 0) put_one(e.state[0], j, e.state_format, a, of_a);
            if constexpr (R::states > 1) put_one(e.state[1], j, e.state_format, b, of_b);
            if constexpr (R::states > 2) put_one(e.state[2], j, e.state_format, c, of_c);
          });
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

template <class R, class T>
void queue(std::span<const Slab> slabs, const double* constants, const double* factor) {
  constexpr bool wide = std::is_same_v<T, double>;
  const auto takes = [](const Slab& s) {
    return ((writes_grad<R> ? s.grad_dtype : s.dtype) == DType::f64) == wide && !(R::states > 0 && in_codes(s));
  };
  for_tables<Entry>(slabs, takes, [&](const Table<Entry>& table, uint32_t chunks) {
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
  if (std::any_of(slabs.begin(), slabs.end(), in_codes)) queue_eight_bit(rule, slabs, k, factor);
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the update");
}

namespace {
// The parts of the gradients that are G's, from `at` on; returns the end.
template <class G>
double* queue_squares(std::span<const Slab> slabs, double* at) {
  const auto takes = [](const Slab& s) { return s.grad_dtype == dtype_of<G>; };
  for_groups(slabs, takes, [&](std::span<const Slab> group) {
    for_tables<Entry>(group, takes, [&](const Table<Entry>& table, uint32_t chunks) {
      squares_kernel<G><<<chunks, kThreads, 0, cuda::stream()>>>(table, at);
      at += chunks;
    });
  });
  return at;
}
double* queue_squares(std::span<const Slab> slabs, double* at) {
  at = queue_squares<float>(slabs, at);
  at = queue_squares<BFloat16>(slabs, at);
  at = queue_squares<Half>(slabs, at);
  return queue_squares<double>(slabs, at);
}
Tensor queue_total(const double* parts, int64_t n, Device device) {
  const Tensor sum = empty({Shape{}, DType::f64, device, std::nullopt});
  total_kernel<<<1, kTotalThreads, 0, cuda::stream()>>>(parts, n, static_cast<double*>(sum.raw_data()));
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the sum of squares");
  return sum;
}
}  // namespace

Tensor sum_of_squares_cuda(std::span<const Slab> slabs, Device device) {
  const cuda::DeviceScope scope(device.index);
  int64_t n = 0;
  for (const Slab& s : slabs) n += square_parts_cuda(s.numel);
  const Tensor parts = empty({Shape{n}, DType::f64, device, std::nullopt});
  auto* to = static_cast<double*>(parts.raw_data());
  return queue_total(to, queue_squares(slabs, to) - to, device);
}

int64_t square_parts_cuda(int64_t numel) {
  return (numel + kChunk - 1) / kChunk;
}
void squares_cuda(const Slab& s, double* to) {
  const cuda::DeviceScope scope(s.device.index);
  queue_squares(std::span(&s, 1), to);
  cuda::check_cuda(cudaGetLastError(), "optimizer", "the squares");
}
Tensor total_cuda(const Tensor& parts) {
  const cuda::DeviceScope scope(parts.device().index);
  return queue_total(static_cast<const double*>(parts.raw_data()), parts.numel(), parts.device());
}

}  // namespace strata::optim
