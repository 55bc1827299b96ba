// Embedding bags on a CUDA device: threads of a block stand in x for pieces of a row, in y for bags.

#include <algorithm>
#include <limits>

#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/cuda/rows.h"
#include "strata/ops/embedding/embedding_bag_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWideThreads = 512;         // where rows go element by element
constexpr int kAtOnce = 8;                // rows of a bag that are on their way together
constexpr int64_t kManyPieces = 1 << 18;  // about as many as a card has threads

// The positions of bag b, brought into range.
struct Bag {
  int64_t first, end;
  __device__ Bag(const BagCall& c, int64_t b) : first(max(c.offsets[b], int64_t{0})), end(min(c.offsets[b + 1], c.n)) {}
};

constexpr const char* kRule = "offsets must begin with 0, not fall, and end with the number of indices";
// For the threads of bag b, when their work is done.
__device__ __forceinline__ void check_offsets(const BagCall& c, int64_t b, const RangeCheck& rule) {
  if (threadIdx.x != 0) return;
  const int64_t first = c.offsets[b], end = c.offsets[b + 1];
  if (first > end || (b == 0 && first != 0)) rule.refuse(static_cast<double>(first));
  if (b == c.bags - 1 && end != c.n) rule.refuse(static_cast<double>(end));
}

template <class T, int V>
__global__ void __launch_bounds__(V == 1 ? kWideThreads : kThreads)
    sum_kernel(BagCall c, RangeCheck in_range, RangeCheck rule) {
  using C = compute_t<T>;
  const int64_t b = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (b >= c.bags) return;
  const Bag bag(c, b);
  const T *weight = static_cast<const T*>(c.weight), *scale = static_cast<const T*>(c.scale);
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < c.width; j += static_cast<int64_t>(blockDim.x) * V) {
    Vec<C, V> sum{};
    int64_t count = 0;
    for (int64_t i = bag.first; i < bag.end; i += kAtOnce) {
      Vec<T, V> v[kAtOnce];
      C factor[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        factor[u] = 0;
        v[u] = {};
        if (i + u >= bag.end) continue;
        const int64_t row = c.indices[i + u];
        if (row == c.padding || !in_range(row, c.rows)) continue;
        factor[u] = scale ? C(widen(scale[i + u])) : C(1);
        v[u] = load_vec<V>(weight + row * c.width + j);
        ++count;
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
        for (int k = 0; k < V; ++k) sum.v[k] += factor[u] * C(widen(v[u].v[k]));
    }
    const C divisor = c.mean && count > 0 ? static_cast<C>(count) : C(1);
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(sum.v[k] / divisor);
    store_vec(static_cast<T*>(c.y) + b * c.width + j, r);
  }
  check_offsets(c, b, rule);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) max_kernel(BagCall c, RangeCheck in_range, RangeCheck rule) {
  using C = compute_t<T>;
  const int64_t b = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (b >= c.bags) return;
  const Bag bag(c, b);
  const T* weight = static_cast<const T*>(c.weight);
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < c.width; j += static_cast<int64_t>(blockDim.x) * V) {
    Vec<C, V> best{};
    int64_t at[V];
#pragma unroll
    for (int k = 0; k < V; ++k) at[k] = -1;
    for (int64_t i = bag.first; i < bag.end; i += kAtOnce) {
      Vec<T, V> v[kAtOnce];
      int64_t row[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        row[u] = -1;
        v[u] = {};
        if (i + u >= bag.end) continue;
        const int64_t given = c.indices[i + u];
        if (given == c.padding || !in_range(given, c.rows)) continue;
        row[u] = given;
        v[u] = load_vec<V>(weight + given * c.width + j);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const C x = widen(v[u].v[k]), top = best.v[k];
          if (row[u] >= 0 && (at[k] < 0 || x > top || (x != x && top == top))) best.v[k] = x, at[k] = row[u];
        }
    }
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(best.v[k]), c.best[b * c.width + j + k] = at[k];
    store_vec(static_cast<T*>(c.y) + b * c.width + j, r);
  }
  check_offsets(c, b, rule);
}

// The share of each position of a bag in a mean: 1 over how many count. A warp has a bag.
template <class C>
__global__ void __launch_bounds__(kThreads) share_kernel(BagCall c, C* share) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (b >= c.bags) return;
  const Bag bag(c, b);
  int count = 0;
  for (int64_t i = bag.first + threadIdx.x % kWarp; i < bag.end; i += kWarp) count += c.indices[i] != c.padding;
  count = warp_reduce(count, Sum());
  if (threadIdx.x % kWarp == 0) share[b] = C(1) / static_cast<C>(max(count, 1));
}

// For sorted positions: their bags instead of the positions, and what they count.
template <class T, class K>
__global__ void __launch_bounds__(kThreads)
    places_kernel(BagCall c, const compute_t<T>* share, K* order, compute_t<T>* factor) {
  using C = compute_t<T>;
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s >= c.n) return;
  const auto i = static_cast<int64_t>(order[s]);
  int64_t low = 0, high = c.bags;  // the last bag that begins at i or before
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (c.offsets[middle + 1] <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const bool inside = low < c.bags && c.offsets[low] <= i;
  order[s] = static_cast<K>(inside ? low : 0);
  factor[s] =
      !inside ? C(0) : (share ? share[low] : C(1)) * (c.scale ? C(widen(static_cast<const T*>(c.scale)[i])) : C(1));
}

// Threads for a row of `pieces`, and bags for a block.
dim3 block_for(int64_t pieces, unsigned most = kThreads) {
  unsigned x = 1;
  while (x < most && x < pieces) x *= 2;
  return dim3(x, std::max(1u, kThreads / x));
}

}  // namespace

void bag_sum_cuda(const BagCall& c) {
  if (c.bags * c.width == 0) return;
  dispatch_floats(c.dtype, "embedding_bag", [&]<class T>() {
    const auto launch = [&]<int V>() {
      // Each time that a block comes to more pieces it walks its bag again.
      const dim3 block = block_for(c.width / V, V == 1 ? kWideThreads : kThreads);
      sum_kernel<T, V><<<blocks_for(c.bags, block.y), block, 0, stream()>>>(c, range_check(), value_check(kRule));
    };
    constexpr int V = kVec<T>;
    if (c.width % V == 0 && aligned16(c.weight) && aligned16(c.y)) {
      // Few bags of narrow rows: smaller pieces are more threads, whose loads are under way together.
      if (V > 4 && c.bags * (c.width / V) < kManyPieces) return launch.template operator()<4>();
      return launch.template operator()<V>();
    }
    launch.template operator()<1>();
  });
}

void bag_max_cuda(const BagCall& c) {
  if (c.bags * c.width == 0) return;
  dispatch_floats(c.dtype, "embedding_bag", [&]<class T>() {
    const auto launch = [&]<int V>() {
      const dim3 block = block_for(c.width / V);
      max_kernel<T, V><<<blocks_for(c.bags, block.y), block, 0, stream()>>>(c, range_check(), value_check(kRule));
    };
    constexpr int V = sizeof(T) == 8 ? 2 : 4;
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % (V * sizeof(T)) == 0; };
    if (c.width % V == 0 && aligned(c.weight) && aligned(c.y)) return launch.template operator()<V>();
    launch.template operator()<1>();
  });
}

void bag_backward_cuda(const BagCall& c, const Tensor& indices) {
  const Device device = Device::cuda(current_device());
  fill_bytes(device, c.grad_weight, 0, static_cast<size_t>(c.rows * c.width * size_of(c.dtype)));
  if (c.n * c.bags * c.width == 0) return;
  const SortedIndex sorted = sort_index(indices, c.rows);
  dispatch_floats(c.dtype, "embedding_bag", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor share = c.mean ? empty({Shape{c.bags}, dtype_of<C>, device, std::nullopt}) : Tensor(),
                 factor = empty({Shape{c.n}, dtype_of<C>, device, std::nullopt});
    C* each = c.mean ? static_cast<C*>(share.raw_data()) : nullptr;
    if (c.mean) share_kernel<C><<<blocks_for(c.bags, kThreads / kWarp), kThreads, 0, stream()>>>(c, each);
    const auto place = [&]<class K>() {
      places_kernel<T><<<blocks_for(c.n, kThreads), kThreads, 0, stream()>>>(
          c, each, static_cast<K*>(sorted.order.raw_data()), static_cast<C*>(factor.raw_data()));
    };
    sorted.order.dtype() == DType::i32 ? place.template operator()<uint32_t>() : place.template operator()<int64_t>();
    add_scaled_rows(c.dtype, c.grad_weight, {1, c.rows, c.width}, sorted, c.grad_y, factor, {c.padding, true});
  });
}

}  // namespace strata
