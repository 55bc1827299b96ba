// Ordering on a CUDA device, in the CPU's order: by value with NaN last, then by place.
//
// Elements are compared as unsigned integers of their width whose order is that of the values; sort goes through a
// stable radix sort of (row, key), topk and kthvalue find the k-th key digit by digit and then read the row once more.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/launch.h"
#include "strata/cuda/rows.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr int kThreads = 256;
constexpr int kSelectThreads = 1024;
constexpr int kMostSelected = 1024;  // elements that one block puts in order
constexpr int kDigits = 256;

enum class Kind : int { natural, integer, floating };

// How elements of a dtype become keys.
struct Order {
  Kind kind;
  uint64_t infinity;  // its bits, for floating dtypes
};
Order order_of(DType t) {
  switch (t) {
    case DType::f16:
      return {Kind::floating, 0x7c00};
    case DType::bf16:
      return {Kind::floating, 0x7f80};
    case DType::f32:
      return {Kind::floating, 0x7f800000};
    case DType::f64:
      return {Kind::floating, 0x7ff0000000000000};
    default:
      return {t == DType::u8 || t == DType::boolean ? Kind::natural : Kind::integer, 0};
  }
}

// All NaNs get the largest key; zeros of both signs get one.
template <class B>
__device__ __forceinline__ B key_of(B bits, Order order) {
  constexpr B sign = static_cast<B>(B(1) << (8 * sizeof(B) - 1));
  if (order.kind == Kind::natural) return bits;
  if (order.kind == Kind::integer) return bits ^ sign;
  const B magnitude = bits & static_cast<B>(~sign);
  if (magnitude > static_cast<B>(order.infinity)) return static_cast<B>(~B(0));
  if (magnitude == 0) return sign;
  return bits & sign ? static_cast<B>(~bits) : static_cast<B>(bits | sign);
}

// From rows of results to where the op wants them.
void place(Tensor& to, const Tensor& from, const Tensor& x, int64_t dim) {
  if (x.dim() == 0) return copy_elements(to, reshape(from, to.shape()));
  const Tensor t = transpose(from, dim, -1);
  copy_elements(to, to.shape() == t.shape() ? t : reshape(t, to.shape()));
}

Tensor make(const Shape& shape, DType t, const Tensor& x) {
  return empty({shape, t, x.device(), std::nullopt});
}
int bits_for(int64_t values) {
  int bits = 0;
  while (bits < 63 && (values - 1) >> bits != 0) ++bits;
  return bits;
}

// ---- sort ----

// to[e] = e's key, below its row's number where `row_shift` is not 0; `flip` turns the order of the keys around.
template <class B>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const B* x, uint64_t* to, int64_t total, int64_t length, Order order, B flip, int row_shift) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= total) return;
  uint64_t key = static_cast<B>(key_of(x[e], order) ^ flip);
  if (row_shift != 0) key |= static_cast<uint64_t>(e / length) << row_shift;
  to[e] = key;
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const int64_t* at, int64_t* row, int64_t total, int64_t length) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < total) row[e] = at[e] / length;
}

// Element e of the result is the element of x at order[through ? through[e] : e]. `take` of each row's `length` are
// wanted.
template <class B>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(const B* x, const int64_t* order, const int64_t* through, B* values, int64_t* indices, int64_t total,
                int64_t length, int64_t take) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= total) return;
  const int64_t row = e / take, p = row * length + (e - row * take);
  const int64_t from = order[through != nullptr ? through[p] : p];
  values[e] = x[from];
  indices[e] = from - row * length;
}

// The keys of x in the order of the rows, by value within each.
template <class B>
cuda::SortedIndex sort_keys(const SortRows& rows, Order order, bool descending, int row_bits) {
  const int64_t total = rows.dense.numel();
  constexpr int kBits = 8 * static_cast<int>(sizeof(B));
  const bool both = kBits + row_bits <= 63;
  const Tensor keys = make({total}, DType::i64, rows.dense);
  keys_kernel<B><<<cuda::blocks_for(total, kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<const B*>(rows.dense.raw_data()), static_cast<uint64_t*>(keys.raw_data()), total, rows.length, order,
      descending ? static_cast<B>(~B(0)) : B(0), both && row_bits > 0 ? kBits : 0);
  return cuda::sort_index(keys, both ? int64_t{1} << (kBits + row_bits) : cuda::kAnyValue);
}

// The first `take` of each row in order.
void sort_into(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending, int64_t take) {
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || take == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = take;
  Tensor v = make(shape, x.dtype(), x), at = make(shape, DType::i64, x);
  const int64_t total = rows.count * rows.length;
  const int row_bits = bits_for(rows.count);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    const cuda::SortedIndex sorted = sort_keys<B>(rows, order_of(x.dtype()), descending, row_bits);
    Tensor through;
    if (row_bits > 0 && 8 * static_cast<int>(sizeof(B)) + row_bits > 63) {
      // Key and row do not fit together: a stable sort by row follows.
      const Tensor row = make({total}, DType::i64, x);
      rows_kernel<<<cuda::blocks_for(total, kThreads), kThreads, 0, cuda::stream()>>>(
          static_cast<const int64_t*>(sorted.order.raw_data()), static_cast<int64_t*>(row.raw_data()), total,
          rows.length);
      through = cuda::sort_index(row, rows.count).order;
    }
    pick_kernel<B><<<cuda::blocks_for(v.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(rows.dense.raw_data()), static_cast<const int64_t*>(sorted.order.raw_data()),
        through.defined() ? static_cast<const int64_t*>(through.raw_data()) : nullptr, static_cast<B*>(v.raw_data()),
        static_cast<int64_t*>(at.raw_data()), v.numel(), rows.length, take);
  });
  place(values, v, x, dim);
  place(indices, at, x, dim);
}

// ---- the k smallest keys of a row ----

template <class B>
struct Threshold {
  B key;         // the k-th smallest
  int64_t rest;  // how many of the elements with this key belong to the k smallest
};

// Finds it from the highest digit down. `counts` holds kDigits numbers.
template <class B>
__device__ Threshold<B> find_threshold(const B* row, int64_t length, int64_t k, Order order, B flip,
                                       unsigned long long* counts) {
  __shared__ int found;
  __shared__ unsigned long long before;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  B prefix = 0, known = 0;  // the digits found, and a mask of them
  for (int shift = 8 * static_cast<int>(sizeof(B)) - 8; shift >= 0; shift -= 8) {
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += static_cast<int>(blockDim.x)) counts[d] = 0;
    __syncthreads();
    // Whole warps go round together: they add up equal digits before they touch the table.
    for (int64_t base = 0; base < length; base += blockDim.x) {
      const int64_t i = base + threadIdx.x;
      B key = 0;
      bool counted = i < length;
      if (counted) {
        key = key_of(row[i], order) ^ flip;
        counted = (key & known) == prefix;
      }
      const unsigned active = __ballot_sync(0xffffffffu, counted);
      if (counted) {
        const unsigned digit = static_cast<unsigned>(key >> shift) & 255u;
        const unsigned same = __match_any_sync(active, digit);
        if (lane == __ffs(static_cast<int>(same)) - 1)
          atomicAdd(&counts[digit], static_cast<unsigned long long>(__popc(same)));
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned long long seen = 0;
      int d = 0;
      while (seen + counts[d] < static_cast<unsigned long long>(k)) seen += counts[d++];
      found = d;
      before = seen;
    }
    __syncthreads();
    prefix |= static_cast<B>(static_cast<B>(found) << shift);
    known |= static_cast<B>(B(255) << shift);
    k -= static_cast<int64_t>(before);
    __syncthreads();
  }
  return {prefix, k};
}

// Among the elements of a tile with `is`, the number of those before this thread's, and of all; every thread takes
// part.
struct Rank {
  int before, all;
};
__device__ Rank rank_in_block(bool is, int* warps) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const unsigned votes = __ballot_sync(0xffffffffu, is);
  if (lane == 0) warps[warp] = __popc(votes);
  __syncthreads();
  Rank r{__popc(votes & ((1u << lane) - 1)), 0};
  for (int w = 0; w < static_cast<int>(blockDim.x) / cuda::kWarp; ++w) {
    if (w < warp) r.before += warps[w];
    r.all += warps[w];
  }
  __syncthreads();
  return r;
}

// A block for each row: its k smallest keys in order (`size` is the power of two from k on), or with `only_last` the
// last of them alone.
template <class B>
__global__ void __launch_bounds__(kSelectThreads)
    select_kernel(const B* x, int64_t length, int64_t k, int size, bool only_last, Order order, B flip, B* values,
                  int64_t* indices) {
  __shared__ unsigned long long counts[kDigits];
  __shared__ int warps[kSelectThreads / cuda::kWarp];
  __shared__ B keys[kMostSelected];
  __shared__ int64_t places[kMostSelected];
  __shared__ int taken;
  const B* row = x + blockIdx.x * length;
  const Threshold<B> t = find_threshold(row, length, k, order, flip, counts);
  if (threadIdx.x == 0) taken = 0;
  __syncthreads();
  int64_t equal = 0;  // elements with the threshold's key in earlier tiles
  for (int64_t base = 0; base < length; base += blockDim.x) {
    const int64_t i = base + threadIdx.x;
    const B key = i < length ? static_cast<B>(key_of(row[i], order) ^ flip) : static_cast<B>(~B(0));
    if (!only_last && i < length && key < t.key) {
      const int at = atomicAdd(&taken, 1);  // in any order: what follows puts them in one
      keys[at] = key, places[at] = i;
    }
    const bool is = i < length && key == t.key && equal < t.rest;
    if (__syncthreads_or(is) == 0) continue;
    const Rank r = rank_in_block(is, warps);
    const int64_t rank = equal + r.before;
    if (is && rank < t.rest) {
      if (!only_last) {
        const int at = static_cast<int>(k - t.rest + rank);
        keys[at] = key, places[at] = i;
      } else if (rank == t.rest - 1) {
        values[blockIdx.x] = row[i];
        indices[blockIdx.x] = i;
      }
    }
    equal += r.all;
  }
  if (only_last) return;
  const int own = static_cast<int>(threadIdx.x);
  if (own >= k && own < size) keys[own] = static_cast<B>(~B(0)), places[own] = INT64_MAX;
  __syncthreads();
  // A bitonic sort by key, then by place.
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      const int other = own ^ step;
      if (own < size && other > own) {
        const bool up = (own & width) == 0;
        const bool above = keys[own] > keys[other] || (keys[own] == keys[other] && places[own] > places[other]);
        if (above == up) {
          const B key = keys[own];
          const int64_t at = places[own];
          keys[own] = keys[other], places[own] = places[other];
          keys[other] = key, places[other] = at;
        }
      }
      __syncthreads();
    }
  }
  if (own < k) {
    values[blockIdx.x * k + own] = row[places[own]];
    indices[blockIdx.x * k + own] = places[own];
  }
}

void select_into(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest,
                 bool only_last) {
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || k == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = only_last ? 1 : k;
  Tensor v = make(shape, x.dtype(), x), at = make(shape, DType::i64, x);
  const int size = only_last ? 1 : 1 << bits_for(k);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(
      (std::max<int64_t>(rows.length, size) + cuda::kWarp - 1) / cuda::kWarp * cuda::kWarp, kSelectThreads));
  dispatch_bytes(x.dtype(), [&]<class B>() {
    select_kernel<B><<<static_cast<unsigned>(rows.count), threads, 0, cuda::stream()>>>(
        static_cast<const B*>(rows.dense.raw_data()), rows.length, k, size, only_last, order_of(x.dtype()),
        largest ? static_cast<B>(~B(0)) : B(0), static_cast<B*>(v.raw_data()), static_cast<int64_t*>(at.raw_data()));
  });
  place(values, v, x, dim);
  place(indices, at, x, dim);
}

// ---- unique ----

// starts[i]: whether sorted element i differs from the one before; NaNs differ from each other.
__global__ void __launch_bounds__(kThreads)
    starts_kernel(const uint64_t* keys, bool* starts, int64_t n, bool has_nan, uint64_t nan) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) starts[i] = i == 0 || keys[i] != keys[i - 1] || (has_nan && keys[i] == nan);
}
template <class B>
__global__ void __launch_bounds__(kThreads) runs_kernel(const B* x, const int64_t* order, const int64_t* starts,
                                                        int64_t found, int64_t n, B* values, int64_t* counts) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= found) return;
  values[j] = x[order[starts[j]]];
  if (counts != nullptr) counts[j] = (j + 1 < found ? starts[j + 1] : n) - starts[j];
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
__global__ void __launch_bounds__(kThreads)
    inverse_kernel(const int64_t* order, const int64_t* starts, int64_t found, int64_t n, int64_t* inverse) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) inverse[order[i]] = bound(found, i, true, [&](int64_t j) { return starts[j]; }) - 1;
}

template <class B>
__global__ void __launch_bounds__(kThreads)
    searchsorted_kernel(const B* table, int64_t n, int64_t per_row, const B* values, int64_t* y, int64_t total,
                        Order order, bool right) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const B* row = table + (per_row == 0 ? 0 : i / per_row * n);
  y[i] = bound(n, key_of(values[i], order), right, [&](int64_t j) { return key_of(row[j], order); });
}

}  // namespace

void sort_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending) {
  dim = wrap_dim(dim, x.dim(), "sort");
  sort_into(values, indices, x, dim, descending, x.dim() == 0 ? 1 : x.size(dim));
}

void topk_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest) {
  dim = wrap_dim(dim, x.dim(), "topk");
  if (k > kMostSelected) return sort_into(values, indices, x, dim, largest, k);
  select_into(values, indices, x, k, dim, largest, false);
}

void kthvalue_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool) {
  select_into(values, indices, x, k, wrap_dim(dim, x.dim(), "kthvalue"), false, true);
}

std::tuple<Tensor, Tensor, Tensor> unique_cuda(const Tensor& x, bool return_inverse, bool return_counts) {
  const cuda::LaunchScope scope("unique", x.device());
  const Tensor dense = contiguous(x);
  const int64_t n = x.numel();
  const Tensor inverse = make(return_inverse ? x.shape() : Shape{0}, DType::i64, x);
  if (n == 0) return {make({0}, x.dtype(), x), inverse, make({0}, DType::i64, x)};
  Tensor values, counts;
  dispatch_bytes(x.dtype(), [&]<class B>() {
    const cuda::SortedIndex sorted = sort_keys<B>({dense, 1, n}, order_of(x.dtype()), false, 0);
    const auto* order = static_cast<const int64_t*>(sorted.order.raw_data());
    const Tensor flags = make({n}, DType::boolean, x);
    const unsigned blocks = cuda::blocks_for(n, kThreads);
    const bool floating = is_floating(x.dtype());
    starts_kernel<<<blocks, kThreads, 0, cuda::stream()>>>(static_cast<const uint64_t*>(sorted.keys.raw_data()),
                                                           static_cast<bool*>(flags.raw_data()), n, floating,
                                                           static_cast<B>(~B(0)));
    const Tensor starts = contiguous(reshape(nonzero(flags), {-1}));
    const auto* from = static_cast<const int64_t*>(starts.raw_data());
    const int64_t found = starts.numel();
    values = make({found}, x.dtype(), x);
    counts = make({return_counts ? found : 0}, DType::i64, x);
    runs_kernel<B><<<cuda::blocks_for(found, kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(dense.raw_data()), order, from, found, n, static_cast<B*>(values.raw_data()),
        return_counts ? static_cast<int64_t*>(counts.raw_data()) : nullptr);
    if (return_inverse)
      inverse_kernel<<<blocks, kThreads, 0, cuda::stream()>>>(order, from, found, n,
                                                              static_cast<int64_t*>(inverse.raw_data()));
  });
  if (const char* failure = scope.failure()) throw DeviceError("unique", failure);
  return {values, inverse, counts};
}

void searchsorted_cuda(Tensor& y, const Tensor& sorted, const Tensor& values, bool right) {
  const Tensor s = contiguous(sorted), v = contiguous(values);
  const int64_t total = v.numel();
  if (total == 0) return;
  Tensor to = y.is_contiguous() ? y : make(y.shape(), DType::i64, y);
  dispatch_bytes(s.dtype(), [&]<class B>() {
    searchsorted_kernel<B><<<cuda::blocks_for(total, kThreads), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(s.raw_data()), s.shape().back(), s.dim() == 1 ? 0 : v.shape().back(),
        static_cast<const B*>(v.raw_data()), static_cast<int64_t*>(to.raw_data()), total, order_of(s.dtype()), right);
  });
  if (!to.same_as(y)) copy_elements(y, to);
}

}  // namespace strata
