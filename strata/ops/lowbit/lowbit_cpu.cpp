// The processor's kernels of low-bit products.

#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/vec/scratch.h"

namespace strata {
namespace {
alignas(64) constexpr float kNf4[16] = {STRATA_NF4_VALUES};
}  // namespace

std::span<const float, 16> nf4_values() {
  return kNf4;
}
}  // namespace strata

#define STRATA_VEC_FILE "strata/ops/lowbit/lowbit_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu {

void lowbit_decode(const PackedView& w, int64_t begin, int64_t end, DType dtype, void* to, int64_t stride) {
  ScratchFrame frame;
  auto* const room = frame.take<float>(STRATA_VEC_CALL(decode_room)(w));
  STRATA_VEC_CALL(decode_rows)(w, begin, end, dtype, to, stride, room);
}

void lowbit_product(const PackedView& w, DType dtype, const void* x, int64_t m, const void* bias, void* y) {
  constexpr int64_t kUnit = 32, kBytesOfPart = 32768;
  const int64_t width = (w.columns + kUnit - 1) / kUnit * kUnit;
  ScratchFrame frame;
  auto* const wide = frame.take<float>(m * width);
  auto* const sums = frame.take<float>(m * w.rows);
  STRATA_VEC_CALL(spread_x)(w, dtype, x, m, width, wide);
  // Parts of whole tiles of rows: which rows share a tile does not depend on the threads.
  constexpr int64_t kRows = 4;
  const int64_t tiles = (w.rows + kRows - 1) / kRows;
  const int64_t grain = std::max<int64_t>(1, kBytesOfPart / std::max<int64_t>(1, w.row_bytes * kRows * m));
  parallel_for(0, tiles, grain, [&](int64_t begin, int64_t end) {
    ScratchFrame own;
    auto* const room = own.take<float>(STRATA_VEC_CALL(product_room)(w, m));
    STRATA_VEC_CALL(product_rows)(w, wide, m, width, begin * kRows, std::min(w.rows, end * kRows), sums, room);
  });
  STRATA_VEC_CALL(gather_y)(dtype, sums, m, w.rows, bias, y);
}

}  // namespace strata::cpu
