// The k-th elements, medians and modes of rows on a CUDA device.
//
// An element's key is found digit by digit: counts of a digit among the elements that have those found so far. A block
// keeps a row of up to 4096 elements in its registers. Longer rows are read once for each digit of 11 bits, by several
// blocks, whose counts are added up in memory; the block that comes last finds the digit there. Counts are integers,
// which have no order. A warp keeps a row of up to 256 elements and goes by bits. For a mode a block sorts its row and
// looks for the longest run.

#include <algorithm>

#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

#include "strata/cuda/current.h"
#include "strata/cuda/memory.h"
#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {
namespace {
using namespace sort_detail;
using cuda::kWarp;

constexpr int kThreads = 256, kMostItems = 16;
constexpr int kRowDigitBits = 8;  // a digit's count for each thread
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr int kLongThreads = 512, kOwn = kDigits / kLongThreads;
constexpr int64_t kPart = 8192;  // elements of a long row worth a block
constexpr unsigned kAll = 0xffffffffu;

template <class B>
__device__ __forceinline__ bool is_nan_key(B key, const Order& order) {
  return order.kind == Kind::floating && key == static_cast<B>(~B(0));
}
// Which element of a row in order is wanted: the k-th from 1, or where k is 0 the median.
struct Wanted {
  int64_t k;
  bool skip_nan;
  // Of n elements, of which `nan` are NaN and last: they do not count, or their first is the median.
  __device__ __forceinline__ int64_t rank(int64_t n, int64_t nan) const {
    if (k > 0) return k;
    if (nan > 0 && !skip_nan) return n - nan + 1;
    const int64_t numbers = n - nan;
    return (numbers > 0 ? numbers - 1 : 0) / 2 + 1;
  }
};
// Each of the kAcross threads gets the sum of the earlier ones' values; `warps` may be used again after a barrier.
template <int kAcross, class N>
__device__ __forceinline__ N sum_before(N own, N* warps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  N upto = own;
#pragma unroll
  for (int o = 1; o < kWarp; o *= 2) {
    const N earlier = __shfl_up_sync(kAll, upto, o);
    if (lane >= o) upto += earlier;
  }
  if (lane == kWarp - 1) warps[warp] = upto;
  __syncthreads();
  N before = upto - own;
#pragma unroll
  for (int w = 0; w < kAcross / kWarp; ++w)
    if (w < warp) before += warps[w];
  return before;
}

// ---- rows that a block keeps ----

template <class B, int kItems>
__global__ void __launch_bounds__(kThreads)
    row_kernel(const B* x, int length, Order order, Wanted wanted, int64_t* places, B* values) {
  __shared__ int counts[1 << kRowDigitBits], warps[kThreads / kWarp], found[3], nans;
  const int thread = static_cast<int>(threadIdx.x);
  const B* const row = x + static_cast<int64_t>(blockIdx.x) * length;
  B keys[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kThreads + thread;
    keys[j] = i < length ? key_of(row[i], order) : B(0);
  }
  if (thread == 0) nans = 0;
  __syncthreads();
  int own_nans = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) own_nans += j * kThreads + thread < length && is_nan_key(keys[j], order) ? 1 : 0;
  if (own_nans > 0) atomicAdd(&nans, own_nans);

  B prefix = 0, known = 0;
  int rest = 0, count = length;
  for (int shift = 8 * static_cast<int>(sizeof(B)) - kRowDigitBits; shift >= 0 && (known == 0 || count > 1);
       shift -= kRowDigitBits) {
    counts[thread] = 0;
    __syncthreads();
    if (known == 0) rest = static_cast<int>(wanted.rank(length, nans));
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      if (j * kThreads + thread < length && static_cast<B>(keys[j] & known) == prefix)
        atomicAdd(&counts[static_cast<int>(keys[j] >> shift) & ((1 << kRowDigitBits) - 1)], 1);
    __syncthreads();
    const int own = counts[thread], before = sum_before<kThreads>(own, warps);
    if (before < rest && rest <= before + own) found[0] = thread, found[1] = before, found[2] = own;
    __syncthreads();
    prefix = static_cast<B>(prefix | static_cast<B>(static_cast<B>(found[0]) << shift));
    known = static_cast<B>(known | static_cast<B>(static_cast<B>((1 << kRowDigitBits) - 1) << shift));
    rest -= found[1], count = found[2];
  }
  // Of the elements with these digits, which are equal where they are several, the one whose turn it is.
  const auto found_at = [&](int i) {
    if (places != nullptr) places[blockIdx.x] = i;
    if (values != nullptr) values[blockIdx.x] = row[i];
  };
  int passed = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    if (j * kThreads >= length) break;
    const int i = j * kThreads + thread;
    const bool hit = i < length && static_cast<B>(keys[j] & known) == prefix;
    if (count == 1) {
      if (hit) found_at(i);
      continue;
    }
    __syncthreads();
    const int before = passed + sum_before<kThreads>(hit ? 1 : 0, warps);
    if (hit && before + 1 == rest) found_at(i);
    passed += __syncthreads_count(hit);
  }
}

// A warp keeps a row of up to 32 kItems elements, and finds the key bit by bit: nobody waits at a barrier.
constexpr int kRowsOfBlock = 4, kMostOfWarp = 8 * kWarp;
template <class B, int kItems>
__global__ void __launch_bounds__(kRowsOfBlock* kWarp)
    short_row_kernel(const B* x, int64_t rows, int length, Order order, Wanted wanted, int64_t* places, B* values) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t which = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
  if (which >= rows) return;
  const B* const row = x + which * length;
  B keys[kItems];
  bool live[kItems];
  int nans = 0, count = length;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    live[j] = j * kWarp + lane < length;
    keys[j] = live[j] ? key_of(row[j * kWarp + lane], order) : B(0);
    nans += __popc(__ballot_sync(kAll, live[j] && is_nan_key(keys[j], order)));
  }
  auto rest = static_cast<int>(wanted.rank(length, nans));
  for (int bit = 8 * static_cast<int>(sizeof(B)) - 1; bit >= 0 && count > 1; --bit) {
    int zeros = 0;
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      zeros += __popc(__ballot_sync(kAll, live[j] && (static_cast<uint64_t>(keys[j]) >> bit & 1) == 0));
    const bool one = rest > zeros;
    if (one) rest -= zeros;
    count = one ? count - zeros : zeros;
#pragma unroll
    for (int j = 0; j < kItems; ++j) live[j] = live[j] && (static_cast<uint64_t>(keys[j]) >> bit & 1) == (one ? 1 : 0);
  }
  // Of equal ones, the one whose turn it is.
  int passed = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const unsigned equal = __ballot_sync(kAll, live[j]);
    if (live[j] && passed + __popc(equal & ((1u << lane) - 1)) + 1 == rest) {
      if (places != nullptr) places[which] = j * kWarp + lane;
      if (values != nullptr) values[which] = row[j * kWarp + lane];
    }
    passed += __popc(equal);
  }
}

// ---- longer rows ----

// What is known of a row's element: the digits found, a mask of them, which of the elements with these it is and how
// many they are; blocks that are done with a pass, and NaN.
struct Search {
  uint64_t prefix, known;
  int64_t rest, count;
  unsigned long long nans;
  unsigned done;
};

// A pass for the digit of `bits` at `shift`: block (part, row). After the last digit `values`, if any, has the element.
template <class B>
__global__ void __launch_bounds__(kLongThreads)
    digit_kernel(const B* x, int64_t length, int64_t part, Order order, Wanted wanted, int shift, int bits,
                 Search* searches, unsigned long long* counts, B* values) {
  __shared__ unsigned mine[kDigits];
  __shared__ unsigned long long warps[kLongThreads / kWarp];
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  Search& s = searches[blockIdx.y];
  unsigned long long* const all = counts + static_cast<int64_t>(blockIdx.y) * kDigits;
  const B* const row = x + static_cast<int64_t>(blockIdx.y) * length;
  const auto prefix = static_cast<B>(s.prefix), known = static_cast<B>(s.known);
  const auto mask = static_cast<unsigned>((1 << bits) - 1);
  for (int i = thread; i < kDigits; i += kLongThreads) mine[i] = 0;
  __syncthreads();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * part, end = begin + part < length ? begin + part : length;
  unsigned nans = 0;
#pragma unroll 4
  for (int64_t i = begin + thread; i < end; i += kLongThreads) {
    const B key = key_of(row[i], order);
    if (known == 0 && is_nan_key(key, order)) ++nans;
    if (static_cast<B>(key & known) == prefix) atomicAdd(&mine[static_cast<unsigned>(key >> shift) & mask], 1u);
  }
  if (nans > 0) atomicAdd(&s.nans, static_cast<unsigned long long>(nans));
  __syncthreads();
  for (int i = thread; i < kDigits; i += kLongThreads)
    if (mine[i] > 0) atomicAdd(all + i, static_cast<unsigned long long>(mine[i]));
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(&s.done, 1u) + 1 == gridDim.x;
  __syncthreads();
  if (!last) return;

  __threadfence();
  unsigned long long own[kOwn], sum = 0;
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    own[j] = __ldcg(all + thread * kOwn + j);
    all[thread * kOwn + j] = 0;  // for the next digit
    sum += own[j];
  }
  const auto rest =
      static_cast<unsigned long long>(known == 0 ? wanted.rank(length, static_cast<int64_t>(__ldcg(&s.nans))) : s.rest);
  unsigned long long before = sum_before<kLongThreads>(sum, warps);
  // One thread finds it, after all have read the search.
  __syncthreads();
  if (!(before < rest && rest <= before + sum)) return;
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    if (before < rest && rest <= before + own[j]) {
      s.prefix = s.prefix | static_cast<uint64_t>(thread * kOwn + j) << shift;
      s.known = s.known | static_cast<uint64_t>(mask) << shift;
      s.rest = static_cast<int64_t>(rest - before);
      s.count = static_cast<int64_t>(own[j]);
      s.done = 0;
      B bits_of_value;
      if (shift == 0 && values != nullptr) {
        const auto key = static_cast<B>(s.prefix);
        if (!value_of(key, order, bits_of_value))  // a zero, or NaN
          bits_of_value = key == static_cast<B>(~B(0)) ? static_cast<B>(order.infinity | order.infinity >> 1) : B(0);
        values[blockIdx.y] = bits_of_value;
      }
      return;
    }
    before += own[j];
  }
}

// Where the key found stands: the element whose turn it is of the equal ones. One alone is seen by its part's block;
// of several the first block goes along the row.
template <class B>
__global__ void __launch_bounds__(kLongThreads) find_kernel(const B* x, int64_t length, int64_t part, Order order,
                                                            const Search* searches, int64_t* places, B* values) {
  __shared__ int warps[kLongThreads / kWarp];
  const Search s = searches[blockIdx.y];
  const auto prefix = static_cast<B>(s.prefix);
  const B* const row = x + static_cast<int64_t>(blockIdx.y) * length;
  const int thread = static_cast<int>(threadIdx.x);
  const auto found_at = [&](int64_t i) {
    places[blockIdx.y] = i;
    if (values != nullptr) values[blockIdx.y] = row[i];
  };
  if (s.count == 1) {
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * part, end = begin + part < length ? begin + part : length;
#pragma unroll 4
    for (int64_t i = begin + thread; i < end; i += kLongThreads)
      if (key_of(row[i], order) == prefix) found_at(i);
    return;
  }
  if (blockIdx.x != 0) return;
  int64_t passed = 0;
  for (int64_t first = 0; first < length && passed < s.rest; first += kLongThreads) {
    const int64_t i = first + thread;
    const bool hit = i < length && key_of(row[i], order) == prefix;
    const int before = sum_before<kLongThreads>(hit ? 1 : 0, warps);
    if (hit && passed + before + 1 == s.rest) found_at(i);
    passed += __syncthreads_count(hit);
  }
}

// The wanted elements of `rows` long rows: their places, their values, or both.
template <class B>
void search_rows(const B* x, int64_t rows, int64_t length, Order order, Wanted wanted, int64_t* places, B* values,
                 Device device) {
  constexpr int64_t kMostRows = 16384;
  const int64_t blocks = 2 * cuda::properties(cuda::current_device()).multiprocessors;
  for (int64_t from = 0; from < rows; from += kMostRows) {
    const int64_t some = std::min(kMostRows, rows - from);
    const int64_t parts = std::clamp<int64_t>(blocks / some, 1, (length + kPart - 1) / kPart);
    const int64_t part = (length + parts - 1) / parts;
    const int64_t of_row = static_cast<int64_t>(sizeof(Search)) + kDigits * static_cast<int64_t>(sizeof(int64_t));
    const Tensor workspace = empty({{some * of_row}, DType::u8, device, std::nullopt});
    auto* const searches = static_cast<Search*>(workspace.raw_data());
    auto* const counts = reinterpret_cast<unsigned long long*>(searches + some);
    cuda::fill_bytes(device, searches, 0, static_cast<size_t>(workspace.nbytes()));
    const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(some));
    for (int top = 8 * static_cast<int>(sizeof(B)); top > 0;) {
      const int bits = std::min(top, kDigitBits), shift = top - bits;
      digit_kernel<B><<<grid, kLongThreads, 0, cuda::stream()>>>(x + from * length, length, part, order, wanted, shift,
                                                                 bits, searches, counts,
                                                                 places == nullptr ? values + from : nullptr);
      top = shift;
    }
    if (places != nullptr)
      find_kernel<B><<<grid, kLongThreads, 0, cuda::stream()>>>(
          x + from * length, length, part, order, searches, places + from, values != nullptr ? values + from : nullptr);
  }
}

template <class B>
void find_elements(const B* x, int64_t rows, int64_t length, Order order, Wanted wanted, int64_t* places, B* values,
                   Device device) {
  if (length > kThreads * kMostItems) return search_rows<B>(x, rows, length, order, wanted, places, values, device);
  const auto launch = [&]<int kItems>() {
    row_kernel<B, kItems><<<static_cast<unsigned>(rows), kThreads, 0, cuda::stream()>>>(x, static_cast<int>(length),
                                                                                        order, wanted, places, values);
  };
  const auto launch_warps = [&]<int kItems>() {
    short_row_kernel<B, kItems><<<cuda::blocks_for(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, cuda::stream()>>>(
        x, rows, static_cast<int>(length), order, wanted, places, values);
  };
  if (length <= 2 * kWarp) return launch_warps.template operator()<2>();
  if (length <= kMostOfWarp && sizeof(B) < 8) return launch_warps.template operator()<kMostOfWarp / kWarp>();
  if (length <= 2 * kThreads) return launch.template operator()<2>();
  if (length <= 4 * kThreads) return launch.template operator()<4>();
  launch.template operator()<kMostItems>();
}

// ---- modes ----

struct Later {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

// The last place of the commonest element of a row, of several the smallest: where its run in order ends.
template <class B, int kAcross, int kItems>
__global__ void __launch_bounds__(kAcross)
    row_mode_kernel(const B* x, int length, Order order, int64_t* places, B* values) {
  using Radix = cub::BlockRadixSort<B, kAcross, kItems, uint16_t>;
  using Scan = cub::BlockScan<int, kAcross>;
  __shared__ union {
    typename Radix::TempStorage radix;
    typename Scan::TempStorage scan;
    B keys[kAcross * kItems];
  } shared;
  __shared__ B lasts[kAcross + 1];
  __shared__ uint64_t best[kAcross / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  const B* const row = x + static_cast<int64_t>(blockIdx.x) * length;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kAcross + thread;
    shared.keys[i] = i < length ? key_of(row[i], order) : static_cast<B>(~B(0));
  }
  __syncthreads();
  B keys[kItems];
  uint16_t at[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    keys[j] = shared.keys[thread * kItems + j];
    at[j] = static_cast<uint16_t>(thread * kItems + j);
  }
  __syncthreads();
  Radix(shared.radix).Sort(keys, at);
  __syncthreads();
  // A run begins where the key is another than the one before, and each NaN is one; what fills up stands last.
  lasts[thread + 1] = keys[kItems - 1];
  __syncthreads();
  int begin[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = thread * kItems + j;
    const B before = j == 0 ? lasts[thread] : keys[j == 0 ? 0 : j - 1];
    begin[j] = i == 0 || keys[j] != before || is_nan_key(keys[j], order) ? i : 0;
  }
  Scan(shared.scan).InclusiveScan(begin, begin, Later());
  // The longest, then the first: a run is as long at its end as anywhere.
  uint64_t mine = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = thread * kItems + j;
    if (i >= length) continue;
    const uint64_t size = static_cast<uint64_t>(i - begin[j] + 1);
    const uint64_t rank = size << 32 | static_cast<uint64_t>(0xffff - i) << 16 | at[j];
    mine = rank > mine ? rank : mine;
  }
#pragma unroll
  for (int o = kWarp / 2; o > 0; o /= 2) {
    const uint64_t other = __shfl_xor_sync(kAll, mine, o);
    mine = other > mine ? other : mine;
  }
  if (thread % kWarp == 0) best[thread / kWarp] = mine;
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < kAcross / kWarp; ++w) mine = best[w] > mine ? best[w] : mine;
  places[blockIdx.x] = static_cast<int64_t>(mine & 0xffff);
  if (values != nullptr) values[blockIdx.x] = row[mine & 0xffff];
}

// Whether results lie in the order of sort_rows()'s rows, of which each has one: no dimension stands between.
bool lies_as_found(const Tensor& result, const Tensor& x, int64_t dim) {
  bool same = result.is_contiguous();
  for (int64_t d = dim + 1; d < x.dim() - 1; ++d) same = same && x.shape()[d] == 1;
  return same;
}

// f(rows, memory for a place of each) and from there to the op's result.
template <class F>
void places_of(Tensor& indices, const Tensor& x, int64_t dim, F&& f) {
  dim = wrap_dim(dim, x.dim(), "median");
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = 1;
  const bool direct = lies_as_found(indices, x, dim);
  const Tensor at = direct ? indices : make(shape, DType::i64, x);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    f(rows, static_cast<const B*>(rows.dense.raw_data()), static_cast<int64_t*>(at.raw_data()));
  });
  if (!direct) place(indices, at, x, dim);
}

}  // namespace

void median_place_cuda(Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan) {
  places_of(indices, x, dim, [&]<class B>(const SortRows& rows, const B* from, int64_t* at) {
    find_elements<B>(from, rows.count, rows.length, order_of(x.dtype()), {0, skip_nan}, at, nullptr, x.device());
  });
}

void median_cuda(Tensor& y, const Tensor& x, bool skip_nan) {
  const Tensor dense = contiguous(x);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    find_elements<B>(static_cast<const B*>(dense.raw_data()), 1, x.numel(), order_of(x.dtype()), {0, skip_nan}, nullptr,
                     static_cast<B*>(y.raw_data()), x.device());
  });
}

namespace {
// f(rows, memory for a place and for a value of each), and from there to the op's results.
template <class F>
void elements_of(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, F&& f) {
  dim = wrap_dim(dim, x.dim(), "kthvalue");
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = 1;
  const bool direct =
      lies_as_found(values, x, dim) && lies_as_found(indices, x, dim) && values.raw_data() != x.raw_data();
  const Tensor v = direct ? values : make(shape, x.dtype(), x), at = direct ? indices : make(shape, DType::i64, x);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    f(rows, static_cast<const B*>(rows.dense.raw_data()), static_cast<int64_t*>(at.raw_data()),
      static_cast<B*>(v.raw_data()));
  });
  if (direct) return;
  place(values, v, x, dim);
  place(indices, at, x, dim);
}

template <class B>
void find_modes(const SortRows& rows, const B* from, Order order, int64_t* at, B* values) {
  const auto launch = [&]<int kAcross, int kItems>() {
    row_mode_kernel<B, kAcross, kItems><<<static_cast<unsigned>(rows.count), kAcross, 0, cuda::stream()>>>(
        from, static_cast<int>(rows.length), order, at, values);
  };
  if (rows.length <= 128) return launch.template operator()<64, 2>();
  if (rows.length <= 1024) return launch.template operator()<256, 4>();
  launch.template operator()<kThreads, kMostItems>();
}
}  // namespace

void kthvalue_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool) {
  elements_of(values, indices, x, dim, [&]<class B>(const SortRows& rows, const B* from, int64_t* at, B* v) {
    find_elements<B>(from, rows.count, rows.length, order_of(x.dtype()), {k, false}, at, v, x.device());
  });
}
void median_dim_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan) {
  elements_of(values, indices, x, dim, [&]<class B>(const SortRows& rows, const B* from, int64_t* at, B* v) {
    find_elements<B>(from, rows.count, rows.length, order_of(x.dtype()), {0, skip_nan}, at, v, x.device());
  });
}

bool sorts_for_mode(int64_t length) {
  return length <= kThreads * kMostItems;
}
void mode_place_cuda(Tensor& indices, const Tensor& x, int64_t dim) {
  places_of(indices, x, dim, [&]<class B>(const SortRows& rows, const B* from, int64_t* at) {
    find_modes<B>(rows, from, order_of(x.dtype()), at, nullptr);
  });
}
void mode_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim) {
  elements_of(values, indices, x, dim, [&]<class B>(const SortRows& rows, const B* from, int64_t* at, B* v) {
    find_modes<B>(rows, from, order_of(x.dtype()), at, v);
  });
}

}  // namespace strata
