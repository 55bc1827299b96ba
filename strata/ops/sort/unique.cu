// The different values of a tensor on a CUDA device: a radix sort of keys, then one pass that selects where runs of
// equal ones begin. Keys of integers are distances from the smallest, sorted by as many bits as the largest distance
// has; they are sorted alone where nobody asks where the elements stood, and of few bits only counted, as bytes are.
// Zeros have two signs, of which the result has the first element's: it is looked for while floating keys are made
// (WholeKeys).

#include <algorithm>
#include <bit>

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include "strata/cuda/current.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/rows.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/radix.cuh"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {
namespace {
using namespace sort_detail;

constexpr int kThreads = 256;
constexpr int kCounted = 15;  // bits of keys that are counted rather than sorted: bincount counts them in one reading

// The smallest and the largest key of x, the largest as what is left of it to the greatest number: both are minima.
template <class B>
__global__ void __launch_bounds__(kThreads) range_kernel(const B* x, int64_t n, Order order, unsigned long long* ends) {
  constexpr int kAhead = 4;
  unsigned long long low = ~0ull, high = ~0ull;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const auto take = [&](B v) {
    const unsigned long long key = key_of(v, order);
    low = min(low, key);
    high = min(high, ~key);
  };
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kAhead - 1) * step < n; i += kAhead * step) {
    B v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) v[u] = x[i + u * step];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) take(v[u]);
  }
  for (; i < n; i += step) take(x[i]);
#pragma unroll
  for (int o = cuda::kWarp / 2; o > 0; o /= 2) {
    low = min(low, __shfl_xor_sync(0xffffffffu, low, o));
    high = min(high, __shfl_xor_sync(0xffffffffu, high, o));
  }
  if (threadIdx.x % cuda::kWarp != 0) return;
  atomicMin(ends, low);
  atomicMin(ends + 1, high);
}

// keys[e] = the key of element e above `base`; places[e] = e, unless null.
template <class B, class K, class P>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const B* x, int64_t n, Order order, uint64_t base, K* keys, P* places) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= n) return;
  keys[e] = static_cast<K>(key_of(x[e], order) - base);
  if (places != nullptr) places[e] = static_cast<P>(e);
}

// whole[e] = the key of element e; *first_zero becomes the place of the first zero, where there is one.
template <class B, class K>
__global__ void __launch_bounds__(kThreads)
    whole_keys_kernel(const B* x, int64_t n, const WholeKeys<B> keys, K* whole, uint32_t* first_zero) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t zero = UINT32_MAX;
  if (e < n) {
    whole[e] = keys.key(x[e]);
    if ((x[e] & static_cast<B>(~WholeKeys<B>::kSign)) == 0) zero = static_cast<uint32_t>(e);
  }
  zero = __reduce_min_sync(0xffffffffu, zero);
  // Most zeros are not the first: those need no atomic operation.
  if (threadIdx.x % cuda::kWarp == 0 && zero < *static_cast<volatile uint32_t*>(first_zero))
    atomicMin(first_zero, zero);
}

// Whether sorted element i begins a run; NaNs, above `infinity`, differ from each other; whole keys of zeros, `zero`
// and the one below it, do not.
template <class K>
struct Begins {
  const K* keys;
  bool floating, whole;
  K infinity, zero;
  template <class I>
  __device__ bool operator()(I i) const {
    if (i == 0) return true;
    const K key = keys[i], before = keys[i - 1];
    if (floating && key > infinity) return true;
    return key != before && !(whole && key == zero && before + 1 == zero);
  }
};

// Of run j its value, from its key or, with places, from its first element, and its length.
template <class B, class K, class P>
__global__ void __launch_bounds__(kThreads)
    runs_kernel(const B* x, const K* keys, const P* places, const P* starts, const WholeKeys<B> of,
                const uint32_t* first_zero, uint64_t base, int64_t found, int64_t n, B* values, int64_t* counts) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= found) return;
  const P start = starts[j];
  if (places != nullptr) {
    values[j] = x[places[start]];
  } else {
    const B value = of.value(static_cast<B>(keys[start] + base));
    const bool zero = first_zero != nullptr && (value & static_cast<B>(~WholeKeys<B>::kSign)) == 0;
    values[j] = zero ? x[*first_zero] : value;
  }
  if (counts != nullptr) counts[j] = (j + 1 < found ? static_cast<int64_t>(starts[j + 1]) : n) - start;
}

// inverse of each element: the run in which it stands among the sorted. A warp looks for its first element's run and
// counts from there on.
constexpr int kWarpSteps = 16;
template <class K, class P>
__global__ void __launch_bounds__(kThreads) inverse_kernel(const P* places, const P* starts, const Begins<K> begins,
                                                           int64_t found, int64_t n, int64_t* inverse) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / cuda::kWarp;
  const int64_t first = warp * cuda::kWarp * kWarpSteps;
  if (first >= n) return;
  int64_t run = 0, high = found - 1;  // starts[run] <= first
  while (run < high) {
    const int64_t middle = (run + high + 1) / 2;
    if (static_cast<int64_t>(starts[middle]) <= first)
      run = middle;
    else
      high = middle - 1;
  }
#pragma unroll 4
  for (int step = 0; step < kWarpSteps; ++step) {
    const int64_t i = first + step * cuda::kWarp + lane;
    const unsigned votes = __ballot_sync(0xffffffffu, i < n && i > first && begins(i));
    if (i < n) inverse[places[i]] = run + __popc(votes & (0xffffffffu >> (cuda::kWarp - 1 - lane)));
    run += __popc(votes);
  }
}

struct Wanted {
  Tensor dense, inverse;  // inverse has no elements where it is not wanted
  bool counts;
  uint64_t base;
};
struct Found {
  Tensor values, counts;
};

template <class B, class K, class P>
Found runs(const Wanted& w, const K* keys, const P* places, const uint32_t* first_zero = nullptr) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  const Order order = order_of(x.dtype());
  const Tensor starts_memory = make({n}, sizeof(P) == 8 ? DType::i64 : DType::i32, x),
               number = make({1}, DType::i64, x);
  auto* const starts = static_cast<P*>(starts_memory.raw_data());
  const WholeKeys<B> of(order);
  const bool whole = first_zero != nullptr;
  // Other keys have all NaN at the largest.
  const B infinity = whole ? of.key(static_cast<B>(order.infinity)) : static_cast<B>(~B(1));
  const Begins<K> begins{keys, order.kind == Kind::floating, whole, static_cast<K>(infinity),
                         static_cast<K>(whole ? of.key(B(0)) : B(0))};
  size_t bytes = 0;
  const auto select = [&](void* workspace) {
    cuda::check_cuda(cub::DeviceSelect::If(workspace, bytes, thrust::counting_iterator<P>(0), starts,
                                           static_cast<int64_t*>(number.raw_data()), n, begins, cuda::stream()),
                     "unique", "cub::DeviceSelect::If");
  };
  select(nullptr);
  const Tensor workspace = make({std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, x);
  select(workspace.raw_data());
  int64_t found = 0;
  cuda::copy_bytes(&found, Device::cpu(), number.raw_data(), x.device(), sizeof found);
  const Found r{make({found}, x.dtype(), x), make({w.counts ? found : 0}, DType::i64, x)};
  runs_kernel<B, K, P><<<cuda::blocks_for(found, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(x.raw_data()), keys, places, starts, of, first_zero, w.base, found, n,
      static_cast<B*>(r.values.raw_data()), w.counts ? static_cast<int64_t*>(r.counts.raw_data()) : nullptr);
  if (w.inverse.numel() > 0)
    inverse_kernel<K, P><<<cuda::blocks_for(n, int64_t{kThreads} * kWarpSteps), kThreads, 0, cuda::stream()>>>(
        places, starts, begins, found, n, static_cast<int64_t*>(w.inverse.raw_data()));
  return r;
}

// Floating elements, fewer than 2^32, without their places.
template <class B, class K>
Found by_whole_keys(const Wanted& w) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  const Tensor memory = make({2 * n}, sizeof(K) == 8 ? DType::i64 : DType::i32, x), zero = make({1}, DType::i32, x);
  cuda::fill_bytes(x.device(), zero.raw_data(), 0xff, 4);
  auto* const key = static_cast<K*>(memory.raw_data());
  auto* const first_zero = static_cast<uint32_t*>(zero.raw_data());
  TwoBuffers<K> keys{key, key + n};
  whole_keys_kernel<B, K><<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(x.raw_data()), n, WholeKeys<B>(order_of(x.dtype())), keys.now, first_zero);
  radix_sort(keys, n, 8 * static_cast<int>(sizeof(B)), x.device());
  return runs<B, K, uint32_t>(w, keys.now, nullptr, first_zero);
}

// Keys of `bits` bits in words K; fewer than 2^32.
template <class B, class K>
Found by_radix_sort(const Wanted& w, int bits, bool with_places) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  const Tensor key_memory = make({2 * n}, sizeof(K) == 8 ? DType::i64 : DType::i32, x);
  const Tensor place_memory = make({with_places ? 2 * n : 0}, DType::i32, x);
  auto* const key = static_cast<K*>(key_memory.raw_data());
  auto* const place = with_places ? static_cast<uint32_t*>(place_memory.raw_data()) : nullptr;
  TwoBuffers<K> keys{key, key + n};
  TwoBuffers<uint32_t> places{place, with_places ? place + n : nullptr};
  keys_kernel<B, K, uint32_t><<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(x.raw_data()), n, order_of(x.dtype()), w.base, keys.now, places.now);
  if (with_places)
    radix_sort(keys, places, n, bits, x.device());
  else
    radix_sort(keys, n, bits, x.device());
  return runs<B, K, uint32_t>(w, keys.now, places.now);
}

// The values and counts of the keys that occur.
template <class B>
__global__ void __launch_bounds__(kThreads) counted_kernel(const int64_t* occur, const int64_t* all, Order order,
                                                           uint64_t base, int64_t found, B* values, int64_t* counts) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= found) return;
  B value{};
  value_of(static_cast<B>(static_cast<uint64_t>(occur[j]) + base), order, value);
  values[j] = value;
  if (counts != nullptr) counts[j] = all[occur[j]];
}

// Keys of few bits, of fewer than 2^32 integers: each is counted, and those that occur are the result.
template <class B>
Found by_counts(const Wanted& w) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  const Order order = order_of(x.dtype());
  const Tensor keys = make({n}, DType::i32, x);
  keys_kernel<B, uint32_t, uint32_t><<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(x.raw_data()), n, order, w.base, static_cast<uint32_t*>(keys.raw_data()), nullptr);
  const Tensor all = bincount_cuda(keys, {}, 0), occur = contiguous(reshape(nonzero(all), {-1}));
  const int64_t found = occur.numel();
  const Found r{make({found}, x.dtype(), x), make({w.counts ? found : 0}, DType::i64, x)};
  counted_kernel<B><<<cuda::blocks_for(found, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const int64_t*>(occur.raw_data()), static_cast<const int64_t*>(all.raw_data()), order, w.base, found,
      static_cast<B*>(r.values.raw_data()), w.counts ? static_cast<int64_t*>(r.counts.raw_data()) : nullptr);
  return r;
}

// Elements of one byte: how often each of 256 occurs, in one reading. Copies of the counters, so that lanes with the
// same byte do not all add to one, stand apart by a bank.
constexpr int kBytes = 256, kCopies = 8, kCopyPitch = kBytes + 1;
__global__ void __launch_bounds__(kThreads)
    count_bytes_kernel(const uint8_t* x, int64_t n, bool aligned, unsigned long long* counts) {
  __shared__ unsigned count[kCopies * kCopyPitch];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kCopies * kCopyPitch; i += kThreads) count[i] = 0;
  __syncthreads();
  unsigned* const own = count + thread % kCopies * kCopyPitch;
  constexpr int V = 16;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + thread; i * V < n; i += step) {
    if (aligned && n - i * V >= V) {
      const cuda::Vec<uint8_t, V> v = cuda::load_vec<V>(x + i * V);
#pragma unroll
      for (int k = 0; k < V; ++k) atomicAdd(own + v.v[k], 1u);
    } else {
      for (int64_t e = i * V; e < n && e < i * V + V; ++e) atomicAdd(own + x[e], 1u);
    }
  }
  __syncthreads();
  unsigned sum = 0;
  for (int c = 0; c < kCopies; ++c) sum += count[c * kCopyPitch + thread];
  if (sum != 0) atomicAdd(counts + thread, static_cast<unsigned long long>(sum));
}
static_assert(kThreads == kBytes);

// What occurs, with its number among that, and the counts: a kernel's argument.
struct Occurring {
  int64_t counts[kBytes];
  uint8_t values[kBytes], number[kBytes];
  int found;
};
__global__ void __launch_bounds__(kThreads)
    number_bytes_kernel(const uint8_t* x, int64_t n, const __grid_constant__ Occurring all, uint8_t* values,
                        int64_t* counts, int64_t* inverse) {
  __shared__ uint8_t number[kBytes];
  const int thread = static_cast<int>(threadIdx.x);
  number[thread] = all.number[thread];
  __syncthreads();
  if (blockIdx.x == 0 && thread < all.found) {
    values[thread] = all.values[thread];
    if (counts != nullptr) counts[thread] = all.counts[thread];
  }
  if (inverse == nullptr) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + thread; i < n; i += step) inverse[i] = number[x[i]];
}

Found by_bytes(const Wanted& w) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  const auto* const from = static_cast<const uint8_t*>(x.raw_data());
  const Tensor sums = make({kBytes}, DType::i64, x);
  cuda::fill_bytes(x.device(), sums.raw_data(), 0, static_cast<size_t>(sums.nbytes()));
  const auto blocks = [&](int64_t elements) {
    return static_cast<unsigned>(std::clamp<int64_t>(
        (n + elements - 1) / elements, 1, int64_t{8} * cuda::properties(cuda::current_device()).multiprocessors));
  };
  count_bytes_kernel<<<blocks(16 * kThreads), kThreads, 0, cuda::stream()>>>(
      from, n, cuda::aligned16(from), static_cast<unsigned long long*>(sums.raw_data()));
  int64_t each[kBytes];
  cuda::copy_bytes(each, Device::cpu(), sums.raw_data(), x.device(), sizeof each);
  Occurring all{};
  for (int k = 0; k < kBytes; ++k) {
    const int byte = x.dtype() == DType::i8 ? k ^ 0x80 : k;  // the smallest first
    if (each[byte] == 0) continue;
    all.counts[all.found] = each[byte];
    all.values[all.found] = static_cast<uint8_t>(byte);
    all.number[byte] = static_cast<uint8_t>(all.found++);
  }
  const Found r{make({all.found}, x.dtype(), x), make({w.counts ? all.found : 0}, DType::i64, x)};
  const bool numbers = w.inverse.numel() > 0;
  number_bytes_kernel<<<numbers ? blocks(kThreads) : 1, kThreads, 0, cuda::stream()>>>(
      from, n, all, static_cast<uint8_t*>(r.values.raw_data()),
      w.counts ? static_cast<int64_t*>(r.counts.raw_data()) : nullptr,
      numbers ? static_cast<int64_t*>(w.inverse.raw_data()) : nullptr);
  return r;
}

// Any number of elements.
template <class B>
Found by_sorted_index(const Wanted& w) {
  const Tensor& x = w.dense;
  constexpr int kBits = 8 * static_cast<int>(sizeof(B));
  const Tensor keys = make({x.numel()}, DType::i64, x);
  keys_kernel<B, uint64_t, int64_t><<<cuda::blocks_for(x.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(x.raw_data()), x.numel(), order_of(x.dtype()), 0, static_cast<uint64_t*>(keys.raw_data()),
      nullptr);
  const cuda::SortedIndex sorted = cuda::sort_keys(keys, kBits);
  return runs<B, uint64_t, int64_t>(w, static_cast<const uint64_t*>(sorted.keys.raw_data()),
                                    static_cast<const int64_t*>(sorted.order.raw_data()));
}

template <class B>
Found find(Wanted w) {
  const Tensor& x = w.dense;
  const int64_t n = x.numel();
  if (n > int64_t{UINT32_MAX}) return by_sorted_index<B>(w);
  const Order order = order_of(x.dtype());
  int bits = 8 * static_cast<int>(sizeof(B));
  const bool with_places = w.inverse.numel() > 0;
  if (order.kind == Kind::floating && !with_places)
    return by_whole_keys<B, std::conditional_t<sizeof(B) == 8, uint64_t, uint32_t>>(w);
  if constexpr (sizeof(B) >= 4) {
    if (order.kind != Kind::floating) {
      const Tensor ends = make({2}, DType::i64, x);
      cuda::fill_bytes(x.device(), ends.raw_data(), 0xff, 16);
      const auto blocks = static_cast<unsigned>(std::min<int64_t>(
          (n + kThreads - 1) / kThreads, int64_t{8} * cuda::properties(cuda::current_device()).multiprocessors));
      range_kernel<B><<<blocks, kThreads, 0, cuda::stream()>>>(static_cast<const B*>(x.raw_data()), n, order,
                                                               static_cast<unsigned long long*>(ends.raw_data()));
      uint64_t range[2] = {};
      cuda::copy_bytes(range, Device::cpu(), ends.raw_data(), x.device(), sizeof range);
      w.base = range[0];
      bits = std::bit_width(~range[1] - range[0]);
    }
  }
  if (!with_places && bits <= kCounted) return by_counts<B>(w);
  if constexpr (sizeof(B) == 8)
    if (bits > 32) return by_radix_sort<B, uint64_t>(w, bits, with_places);
  return by_radix_sort<B, uint32_t>(w, bits, with_places);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> unique_cuda(const Tensor& x, bool return_inverse, bool return_counts) {
  const cuda::LaunchScope scope("unique", x.device());
  cuda::refuse_in_capture("unique", "the result's size depends on values of the device");
  const Wanted w{contiguous(x), make(return_inverse ? x.shape() : Shape{0}, DType::i64, x), return_counts, 0};
  if (x.numel() == 0) return {make({0}, x.dtype(), x), w.inverse, make({0}, DType::i64, x)};
  Found found;
  dispatch_bytes(x.dtype(), [&]<class B>() {
    if constexpr (sizeof(B) == 1)
      found = by_bytes(w);
    else
      found = find<B>(w);
  });
  if (const char* failure = scope.failure()) throw DeviceError("unique", failure);
  return {found.values, w.inverse, found.counts};
}

}  // namespace strata
