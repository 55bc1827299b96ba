#include "strata/core/loops.h"

#include <algorithm>

#include "strata/core/parallel.h"

namespace strata::detail {
namespace {
constexpr int kMaxOperands = 8;
}

void run_strided(const Shape& shape, int count, const Tensor* const* tensors, int64_t grain, RowsLoop inner,
                 void* ctx) {
  const int64_t total = shape.product();
  if (total == 0) return;
  char* base[kMaxOperands];
  bool dense = true;
  for (int k = 0; k < count; ++k) {
    base[k] = static_cast<char*>(tensors[k]->raw_data());
    dense = dense && tensors[k]->is_contiguous();
  }

  // Sizes and byte strides, innermost first.
  int dims = 0;
  int64_t sizes[kMaxDims], strides[kMaxDims][kMaxOperands];
  if (dense) {
    dims = 1;
    sizes[0] = total;
    for (int k = 0; k < count; ++k) strides[0][k] = size_of(tensors[k]->dtype());
  } else {
    for (int i = shape.size() - 1; i >= 0; --i) {
      if (shape[i] == 1) continue;
      sizes[dims] = shape[i];
      for (int k = 0; k < count; ++k) strides[dims][k] = tensors[k]->strides()[i] * size_of(tensors[k]->dtype());
      ++dims;
    }
    // Small strides of the first operand go inside (insertion sort: stable, at most kMaxDims entries).
    for (int i = 1; i < dims; ++i) {
      for (int j = i; j > 0; --j) {
        bool swap = false;
        for (int k = 0; k < count; ++k) {
          const int64_t a = std::abs(strides[j - 1][k]), b = std::abs(strides[j][k]);
          if (a == b || a == 0 || b == 0) continue;
          swap = b < a;
          break;
        }
        if (!swap) break;
        std::swap(sizes[j], sizes[j - 1]);
        std::swap(strides[j], strides[j - 1]);
      }
    }
    int merged = 0;
    for (int i = 1; i < dims; ++i) {
      bool join = true;
      for (int k = 0; k < count; ++k) join = join && strides[i][k] == strides[merged][k] * sizes[merged];
      if (join) {
        sizes[merged] *= sizes[i];
      } else {
        ++merged;
        sizes[merged] = sizes[i];
        std::copy(strides[i], strides[i] + count, strides[merged]);
      }
    }
    dims = dims == 0 ? 0 : merged + 1;
    if (dims == 0) {
      dims = 1;
      sizes[0] = 1;
      for (int k = 0; k < count; ++k) strides[0][k] = size_of(tensors[k]->dtype());
    }
  }

  parallel_for(0, total, grain, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims];
    char* p[kMaxOperands];
    std::copy(base, base + count, p);
    int64_t rest = begin;
    for (int i = 0; i < dims; ++i) {
      index[i] = rest % sizes[i];
      rest /= sizes[i];
      for (int k = 0; k < count; ++k) p[k] += index[i] * strides[i][k];
    }
    const int64_t none[kMaxOperands] = {};
    for (int64_t left = end - begin; left > 0;) {
      // Whole rows together; what is left of a row, or begins one, alone.
      const bool whole = dims > 1 && index[0] == 0 && left >= sizes[0];
      const int64_t n = whole ? sizes[0] : std::min(left, sizes[0] - index[0]);
      const int64_t rows = whole ? std::min(left / sizes[0], sizes[1] - index[1]) : 1;
      char* q[kMaxOperands];
      std::copy(p, p + count, q);
      inner(ctx, q, strides[0], dims > 1 ? strides[1] : none, n, rows);
      left -= n * rows;
      if (left <= 0) break;
      for (int k = 0; k < count; ++k) p[k] -= index[0] * strides[0][k];
      index[0] = 0;
      int64_t steps = rows;
      for (int i = 1; i < dims; ++i) {
        for (int k = 0; k < count; ++k) p[k] += steps * strides[i][k];
        index[i] += steps;
        if (index[i] < sizes[i]) break;
        for (int k = 0; k < count; ++k) p[k] -= sizes[i] * strides[i][k];
        index[i] = 0;
        steps = 1;
      }
    }
  });
}

}  // namespace strata::detail
