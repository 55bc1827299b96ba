// Sorting on a CUDA device, in the CPU's order: by value with NaN last, then by place.
//
// Rows that fit in a block's registers are sorted there: one reading, one writing. Longer ones go through radix sorts
// of (key, place), 4 bytes each for elements of 4 bytes: a row at a time where that fills the card, else many rows
// together. Their elements are sorted by key without regard to the row, and then, stably, by row, whose bits are few;
// where key and row fit in 32 bits together, at once. Signed integers of a row alone are sorted as they lie.

#include <algorithm>

#include <cub/block/block_radix_sort.cuh>

#include "strata/cuda/launch.h"
#include "strata/cuda/rows.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/radix.cuh"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {
namespace {
using namespace sort_detail;

constexpr int kThreads = 256;
constexpr int kEach = 4;             // elements of a thread where they pass by: as many loads are under way
constexpr int64_t kBlockRow = 4096;  // elements that a block sorts
constexpr unsigned kMostDown = 65535;

// What the kernels know of a sort: rows of `length`, of which the first `take` are wanted.
template <class B>
struct Sorting {
  const B* x;
  B* values;
  int64_t* indices;
  int64_t length, take;
  Order order;
  B flip;  // turns the order of the keys around
  __device__ B key_of_bits(B bits) const { return static_cast<B>(key_of(bits, order) ^ flip); }
  __device__ B key(int64_t at) const { return key_of_bits(x[at]); }
  // Element `rank` of a row's result is the one at `place`.
  __device__ void put(int64_t row, int64_t rank, int64_t place) const {
    values[row * take + rank] = x[row * length + place];
    indices[row * take + rank] = place;
  }
};

// ---- rows that a block sorts ----

template <class B, int kAcross, int kItems>
__global__ void __launch_bounds__(kAcross) block_sort_kernel(const Sorting<B> s) {
  using Radix = cub::BlockRadixSort<B, kAcross, kItems, uint16_t>;
  __shared__ union {
    typename Radix::TempStorage radix;
    B keys[kAcross * kItems];
  } shared;
  const int64_t row = blockIdx.x, first = row * s.length;
  const int length = static_cast<int>(s.length), thread = static_cast<int>(threadIdx.x);
  // What is not there stands behind all that is: the sort is stable.
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kAcross + thread;
    shared.keys[i] = i < length ? s.key(first + i) : static_cast<B>(~B(0));
  }
  __syncthreads();
  B keys[kItems];
  uint16_t places[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    keys[j] = shared.keys[thread * kItems + j];
    places[j] = static_cast<uint16_t>(thread * kItems + j);
  }
  __syncthreads();
  Radix(shared.radix).SortBlockedToStriped(keys, places);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int rank = j * kAcross + thread;
    if (rank < static_cast<int>(s.take)) s.put(row, rank, places[j]);
  }
}

template <class B>
void block_sort(const Sorting<B>& s, int64_t rows) {
  const auto launch = [&]<int kAcross, int kItems>() {
    block_sort_kernel<B, kAcross, kItems><<<static_cast<unsigned>(rows), kAcross, 0, cuda::stream()>>>(s);
  };
  if (s.length <= 128) return launch.template operator()<64, 2>();
  if (s.length <= 1024) return launch.template operator()<256, 4>();
  if (s.length <= 2048) return launch.template operator()<256, 8>();
  launch.template operator()<256, 16>();
}

// ---- longer rows ----

// keys[e] = the key of element e of some rows, below its row's number where `row_shift` is not 0; places[e] = e.
template <class B, class K>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const Sorting<B> s, int64_t from, K* keys, uint32_t* places, int64_t rows, int row_shift) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    B x[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u)
      if (first + u * kThreads < s.length) x[u] = s.x[from + row * s.length + first + u * kThreads];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      if (first + u * kThreads >= s.length) continue;
      const int64_t e = row * s.length + first + u * kThreads;
      K key = s.key_of_bits(x[u]);
      if (row_shift != 0) key |= static_cast<K>(row) << row_shift;
      keys[e] = key;
      places[e] = static_cast<uint32_t>(e);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const uint32_t* places, uint32_t* row, uint32_t total, uint32_t length) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < total) row[e] = places[e] / length;
}

// The results of some rows, whose elements stand at x[from] and whose results begin with row `first`. With keys, a row
// alone: values come from their keys, but zeros, which have two signs, and NaN.
template <class B, class K>
__global__ void __launch_bounds__(kThreads)
    results_kernel(const Sorting<B> s, int64_t first, const K* keys, const uint32_t* places, int64_t rows) {
  const int64_t first_rank = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    uint32_t at[kEach];
    K key[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int64_t e = row * s.length + first_rank + u * kThreads;
      if (first_rank + u * kThreads >= s.take) continue;
      at[u] = places[e];
      key[u] = keys != nullptr ? keys[e] : K(0);
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int64_t rank = first_rank + u * kThreads;
      if (rank >= s.take) continue;
      const int64_t place = int64_t{at[u]} - row * s.length;
      B value;
      if (keys != nullptr && value_of(static_cast<B>(static_cast<B>(key[u]) ^ s.flip), s.order, value)) {
        s.values[(first + row) * s.take + rank] = value;
        s.indices[(first + row) * s.take + rank] = place;
      } else {
        s.put(first + row, rank, place);
      }
    }
  }
}

template <class B>
void radix_sort_rows(const Sorting<B>& s, int64_t count, Device device) {
  using K = std::conditional_t<sizeof(B) == 8, uint64_t, uint32_t>;
  constexpr int kBits = 8 * static_cast<int>(sizeof(B));
  const auto make_buffers = [&]<class T>(T, int64_t n) {
    const DType t = sizeof(T) == 8 ? DType::i64 : DType::i32;
    const Tensor both = empty({{2 * n}, t, device, std::nullopt});
    T* const now = static_cast<T*>(both.raw_data());
    return std::pair(both, TwoBuffers<T>{now, now + n});
  };
  const int64_t batch =
      s.length >= kWholeRow ? 1 : std::clamp<int64_t>(kTogether / s.length, 1, std::max<int64_t>(count, 1));
  auto [keys_memory, keys] = make_buffers(K(), batch * s.length);
  auto [places_memory, places] = make_buffers(uint32_t(), batch * s.length);
  auto [row_memory, row_numbers] =
      make_buffers(uint32_t(), kBits + bits_for(batch) > 8 * static_cast<int>(sizeof(K)) ? batch * s.length : 0);
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t rows = std::min(batch, count - first), total = rows * s.length;
    const int row_bits = bits_for(rows);
    const bool packed = kBits + row_bits <= 8 * static_cast<int>(sizeof(K));
    const auto down = static_cast<unsigned>(std::min<int64_t>(rows, kMostDown));
    keys_kernel<B, K><<<dim3(cuda::blocks_for(s.length, kThreads * kEach), down), kThreads, 0, cuda::stream()>>>(
        s, first * s.length, keys.now, places.now, rows, packed && row_bits > 0 ? kBits : 0);
    radix_sort(keys, places, total, packed ? kBits + row_bits : kBits, device);
    if (!packed) {
      TwoBuffers<uint32_t> numbers = row_numbers;
      rows_kernel<<<cuda::blocks_for(total, kThreads), kThreads, 0, cuda::stream()>>>(
          places.now, numbers.now, static_cast<uint32_t>(total), static_cast<uint32_t>(s.length));
      radix_sort(numbers, places, total, row_bits, device);
    }
    results_kernel<B, K><<<dim3(cuda::blocks_for(s.take, kThreads * kEach), down), kThreads, 0, cuda::stream()>>>(
        s, first, packed ? keys.now : nullptr, places.now, rows);
  }
}

__global__ void __launch_bounds__(kThreads) places_kernel(uint32_t* places, int64_t n) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int64_t e = first + u * kThreads;
    if (e < n) places[e] = static_cast<uint32_t>(e);
  }
}
__global__ void __launch_bounds__(kThreads) widen_kernel(const uint32_t* places, int64_t* indices, int64_t n) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
  uint32_t at[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (first + u * kThreads < n) at[u] = places[first + u * kThreads];
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (first + u * kThreads < n) indices[first + u * kThreads] = at[u];
}

// Whole rows of signed integers, one after the other: the sort reads the row itself and writes its values where they
// belong. Places have 32 bits until they are in order; before, they stand where the row's indices will, whose
// memory has room for them.
template <class B>
void sort_signed_rows(const Sorting<B>& s, int64_t count, Device device) {
  using T = std::make_signed_t<B>;
  const Tensor memory = empty({{s.length}, DType::i32, device, std::nullopt});
  auto* const sorted = static_cast<uint32_t*>(memory.raw_data());
  const auto blocks = cuda::blocks_for(s.length, kThreads * kEach);
  for (int64_t row = 0; row < count; ++row) {
    int64_t* const indices = s.indices + row * s.length;
    auto* const places = reinterpret_cast<uint32_t*>(indices);
    places_kernel<<<blocks, kThreads, 0, cuda::stream()>>>(places, s.length);
    radix_sort_signed(reinterpret_cast<const T*>(s.x) + row * s.length, reinterpret_cast<T*>(s.values) + row * s.length,
                      places, sorted, s.length, device);
    widen_kernel<<<blocks, kThreads, 0, cuda::stream()>>>(sorted, indices, s.length);
  }
}

// Rows whose places need more than 32 bits, one after the other.
template <class B>
__global__ void __launch_bounds__(kThreads) wide_keys_kernel(const Sorting<B> s, int64_t row, uint64_t* keys) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < s.length) keys[i] = s.key(row * s.length + i);
}
template <class B>
__global__ void __launch_bounds__(kThreads)
    wide_results_kernel(const Sorting<B> s, int64_t row, const int64_t* places) {
  const int64_t rank = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (rank < s.take) s.put(row, rank, places[rank]);
}
template <class B>
void sort_longest_rows(const Sorting<B>& s, int64_t count, const Tensor& x) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(B));
  const Tensor keys = make({s.length}, DType::i64, x);
  for (int64_t row = 0; row < count; ++row) {
    wide_keys_kernel<B><<<cuda::blocks_for(s.length, kThreads), kThreads, 0, cuda::stream()>>>(
        s, row, static_cast<uint64_t*>(keys.raw_data()));
    const cuda::SortedIndex sorted = cuda::sort_keys(keys, kBits);
    wide_results_kernel<B><<<cuda::blocks_for(s.take, kThreads), kThreads, 0, cuda::stream()>>>(
        s, row, static_cast<const int64_t*>(sorted.order.raw_data()));
  }
}

// The number of elements of sorted `row` that are below key, or with `equal_too` not above it.
template <class Get, class K>
__device__ int64_t bound(int64_t n, K key, bool equal_too, Get get) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const K at = get(middle);
    if (at < key || (equal_too && at == key)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class B, class I>
__global__ void __launch_bounds__(kThreads)
    searchsorted_kernel(const B* table, int64_t n, int64_t per_row, const B* values, I* y, int64_t total, Order order,
                        bool right) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const B* row = table + (per_row == 0 ? 0 : i / per_row * n);
  y[i] = static_cast<I>(bound(n, key_of(values[i], order), right, [&](int64_t j) { return key_of(row[j], order); }));
}

}  // namespace

void sort_first_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending, int64_t take) {
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || take == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = take;
  const bool direct = lies_as_rows(values, indices, x, dim);
  const Tensor v = direct ? values : make(shape, x.dtype(), x), at = direct ? indices : make(shape, DType::i64, x);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    const Sorting<B> s{static_cast<const B*>(rows.dense.raw_data()),
                       static_cast<B*>(v.raw_data()),
                       static_cast<int64_t*>(at.raw_data()),
                       rows.length,
                       take,
                       order_of(x.dtype()),
                       descending ? static_cast<B>(~B(0)) : B(0)};
    if (rows.length <= kBlockRow) return block_sort<B>(s, rows.count);
    if constexpr (sizeof(B) >= 4) {
      const bool alone = rows.length >= kWholeRow || rows.count == 1;
      if (s.order.kind == Kind::integer && !descending && take == rows.length && alone && rows.length <= kNarrow)
        return sort_signed_rows<B>(s, rows.count, x.device());
    }
    if (rows.length <= kNarrow) return radix_sort_rows<B>(s, rows.count, x.device());
    sort_longest_rows<B>(s, rows.count, x);
  });
  if (direct) return;
  place(values, v, x, dim);
  place(indices, at, x, dim);
}

void sort_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending) {
  dim = wrap_dim(dim, x.dim(), "sort");
  sort_first_cuda(values, indices, x, dim, descending, x.dim() == 0 ? 1 : x.size(dim));
}

void searchsorted_cuda(Tensor& y, const Tensor& sorted, const Tensor& values, bool right, bool) {
  const Tensor s = contiguous(sorted), v = contiguous(values);
  const int64_t total = v.numel();
  if (total == 0) return;
  Tensor to = y.is_contiguous() ? y : make(y.shape(), y.dtype(), y);
  dispatch_bytes(s.dtype(), [&]<class B>() {
    const auto run = [&]<class I>() {
      searchsorted_kernel<B, I><<<cuda::blocks_for(total, kThreads), kThreads, 0, cuda::stream()>>>(
          static_cast<const B*>(s.raw_data()), s.shape().back(), s.dim() == 1 ? 0 : v.shape().back(),
          static_cast<const B*>(v.raw_data()), static_cast<I*>(to.raw_data()), total, order_of(s.dtype()), right);
    };
    if (y.dtype() == DType::i32)
      run.template operator()<int32_t>();
    else
      run.template operator()<int64_t>();
  });
  if (!to.same_as(y)) copy_elements(y, to);
}

}  // namespace strata
