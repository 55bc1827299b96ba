// Columns joined to rows on the processor.

#include <cstdint>
#include <utility>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/join/join_kernels.h"

namespace strata {
namespace {

constexpr int kMostColumns = 4;

// to[i] = {from[0][i], from[1][i], ...}
template <class T, size_t... I>
void interleave(T* __restrict__ to, const T* const* from, int64_t begin, int64_t end, std::index_sequence<I...>) {
  constexpr int64_t kCount = sizeof...(I);
  const T* __restrict__ const source[] = {from[I]...};
  for (int64_t i = begin; i < end; ++i) ((to[i * kCount + static_cast<int64_t>(I)] = source[I][i]), ...);
}
template <class T, int kCount = 2>
void interleave_all(T* to, const T* const* from, int count, int64_t begin, int64_t end) {
  if constexpr (kCount < kMostColumns)
    if (count > kCount) return interleave_all<T, kCount + 1>(to, from, count, begin, end);
  interleave(to, from, begin, end, std::make_index_sequence<kCount>{});
}

}  // namespace

bool cat_columns_cpu(const Tensor& y, const TensorList& tensors, int64_t dim) {
  const int count = static_cast<int>(tensors.size());
  const int64_t rows = count > 0 ? y.numel() / count : 0;
  if (count < 2 || count > kMostColumns || dim != y.dim() - 1 || y.shape()[dim] != count || rows < 64 ||
      !y.is_contiguous())
    return false;
  for (const Tensor& t : tensors)
    if (t.numel() != rows) return false;
  TensorList dense;
  for (const Tensor& t : tensors) dense.push_back(contiguous(t));
  dispatch_bytes(y.dtype(), [&]<class T>() {
    const T* from[kMostColumns];
    for (int c = 0; c < count; ++c) from[c] = static_cast<const T*>(dense[static_cast<size_t>(c)].raw_data());
    T* const to = static_cast<T*>(y.raw_data());
    parallel_for(0, rows, kGrain / count,
                 [&](int64_t begin, int64_t end) { interleave_all<T>(to, from, count, begin, end); });
  });
  return true;
}

}  // namespace strata
