// f32 products by rows: oneDNN's faster kernel for AVX-512 wants rows of A and C that lie one behind another and copies
// B into blocks of its own, for each part of a product again. Here B is packed once, and the parts are rows.

#include <algorithm>
#include <cstring>

#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/vec/scratch.h"

namespace strata::cpu::detail {
namespace {

constexpr int64_t kColumns = 64, kRows = 16;  // of a block of B

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Columns [j, j + 64) of B, rows by 16; what is missing is zero.
void pack_columns(const float* b, int64_t row, int64_t col, int64_t k, int64_t n, int64_t j, float* to) {
  const int64_t columns = std::min(kColumns, n - j);
  if (k % kRows != 0 || columns < kColumns)
    std::memset(to, 0, static_cast<size_t>(ceil_div(k, kRows) * kRows * kColumns) * sizeof(float));
  if (col == 1) {
    for (int64_t l = 0; l < k; ++l)
      std::memcpy(to + l * kColumns, b + l * row + j, static_cast<size_t>(columns) * sizeof(float));
    return;
  }
  constexpr int64_t kFloat = sizeof(float);
  transpose_elements(kFloat, reinterpret_cast<const char*>(b + j * col), kFloat * col, reinterpret_cast<char*>(to),
                     kFloat * kColumns, k, columns);
}

// Rows [begin, begin + rows) of A's batches one behind another, which are not so in memory.
void gather_rows(const Gemm& g, int64_t begin, int64_t rows, float* to) {
  const int64_t step = g.batch.empty() ? 0 : g.a_batch[0];
  for (int64_t i = begin; i < begin + rows; ++i, to += g.k)
    std::memcpy(to, static_cast<const float*>(g.a) + i / g.m * step + i % g.m * g.a_row,
                static_cast<size_t>(g.k) * sizeof(float));
}

}  // namespace

int64_t packed_b_size(int64_t k, int64_t n) {
  return ceil_div(n, kColumns) * kColumns * ceil_div(k, kRows) * kRows;
}

void pack_b(const float* b, int64_t b_row, int64_t b_col, int64_t k, int64_t n, float* to) {
  const int64_t size = packed_b_size(k, kColumns);
  parallel_for(0, ceil_div(n, kColumns), std::max<int64_t>(1, 32768 / size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_columns(b, b_row, b_col, k, n, i * kColumns, to + i * size);
  });
}

bool gemm_rows(const Gemm& g) {
  // Fewer rows do not pay for packing, or leave threads without work; a larger B is packed part by part. Where A lies
  // by columns (a weight's gradient), parts near a square, which the other way allows, are worth more.
  constexpr int64_t kLeastRows = 256, kMostB = int64_t{4} << 20;
  if (g.in != DType::f32 || g.out != DType::f32 || g.aux != nullptr || g.batch.size() > 1) return false;
  const int64_t batch = g.batch.product(), rows = batch * g.m;
  if (rows < kLeastRows || g.n < kColumns || g.k < kRows || packed_b_size(g.k, g.n) > kMostB) return false;
  if (g.a_col != 1 || (g.m > 1 && g.c_row != g.n)) return false;
  if (batch > 1 && (g.b_batch[0] != 0 || g.c_batch[0] != g.m * g.n)) return false;
  const bool dense = g.a_row == g.k && (batch == 1 || g.a_batch[0] == g.m * g.k);
  const int64_t work = rows * g.n * g.k;
  const int64_t wanted = std::max(std::min<int64_t>(16, work >> 21), std::min<int64_t>(64, work >> 25));
  const int64_t part = ceil_div(ceil_div(rows, std::clamp<int64_t>(wanted, 1, rows / 32)), 32) * 32;
  Gemm one = g;
  one.batch = one.a_batch = one.b_batch = one.c_batch = {};
  one.m = std::min(part, rows);
  one.a_row = g.k, one.a_col = 1, one.c_row = g.n;
  if (!gemm_packed(one, true)) return false;
  ScratchFrame frame;
  auto* const packed = frame.take<float>(packed_b_size(g.k, g.n));
  pack_b(static_cast<const float*>(g.b), g.b_row, g.b_col, g.k, g.n, packed);
  parallel_for(0, ceil_div(rows, part), 1, [&](int64_t begin, int64_t end) {
    ScratchFrame own;
    float* const gathered = dense ? nullptr : own.take<float>(part * g.k);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = p * part;
      Gemm mine = one;
      mine.m = std::min(part, rows - row);
      mine.a = dense ? static_cast<const float*>(g.a) + row * g.k : gathered;
      mine.b = packed;
      mine.c = static_cast<float*>(g.c) + row * g.n;
      if (!dense) gather_rows(g, row, mine.m, gathered);
      if (gemm_packed(mine)) continue;
      mine.b = g.b;  // a last part for which there is no such kernel
      gemm_blocked(mine);
    }
  });
  return true;
}

}  // namespace strata::cpu::detail
