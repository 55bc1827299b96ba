// Rows over the bus. What bounds it is the bus: a card asks for lines of 128 bytes at most, each a request of its own,
// and waits 1 to 2 microseconds for each. So threads work by aligned lines, eight to one with 16 bytes each, so that no
// request is smaller than the row makes it, whatever byte the row begins at; and each has several lines on their way,
// so that together they ask for far more than the bus holds. The shift to where the row goes is in the stores, which
// are as wide as both addresses allow: the card's own memory takes narrow ones at many times the bus's rate.

#include <algorithm>
#include <initializer_list>

#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/cuda/rows.h"
#include "strata/memory/tiers.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kLine = 128;
constexpr int kPiece = 16;                  // bytes of a thread's load
constexpr int kLanes = kLine / kPiece;      // threads of a line
constexpr int kGroups = kThreads / kLanes;  // lines that a block asks for at once
constexpr int kOnTheWay = 4;                // lines that each thread waits for together

struct Table {
  std::byte* x;
  int64_t rows, stride, row_bytes;  // stride in bytes
  int lines;                        // that a row touches at most
};
struct Cache {
  const std::byte* rows;
  const int32_t* slots;  // of each row of the table
  int64_t size;
  unsigned long long* hits;
};

template <int Granule, bool Cached>
__global__ void __launch_bounds__(kThreads)
    take_far_kernel(Table table, Cache cache, const int64_t* index, std::byte* y, int64_t n, bool from_end,
                    RangeCheck in_range) {
  using Unit = typename detail::WordOf<Granule>::type;
  const int lane = threadIdx.x % kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kGroups * kOnTheWay) + threadIdx.x / kLanes;
  int64_t row[kOnTheWay], from[kOnTheWay];
  int line[kOnTheWay];
  const std::byte* begin[kOnTheWay];  // of the row
  const std::byte* piece[kOnTheWay];  // what this thread reads of it
  uint4 v[kOnTheWay];
  unsigned hits = 0;
  // Loads that wait for nothing come first, all of them; then those that need what they brought.
#pragma unroll
  for (int u = 0; u < kOnTheWay; ++u) {
    const int64_t item = first + u * kGroups;
    row[u] = item / table.lines;
    line[u] = static_cast<int>(item - row[u] * table.lines);
    from[u] = row[u] < n ? index[row[u]] : 0;
  }
#pragma unroll
  for (int u = 0; u < kOnTheWay; ++u) {
    const int64_t given = from[u];
    if (from_end && given < 0) from[u] += table.rows;
    const bool readable = row[u] < n && is_in_range(from[u], table.rows);
    if (!readable && row[u] < n && given != kNoRow && line[u] == 0 && lane == 0) in_range.tell(given, table.rows);
    begin[u] = table.x + (readable ? from[u] * table.stride : 0);
    if constexpr (Cached) {
      const int32_t slot = readable ? cache.slots[from[u]] : -1;
      if (slot >= 0 && slot < cache.size) {
        begin[u] = cache.rows + slot * table.row_bytes;
        hits += line[u] == 0 && lane == 0;
      }
    }
    piece[u] = reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(begin[u]) / kLine * kLine) +
               line[u] * kLine + lane * kPiece;
    v[u] = {};
    if (readable && piece[u] + kPiece > begin[u] && piece[u] < begin[u] + table.row_bytes)
      v[u] = __ldcg(reinterpret_cast<const uint4*>(piece[u]));
  }
#pragma unroll
  for (int u = 0; u < kOnTheWay; ++u) {
    if (row[u] >= n) continue;
    const int64_t at = piece[u] - begin[u];  // negative in front of the row
    std::byte* to = y + row[u] * table.row_bytes + at;
    if constexpr (Granule == kPiece) {
      if (at >= 0 && at < table.row_bytes) *reinterpret_cast<uint4*>(to) = v[u];
    } else {
      const uint32_t words[] = {v[u].x, v[u].y, v[u].z, v[u].w};
#pragma unroll
      for (int k = 0; k < kPiece; k += Granule) {
        if (at + k < 0 || at + k >= table.row_bytes) continue;
        Unit unit;
        if constexpr (Granule == 8) {
          unit = words[k / 4] | static_cast<uint64_t>(words[k / 4 + 1]) << 32;
        } else {
          unit = static_cast<Unit>(words[k / 4] >> (k % 4 * 8));
        }
        *reinterpret_cast<Unit*>(to + k) = unit;
      }
    }
  }
  if constexpr (Cached) {
    hits = __reduce_add_sync(0xffffffffu, hits);
    if (threadIdx.x % kWarp == 0 && hits > 0) atomicAdd(cache.hits, static_cast<unsigned long long>(hits));
  }
}

// Writes of whole rows, a warp's side by side: the bus takes them without an answer.
template <class U>
__global__ void __launch_bounds__(kThreads) put_far_kernel(Table table, const int64_t* index, const U* from,
                                                           int64_t pieces, int64_t total, RangeCheck in_range) {
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total;
       e += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t i = e / pieces, j = e - i * pieces, row = index[i];
    if (row != kNoRow && in_range(row, table.rows)) reinterpret_cast<U*>(table.x + row * table.stride)[j] = from[e];
  }
}

int64_t row_bytes(const Tensor& x) {
  return x.size(0) == 0 ? 0 : x.nbytes() / x.size(0);
}

// The largest power of two, at most `most`, that divides all of them.
int64_t common_alignment(int64_t most, std::initializer_list<int64_t> values) {
  int64_t all = most;
  for (const int64_t v : values) all |= v;
  return all & -all;
}
int64_t address(const void* p) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
}

Table table_of(const Tensor& x, int64_t bytes) {
  return {static_cast<std::byte*>(x.raw_data()), x.size(0), x.strides()[0] * size_of(x.dtype()), bytes, 0};
}

template <bool Cached>
void take(Tensor& y, const Tensor& x, const Tensor& index, bool from_end, const Cache& cache) {
  const int64_t n = index.numel();
  if (n == 0 || y.numel() == 0) return;
  Table table = table_of(x, y.nbytes() / n);
  const int64_t cached = address(cache.rows);  // 0 where there is none
  const int64_t apart = common_alignment(kLine, {address(table.x), table.stride, cached, Cached ? table.row_bytes : 0});
  // A row that begins as late in a line as its alignment lets it.
  table.lines = static_cast<int>((kLine - apart + table.row_bytes + kLine - 1) / kLine);
  const auto launch = [&]<int Granule>() {
    take_far_kernel<Granule, Cached><<<blocks_for(n * table.lines, kGroups * kOnTheWay), kThreads, 0, stream()>>>(
        table, cache, static_cast<const int64_t*>(index.raw_data()), static_cast<std::byte*>(y.raw_data()), n, from_end,
        range_check());
  };
  switch (common_alignment(kPiece, {apart, address(y.raw_data()), table.row_bytes})) {
    case 16:
      return launch.template operator()<16>();
    case 8:
      return launch.template operator()<8>();
    case 4:
      return launch.template operator()<4>();
    case 2:
      return launch.template operator()<2>();
    default:
      return launch.template operator()<1>();
  }
}

}  // namespace

bool has_far_rows(const Tensor& x) {
  if (!x.device().is_cuda() || x.dim() == 0 || x.tier() != memory::kUnified || x.size(0) == 0) return false;
  int64_t dense = 1;
  for (int64_t d = x.dim() - 1; d > 0; --d) {
    if (x.size(d) != 1 && x.strides()[d] != dense) return false;
    dense *= x.size(d);
  }
  return true;
}

void take_far_rows(Tensor& y, const Tensor& x, const Tensor& index, bool from_end) {
  take<false>(y, x, index, from_end, {});
}

void take_rows_through_cache(Tensor& y, const Tensor& x, const Tensor& index, const Tensor& cache, const Tensor& slots,
                             int64_t* hits) {
  take<true>(y, x, index, false,
             {static_cast<const std::byte*>(cache.raw_data()), static_cast<const int32_t*>(slots.raw_data()),
              cache.size(0), reinterpret_cast<unsigned long long*>(hits)});
}

void put_far_rows(const Tensor& x, const Tensor& index, const Tensor& from) {
  const int64_t bytes = row_bytes(x), n = index.numel();
  if (n == 0 || bytes == 0) return;
  const Table table = table_of(x, bytes);
  const auto launch = [&]<class U>() {
    const int64_t pieces = bytes / static_cast<int64_t>(sizeof(U)), total = n * pieces;
    put_far_kernel<U><<<std::min(blocks_for(total, kThreads), 1u << 20), kThreads, 0, stream()>>>(
        table, static_cast<const int64_t*>(index.raw_data()), static_cast<const U*>(from.raw_data()), pieces, total,
        range_check());
  };
  switch (common_alignment(kPiece, {address(table.x), table.stride, address(from.raw_data()), bytes})) {
    case 16:
      launch.template operator()<uint4>();
      break;
    case 8:
      launch.template operator()<uint64_t>();
      break;
    case 4:
      launch.template operator()<uint32_t>();
      break;
    case 2:
      launch.template operator()<uint16_t>();
      break;
    default:
      launch.template operator()<uint8_t>();
  }
  check_cuda(cudaGetLastError(), "put_far_rows", "the launch");
}

}  // namespace strata::cuda
