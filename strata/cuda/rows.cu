// Rows by index: threads of a block stand in x for pieces of a row, in y for rows.

#include "strata/cuda/rows.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include <cub/device/device_radix_sort.cuh>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/cuda/row_kernels.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kJoined = 8;                // parts of a long sum that are on their way together
constexpr int kTaken = 4;                 // pieces of a copied row that a thread has on their way together
constexpr int kManyPieces = 1024 * 1024;  // from which on a thread takes several rows

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
__global__ void __launch_bounds__(kThreads) take_pieces_kernel(const U* x, const int64_t* index, U* y, int64_t n,
                                                               int64_t rows, bool from_end, RangeCheck in_range) {
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

// The index as keys of 32 or 64 bits, and positions; a row that is none has the key `rows`, which no row has.
template <class K>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const int64_t* index, int64_t n, int64_t rows, bool from_end, K* key, K* order, RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  order[i] = static_cast<K>(i);
  const int64_t given = index[i], row = from_end && given < 0 && given != kNoRow ? given + rows : given;
  key[i] = static_cast<K>(is_in_range(row, rows) ? row : rows);
  if (!is_in_range(row, rows) && given != kNoRow) in_range.tell(given, rows);
}

// The same with what belongs to each place; what has none is `nothing`, at the first.
__global__ void __launch_bounds__(kThreads)
    values_kernel(const int64_t* index, const uint32_t* source, int64_t n, int64_t places, bool from_end,
                  uint32_t nothing, uint32_t* key, uint32_t* value, RangeCheck in_range) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t given = index[i], place = from_end && given < 0 && given != kNoRow ? given + places : given;
  const bool in = is_in_range(place, places);
  key[i] = in ? static_cast<uint32_t>(place) : 0;
  value[i] = in ? source[i] : nothing;
  if (!in && given != kNoRow) in_range.tell(given, places);
}

// The last of each run of equal keys is written.
template <class T, int V, class K>
__global__ void __launch_bounds__(kThreads)
    put_kernel(T* y, const K* keys, const K* order, const T* source, int64_t n, RowShape shape) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (e >= n) return;
  const auto key = static_cast<int64_t>(keys[e]);
  if ((e + 1 < n && static_cast<int64_t>(keys[e + 1]) == key) || !is_in_range(key, shape.rows)) return;
  const auto position = static_cast<int64_t>(order[e]);
  for (int64_t p = blockIdx.y; p < shape.pre; p += gridDim.y) {
    T* to = y + (p * shape.rows + key) * shape.width;
    const T* from = source + (p * n + position) * shape.width;
    for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < shape.width; j += static_cast<int64_t>(blockDim.x) * V)
      store_vec(to + j, load_vec<V>(from + j));
  }
}

// y += the parts of each run that sum_rows_kernel left in several, in their order. The threads that meet the first
// multiple of kPart in a run have it.
template <class T, int V, class K>
__global__ void __launch_bounds__(kThreads)
    join_kernel(T* y, const K* keys, int64_t n, RowShape shape, int64_t skip, const compute_t<T>* partial) {
  using C = compute_t<T>;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y + 1, s = m * kPart;
  if (s >= n) return;
  const K named = keys[s];
  const auto key = static_cast<int64_t>(named);
  if (keys[s - 1] != named || key == skip || !is_in_range(key, shape.rows)) return;
  const bool inside = keys[s - kPart] != named;  // its first key is not a multiple's
  if (!inside && m > 1 && keys[s - kPart - 1] == named) return;
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
      for (int64_t q = m; more; q += kJoined) {
        Vec<C, V> v[kJoined];
#pragma unroll
        for (int u = 0; u < kJoined; ++u) {
          more = (q + u) * kPart < n && keys[(q + u) * kPart] == named;
          v[u] = more ? load_vec<V>(parts + 2 * (q + u) * shape.width + j) : Vec<C, V>{};
        }
#pragma unroll
        for (int u = 0; u < kJoined; ++u)
#pragma unroll
          for (int k = 0; k < V; ++k) sum.v[k] = static_cast<C>(sum.v[k] + v[u].v[k]);
      }
      store_sum(to + j, sum);
    }
  }
}

// f(keys and order of their type); of what lies in the order of the keys the order is null
template <class F>
void with_keys(const SortedIndex& index, F&& f) {
  const auto as = [&]<class K>() {
    f(static_cast<const K*>(index.keys.raw_data()),
      index.order.defined() ? static_cast<const K*>(index.order.raw_data()) : nullptr);
  };
  index.keys.dtype() == DType::i32 ? as.template operator()<uint32_t>() : as.template operator()<int64_t>();
}

// launch<V>() for rows by 16 bytes, or kMost elements, where they may be.
template <class T, int kMost = 16, class Launch>
void by_vectors(const RowShape& shape, const void* y, const void* source, Launch&& launch) {
  constexpr int V = std::min(kVec<T>, kMost);
  if (shape.width % V == 0 && aligned16(y) && aligned16(source)) return launch.template operator()<V>();
  launch.template operator()<1>();
}

unsigned blocks_down(const RowShape& shape) {
  return static_cast<unsigned>(std::min<int64_t>(shape.pre, 65535));
}

template <class T, bool Scaled = false>
void sum_rows(void* y, const RowShape& shape, const SortedIndex& index, const void* source, compute_t<T> alpha,
              const SumOptions& how, const compute_t<T>* scale = nullptr) {
  using C = compute_t<T>;
  const int64_t n = index.keys.numel();
  if (n == 0 || shape.pre * shape.width == 0) return;
  const bool parts = n > kPart;
  const int64_t bytes = shape.pre * parts_of(n) * 2 * shape.width * static_cast<int64_t>(sizeof(C));
  const Tensor workspace = parts ? empty({Shape{bytes}, DType::u8, index.keys.device(), std::nullopt}) : Tensor();
  C* partial = parts ? static_cast<C*>(workspace.raw_data()) : nullptr;
  with_keys(index, [&]<class K>(const K* keys, const K* order) {
    by_vectors<T, 8>(shape, y, source, [&]<int V>() {  // a sum of more elements takes too many registers
      const RowBlock across = row_block(shape.width / V);
      const int64_t stretch = stretch_of(n, across), stretches = (n + stretch - 1) / stretch;
      const RowSums s{n,       shape.pre,     shape.rows,    shape.width,  how.skip,
                      stretch, across.across, across.chunks, how.from_zero};
      sum_rows_kernel<T, V, Scaled>
          <<<dim3(blocks_for(stretches, across.down) * across.chunks, blocks_down(shape)), across.across * across.down,
             0, stream()>>>(s, static_cast<T*>(y), keys, order, static_cast<const T*>(source), alpha, scale, partial);
      if (!parts) return;
      const dim3 block = block_for(shape.width / V);
      join_kernel<T, V><<<dim3(blocks_for(parts_of(n) - 1, block.y), blocks_down(shape)), block, 0, stream()>>>(
          static_cast<T*>(y), keys, n, shape, how.skip, partial);
    });
  });
}

}  // namespace

void take_rows(DType t, const void* x, const RowShape& shape, const Tensor& index, void* y, bool from_end) {
  const int64_t n = index.numel(), total = shape.pre * n, bytes = shape.width * size_of(t);
  if (total == 0 || bytes == 0) return;
  const auto launch = [&]<class U>() {
    const int64_t pieces = bytes / static_cast<int64_t>(sizeof(U));
    if (pieces == 1 && shape.pre <= 65535) {
      const dim3 grid(blocks_for(n, kThreads * kTaken), static_cast<unsigned>(shape.pre));
      take_pieces_kernel<U>
          <<<grid, kThreads, 0, stream()>>>(static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()),
                                            static_cast<U*>(y), n, shape.rows, from_end, range_check());
      return;
    }
    const RowBlock several = row_block(std::min<int64_t>(pieces, kWarp));
    const auto take = [&]<int P, int R>() {
      take_several_kernel<U, P, R><<<blocks_for(total, several.down * R), several.across * several.down, 0, stream()>>>(
          static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()), static_cast<U*>(y), n, total,
          shape.rows, static_cast<int>(pieces), several.across, from_end, kNoRow, range_check());
    };
    // Short rows, of which there are more than enough: eight pieces a thread are on their way, where one row a thread
    // has fewer and each waits for its index by itself.
    if (pieces <= 4 * kWarp && total * pieces >= int64_t{kManyPieces}) {
      if (pieces <= kWarp) return take.template operator()<1, 8>();
      if (pieces <= 2 * kWarp) return take.template operator()<2, 4>();
      return take.template operator()<4, 2>();
    }
    const dim3 block = block_for(pieces, kTaken);
    take_kernel<U><<<blocks_for(total, block.y), block, 0, stream()>>>(
        static_cast<const U*>(x), static_cast<const int64_t*>(index.raw_data()), static_cast<U*>(y), n, total,
        shape.rows, pieces, from_end, range_check());
  };
  if (bytes % 16 == 0 && aligned16(x) && aligned16(y)) return launch.template operator()<uint4>();
  dispatch_bytes(t, [&]<class U>() { launch.template operator()<U>(); });
}

namespace {

// Stably, by `bits` of the keys.
template <class K>
void sort_pairs(const K* from, const K* positions, const SortedIndex& to, int64_t n, int bits) {
  size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    using Key = std::make_unsigned_t<K>;
    check_cuda(cub::DeviceRadixSort::SortPairs(workspace, bytes, reinterpret_cast<const Key*>(from),
                                               static_cast<Key*>(to.keys.raw_data()), positions,
                                               static_cast<K*>(to.order.raw_data()), n, 0, bits, stream()),
               "sort_index", "cub::DeviceRadixSort::SortPairs");
  };
  sort(nullptr);
  const Tensor workspace =
      empty({{std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, to.keys.device(), std::nullopt});
  sort(workspace.raw_data());
}

}  // namespace

SortedIndex sort_index(const Tensor& index, int64_t rows, bool from_end) {
  const int64_t n = index.numel();
  const bool narrow = rows <= INT32_MAX && n <= INT32_MAX;
  const TensorMeta meta{{n}, narrow ? DType::i32 : DType::i64, index.device(), std::nullopt};
  const SortedIndex r{empty(meta), empty(meta)};
  if (n == 0) return r;
  const Tensor keys = empty(meta), positions = empty(meta);
  const auto run = [&]<class K>() {
    auto* const key = static_cast<K*>(keys.raw_data());
    auto* const position = static_cast<K*>(positions.raw_data());
    keys_kernel<K><<<blocks_for(n, kThreads), kThreads, 0, stream()>>>(static_cast<const int64_t*>(index.raw_data()), n,
                                                                       rows, from_end, key, position, range_check());
    sort_pairs<K>(key, position, r, n, std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(rows)))));
  };
  narrow ? run.template operator()<uint32_t>() : run.template operator()<int64_t>();
  return r;
}

SortedIndex sort_keys(const Tensor& keys, int bits) {
  const int64_t n = keys.numel();
  const TensorMeta meta{{n}, DType::i64, keys.device(), std::nullopt};
  const SortedIndex r{empty(meta), empty(meta)};
  if (n == 0) return r;
  const Tensor positions = empty(meta);
  auto* const position = static_cast<int64_t*>(positions.raw_data());
  positions_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream()>>>(position, n);
  sort_pairs<int64_t>(static_cast<const int64_t*>(keys.raw_data()), position, r, n, bits);
  return r;
}

void add_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source, Scalar alpha,
              const SumOptions& how) {
  dispatch_all(t, "add_rows", [&]<class T>() { sum_rows<T>(y, shape, index, source, alpha.to<compute_t<T>>(), how); });
}

void add_values(float* y, int64_t places, const Tensor& index, const float* source, float alpha, bool from_end) {
  const int64_t n = index.numel();
  const TensorMeta meta{{n}, DType::i32, index.device(), std::nullopt};
  const Tensor places_memory = empty(meta), values_memory = empty(meta);
  const SortedIndex sorted{empty(meta), empty(meta)};  // the order is the values'
  auto* const key = static_cast<uint32_t*>(places_memory.raw_data());
  auto* const value = static_cast<uint32_t*>(values_memory.raw_data());
  // Times alpha a zero that changes no number it is added to.
  const uint32_t nothing = alpha < 0 ? 0 : 0x80000000u;
  values_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream()>>>(
      static_cast<const int64_t*>(index.raw_data()), reinterpret_cast<const uint32_t*>(source), n, places, from_end,
      nothing, key, value, range_check());
  // No key is for what is out of range: of 2^24 places a key of 24 bits is a pass less.
  sort_pairs<uint32_t>(key, value, sorted, n,
                       std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(places - 1)))));
  sum_rows<float>(y, {1, places, 1}, {sorted.keys, Tensor()}, sorted.order.raw_data(), alpha, {});
}

void add_scaled_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source,
                     const Tensor& scale, const SumOptions& how) {
  dispatch_floats(t, "add_rows", [&]<class T>() {
    sum_rows<T, true>(y, shape, index, source, compute_t<T>(1), how,
                      static_cast<const compute_t<T>*>(scale.raw_data()));
  });
}

void put_rows(DType t, void* y, const RowShape& shape, const SortedIndex& index, const void* source) {
  const int64_t n = index.keys.numel();
  if (n == 0 || shape.pre * shape.width == 0) return;
  dispatch_bytes(t, [&]<class T>() {
    with_keys(index, [&]<class K>(const K* keys, const K* order) {
      by_vectors<T>(shape, y, source, [&]<int V>() {
        const dim3 block = block_for(shape.width / V);
        put_kernel<T, V><<<dim3(blocks_for(n, block.y), blocks_down(shape)), block, 0, stream()>>>(
            static_cast<T*>(y), keys, order, static_cast<const T*>(source), n, shape);
      });
    });
  });
}

}  // namespace strata::cuda
