#include "strata/ops/embedding/embedding_kernel.h"

#include "strata/core/error.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/embedding/embedding_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

void check_index(int64_t v, int64_t at, int64_t vocabulary) {
  check<IndexError>(v >= 0 && v < vocabulary, "embedding", "index ", v, " at position ", at,
                    " is out of range for a table of ", vocabulary, " rows");
}

}  // namespace

void embedding_cpu(const int64_t* index, int64_t n, const void* weight, int64_t vocabulary, int64_t row_bytes,
                   void* out) {
  const auto* w = static_cast<const std::byte*>(weight);
  auto* o = static_cast<std::byte*>(out);
  parallel_for(0, n, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, row_bytes)), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      check_index(index[i], i, vocabulary);
      if (row_bytes > 0) std::memcpy(o + i * row_bytes, w + index[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

void embedding_backward_cpu(DType t, const int64_t* index, int64_t n, const void* grad_out, int64_t vocabulary,
                            int64_t d, int64_t padding_index, void* grad_weight) {
  for (int64_t i = 0; i < n; ++i) check_index(index[i], i, vocabulary);
  if (vocabulary * d == 0) return;
  ScratchFrame frame;
  // A counting sort keeps equal indices in order: the sum of a row is the same on any number of threads.
  int64_t *start = frame.take<int64_t>(vocabulary + 2), *order = frame.take<int64_t>(n);
  std::fill(start, start + vocabulary + 2, int64_t{0});
  for (int64_t i = 0; i < n; ++i) ++start[index[i] + 2];
  for (int64_t v = 0; v < vocabulary; ++v) start[v + 2] += start[v + 1];
  for (int64_t i = 0; i < n; ++i) order[start[index[i] + 1]++] = i;
  STRATA_VEC_CALL(embedding_backward)(t, start, order, grad_out, vocabulary, d, padding_index, grad_weight);
}

}  // namespace strata
