// The processor's kernels of low-bit products.

#include <algorithm>
#include <limits>

#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/vec/scratch.h"
#include "strata/ops/vec/scratch_kept.h"

namespace strata {
namespace {
alignas(64) constexpr float kNf4[16] = {STRATA_NF4_VALUES};
}  // namespace

std::span<const float, 16> nf4_values() {
  return kNf4;
}
}  // namespace strata

#define STRATA_VEC_FILE "strata/ops/lowbit/lowbit_product_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu {
namespace {
constexpr int64_t kMostX = 256;  // rows of x together, whose spans the second cache holds
}  // namespace

void lowbit_decode(const PackedView& w, int64_t begin, int64_t end, DType dtype, void* to, int64_t stride) {
  ScratchFrame frame;
  auto* const room = frame.take<float>(STRATA_VEC_CALL(decode_room)(w));
  STRATA_VEC_CALL(decode_rows)(w, begin, end, dtype, to, stride, room);
}

int64_t lowbit_most_rows(DType dtype) {
  // Tiles of AMX multiply bf16 several times as fast as what is here; without AVX-512 the engine's product of many rows
  // is faster, too.
  if (dtype == DType::bf16 && has_amx_bf16()) return kMostFusedRows;
  return vec_level() >= 2 ? std::numeric_limits<int64_t>::max() : 64;
}

int64_t lowbit_workspace(int64_t rows, int64_t columns, DType dtype, int64_t m) {
  if (rows == 0 || columns == 0 || m == 0) return 0;
  const int64_t size = size_of(dtype);
  const int64_t most = std::clamp<int64_t>(kPanelBytesCpu / (columns * size), 1, rows);
  const auto engine = [&](int64_t n, int64_t k) -> int64_t {
    if (dtype == DType::f32) return 4 * detail::packed_b_size(k, n);
    Gemm g;
    g.in = g.out = dtype;
    g.m = m, g.n = n, g.k = k;
    g.a_row = k, g.a_col = 1;
    return detail::gemm_bf16_scratch(g);
  };
  PackedView w{};
  w.columns = columns;
  const bool fused = m <= lowbit_most_rows(dtype);
  const int64_t forward = fused ? 4 * STRATA_VEC_CALL(spread_size)(w, std::min(m, kMostX)) : engine(most, columns);
  const bool sums = most < rows && is_reduced_floating(dtype);
  return scratch_kept(std::max(forward, engine(columns, most))) + most * columns * size + (sums ? 4 * m * columns : 0);
}

void lowbit_product(const PackedView& w, DType dtype, const void* x, int64_t m, const void* bias, void* y) {
  // Rows of W in a part; what a part reads at least.
  constexpr int64_t kRows = 64, kBytesOfPart = 32768;
  const int64_t parts = (m + kMostX - 1) / kMostX;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t first = p * m / parts, rows = (p + 1) * m / parts - first;
    const auto* const from = static_cast<const std::byte*>(x) + first * w.columns * size_of(dtype);
    auto* const to = static_cast<std::byte*>(y) + first * w.rows * size_of(dtype);
    ScratchFrame frame;
    auto* const spread = frame.take<float>(STRATA_VEC_CALL(spread_size)(w, rows));
    parallel_for(0, rows, std::max<int64_t>(1, 65536 / w.columns), [&](int64_t begin, int64_t end) {
      STRATA_VEC_CALL(spread_x)(w, dtype, from, rows, begin, end, spread);
    });
    const int64_t grain = std::max<int64_t>(1, kBytesOfPart / std::max<int64_t>(1, w.row_bytes * kRows * rows));
    parallel_for(0, (w.rows + kRows - 1) / kRows, grain, [&](int64_t begin, int64_t end) {
      ScratchFrame own;
      auto* const room = own.take<float>(STRATA_VEC_CALL(product_room)(w, rows));
      for (int64_t n = begin * kRows; n < std::min(w.rows, end * kRows); n += kRows)
        STRATA_VEC_CALL(product_rows)(w, dtype, spread, rows, n, std::min(w.rows, n + kRows), bias, to, room);
    });
  }
}

}  // namespace strata::cpu
