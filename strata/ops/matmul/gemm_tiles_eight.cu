// Products of eight bits from tiles.

#include "strata/ops/matmul/gemm_tiles.h"
#include "strata/ops/matmul/gemm_tiles_launch.cuh"

namespace strata::cuda {
namespace {

using Type = TileGemm8::Type;

template <class In, class Out>
void launch_fp8(const TileJob& j, const TileGemm8& g) {
  Scaled<Out> finish;
  finish.scale_a = g.scale_a, finish.scale_b = g.scale_b, finish.bias = static_cast<const Out*>(g.bias);
  launch_gemm<In, GemmShape<In, Out, 256, false, false>>(j, finish);
}

}  // namespace

bool gemm_tiles(const TileGemm8& g, Device device) {
  using tile::E4M3, tile::E5M2, tile::Pair;
  const bool whole = g.a_type == Type::s8;
  if (whole != (g.b_type == Type::s8) || (g.scale_a == nullptr) != (g.scale_b == nullptr)) return false;
  if (whole ? (g.out != DType::i32 && g.out != DType::i8) || g.scale_a != nullptr || g.bias != nullptr
            : g.out != DType::bf16 && g.out != DType::f32)
    return false;
  TileJob j;
  j.m = g.m, j.n = g.n, j.k = g.k;
  const int64_t out_bytes = size_of(g.out);
  j.a = {g.a, 1, g.k, g.m, 1, g.lda, 0};
  j.b = {g.b, 1, g.k, g.n, 1, g.ldb, 0};
  j.c = {g.c, static_cast<int>(out_bytes), g.n, g.m, 1, g.ldc * out_bytes, 0};
  if (!fits_tiles(j) || !tile::has_tiles()) return false;
  if (whole) {
    g.out == DType::i32 ? launch_gemm<int8_t, GemmShape<int8_t, int32_t, 256, false, false>>(j, Whole<int32_t>{})
                        : launch_gemm<int8_t, GemmShape<int8_t, int8_t, 256, false, false>>(j, Whole<int8_t>{});
    return true;
  }
  const auto with = [&]<class In>() {
    g.out == DType::f32 ? launch_fp8<In, float>(j, g) : launch_fp8<In, BFloat16>(j, g);
  };
  if (g.a_type == Type::e4m3) {
    g.b_type == Type::e4m3 ? with.template operator()<E4M3>() : with.template operator()<Pair<E4M3, E5M2>>();
  } else {
    g.b_type == Type::e4m3 ? with.template operator()<Pair<E5M2, E4M3>>() : with.template operator()<E5M2>();
  }
  return true;
}

}  // namespace strata::cuda
