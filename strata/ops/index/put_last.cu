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

}  // namespace

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
