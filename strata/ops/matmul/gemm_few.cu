// Products of one row of A: where the copy engine is there, by rings that it fills (row_product.cuh); elsewhere a warp
// has some columns of the result, whose sums its lanes share out by 16 bytes of B.

#include "strata/ops/matmul/gemm_few.h"

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/matmul/row_product.cuh"

namespace strata::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kPiece = 8;                   // elements in 16 bytes
constexpr int kStep = kWarp * kPiece;       // elements of B's column that a warp reads at a time
constexpr int kLine = 64, kLinesAhead = 2;  // elements of a line; lines that a lane asks for before it waits
constexpr int64_t kLeastColumns = 256;      // of the result: fewer do not fill a card
constexpr int64_t kColumnsForPairs = 4096;  // from here on a warp has two

struct Few {
  const void *a, *b, *bias;
  void* c;
  int64_t ldb, n;
  int k;
  float alpha, beta;
  bool bias_is_out;
};

// A's piece is widened once for kColumns of B's; kSteps pieces of each are on their way at a time.
template <class T, class O, int kColumns>
__global__ void __launch_bounds__(kThreads) few_kernel(const Few g) {
  constexpr int kSteps = 8 / kColumns;
  let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp) * kColumns;
  const T* column[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j)  // what is behind the last is computed with the last, and not stored
    column[j] = static_cast<const T*>(g.b) + (first + j < g.n ? first + j : g.n - 1) * g.ldb;
#pragma unroll
  for (int i = 0; i < kLinesAhead; ++i) {
    constexpr int kLanes = kWarp / kColumns;  // of a column
    const int at = (lane % kLanes + i * kLanes) * kLine;
    if (at < g.k) fetch_line((lane < kLanes ? column[0] : column[kColumns - 1]) + at);
  }
  wait_for_previous();
  if (first >= g.n) return;

  float sums[kColumns] = {};
  for (int at = lane * kPiece; at < g.k; at += kSteps * kStep) {
    uint4 pieces[kSteps][kColumns];
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        if (at + s * kStep < g.k) pieces[s][j] = __ldcs(reinterpret_cast<const uint4*>(column[j] + at + s * kStep));
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (at + s * kStep >= g.k) break;
      Vec<T, kPiece> b[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) memcpy(&b[j], &pieces[s][j], sizeof b[j]);
      const auto a = load_vec<kPiece>(static_cast<const T*>(g.a) + at + s * kStep);
#pragma unroll
      for (int e = 0; e < kPiece; ++e)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[j] = fmaf(widen(a.v[e]), widen(b[j].v[e]), sums[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    float v = warp_reduce(sums[j], Sum()) * g.alpha;
    if (lane != 0 || first + j >= g.n) continue;
    O* const to = static_cast<O*>(g.c) + first + j;
    if (g.beta != 0) v += g.beta * widen(*to);
    if (g.bias != nullptr)
      v += g.bias_is_out ? widen(static_cast<const O*>(g.bias)[first + j])
                         : widen(static_cast<const T*>(g.bias)[first + j]);
    *to = narrow<O>(v);
  }
}

template <class T, class O>
void launch(const Few& g) {
  if (g.n >= kColumnsForPairs)
    launch_early(few_kernel<T, O, 2>, blocks_for(g.n, 2 * kWarps), kThreads, 0, 1, g);
  else
    launch_early(few_kernel<T, O, 1>, blocks_for(g.n, kWarps), kThreads, 0, 1, g);
}

// Rows that are one place of 4 KB or two are read by such; longer rows of x leave room for less.
using ShortRows = RowShape<4096, 3>;
using LongRows = RowShape<2048, 5>;
constexpr int64_t kShortRow = 8192, kLongestRow = 65536;

template <class T, class O, class S>
void launch_row(const RowProduct& g) {
  constexpr auto kKernel = row_product_kernel<T, O, S>;
  tile::prepare<kKernel>(S::shared_bytes(S::kPlaceBytes == 4096 ? kShortRow : kLongestRow));
  launch_early(kKernel, static_cast<unsigned>(tile::staying_blocks(g.n)), S::kThreads,
               static_cast<size_t>(S::shared_bytes(g.k)), 1, g);
}

}  // namespace

bool gemm_few(const Gemm& g, Device device) {
  const auto aligned = [&](const void* p, int64_t row, int64_t rows) {
    return aligned16(p) && (rows == 1 || row % kPiece == 0);
  };
  if (!is_reduced_floating(g.in) || g.m != 1 || g.n < kLeastColumns || g.k < kStep || g.k % kPiece != 0 ||
      g.k >= INT32_MAX - 8 * kStep || !g.batch.empty() || g.epilogue != Epilogue::none || g.aux != nullptr ||
      (g.a_col != 1) || g.b_row != 1 || g.c_col != 1 || !aligned(g.a, g.a_row, g.m) || !aligned(g.b, g.b_col, g.n))
    return false;
  const Few few{g.a,
                g.b,
                g.bias,
                g.c,
                g.b_col,
                g.n,
                static_cast<int>(g.k),
                static_cast<float>(g.alpha),
                static_cast<float>(g.beta),
                g.bias_dtype == g.out};
  const DeviceScope here(device.index);
  if (tile::has_tiles() && g.k <= kLongestRow && g.n <= INT32_MAX / 2) {
    RowProduct row{};
    row.x = g.a, row.w = g.b, row.bias = g.bias, row.y = g.c;
    row.row = g.b_col, row.n = static_cast<int>(g.n), row.k = static_cast<int>(g.k);
    row.alpha = few.alpha, row.beta = few.beta, row.bias_is_out = few.bias_is_out;
    const auto with = [&]<class T, class O>() {
      g.k <= kShortRow ? launch_row<T, O, ShortRows>(row) : launch_row<T, O, LongRows>(row);
    };
    const auto by_out = [&]<class T>() {
      g.out == DType::f32 ? with.template operator()<T, float>() : with.template operator()<T, T>();
    };
    g.in == DType::bf16 ? by_out.template operator()<BFloat16>() : by_out.template operator()<Half>();
    return true;
  }
  const auto with = [&]<class T>() { g.out == DType::f32 ? launch<T, float>(few) : launch<T, T>(few); };
  g.in == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
  return true;
}

}  // namespace strata::cuda
