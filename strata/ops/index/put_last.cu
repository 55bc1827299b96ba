// Rows written where an index names them. Each row of the result has a number, the last position that names it, which
// is the largest of them whatever order they come in: no sorting. What has that number is written.

#include <algorithm>

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/ops/index/put_last_kernel.h"

namespace strata {
namespace {

// last[row] = the largest position that names it; -1 stays where none does.
__global__ void __launch_bounds__(cuda::kEachThreads)
    claim_kernel(const int64_t* index, int64_t n, int64_t rows, bool from_end, int* last, cuda::RangeCheck in_range) {
  cuda::for_each(n, [&](int64_t i) {
    const int64_t given = index[i], row = from_end && given < 0 ? given + rows : given;
    if (cuda::is_in_range(row, rows))
      atomicMax(last + row, static_cast<int>(i));
    else if (given != cuda::kNoRow)
      in_range.tell(given, rows);
  });
}

// Writes what is sent alone: y holds the rest.
template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads)
    put_kernel(T* y, const int64_t* index, const T* source, const int* last, int64_t total, int64_t rows, bool from_end,
               cuda::Divisor width, cuda::Divisor n) {
  cuda::for_each(total, [&](int64_t e) {
    int64_t column, i;
    const int64_t block = n.split(width.split(e, column), i), given = index[i];
    const int64_t row = from_end && given < 0 ? given + rows : given;
    if (cuda::is_in_range(row, rows) && last[row] == i) y[(block * rows + row) * width.d + column] = source[e];
  });
}

// All of y: x, or what was sent last.
template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads)
    merge_kernel(T* y, const T* x, const T* source, const int* last, int64_t total, int64_t n, cuda::Divisor width,
                 cuda::Divisor rows) {
  cuda::for_each(total, [&](int64_t e) {
    int64_t column, row;
    const int64_t block = rows.split(width.split(e, column), row), i = last[row];
    y[e] = i < 0 ? x[e] : source[(block * n + i) * width.d + column];
  });
}

// The last of few elements for each place, by one block: a place's slot in a table of shared memory has it.
constexpr int kFew = 4096, kFewThreads = 1024;
constexpr unsigned kEmpty = 0xffffffffu;
template <class T>
__global__ void __launch_bounds__(kFewThreads)
    put_few_kernel(T* y, int64_t step, const int64_t* index, int64_t index_step, const T* source, int64_t source_step,
                   int n, int64_t rows, bool from_end, unsigned slots, cuda::RangeCheck in_range) {
  constexpr int kEach = kFew / kFewThreads;
  extern __shared__ unsigned keys[];  // [slots], and the last element of each
  int* const last = reinterpret_cast<int*>(keys + slots);
  int64_t row[kEach];
  T value[kEach];
  unsigned slot[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int e = static_cast<int>(threadIdx.x) + u * kFewThreads;
    row[u] = -1;
    if (e >= n) continue;
    const int64_t given = index[e * index_step];
    value[u] = source[e * source_step];
    row[u] = from_end && given < 0 ? given + rows : given;
    if (cuda::is_in_range(row[u], rows)) continue;
    row[u] = -1;
    in_range.tell(given, rows);
  }
  for (unsigned i = threadIdx.x; i < slots; i += kFewThreads) keys[i] = kEmpty, last[i] = -1;
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    if (row[u] < 0) continue;
    const auto key = static_cast<unsigned>(row[u]);
    slot[u] = (key * 0x9E3779B9u) >> 16 & (slots - 1);
    for (unsigned found; (found = atomicCAS(keys + slot[u], kEmpty, key)) != kEmpty && found != key;)
      slot[u] = (slot[u] + 1) & (slots - 1);
    atomicMax(last + slot[u], static_cast<int>(threadIdx.x) + u * kFewThreads);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (row[u] >= 0 && last[slot[u]] == static_cast<int>(threadIdx.x) + u * kFewThreads) y[row[u] * step] = value[u];
}

}  // namespace

bool puts_few(const Tensor& y, const Tensor& index) {
  // One of fewer places is written by the launch that reads them.
  return y.dim() == 1 && y.size(0) > 8192 && y.size(0) < int64_t{0xffffffff} && index.numel() > 0 &&
         index.numel() <= kFew;
}

void put_few_cuda(Tensor& y, const Tensor& index, const Tensor& source, bool from_end) {
  const auto n = static_cast<int>(index.numel());
  unsigned slots = 64;
  while (slots < 2 * static_cast<unsigned>(n)) slots *= 2;
  const size_t memory = size_t{slots} * 8;
  dispatch_bytes(y.dtype(), [&]<class T>() {
    if (memory > 46 * 1024)
      cuda::check_cuda(cudaFuncSetAttribute(put_few_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(memory)),
                       "index_put", "cudaFuncSetAttribute");
    put_few_kernel<T><<<1, kFewThreads, memory, cuda::stream()>>>(
        static_cast<T*>(y.raw_data()), y.strides()[0], static_cast<const int64_t*>(index.raw_data()),
        index.dim() == 0 ? 0 : index.strides()[0], static_cast<const T*>(source.raw_data()), source.strides()[0], n,
        y.size(0), from_end, slots, cuda::range_check());
  });
}

void put_last_cuda(DType t, void* y, const void* x, const cuda::RowShape& shape, const Tensor& index,
                   const void* source, bool from_end) {
  const int64_t n = index.numel(), total = shape.pre * n * shape.width, all = shape.pre * shape.rows * shape.width;
  const bool sorts = !numbers_rows(shape.rows, n);
  const bool merges = y != x && total > 0 && all > 0 && !sorts && all <= 4 * total;
  if (y != x && !merges && all > 0)
    cuda::copy_bytes(y, index.device(), x, index.device(), static_cast<size_t>(all * size_of(t)));
  if (total == 0) return;
  if (sorts) return cuda::put_rows(t, y, shape, cuda::sort_index(index, shape.rows, from_end), source);
  const Tensor last = empty({{std::max<int64_t>(1, shape.rows)}, DType::i32, index.device(), std::nullopt});
  auto* const numbers = static_cast<int*>(last.raw_data());
  const auto* const places = static_cast<const int64_t*>(index.raw_data());
  cuda::check_cuda(cudaMemsetAsync(numbers, 0xff, static_cast<size_t>(last.nbytes()), cuda::stream()), "put_last",
                   "cudaMemsetAsync");
  claim_kernel<<<cuda::each_blocks(n), cuda::kEachThreads, 0, cuda::stream()>>>(places, n, shape.rows, from_end,
                                                                                numbers, cuda::range_check());
  const auto launch = [&]<class T>(int64_t width) {
    const cuda::Divisor by(width);
    auto* const to = static_cast<T*>(y);
    const auto* const from = static_cast<const T*>(source);
    if (merges) {
      const int64_t pieces = shape.pre * shape.rows * width;
      merge_kernel<T><<<cuda::each_blocks(pieces), cuda::kEachThreads, 0, cuda::stream()>>>(
          to, static_cast<const T*>(x), from, numbers, pieces, n, by, cuda::Divisor(shape.rows));
    } else {
      const int64_t pieces = shape.pre * n * width;
      put_kernel<T><<<cuda::each_blocks(pieces), cuda::kEachThreads, 0, cuda::stream()>>>(
          to, places, from, numbers, pieces, shape.rows, from_end, by, cuda::Divisor(n));
    }
  };
  const int64_t bytes = shape.width * size_of(t);
  if (bytes % 16 == 0 && cuda::aligned16(y) && cuda::aligned16(x) && cuda::aligned16(source))
    return launch.operator()<uint4>(bytes / 16);
  dispatch_bytes(t, [&]<class T>() { launch.template operator()<T>(shape.width); });
}

}  // namespace strata
