// Rows by index: threads of a block stand in x for pieces of a row, in y for rows.

#include "strata/cuda/rows.h"

#include <algorithm>

#include <cub/device/device_radix_sort.cuh>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = 128;

// Threads for a row of `pieces` and rows for a block.
dim3 block_for(int64_t pieces) {
  unsigned x = 1;
  while (x < kThreads && x < pieces) x *= 2;
  return dim3(x, kThreads / x);
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    take_kernel(const U* x, const int64_t* index, U* y, int64_t n, int64_t total, int64_t rows, int64_t pieces) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= total) return;
  const int64_t p = r / n, from = index[r - p * n];
  check_range(from, rows);
  const U* src = x + (p * rows + from) * pieces;
  U* dst = y + r * pieces;
  for (int64_t j = threadIdx.x; j < pieces; j += blockDim.x) dst[j] = src[j];
}

__global__ void __launch_bounds__(kThreads) positions_kernel(int64_t* order, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) order[i] = i;
}

// The end of the run of equal keys that begins at s.
__device__ __forceinline__ int64_t run_end(const int64_t* keys, int64_t s, int64_t n, int64_t key) {
  int64_t step = 1;
  while (s + step < n && keys[s + step] == key) step *= 2;
  int64_t low = s + step / 2 + 1, high = min(s + step, n);  // keys[low - 1] == key, the end is in [low, high]
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] == key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Each run of equal keys belongs to the threads that meet its first key.
template <class T, int V, bool Add>
__global__ void __launch_bounds__(kThreads)
    write_kernel(T* y, const int64_t* keys, const int64_t* order, const T* source, int64_t n, RowShape shape,
                 compute_t<T> alpha, int64_t skip) {
  using C = compute_t<T>;
  const int64_t s = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (s >= n) return;
  const int64_t key = keys[s];
  if (s > 0 && keys[s - 1] == key) return;
  check_range(key, shape.rows);
  if (key == skip) return;
  const int64_t end = run_end(keys, s, n, key);
  for (int64_t p = blockIdx.y; p < shape.pre; p += gridDim.y) {
    T* to = y + (p * shape.rows + key) * shape.width;
    const T* from = source + p * n * shape.width;
    for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < shape.width; j += static_cast<int64_t>(blockDim.x) * V) {
      if constexpr (!Add) {
        store_vec(to + j, load_vec<V>(from + order[end - 1] * shape.width + j));
      } else {
        Vec<T, V> now = load_vec<V>(to + j);
        C sum[V];
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] = widen(now.v[k]);
        const auto add = [&](const Vec<T, V>& v) {
#pragma unroll
          for (int k = 0; k < V; ++k) sum[k] = static_cast<C>(sum[k] + alpha * widen(v.v[k]));
        };
        int64_t e = s;
        for (; e + 4 <= end; e += 4) {  // four loads on their way at a time
          Vec<T, V> v[4];
#pragma unroll
          for (int u = 0; u < 4; ++u) v[u] = load_vec<V>(from + order[e + u] * shape.width + j);
#pragma unroll
          for (int u = 0; u < 4; ++u) add(v[u]);
        }
        for (; e < end; ++e) add(load_vec<V>(from + order[e] * shape.width + j));
#pragma unroll
        for (int k = 0; k < V; ++k) now.v[k] = narrow<T>(sum[k]);
        store_vec(to + j, now);
      }
    }
  }
}

template <class T, bool Add>
void write_rows(void* y, const RowShape& shape, const SortedIndex& index, const void* source, compute_t<T> alpha,
                int64_t skip) {
  const int64_t n = index.keys.numel();
  if (n == 0 || shape.pre * shape.width == 0) return;
  const auto launch = [&]<int V>() {
    const dim3 block = block_for(shape.width / V);
    const dim3 grid(blocks_for(n, block.y), static_cast<unsigned>(std::min<int64_t>(shape.pre, 65535)));
    write_kernel<T, V, Add><<<grid, block, 0, stream()>>>(
        static_cast<T*>(y), static_cast<const int64_t*>(index.keys.raw_data()),
        static_cast<const int64_t*>(index.order.raw_data()), static_cast<const T*>(source), n, shape, alpha, skip);
  };
  constexpr int V = kVec<T>;
  if (shape.width % V == 0 && aligned16(y) && aligned16(source)) {
    launch.template operator()<V>();
  } else {
    launch.template operator()<1>();
  }
}

}  // namespace

void take_rows(DType t, const void* x, const RowShape& shape, const Tensor& index, void* y) {
  const int64_t n = index.numel(), total = shape.pre * n, bytes = shape.width * size_of(t);
  if (total == 0 || bytes == 0) return;
  const auto launch = [&]<class U>() {
    const int64_t pieces = bytes / static_cast<int64_t>(sizeof(U));
    const dim3 block = block_for(pieces);
    take_kernel<U><<<blocks_for(total, block.y), block, 0, stream()>>>(
        static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()), static_cast<U*>(y), n, total,
        shape.rows, pieces);
  };
  if (bytes % 16 == 0 && aligned16(x) && aligned16(y)) return launch.template operator()<uint4>();
  dispatch_bytes(t, [&]<class U>() { launch.template operator()<U>(); });
}

SortedIndex sort_index(const Tensor& index, int64_t limit) {
  const int64_t n = index.numel();
  const TensorMeta meta{{n}, DType::i64, index.device(), std::nullopt};
  SortedIndex r{empty(meta), empty(meta)};
  if (n == 0) return r;
  const Tensor positions = empty(meta);
  auto* from = static_cast<int64_t*>(positions.raw_data());
  positions_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream()>>>(from, n);
  int bits = 1;
  while (bits < 64 && (static_cast<uint64_t>(limit == kAnyValue ? -1 : std::max<int64_t>(limit - 1, 0)) >> bits) != 0) ++bits;
  size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    check_cuda(cub::DeviceRadixSort::SortPairs(workspace, bytes, static_cast<const uint64_t*>(index.raw_data()),
                                               static_cast<uint64_t*>(r.keys.raw_data()), from,
                                               static_cast<int64_t*>(r.order.raw_data()), n, 0, bits, stream()),
               "sort_index", "cub::DeviceRadixSort::SortPairs");
  };
  sort(nullptr);
  const Tensor workspace =
      empty({{std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, index.device(), std::nullopt});
  sort(workspace.raw_data());
  return r;
}

void add_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source, Scalar alpha,
              int64_t skip) {
  dispatch_all(t, "add_rows", [&]<class T>() {
    write_rows<T, true>(y, shape, index, source, alpha.to<compute_t<T>>(), skip);
  });
}

void put_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source) {
  dispatch_bytes(t, [&]<class T>() { write_rows<T, false>(y, shape, index, source, T(0), -1); });
}

}  // namespace strata::cuda
