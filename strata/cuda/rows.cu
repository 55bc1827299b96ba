// Rows by index: threads of a block stand in x for pieces of a row, in y for rows.

#include "strata/cuda/rows.h"

#include <algorithm>

#include <cub/device/device_radix_sort.cuh>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 8;     // rows of a long sum that are on their way together
constexpr int kTaken = 4;      // pieces of a copied row that a thread has on their way together
constexpr int64_t kPart = 64;  // positions that are added up one after the other; longer sums are cut at multiples

// Threads for a row of `pieces` and rows for a block; a row of more than a warp has threads for `each` pieces.
dim3 block_for(int64_t pieces, int64_t each = 1) {
  unsigned x = 1;
  while (x < kThreads && x < pieces && (x < kWarp || x * each < pieces)) x *= 2;
  return dim3(x, kThreads / x);
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    take_kernel(const U* x, const int64_t* index, U* y, int64_t n, int64_t total, int64_t rows, int64_t pieces,
                bool from_end, RangeCheck in_range) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= total) return;
  const int64_t p = n == total ? 0 : r / n, given = index[r - p * n];  // a division is as long as all else
  const int64_t from = from_end && given < 0 ? given + rows : given;
  const int64_t readable = is_in_range(from, rows) ? pieces : 0;
  const U* src = x + (p * rows + from) * pieces;
  U* dst = y + r * pieces;
  for (int64_t j = threadIdx.x; j < pieces; j += kTaken * blockDim.x) {
    U v[kTaken] = {};
#pragma unroll
    for (int u = 0; u < kTaken; ++u)
      if (j + u * blockDim.x < readable) v[u] = src[j + u * blockDim.x];
#pragma unroll
    for (int u = 0; u < kTaken; ++u)
      if (j + u * blockDim.x < pieces) dst[j + u * blockDim.x] = v[u];
  }
  if (!is_in_range(from, rows) && given != kNoRow) in_range.tell(given, rows);
}

// The same for rows of one piece, of which a thread has several on their way together; blockIdx.y counts what is before
// rows.
template <class U>
__global__ void __launch_bounds__(kThreads)
    take_pieces_kernel(const U* x, const int64_t* index, U* y, int64_t n, int64_t rows, bool from_end,
                       RangeCheck in_range) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kTaken) + threadIdx.x;
  const U* const src = x + blockIdx.y * rows;
  U* const dst = y + blockIdx.y * n;
  int64_t given[kTaken];
#pragma unroll
  for (int u = 0; u < kTaken; ++u) given[u] = first + u * kThreads < n ? index[first + u * kThreads] : kNoRow;
  U v[kTaken] = {};
#pragma unroll
  for (int u = 0; u < kTaken; ++u) {
    const int64_t from = from_end && given[u] < 0 && given[u] != kNoRow ? given[u] + rows : given[u];
    if (is_in_range(from, rows))
      v[u] = src[from];
    else if (given[u] != kNoRow)
      in_range.tell(given[u], rows);
  }
#pragma unroll
  for (int u = 0; u < kTaken; ++u)
    if (first + u * kThreads < n) dst[first + u * kThreads] = v[u];
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

template <class T, class C, int V>
__device__ __forceinline__ void store_row(T* to, const Vec<C, V>& sum) {
  Vec<T, V> r;
#pragma unroll
  for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(sum.v[k]);
  store_vec(to, r);
}

// Where the sums of runs that cross multiples of kPart stand: partial[pre][parts][2][width]. Positions [kPart m,
// kPart (m + 1)) have one of the run that lies at their beginning, and one of another that leaves at their end.
__host__ __device__ constexpr int64_t parts_of(int64_t n) {
  return (n + kPart - 1) / kPart;
}

// Each run of equal keys belongs to the threads that meet its first key, or where runs are added up, as much of it as
// lies between two multiples of kPart. A run that lies there as a whole is written to y, others to `partial`.
// With Scaled, each source row times its key's scale.
template <class T, int V, bool Add, bool Scaled>
__global__ void __launch_bounds__(kThreads)
    write_kernel(T* y, const int64_t* keys, const int64_t* order, const T* source, int64_t n, RowShape shape,
                 compute_t<T> alpha, const compute_t<T>* scale, int64_t skip, compute_t<T>* partial,
                 RangeCheck in_range) {
  using C = compute_t<T>;
  const int64_t s = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (s >= n) return;
  const int64_t key = keys[s];
  const bool first = s == 0 || keys[s - 1] != key;
  if (!first && (!Add || s % kPart != 0)) return;
  if (key == skip || key == kNoRow || !in_range(key, shape.rows)) return;
  const int64_t end = run_end(keys, s, Add ? min((s / kPart + 1) * kPart, n) : n, key);
  const bool whole = first && (!Add || end == n || keys[end] != key);
  const int64_t slot = s / kPart * 2 + (s % kPart != 0);
  for (int64_t p = blockIdx.y; p < shape.pre; p += gridDim.y) {
    T* to = y + (p * shape.rows + key) * shape.width;
    const T* from = source + p * n * shape.width;
    for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < shape.width;
         j += static_cast<int64_t>(blockDim.x) * V) {
      if constexpr (!Add) {
        store_vec(to + j, load_vec<V>(from + order[end - 1] * shape.width + j));
      } else {
        Vec<C, V> sum;
        const Vec<T, V> now = whole ? load_vec<V>(to + j) : Vec<T, V>{};
#pragma unroll
        for (int k = 0; k < V; ++k) sum.v[k] = widen(now.v[k]);
        const auto add = [&](const Vec<T, V>& v, int64_t at) {
          const C factor = Scaled ? scale[at] : alpha;
#pragma unroll
          for (int k = 0; k < V; ++k) sum.v[k] = static_cast<C>(sum.v[k] + factor * widen(v.v[k]));
        };
        int64_t e = s;
        for (; e + kAtOnce <= end; e += kAtOnce) {
          Vec<T, V> v[kAtOnce];
#pragma unroll
          for (int u = 0; u < kAtOnce; ++u) v[u] = load_vec<V>(from + order[e + u] * shape.width + j);
#pragma unroll
          for (int u = 0; u < kAtOnce; ++u) add(v[u], e + u);
        }
        for (; e < end; ++e) add(load_vec<V>(from + order[e] * shape.width + j), e);
        if (whole)
          store_row(to + j, sum);
        else
          store_vec(partial + (p * parts_of(n) * 2 + slot) * shape.width + j, sum);
      }
    }
  }
}

// y += the parts of each run that write_kernel left in several, in their order. The threads that meet the first
// multiple of kPart in a run have it.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    join_kernel(T* y, const int64_t* keys, int64_t n, RowShape shape, int64_t skip, const compute_t<T>* partial) {
  using C = compute_t<T>;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y + 1, s = m * kPart;
  if (s >= n) return;
  const int64_t key = keys[s];
  if (keys[s - 1] != key || key == skip || static_cast<uint64_t>(key) >= static_cast<uint64_t>(shape.rows)) return;
  const bool inside = keys[s - kPart] != key;  // its first key is not a multiple's
  if (!inside && m > 1 && keys[s - kPart - 1] == key) return;
  for (int64_t p = blockIdx.y; p < shape.pre; p += gridDim.y) {
    T* to = y + (p * shape.rows + key) * shape.width;
    const C* parts = partial + p * parts_of(n) * 2 * shape.width;
    for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < shape.width;
         j += static_cast<int64_t>(blockDim.x) * V) {
      const Vec<T, V> now = load_vec<V>(to + j);
      Vec<C, V> sum = load_vec<V>(parts + (2 * (m - 1) + inside) * shape.width + j);
#pragma unroll
      for (int k = 0; k < V; ++k) sum.v[k] = static_cast<C>(widen(now.v[k]) + sum.v[k]);
      bool more = true;
      for (int64_t q = m; more; q += kAtOnce) {
        Vec<C, V> v[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          more = (q + u) * kPart < n && keys[(q + u) * kPart] == key;
          v[u] = more ? load_vec<V>(parts + 2 * (q + u) * shape.width + j) : Vec<C, V>{};
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
          for (int k = 0; k < V; ++k) sum.v[k] = static_cast<C>(sum.v[k] + v[u].v[k]);
      }
      store_row(to + j, sum);
    }
  }
}

template <class T, bool Add, bool Scaled = false>
void write_rows(void* y, const RowShape& shape, const SortedIndex& index, const void* source, compute_t<T> alpha,
                int64_t skip, const compute_t<T>* scale = nullptr) {
  using C = compute_t<T>;
  const int64_t n = index.keys.numel();
  if (n == 0 || shape.pre * shape.width == 0) return;
  const bool parts = Add && n > kPart;
  const int64_t bytes = shape.pre * parts_of(n) * 2 * shape.width * static_cast<int64_t>(sizeof(C));
  const Tensor workspace = parts ? empty({Shape{bytes}, DType::u8, index.keys.device(), std::nullopt}) : Tensor();
  C* partial = parts ? static_cast<C*>(workspace.raw_data()) : nullptr;
  const auto* keys = static_cast<const int64_t*>(index.keys.raw_data());
  const auto launch = [&]<int V>() {
    const dim3 block = block_for(shape.width / V);
    const auto down = static_cast<unsigned>(std::min<int64_t>(shape.pre, 65535));
    write_kernel<T, V, Add, Scaled><<<dim3(blocks_for(n, block.y), down), block, 0, stream()>>>(
        static_cast<T*>(y), keys, static_cast<const int64_t*>(index.order.raw_data()), static_cast<const T*>(source), n,
        shape, alpha, scale, skip, partial, range_check());
    if constexpr (Add)
      if (parts)
        join_kernel<T, V><<<dim3(blocks_for(parts_of(n) - 1, block.y), down), block, 0, stream()>>>(
            static_cast<T*>(y), keys, n, shape, skip, partial);
  };
  constexpr int V = kVec<T>;
  if (shape.width % V == 0 && aligned16(y) && aligned16(source)) {
    launch.template operator()<V>();
  } else {
    launch.template operator()<1>();
  }
}

}  // namespace

void take_rows(DType t, const void* x, const RowShape& shape, const Tensor& index, void* y, bool from_end) {
  const int64_t n = index.numel(), total = shape.pre * n, bytes = shape.width * size_of(t);
  if (total == 0 || bytes == 0) return;
  const auto launch = [&]<class U>() {
    const int64_t pieces = bytes / static_cast<int64_t>(sizeof(U));
    if (pieces == 1 && shape.pre <= 65535) {
      const dim3 grid(blocks_for(n, kThreads * kTaken), static_cast<unsigned>(shape.pre));
      take_pieces_kernel<U><<<grid, kThreads, 0, stream()>>>(
          static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()), static_cast<U*>(y), n, shape.rows,
          from_end, range_check());
      return;
    }
    const dim3 block = block_for(pieces, kTaken);
    take_kernel<U><<<blocks_for(total, block.y), block, 0, stream()>>>(
        static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()), static_cast<U*>(y), n, total,
        shape.rows, pieces, from_end, range_check());
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
  while (bits < 64 && (static_cast<uint64_t>(limit == kAnyValue ? -1 : std::max<int64_t>(limit - 1, 0)) >> bits) != 0)
    ++bits;
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
  dispatch_all(t, "add_rows",
               [&]<class T>() { write_rows<T, true>(y, shape, index, source, alpha.to<compute_t<T>>(), skip); });
}

void add_scaled_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source,
                     const Tensor& scale, int64_t skip) {
  dispatch_floats(t, "add_rows", [&]<class T>() {
    write_rows<T, true, true>(y, shape, index, source, compute_t<T>(1), skip,
                              static_cast<const compute_t<T>*>(scale.raw_data()));
  });
}

void put_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source) {
  dispatch_bytes(t, [&]<class T>() { write_rows<T, false>(y, shape, index, source, T(0), -1); });
}

}  // namespace strata::cuda
