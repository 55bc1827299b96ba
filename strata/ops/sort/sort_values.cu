// Sorted values without their places on a CUDA device: keys alone move (WholeKeys).

#include <algorithm>

#include <cub/block/block_radix_sort.cuh>

#include "strata/cuda/launch.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/radix.cuh"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {
namespace {
using namespace sort_detail;

constexpr int kThreads = 256;
constexpr int kEach = 4;  // elements of a thread where they pass by: as many loads are under way
constexpr unsigned kMostDown = 65535;

// Rows of `length` elements and the keys of these.
template <class B>
struct Values {
  const B* x;
  B* to;
  int64_t length;
  WholeKeys<B> keys;
  B flip;  // turns the order of the keys around

  __device__ B key(B bits) const { return static_cast<B>(keys.key(bits) ^ flip); }
  __device__ B value(B key) const { return keys.value(static_cast<B>(key ^ flip)); }
};

template <class B, int kAcross, int kItems>
__global__ void __launch_bounds__(kAcross) block_kernel(const Values<B> s) {
  using Radix = cub::BlockRadixSort<B, kAcross, kItems>;
  __shared__ typename Radix::TempStorage shared;
  const int64_t first = blockIdx.x * s.length;
  const int length = static_cast<int>(s.length), thread = static_cast<int>(threadIdx.x);
  // Equal keys are equal elements, so that any thread may begin with any of them; what is not there has the largest.
  B keys[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = j * kAcross + thread;
    keys[j] = i < length ? s.key(s.x[first + i]) : static_cast<B>(~B(0));
  }
  Radix(shared).SortBlockedToStriped(keys);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int rank = j * kAcross + thread;
    if (rank < length) s.to[first + rank] = s.value(keys[j]);
  }
}

// Rows of up to this many elements are sorted by a block.
template <class B>
inline constexpr int64_t kBlockRow = sizeof(B) == 8 ? 4096 : 8192;

template <class B>
void block_sort(const Values<B>& s, int64_t rows) {
  const auto launch = [&]<int kAcross, int kItems>() {
    block_kernel<B, kAcross, kItems><<<static_cast<unsigned>(rows), kAcross, 0, cuda::stream()>>>(s);
  };
  if (s.length <= 128) return launch.template operator()<64, 2>();
  if (s.length <= 1024) return launch.template operator()<256, 4>();
  if (s.length <= 2048) return launch.template operator()<256, 8>();
  if constexpr (kBlockRow < B >> 4096)
    if (s.length > 4096) return launch.template operator()<512, 16>();
  launch.template operator()<256, 16>();
}

// keys[e] = the key of element e of the rows from element `from` on; above it, where `row_shift` is not 0, its row.
template <class B, class K>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const Values<B> s, int64_t from, K* keys, int64_t rows, int row_shift) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    B x[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u)
      x[u] = first + u * kThreads < s.length ? s.x[from + row * s.length + first + u * kThreads] : B(0);
    const K number = row_shift != 0 ? static_cast<K>(row) << row_shift : K(0);
#pragma unroll
    for (int u = 0; u < kEach; ++u)
      if (first + u * kThreads < s.length)
        keys[row * s.length + first + u * kThreads] = static_cast<K>(s.key(x[u])) | number;
  }
}
// The other way round, of n elements; rows' numbers are cut off.
template <class B, class K>
__global__ void __launch_bounds__(kThreads) values_kernel(const Values<B> s, int64_t from, const K* keys, int64_t n) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kEach) + threadIdx.x;
  K key[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) key[u] = first + u * kThreads < n ? keys[first + u * kThreads] : K(0);
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (first + u * kThreads < n) s.to[from + first + u * kThreads] = s.value(static_cast<B>(key[u]));
}

// `batch` rows at a time, by their keys with the rows' numbers above.
template <class B, class K>
void sort_keys(const Values<B>& s, int64_t count, int64_t batch, Device device) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(B));
  const Tensor memory = empty({{2 * batch * s.length}, sizeof(K) == 8 ? DType::i64 : DType::i32, device, std::nullopt});
  auto* const begin = static_cast<K*>(memory.raw_data());
  TwoBuffers<K> keys{begin, begin + batch * s.length};
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t rows = std::min(batch, count - first), total = rows * s.length, from = first * s.length;
    const int row_bits = bits_for(rows);
    const dim3 grid(cuda::blocks_for(s.length, kThreads * kEach),
                    static_cast<unsigned>(std::min<int64_t>(rows, kMostDown)));
    keys_kernel<B, K><<<grid, kThreads, 0, cuda::stream()>>>(s, from, keys.now, rows, row_bits > 0 ? kBits : 0);
    radix_sort(keys, total, kBits + row_bits, device);
    values_kernel<B, K>
        <<<cuda::blocks_for(total, kThreads * kEach), kThreads, 0, cuda::stream()>>>(s, from, keys.now, total);
  }
}

// Rows of up to 2^32 elements that no block sorts. False where only places would help: rows together of 8 bytes an
// element, whose numbers do not fit above them.
template <class B>
bool sort_rows_of(const Values<B>& s, int64_t count, Device device) {
  const bool alone = s.length >= kWholeRow || count == 1;
  if constexpr (sizeof(B) >= 4) {
    if (alone && s.keys.kind == Kind::integer && s.flip == 0) {
      using T = std::make_signed_t<B>;
      for (int64_t row = 0; row < count; ++row)
        radix_sort_signed(reinterpret_cast<const T*>(s.x) + row * s.length, reinterpret_cast<T*>(s.to) + row * s.length,
                          s.length, device);
      return true;
    }
  }
  const int64_t together = alone ? 1 : std::clamp<int64_t>(kTogether / s.length, 1, count);
  if constexpr (sizeof(B) == 8) {
    if (!alone) return false;
    sort_keys<B, uint64_t>(s, count, 1, device);
  } else if constexpr (sizeof(B) == 4) {
    if (alone)
      sort_keys<B, uint32_t>(s, count, 1, device);
    else
      sort_keys<B, uint64_t>(s, count, together, device);
  } else {
    sort_keys<B, uint32_t>(s, count, std::min(together, int64_t{1} << (32 - 8 * sizeof(B))), device);
  }
  return true;
}

}  // namespace

void sort_values_cuda(Tensor& values, const Tensor& x, int64_t dim, bool descending) {
  dim = wrap_dim(dim, x.dim(), "sort_values");
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0) return;
  const bool direct = lies_as_rows(values, values, x, dim);
  const Tensor v = direct ? values : make(rows.dense.shape(), x.dtype(), x);
  bool sorted = false;
  dispatch_bytes(x.dtype(), [&]<class B>() {
    const Values<B> s{static_cast<const B*>(rows.dense.raw_data()), static_cast<B*>(v.raw_data()), rows.length,
                      WholeKeys<B>(order_of(x.dtype())), descending ? static_cast<B>(~B(0)) : B(0)};
    if (rows.length <= kBlockRow<B>)
      block_sort<B>(s, rows.count), sorted = true;
    else
      sorted = rows.length <= kNarrow && sort_rows_of<B>(s, rows.count, x.device());
  });
  if (!sorted) {
    Tensor places = make(x.shape(), DType::i64, x);
    return sort_cuda(values, places, x, dim, descending);
  }
  if (!direct) place(values, v, x, dim);
}

}  // namespace strata
