// Products of 16 bits from tiles.

#include "strata/ops/matmul/gemm_tiles.h"

#include "strata/ops/matmul/gemm_tiles_launch.cuh"

namespace strata::cuda {
namespace {

// How an operand lies whose rows are `outer` and whose depth is `depth`: turned where the former is contiguous.
struct Operand {
  tile::Matrices matrices;
  bool turned = false, fits = false;
};
Operand operand_of(const void* data, int64_t bytes, int64_t outer, int64_t outer_step, int64_t depth,
                   int64_t depth_step, int64_t batches, int64_t batch_step) {
  Operand o;
  o.turned = depth_step != 1 && depth != 1;
  o.fits = !o.turned || outer_step == 1 || outer == 1;
  tile::Matrices& m = o.matrices;
  m.data = data, m.element_bytes = static_cast<int>(bytes);
  m.columns = o.turned ? outer : depth, m.rows = o.turned ? depth : outer;
  m.row_bytes = (o.turned ? depth_step : outer_step) * bytes;
  // A map has no step of zero: an operand that all products of a batch share is refused.
  m.batches = batches, m.batch_bytes = batch_step * bytes;
  return o;
}

template <class In, class Out, int kColumns>
void launch(const TileJob& j, bool turn_a, bool turn_b, const Gemm& g) {
  Scaled<Out> finish;
  finish.alpha = static_cast<float>(g.alpha), finish.bias = static_cast<const Out*>(g.bias);
  if (turn_a) {
    turn_b ? launch_gemm<In, GemmShape<In, Out, kColumns, true, true>>(j, finish)
           : launch_gemm<In, GemmShape<In, Out, kColumns, true, false>>(j, finish);
  } else {
    turn_b ? launch_gemm<In, GemmShape<In, Out, kColumns, false, true>>(j, finish)
           : launch_gemm<In, GemmShape<In, Out, kColumns, false, false>>(j, finish);
  }
}

}  // namespace

bool gemm_tiles(const Gemm& g, Device device) {
  const bool whole = g.in == DType::i8;
  if (!whole && g.in != DType::bf16 && g.in != DType::f16) return false;
  if (g.beta != 0 || g.epilogue != Epilogue::none || g.aux != nullptr || g.batch.size() > 1 || g.c_col != 1)
    return false;
  if (g.bias != nullptr && (whole || g.bias_dtype != g.out)) return false;
  if (!tile::has_tiles()) return false;
  TileJob j;
  j.m = g.m, j.n = g.n, j.k = g.k;
  const bool batched = !g.batch.empty();
  j.batches = batched ? g.batch[0] : 1;
  const int64_t bytes = size_of(g.in), out_bytes = size_of(g.out);
  const Operand a = operand_of(g.a, bytes, g.m, g.a_row, g.k, g.a_col, j.batches, batched ? g.a_batch[0] : 0),
                b = operand_of(g.b, bytes, g.n, g.b_col, g.k, g.b_row, j.batches, batched ? g.b_batch[0] : 0);
  if (!a.fits || !b.fits) return false;
  j.a = a.matrices, j.b = b.matrices;
  j.c = {g.c,
         static_cast<int>(out_bytes),
         g.n,
         g.m,
         j.batches,
         g.c_row * out_bytes,
         batched ? g.c_batch[0] * out_bytes : 0};
  if (!fits_tiles(j)) return false;
  if (whole) {
    if (a.turned || b.turned || g.alpha != 1 || j.batches != 1) return false;
    TileGemm8 eight;
    eight.a_type = eight.b_type = TileGemm8::Type::s8, eight.out = g.out;
    eight.m = g.m, eight.n = g.n, eight.k = g.k, eight.lda = g.a_row, eight.ldb = g.b_col, eight.ldc = g.c_row;
    eight.a = g.a, eight.b = g.b, eight.c = g.c;
    return gemm_tiles(eight, device);
  }
  const int multiprocessors = properties(device.index).multiprocessors;
  // Tiles of half the width where whole ones leave multiprocessors without work.
  const bool narrow_tiles = (g.m + 127) / 128 * ((g.n + 255) / 256) * j.batches < multiprocessors;
  const auto with = [&]<class In, class Out>() {
    narrow_tiles ? launch<In, Out, 128>(j, a.turned, b.turned, g) : launch<In, Out, 256>(j, a.turned, b.turned, g);
  };
  if (g.in == DType::bf16) {
    g.out == DType::f32 ? with.template operator()<BFloat16, float>() : with.template operator()<BFloat16, BFloat16>();
  } else {
    g.out == DType::f32 ? with.template operator()<Half, float>() : with.template operator()<Half, Half>();
  }
  return true;
}

}  // namespace strata::cuda
