// The first k elements of rows in order, on a CUDA device.
//
// A block reads its row once for each digit of 11 bits of the keys and counts it in shared memory, until the k smallest
// and the other elements of the k-th's digit fit in shared memory together: mostly one reading for the counts and one
// that fetches these elements, which are then put in order. Of rows that are few and long each block takes a part, and
// a second launch chooses among what the parts' blocks chose.

#include <algorithm>

#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {
namespace {
using namespace sort_detail;

constexpr int kThreads = 512;
constexpr int kMostSelected = 1024;  // elements that one block chooses
constexpr int kFetched = 2048;       // elements that one block puts in order
constexpr int kShortRow = 256;       // rows that are put in order at once
constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits, kOwn = kDigits / kThreads;
constexpr int kAhead = 4;                       // loads under way in each thread
constexpr int kItems = 8;                       // neighbouring elements of a thread where places count
constexpr int64_t kChunk = int64_t{1} << 31;    // elements that counters of 32 bits take
constexpr int64_t kParts = 256, kPart = 16384;  // blocks wanted, and elements worth one

// Elements of a load; more than 8 leave no registers.
template <class B>
inline constexpr int kWide = std::min(cuda::kVec<B>, 8);

// What a block chooses from, and where it goes. Rows of `length` are cut into parts of `part`; the last one takes the
// rest. `from` names the elements, which else have their places in the row.
struct Selection {
  int64_t length, part;
  int parts;
  int64_t k;
  Order order;
  const int64_t* from;
};

template <class B, int V, class F>
__device__ __forceinline__ void sweep(const B* row, int64_t begin, int64_t end, F&& f) {
  const int64_t step = static_cast<int64_t>(blockDim.x) * V;
  int64_t i = begin + static_cast<int64_t>(threadIdx.x) * V;
  for (; i + (kAhead - 1) * step < end; i += kAhead * step) {
    cuda::Vec<B, V> v[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) v[u] = cuda::load_vec<V>(row + i + u * step);
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int j = 0; j < V; ++j) f(v[u].v[j], i + u * step + j);
  }
  for (; i < end; i += step) {
    const cuda::Vec<B, V> v = cuda::load_vec<V>(row + i);
#pragma unroll
    for (int j = 0; j < V; ++j) f(v.v[j], i + j);
  }
}

// Each thread gets the sum of the earlier threads' values; every thread of the kThreads takes part. `warps` may be used
// again after the next barrier.
template <class N>
__device__ __forceinline__ N sum_before(N own, N* warps, N* all) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  N upto = own;
#pragma unroll
  for (int o = 1; o < cuda::kWarp; o *= 2) {
    const N earlier = __shfl_up_sync(0xffffffffu, upto, o);
    if (lane >= o) upto += earlier;
  }
  if (lane == cuda::kWarp - 1) warps[warp] = upto;
  __syncthreads();
  N before = upto - own;
  *all = 0;
#pragma unroll
  for (int w = 0; w < kThreads / cuda::kWarp; ++w) {
    if (w < warp) before += warps[w];
    *all += warps[w];
  }
  return before;
}

// A bitonic sort of `size` (a power of two) elements by key, then by place.
template <class B>
__device__ void sort_fetched(B* keys, int64_t* places, int size) {
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += static_cast<int>(blockDim.x)) {
        const int low = 2 * pair - (pair & (step - 1)), high = low + step;
        const bool above = keys[low] > keys[high] || (keys[low] == keys[high] && places[low] > places[high]);
        if (above == ((low & width) == 0)) {
          const B key = keys[low];
          const int64_t at = places[low];
          keys[low] = keys[high], places[low] = places[high];
          keys[high] = key, places[high] = at;
        }
      }
      __syncthreads();
    }
  }
}

// A block for each part of a row: its k smallest keys in order. Rows with kShort have at most kShortRow elements, and
// any number of threads.
template <class B, int V, bool kShort>
__global__ void __launch_bounds__(kThreads, 2)
    select_kernel(const B* x, const Selection s, B flip, B* values, int64_t* indices) {
  constexpr int kRoom = kShort ? kShortRow : kFetched;
  __shared__ int64_t places[kRoom];
  __shared__ B keys[kRoom];
  __shared__ int taken;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t row_number = blockIdx.x / s.parts, p = blockIdx.x % s.parts;
  const B* row = x + row_number * s.length;
  const int64_t begin = p * s.part, end = p + 1 == s.parts ? s.length : begin + s.part;
  const auto key = [&](B bits) { return static_cast<B>(key_of(bits, s.order) ^ flip); };

  B prefix = 0, known = 0;                  // the digits found of the k-th key, and a mask of them
  int64_t rest = s.k, count = end - begin;  // which of the elements that have these digits it is; how many they are
  const auto fits = [&] { return s.k - rest + count <= kRoom; };
  if constexpr (!kShort) {
    auto* const counts = reinterpret_cast<uint32_t*>(places);
    static_assert(sizeof(places) >= kDigits * sizeof(uint32_t));
    __shared__ unsigned long long warps[kThreads / cuda::kWarp];
    __shared__ int64_t found[3];  // the digit, the elements below it, those with it
    for (int top = 8 * static_cast<int>(sizeof(B)); top > 0 && (known == 0 || !fits());) {
      const int bits = top < kDigitBits ? top : kDigitBits, shift = top - bits;
      const B mask = static_cast<B>((B(1) << (bits - 1)) * 2 - 1);
      unsigned long long own[kOwn] = {}, sum = 0, all = 0;
      for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) counts[thread * kOwn + j] = 0;
        __syncthreads();
        sweep<B, V>(row, chunk, end - chunk < kChunk ? end : chunk + kChunk, [&](B v, int64_t) {
          const B k = key(v);
          if ((k & known) == prefix) atomicAdd(&counts[static_cast<B>(k >> shift) & mask], 1u);
        });
        __syncthreads();
#pragma unroll
        for (int j = 0; j < kOwn; ++j) own[j] += counts[thread * kOwn + j];
      }
#pragma unroll
      for (int j = 0; j < kOwn; ++j) sum += own[j];
      auto before = static_cast<int64_t>(sum_before(sum, warps, &all));
      if (before < rest && rest <= before + static_cast<int64_t>(sum)) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const auto here = static_cast<int64_t>(own[j]);
          if (before < rest && rest <= before + here) found[0] = thread * kOwn + j, found[1] = before, found[2] = here;
          before += here;
        }
      }
      __syncthreads();
      prefix = static_cast<B>(prefix | static_cast<B>(static_cast<B>(found[0]) << shift));
      known = static_cast<B>(known | static_cast<B>(mask << shift));
      rest -= found[1], count = found[2];
      top = shift;
    }
  }
  if (thread == 0) taken = 0;
  __syncthreads();
  const bool all_fit = fits();
  sweep<B, V>(row, begin, end, [&](B v, int64_t i) {
    const B k = key(v), digits = static_cast<B>(k & known);
    if (digits < prefix || (digits == prefix && all_fit)) {
      const int at = atomicAdd(&taken, 1);  // in any order: what follows puts them in one
      keys[at] = k, places[at] = i;
    }
  });
  if constexpr (!kShort) {
    if (!all_fit) {
      // The digits are those of a whole key, and of the elements that have it the first `rest` belong to the k.
      __shared__ int warps[kThreads / cuda::kWarp];
      int64_t passed = 0;
      for (int64_t base = begin; base < end && passed < rest; base += kThreads * kItems) {
        const int64_t first = base + static_cast<int64_t>(thread) * kItems;
        unsigned is = 0;
#pragma unroll
        for (int j = 0; j < kItems; ++j)
          if (first + j < end && key(row[first + j]) == prefix) is |= 1u << j;
        int all = 0;
        int64_t rank = passed + sum_before(__popc(is), warps, &all);
#pragma unroll
        for (int j = 0; j < kItems; ++j) {
          if (!(is >> j & 1)) continue;
          if (rank < rest) keys[s.k - rest + rank] = prefix, places[s.k - rest + rank] = first + j;
          ++rank;
        }
        passed += all;
        __syncthreads();
      }
    }
  }
  const int fetched = static_cast<int>(all_fit ? s.k - rest + count : s.k);
  int size = 1;
  while (size < fetched) size *= 2;
  __syncthreads();
  for (int i = fetched + thread; i < size; i += threads) keys[i] = static_cast<B>(~B(0)), places[i] = INT64_MAX;
  __syncthreads();
  sort_fetched(keys, places, size);
  for (int64_t i = thread; i < s.k; i += threads) {
    const int64_t at = places[i];
    values[blockIdx.x * s.k + i] = row[at];
    indices[blockIdx.x * s.k + i] = s.from != nullptr ? s.from[row_number * s.length + at] : at;
  }
}

template <class B>
void select_rows(const B* x, int64_t rows, const Selection& s, B flip, B* values, int64_t* indices) {
  constexpr int V = kWide<B>;
  const auto blocks = static_cast<unsigned>(rows * s.parts);
  if (s.length <= kShortRow && s.parts == 1) {
    const auto threads = static_cast<unsigned>((s.length + 63) / 64 * cuda::kWarp);
    select_kernel<B, 1, true><<<blocks, threads, 0, cuda::stream()>>>(x, s, flip, values, indices);
  } else if (s.length % V == 0 && s.part % V == 0 && cuda::aligned16(x)) {
    select_kernel<B, V, false><<<blocks, kThreads, 0, cuda::stream()>>>(x, s, flip, values, indices);
  } else {
    select_kernel<B, 1, false><<<blocks, kThreads, 0, cuda::stream()>>>(x, s, flip, values, indices);
  }
}

}  // namespace

void topk_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest) {
  dim = wrap_dim(dim, x.dim(), "topk");
  if (k > kMostSelected) return sort_first_cuda(values, indices, x, dim, largest, k);
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || k == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = k;
  const bool direct = lies_as_rows(values, indices, x, dim);
  const Tensor v = direct ? values : make(shape, x.dtype(), x), at = direct ? indices : make(shape, DType::i64, x);
  const int64_t parts =
      std::clamp<int64_t>(kParts / rows.count, 1, std::max<int64_t>(1, rows.length / std::max(kPart, 8 * k)));
  dispatch_bytes(x.dtype(), [&]<class B>() {
    const B flip = largest ? static_cast<B>(~B(0)) : B(0);
    const auto* from = static_cast<const B*>(rows.dense.raw_data());
    auto* const to = static_cast<B*>(v.raw_data());
    auto* const places = static_cast<int64_t*>(at.raw_data());
    constexpr int V = kWide<B>;
    Selection s{rows.length, rows.length, 1, k, order_of(x.dtype()), nullptr};
    if (parts == 1) return select_rows<B>(from, rows.count, s, flip, to, places);
    s.parts = static_cast<int>(parts), s.part = rows.length / parts / V * V;
    const Tensor some = make({rows.count, parts * k}, x.dtype(), x),
                 where = make({rows.count, parts * k}, DType::i64, x);
    auto* const chosen = static_cast<B*>(some.raw_data());
    auto* const stood = static_cast<int64_t*>(where.raw_data());
    select_rows<B>(from, rows.count, s, flip, chosen, stood);
    // Each part's are in order, and the parts stand in theirs: equal elements still stand by their places.
    select_rows<B>(chosen, rows.count, {parts * k, parts * k, 1, k, s.order, stood}, flip, to, places);
  });
  if (direct) return;
  place(values, v, x, dim);
  place(indices, at, x, dim);
}

}  // namespace strata
