// Random numbers on a CUDA device: the same counters and the same arithmetic as on the CPU. Products and sums are
// written as intrinsics where a fused one would give other bits.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/box_muller_inl.h"
#include "strata/ops/random/random_kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/radix.cuh"
#include "strata/ops/sort/sort.h"

namespace strata {
namespace {
using cuda::narrow;
using cuda::widen;

constexpr int kThreads = 256;

using box_muller::mul_add;

// Whether groups of N elements from `p` on can be stored at once.
template <class T, int N>
__device__ __forceinline__ bool lies_whole(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % sizeof(cuda::Vec<T, N>) == 0;
}

// Element i is f(its Words 32-bit numbers, i); a thread takes the elements of one counter block.
template <int Words, class T, class F>
__global__ void __launch_bounds__(kThreads) draw_kernel(T* y, int64_t n, RngKey key, F f) {
  constexpr int kEach = 4 / Words;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, begin = block * kEach;
  if (begin >= n) return;
  const auto bits = philox(key, static_cast<uint64_t>(block));
  if (begin + kEach <= n && lies_whole<T, kEach>(y)) {
    cuda::Vec<T, kEach> v;
#pragma unroll
    for (int k = 0; k < kEach; ++k) v.v[k] = f(&bits[static_cast<size_t>(k * Words)], begin + k);
    cuda::store_vec(y + begin, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (begin + k < n) y[begin + k] = f(&bits[static_cast<size_t>(k * Words)], begin + k);
}

template <int Words, class T, class F>
void draw(void* y, int64_t n, RngKey key, F f) {
  if (n == 0) return;
  const unsigned blocks = cuda::blocks_for((n * Words + 3) / 4, kThreads);
  draw_kernel<Words><<<blocks, kThreads, 0, cuda::stream()>>>(static_cast<T*>(y), n, key, f);
}

// Runs `body` on y, or on a row-major stand-in that is then copied to y.
template <class Body>
void into_dense(Tensor& y, Body&& body) {
  if (y.is_contiguous()) return body(y);
  Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  body(dense);
  copy_elements(y, dense);
}

template <class T>
struct Uniform {
  using C = compute_t<T>;
  C low, range, high;
  __device__ T operator()(const uint32_t* bits, int64_t) const {
    C unit;
    if constexpr (std::is_same_v<T, double>) {
      unit = uniform_f64(bits[0], bits[1]);
    } else {
      unit = uniform_f32(bits[0]);
    }
    const T r = narrow<T>(mul_add(range, unit, low));
    return widen(r) < high ? r : narrow<T>(low);
  }
};

// Elements 2j and 2j + 1 share two uniform numbers.
template <class T>
struct Normal {
  using C = compute_t<T>;
  C mean, std;
  __device__ void operator()(const uint32_t* bits, T& first, T& second) const {
    C u, v;
    if constexpr (std::is_same_v<T, double>) {
      u = 1 - uniform_f64(bits[0], bits[1]);
      v = uniform_f64(bits[2], bits[3]);
    } else {
      u = mul_add(static_cast<float>(bits[0]), 0x1p-32f, 0x1p-33f);
      v = uniform_f32(bits[1]);
    }
    C x, y;
    box_muller::pair(u, v, mean, std, x, y);
    first = narrow<T>(x);
    second = narrow<T>(y);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) normal_kernel(T* y, int64_t n, RngKey key, Normal<T> f) {
  constexpr int kWords = std::is_same_v<T, double> ? 2 : 1, kEach = 4 / kWords;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, begin = block * kEach;
  if (begin >= n) return;
  const auto bits = philox(key, static_cast<uint64_t>(block));
  cuda::Vec<T, kEach> v;
#pragma unroll
  for (int k = 0; k < kEach; k += 2) f(&bits[static_cast<size_t>(k * kWords)], v.v[k], v.v[k + 1]);
  if (begin + kEach <= n && lies_whole<T, kEach>(y)) return cuda::store_vec(y + begin, v);
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (begin + k < n) y[begin + k] = v.v[k];
}

template <class T>
struct TruncNormal {
  double mean, std, low, high, from, range;
  __device__ T operator()(const uint32_t* bits, int64_t) const {
    const double u = fmin(fmax(mul_add(range, uniform_f64(bits[0], bits[1]), from), 1e-300), 1 - 1e-16);
    return narrow<T>(static_cast<compute_t<T>>(fmin(fmax(mul_add(std, inverse_normal(u), mean), low), high)));
  }
};

__device__ __forceinline__ uint64_t word64(const uint32_t* bits) {
  return static_cast<uint64_t>(bits[0]) << 32 | bits[1];
}

template <class T>
struct RandInt {
  uint64_t low, range;
  __device__ T operator()(const uint32_t* bits, int64_t) const {
    return narrow<T>(static_cast<compute_t<T>>(static_cast<int64_t>(low + __umul64hi(word64(bits), range))));
  }
};

// Whether a number of 32 bits is below the share q of all: bits 2^-32 < q, without arithmetic in f64 where q has none.
template <class C>
__device__ __forceinline__ bool below(uint32_t bits, C q) {
  if constexpr (std::is_same_v<C, double>)
    return static_cast<double>(bits) * 0x1p-32 < q;
  else
    return bits < __float2ull_ru(q * 0x1p32f);  // exact, as is rounding it up
}

// A thread takes V elements, from a multiple of four on.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    bernoulli_kernel(T* y, const T* __restrict__ p, int64_t n, RngKey key, cuda::RangeCheck check) {
  using C = compute_t<T>;
  constexpr int kLoad = cuda::kVec<T> < V ? cuda::kVec<T> : V;
  static_assert(V % 4 == 0 && V % kLoad == 0);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (first >= n) return;
  const bool whole = first + V <= n && lies_whole<T, kLoad>(p) && lies_whole<T, kLoad>(y);
  cuda::Vec<T, kLoad> v[V / kLoad];
#pragma unroll
  for (int g = 0; g < V / kLoad; ++g)
    if (whole) {
      v[g] = cuda::load_vec<kLoad>(p + first + g * kLoad);
    } else {
#pragma unroll
      for (int j = 0; j < kLoad; ++j) {
        const int64_t i = first + g * kLoad + j;
        v[g].v[j] = i < n ? p[i] : narrow<T>(C(0));
      }
    }
  key = resolved(key);
  bool refused = false;
  C wrong = 0;
#pragma unroll
  for (int k = 0; k < V; k += 4) {
    const auto bits = philox(key, static_cast<uint64_t>(first + k) / 4);
#pragma unroll
    for (int j = k; j < k + 4; ++j) {
      T& at = v[j / kLoad].v[j % kLoad];
      const C q = widen(at);
      const bool bad = !(q >= 0 && q <= 1);
      refused = refused || bad;
      wrong = bad ? q : wrong;
      at = narrow<T>(below(bits[static_cast<size_t>(j - k)], bad ? C(0) : q) ? C(1) : C(0));
    }
  }
  if (refused) check.refuse(static_cast<double>(wrong));
#pragma unroll
  for (int g = 0; g < V / kLoad; ++g)
    if (whole) {
      cuda::store_vec(y + first + g * kLoad, v[g]);
    } else {
#pragma unroll
      for (int j = 0; j < kLoad; ++j) {
        const int64_t i = first + g * kLoad + j;
        if (i < n) y[i] = v[g].v[j];
      }
    }
}

// Element i's key, of which the first bits are returned; the key and i are kept beside.
struct FirstBits {
  uint64_t* keys;
  uint32_t* index;
  int bits;
  __device__ uint32_t operator()(const uint32_t* words, int64_t i) const {
    const uint64_t key = word64(words);
    keys[i] = key;
    index[i] = static_cast<uint32_t>(i);
    return static_cast<uint32_t>(key >> (64 - bits));
  }
};

// y = the order of all keys, from that of their first bits, which is of equal ones as they stood. Few are equal: the
// thread of the first of them orders them.
__global__ void __launch_bounds__(kThreads)
    order_kernel(int64_t* y, const uint32_t* first, const uint32_t* index, const uint64_t* keys, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t own = first[i];
  if (i > 0 && first[i - 1] == own) return;
  int64_t end = i + 1;
  while (end < n && first[end] == own) ++end;
  for (int64_t j = i; j < end; ++j) {
    int64_t rank = 0;
    if (end > i + 1) {
      const uint64_t key = keys[index[j]];
      for (int64_t k = i; k < end; ++k) {
        const uint64_t other = keys[index[k]];
        rank += other < key || (other == key && k < j);
      }
    }
    y[i + rank] = index[j];
  }
}

Tensor workspace(const Shape& shape, DType dtype, const Tensor& like_this) {
  return empty({shape, dtype, like_this.device(), std::nullopt});
}

__device__ __forceinline__ double unit_of(RngKey key, int64_t i) {
  const auto bits = philox(key, static_cast<uint64_t>(i));
  return uniform_f64(bits[0], bits[1]);
}

// The last of a row's running sums is what all its weights come to.
__global__ void __launch_bounds__(kThreads)
    totals_kernel(const double* sums, int64_t n, int64_t rows, cuda::RangeCheck check) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows && sums[row * n + n - 1] == 0) check.refuse(0);
}

__global__ void __launch_bounds__(kThreads) weights_kernel(const double* weights, int64_t all, cuda::RangeCheck check) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < all && !(weights[i] >= 0 && isfinite(weights[i]))) check.refuse(weights[i]);
}

// The last sample's time is infinite where its weight is 0.
// The last of each row's k times.
__global__ void __launch_bounds__(kThreads)
    last_kernel(const double* times, int64_t k, int64_t rows, cuda::RangeCheck check) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows && isinf(times[row * k + k - 1])) check.refuse(0);
}

__global__ void __launch_bounds__(kThreads)
    with_replacement_kernel(const double* weights, const double* sums, int64_t* y, int64_t n, int64_t num_samples,
                            int64_t draws, RngKey key) {
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s >= draws) return;
  weights += s / num_samples * n;
  sums += s / num_samples * n;
  const double target = __dmul_rn(unit_of(key, s), sums[n - 1]);
  int64_t low = 0, high = n;  // the first running sum above the target
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sums[middle] > target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  low = ::min(low, n - 1);
  while (low > 0 && weights[low] == 0) --low;
  y[s] = low;
}

// The times at which exponential variables with these rates ring.
__global__ void __launch_bounds__(kThreads) ring_kernel(const double* weights, double* times, int64_t all, RngKey key) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  times[i] = weights[i] > 0 ? -log(1 - unit_of(key, i)) / weights[i] : __longlong_as_double(0x7ff0000000000000);
}

}  // namespace

void uniform_cuda(Tensor& out, const Shape&, double low, double high, RngKey key, DType, Device) {
  into_dense(out, [&](Tensor& y) {
    dispatch_floats(y.dtype(), "uniform", [&]<class T>() {
      using C = compute_t<T>;
      const Uniform<T> f{static_cast<C>(low), static_cast<C>(high - low), static_cast<C>(high)};
      draw<std::is_same_v<T, double> ? 2 : 1, T>(y.raw_data(), y.numel(), key, f);
    });
  });
}

void normal_cuda(Tensor& out, const Shape&, double mean, double std, RngKey key, DType, Device) {
  into_dense(out, [&](Tensor& y) {
    if (y.numel() == 0) return;
    dispatch_floats(y.dtype(), "normal", [&]<class T>() {
      using C = compute_t<T>;
      const unsigned blocks = cuda::blocks_for(static_cast<int64_t>(random_blocks(y.numel(), y.dtype())), kThreads);
      normal_kernel<T><<<blocks, kThreads, 0, cuda::stream()>>>(static_cast<T*>(y.raw_data()), y.numel(), key,
                                                                {static_cast<C>(mean), static_cast<C>(std)});
    });
  });
}

void trunc_normal_cuda(Tensor& out, const Shape&, double mean, double std, double low, double high, RngKey key, DType,
                       Device) {
  const auto distribution = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const double from = distribution((low - mean) / std), to = distribution((high - mean) / std);
  into_dense(out, [&](Tensor& y) {
    dispatch_floats(y.dtype(), "trunc_normal", [&]<class T>() {
      draw<2, T>(y.raw_data(), y.numel(), key, TruncNormal<T>{mean, std, low, high, from, to - from});
    });
  });
}

void randint_cuda(Tensor& out, int64_t low, int64_t high, const Shape&, RngKey key, DType, Device) {
  const uint64_t from = static_cast<uint64_t>(low), range = static_cast<uint64_t>(high) - from;
  into_dense(out, [&](Tensor& y) {
    dispatch_all(y.dtype(), "randint", [&]<class T>() {
      draw<2, T>(y.raw_data(), y.numel(), key, RandInt<T>{from, range});
    });
  });
}

void bernoulli_cuda(Tensor& out, const Tensor& probabilities, RngKey key) {
  const Tensor p = contiguous(probabilities);
  into_dense(out, [&](Tensor& y) {
    if (y.numel() == 0) return;
    dispatch_floats(y.dtype(), "bernoulli", [&]<class T>() {
      constexpr int V = cuda::kVec<T> < 4 ? 4 : cuda::kVec<T>;
      bernoulli_kernel<T, V><<<cuda::blocks_for(y.numel(), int64_t{kThreads} * V), kThreads, 0, cuda::stream()>>>(
          static_cast<T*>(y.raw_data()), static_cast<const T*>(p.raw_data()), y.numel(), key,
          cuda::value_check("probabilities must lie in [0, 1]"));
    });
  });
}

void multinomial_cuda(Tensor& out, const Tensor& weights, int64_t num_samples, bool replacement, RngKey key) {
  const Tensor w = contiguous(to(weights, DType::f64));
  const int64_t n = w.shape().back(), all = w.numel(), rows = n == 0 ? 0 : all / n;
  if (rows == 0) return;
  const auto* p = static_cast<const double*>(w.raw_data());
  into_dense(out, [&](Tensor& y) {
    auto* o = static_cast<int64_t*>(y.raw_data());
    weights_kernel<<<cuda::blocks_for(all, kThreads), kThreads, 0, cuda::stream()>>>(
        p, all, cuda::value_check("weights must be finite and not negative"));
    if (replacement) {
      // In a fixed order, but not the CPU's: a number that falls within rounding of a sum may go to its neighbour.
      const Tensor sums = cumsum(w, -1);
      const auto* x = static_cast<const double*>(sums.raw_data());
      const int64_t draws = rows * num_samples;
      totals_kernel<<<cuda::blocks_for(rows, kThreads), kThreads, 0, cuda::stream()>>>(
          x, n, rows, cuda::value_check("the weights of a row must not all be 0"));
      with_replacement_kernel<<<cuda::blocks_for(draws, kThreads), kThreads, 0, cuda::stream()>>>(
          p, x, o, n, num_samples, draws, key);
      return;
    }
    // The first arrivals, in their order: no row is sorted for them.
    const Tensor times = workspace({rows, n}, DType::f64, w);
    ring_kernel<<<cuda::blocks_for(all, kThreads), kThreads, 0, cuda::stream()>>>(
        p, static_cast<double*>(times.raw_data()), all, key);
    const auto [first, places] = topk(times, num_samples, -1, false);
    last_kernel<<<cuda::blocks_for(rows, kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<const double*>(first.raw_data()), num_samples, rows,
        cuda::value_check("sampling without replacement needs as many positive weights as samples"));
    cuda::check_cuda(cudaMemcpyAsync(o, places.raw_data(), static_cast<size_t>(places.nbytes()),
                                     cudaMemcpyDeviceToDevice, cuda::stream()),
                     "multinomial", "cudaMemcpyAsync");
  });
}

void randperm_cuda(Tensor& out, int64_t n, RngKey key, Device) {
  if (n == 0) return;
  check<ValueError>(n <= int64_t{UINT32_MAX}, "randperm", "n is ", n, ", a card takes up to 2^32 - 1");
  // So many bits that hardly two of n keys agree in them, of passes of 8.
  int bits = 8;
  while (bits < 32 && n > int64_t{1} << (bits - 6)) bits += 8;
  const Tensor keys = workspace({n}, DType::i64, out), words = workspace({4, n}, DType::i32, out);
  auto* const all = static_cast<uint64_t*>(keys.raw_data());
  auto* const first = static_cast<uint32_t*>(words.raw_data());
  sort_detail::TwoBuffers<uint32_t> sorted{first, first + n}, index{first + 2 * n, first + 3 * n};
  draw<2, uint32_t>(sorted.now, n, key, FirstBits{all, index.now, bits});
  sort_detail::radix_sort(sorted, index, n, bits, out.device());
  into_dense(out, [&](Tensor& y) {
    order_kernel<<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(static_cast<int64_t*>(y.raw_data()),
                                                                                 sorted.now, index.now, all, n);
  });
}

}  // namespace strata
