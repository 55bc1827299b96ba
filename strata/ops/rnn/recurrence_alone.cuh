#pragma once
// All forward steps of a small recurrent layer, 16 sequences a block, which waits for no other: the whole weight lies
// in its threads' registers, the states in its shared memory. A step of recurrence_walk.cuh, whose blocks share the
// units, is mostly their waiting for each other.

#include "strata/ops/rnn/recurrence_cell.cuh"

namespace strata::recurrent {

inline constexpr int kAloneRows = 16;  // sequences
/// Pieces of 64 bytes of the depth of 64 Units units.
template <class T, int Units>
inline constexpr int kAloneDepth = Units* static_cast<int>(sizeof(T));
/// Bytes from a sequence's states to the next's, which begin in other banks, and of all of them, before a step and
/// after.
template <class T, int Units>
inline constexpr int kAlonePitch = (kAloneDepth<T, Units> | 1) * 64;
template <class T, int Units>
inline constexpr int kAloneBytes = 2 * kAloneRows* kAlonePitch<T, Units>;

/// A warp has Units times 8 units of all gates: tile u is those from 64 u + 8 warp on. Operands of P, see
/// recurrence_walk.cuh; the call has no counts, and at most 64 Units units whose rows are whole pieces of 16 bytes, as
/// w's place is.
template <class P, Cell kCell, int Units>
__global__ void __launch_bounds__(kWalkThreads, 1) alone_kernel(const __grid_constant__ RecurrenceCall r) {
  using T = stored_t<P>;
  constexpr int kGates = static_cast<int>(gates(kCell));
  constexpr int kChains = kGates * Units <= 2 ? 2 : 1;  // few sums wait for each product before
  constexpr int kPiece = 16 / sizeof(T), kDepth = kAloneDepth<T, Units>, kPitch = kAlonePitch<T, Units>;
  unsigned char* const shared = cuda::tile::shared_memory();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t H = r.hidden, row0 = static_cast<int64_t>(blockIdx.x) * kAloneRows;
  const int pieces = static_cast<int>((H * static_cast<int64_t>(sizeof(T)) + 63) / 64);

  // The lane's column of the weight, and what it reads of each 64 bytes.
  uint4 weight[Units][kGates][kDepth];
#pragma unroll
  for (int u = 0; u < Units; ++u) {
    const int64_t unit = 64 * u + 8 * warp + lane / 4;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        const int64_t first = (4 * k + lane % 4) * kPiece;
        const T* const from = static_cast<const T*>(r.w) + (g * H + unit) * H + first;
        cuda::Vec<T, kPiece> v{};
        if (unit < H && first < H) v = cuda::load_vec<kPiece>(from);
        if constexpr (std::is_same_v<P, Tf32>) {
#pragma unroll
          for (int e = 0; e < kPiece; ++e) v.v[e] = operand_of<P>(v.v[e]);
        }
        memcpy(&weight[u][g][k], &v, 16);
      }
    }
  }
  // Sums of the lane: rows lane / 4 and 8 further, of two units each.
  const auto row_of = [&](int i) { return lane / 4 + i / 2 * 8; };
  const auto unit_at = [&](int u, int i) { return 64 * u + 8 * warp + lane % 4 * 2 + i % 2; };
  const auto has = [&](int u, int i) { return row0 + row_of(i) < r.batch && unit_at(u, i) < H; };
  const auto time_of = [&](int64_t i) { return r.reverse ? r.steps - 1 - i : i; };
  float bias[Units][kGates][2], x[Units][kGates][4], carry[Units][4];
  const auto load = [&](int64_t i) {
    const int64_t at = time_of(i) * r.batch + row0;
#pragma unroll
    for (int u = 0; u < Units; ++u) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          x[u][g][e] = has(u, e) ? read<T>(r.from_x, ((at + row_of(e)) * kGates + g) * H + unit_at(u, e)) : 0.0f;
      }
    }
  };
  for (int at = static_cast<int>(threadIdx.x); at < kAloneBytes<T, Units> / 16; at += kWalkThreads)
    reinterpret_cast<uint4*>(shared)[at] = {0, 0, 0, 0};
  __syncthreads();
  const auto publish = [&](unsigned char* to, int u, int e, float h) {
    reinterpret_cast<T*>(to + row_of(e) * kPitch)[unit_at(u, e)] = operand_of<P>(h);
  };
#pragma unroll
  for (int u = 0; u < Units; ++u) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      carry[u][e] = 0;
      if (!has(u, e)) continue;
      const int64_t at = (row0 + row_of(e)) * H + unit_at(u, e);
      const float h = read<T>(r.h, at);
      publish(shared, u, e, h);
      carry[u][e] = kCell == Cell::lstm ? read<T>(r.c, at) : h;  // c of the LSTM, h of the GRU
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        bias[u][g][e] = r.bias != nullptr && unit_at(u, e) < H ? read<T>(r.bias, g * H + unit_at(u, e)) : 0.0f;
    }
  }
  load(0);
  __syncthreads();

  for (int64_t i = 0; i < r.steps; ++i) {
    const unsigned char* const from = shared + (i & 1) * (kAloneRows * kPitch);
    unsigned char* const to = shared + ((i + 1) & 1) * (kAloneRows * kPitch);
    float sums[kChains][Units][kGates][4] = {};
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      if (k >= pieces) continue;
      const unsigned char* const at = from + lane / 4 * kPitch + k * 64 + lane % 4 * 16;
      const uint4 upper = *reinterpret_cast<const uint4*>(at), lower = *reinterpret_cast<const uint4*>(at + 8 * kPitch);
#pragma unroll
      for (int u = 0; u < Units; ++u) {
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          const uint4& b = weight[u][g][k];
          cuda::tile::mma<T>(sums[0][u][g], {upper.x, lower.x, upper.y, lower.y}, b.x, b.y);
          cuda::tile::mma<T>(sums[kChains - 1][u][g], {upper.z, lower.z, upper.w, lower.w}, b.z, b.w);
        }
      }
    }
    float given[Units][kGates][4];
    memcpy(given, x, sizeof x);
    if (i + 1 < r.steps) load(i + 1);
    const int64_t at = time_of(i) * r.batch + row0;
#pragma unroll
    for (int u = 0; u < Units; ++u) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float of_x[4] = {}, of_h[4] = {};
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          float sum = sums[0][u][g][e];
          if (kChains == 2) sum += sums[kChains - 1][u][g][e];
          of_x[g] = given[u][g][e], of_h[g] = sum + bias[u][g][e % 2];
        }
        // Also of units and sequences that there are none of, which touch no others: branches would take longer.
        const CellResult<float> out = unit_of<float>(kCell, of_x, of_h, carry[u][e], carry[u][e]);
        publish(to, u, e, out.h);
        carry[u][e] = kCell == Cell::lstm ? out.c : cuda::widen(cuda::narrow<T>(out.h));
        if (!has(u, e)) continue;
        const int64_t row = at + row_of(e), own = row * H + unit_at(u, e);
        write<T>(r.y, own, out.h);
        if (kCell == Cell::lstm) write<T>(r.states, own, out.c);
        if (kGates >= 3 && r.gates != nullptr) {
#pragma unroll
          for (int g = 0; g < 4; ++g) write<T>(r.gates, (row * 4 + g) * H + unit_at(u, e), out.kept[g]);
        }
      }
    }
    __syncthreads();  // the next states are there, and these are no longer read
  }
}

}  // namespace strata::recurrent
