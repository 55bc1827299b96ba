#pragma once
// The small kernels before and after a backward kernel for Hopper.

#include "strata/ops/attention/hopper_backward_parts.cuh"

namespace strata::attention_cuda::hopper {

// lse in units of `lse_unit` (+inf where a query sees nothing or does not exist), delta, and counts of 0. D / 8 lanes a
// query. Of several sequences each one's rows begin with a tile.
template <class T, class S>
__global__ void __launch_bounds__(256)
    backward_rows_kernel(const __grid_constant__ AttentionCall c, const BackwardSpace space, const Sequences sequences,
                         const float lse_unit) {
  constexpr int kLanes = S::D / 8;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / kLanes;
  const int64_t heads = c.batch * c.heads;
  if (at >= heads * space.pitch) return;
  const int64_t head = at / space.pitch, b = head / c.heads, h = head % c.heads;
  int64_t i = at % space.pitch, end = c.tq;
  if (sequences.all != nullptr) {
    const int of = sequences.of_q[i / S::kRows];
    const Sequence s = of < 0 ? Sequence{} : sequences.all[of];
    i += s.q0 - static_cast<int64_t>(s.q_tile) * S::kRows, end = s.q0 + s.tq;
  }
  float sum = 0;
  const int lane = threadIdx.x % kLanes;
  if (i < end && 8 * lane < c.d) {
    const auto x = cuda::load_vec<8>(head_of<const T>(c.out, b, h) + i * c.out.time + 8 * lane);
    const auto y = cuda::load_vec<8>(head_of<const T>(c.grad_out, b, h) + i * c.grad_out.time + 8 * lane);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += cuda::widen(x.v[k]) * cuda::widen(y.v[k]);
  }
  sum = cuda::warp_reduce<kLanes>(sum, cuda::Sum{});
  if (lane != 0) return;
  const float lse = i < end ? static_cast<const float*>(c.lse)[head * c.lse_head + i] : -INFINITY;
  space.lse2[at] = lse == -INFINITY ? INFINITY : lse * lse_unit;
  space.delta[at] = i < end && c.grad_lse ? sum - static_cast<const float*>(c.grad_lse)[head * c.lse_head + i] : sum;
  if (at < heads * space.row_tiles) space.counts[at] = 0;
  if (at == 0) *space.ticket = 0;
}

// Sums in the order of registers to grad_q. A thread has 8 neighbours of a row and of the row 8 on.
template <class T, class S>
__global__ void __launch_bounds__(256)
    backward_queries_kernel(const __grid_constant__ AttentionCall given, const BackwardSpace space,
                            const Sequences sequences, const Options options) {
  AttentionCall c = given;
  constexpr int kItems = S::kRows * S::D / 16;  // of a tile
  const int64_t item = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, tile = item / kItems;
  if (tile >= c.batch * c.heads * space.row_tiles) return;
  const int in = static_cast<int>(item % kItems), j = in % 8, row8 = in / 8 % 32, part = in / 256;
  const int64_t head = tile / space.row_tiles, b = head / c.heads, h = head % c.heads;
  int64_t row_tile = tile % space.row_tiles;
  if (sequences.all != nullptr && !take_sequence<T, true>(c, sequences, row_tile)) return;
  take_length(c, b);
  const int64_t row0 = row_tile * S::kRows;
  const int64_t row = row0 + (S::kSplitRows ? 64 * part : 0) + row8 / 8 * 16 + row8 % 8;
  const int column = (S::kSplitRows ? 0 : 64 * part) + 8 * j;
  if (column >= c.d) return;
  int64_t begin, end;
  visible_keys(c, row0, min(row0 + S::kRows, c.tq), begin, end);
  bool any = begin < end;  // else nothing was added up
  if (any && options.tiles != nullptr)
    any = count_bits(options.tiles_of(b, h, row_tile), static_cast<int>(begin / S::kKeys),
                     static_cast<int>((end - 1) / S::kKeys) + 1) > 0;
  const float4* const from =
      reinterpret_cast<const float4*>(space.sums + tile * (S::kRows * S::D)) + part * 1024 + j * 128 + row8 * 4;
  float4 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = any ? from[k] : float4{0, 0, 0, 0};
  const float scale = static_cast<float>(c.scale);
  T* const to = head_of<T>(c.grad_q, b, h) + row * c.grad_q.time + column;
  const auto store = [&](T* p, bool second) {
    uint4 v;
    uint32_t* const w = reinterpret_cast<uint32_t*>(&v);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      w[k] = second ? pack2<T>(x[k].z * scale, x[k].w * scale) : pack2<T>(x[k].x * scale, x[k].y * scale);
    *reinterpret_cast<uint4*>(p) = v;
  };
  if (row < c.tq) store(to, false);
  if (row + 8 < c.tq) store(to + 8 * c.grad_q.time, true);
}

}  // namespace strata::attention_cuda::hopper
