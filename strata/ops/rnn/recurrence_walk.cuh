#pragma once
// All steps of a recurrent layer in one launch: the kernel. A block owns hidden units of some sequences: their part of
// the weight stays in its shared memory, and each step multiplies it with the states of all units, which the group's
// blocks exchange through two buffers in global memory. A step is: wait for the group, multiply, add up the warps'
// partial sums, the cell's own arithmetic, write the new states, tell the group. What the cell computes is the Step's.

#include "strata/core/dispatch.h"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/single.cuh"

namespace strata::recurrent {

inline constexpr int kWalkWarps = 8, kWalkThreads = 32 * kWalkWarps;

/// A plan's numbers and the launch's memory.
struct Walk {
  int64_t batch, hidden, rows, depth_bytes, pitch, partial_bytes_at;
  int parts, units, columns, partial_pitch;
  const unsigned char* weight;  ///< [parts, columns] rows of depth_bytes
  unsigned char* states;        ///< [2, groups rows] rows of depth_bytes: step i reads i % 2 and writes the other
  int64_t states_bytes;         ///< of one of the two
  unsigned* arrivals;           ///< one for each group, kArrivalBytes apart, 0 at first
};
inline constexpr int kArrivalBytes = 128;

// ---- products ------------------------------------------------------------------------------------------------------

/// Names operands of f32 that are rounded to TF32 and multiplied by tensor cores; plain float is multiplied as it is.
struct Tf32;
/// What an operand of P lies in memory as.
template <class P>
using stored_t = std::conditional_t<std::is_same_v<P, Tf32>, float, P>;

/// A number as an operand.
template <class P>
__device__ __forceinline__ stored_t<P> operand_of(compute_t<stored_t<P>> v) {
  if constexpr (std::is_same_v<P, Tf32>)
    return cuda::tile::round_tf32(v);
  else
    return cuda::narrow<P>(v);
}

template <bool Resident>
__device__ __forceinline__ uint4 load_weight(const unsigned char* p) {
  if constexpr (Resident)
    return *reinterpret_cast<const uint4*>(p);
  else
    return cuda::tile::load_constant(p);
}

/// What a warp adds to a pass: a [Rows, depth] times w [Width, depth], over every kWalkWarps'th 64 bytes of the depth.
/// Of each 64 bytes four lanes have 16: any order of the depth gives the same product, so that operands come in whole
/// pieces. Columns from `columns` on are the last one once more, and not written but to fill up to eight.
template <class P, int Rows, int Width, bool Resident>
struct Product;

/// Whether tensor cores multiply operands of P.
template <class P>
inline constexpr bool kTensorCores = !std::is_same_v<P, float> && !std::is_same_v<P, double>;

/// On tensor cores: lane l has rows l / 4 and l / 4 + 8 of the operand, and column l / 4 of the weight.
template <class P, int Rows, int Width, bool Resident>
requires(kTensorCores<P>) struct Product<P, Rows, Width, Resident> {
  static constexpr int kTall = Rows / 16, kWide = Width / 8;
  static constexpr int kAhead = (kWide <= kTall ? 16 : 8) / kTall;  // pieces on their way, as registers allow
  static constexpr int kChains = kTall * kWide <= 4 ? 2 : 1;        // few sums wait for each product before

  __device__ static void add(const unsigned char* a, int64_t depth_bytes, const unsigned char* w, int64_t pitch,
                             int columns, float* sums, int sums_pitch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = static_cast<int>(depth_bytes / 64);
    a += lane / 4 * depth_bytes + lane % 4 * 16;
    w += lane % 4 * 16;
    int columns_at[kWide];
#pragma unroll
    for (int n = 0; n < kWide; ++n) columns_at[n] = min(8 * n + lane / 4, columns - 1) * static_cast<int>(pitch);
    float c[kChains][kTall][kWide][4] = {};
    for (int first = warp; first < blocks; first += kAhead * kWalkWarps) {
      uint4 x[kAhead][2 * kTall];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int at = first + s * kWalkWarps;
        if (at >= blocks) break;
#pragma unroll
        for (int r = 0; r < 2 * kTall; ++r) x[s][r] = cuda::tile::load_written(a + 8 * r * depth_bytes + 64 * at);
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int at = first + s * kWalkWarps;
        if (at >= blocks) continue;  // not break: products of several pieces may overlap
#pragma unroll
        for (int n = 0; n < kWide; ++n) {
          if (!Resident && 8 * n >= columns) break;
          const uint4 b = load_weight<Resident>(w + columns_at[n] + 64 * at);
#pragma unroll
          for (int m = 0; m < kTall; ++m) {
            const uint4 &upper = x[s][2 * m], &lower = x[s][2 * m + 1];
            cuda::tile::mma<stored_t<P>>(c[0][m][n], {upper.x, lower.x, upper.y, lower.y}, b.x, b.y);
            cuda::tile::mma<stored_t<P>>(c[kChains - 1][m][n], {upper.z, lower.z, upper.w, lower.w}, b.z, b.w);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kWide; ++n) {
      if (8 * n >= columns) break;
#pragma unroll
      for (int m = 0; m < kTall; ++m) {
        float* const to = sums + (16 * m + lane / 4) * sums_pitch + 8 * n + lane % 4 * 2;
        const auto sum = [&](int i) { return kChains == 2 ? c[0][m][n][i] + c[kChains - 1][m][n][i] : c[0][m][n][i]; };
        to[0] = sum(0), to[1] = sum(1);
        to[8 * sums_pitch] = sum(2), to[8 * sums_pitch + 1] = sum(3);
      }
    }
  }
};

/// In full precision: of 32 lanes four share the depth, two the columns and four the rows.
template <class T, int Rows, int Width, bool Resident>
requires(!kTensorCores<T>) struct Product<T, Rows, Width, Resident> {
  static constexpr int kTall = Rows / 4, kWide = Width / 2, kAhead = sizeof(T) == 4 && kWide == 4 ? 8 : 4;
  static constexpr int kPiece = 16 / sizeof(T);

  __device__ static void add(const unsigned char* a, int64_t depth_bytes, const unsigned char* w, int64_t pitch,
                             int columns, T* sums, int sums_pitch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = static_cast<int>(depth_bytes / 64);
    const int piece = lane % 4, column = lane / 4 % 2, row = lane / 8;
    a += row * depth_bytes + piece * 16;
    w += piece * 16;
    int columns_at[kWide];
#pragma unroll
    for (int n = 0; n < kWide; ++n) columns_at[n] = min(2 * n + column, columns - 1) * static_cast<int>(pitch);
    T c[kTall * kWide] = {};
    for (int first = warp; first < blocks; first += kAhead * kWalkWarps) {
      uint4 x[kAhead][kTall];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int at = first + s * kWalkWarps;
        if (at >= blocks) break;
#pragma unroll
        for (int r = 0; r < kTall; ++r) x[s][r] = cuda::tile::load_written(a + 4 * r * depth_bytes + 64 * at);
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int at = first + s * kWalkWarps;
        if (at >= blocks) break;
#pragma unroll
        for (int n = 0; n < kWide; ++n) {
          if (!Resident && 2 * n >= columns) break;
          const uint4 b = load_weight<Resident>(w + columns_at[n] + 64 * at);
          T by[kPiece];
          memcpy(by, &b, 16);
#pragma unroll
          for (int r = 0; r < kTall; ++r) {
            T of[kPiece];
            memcpy(of, &x[s][r], 16);
#pragma unroll
            for (int e = 0; e < kPiece; ++e) c[r * kWide + n] += of[e] * by[e];
          }
        }
      }
    }
    // Each of the four lanes that share the depth adds up a quarter of the sums.
    const bool upper = piece % 2 == 1, last = piece / 2 == 1;
    constexpr int kHalf = kTall * kWide / 2, kQuarter = kHalf / 2;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const T give = upper ? c[i] : c[kHalf + i], keep = upper ? c[kHalf + i] : c[i];
      c[i] = keep + __shfl_xor_sync(0xffffffffu, give, 1);
    }
#pragma unroll
    for (int i = 0; i < kQuarter; ++i) {
      const T give = last ? c[i] : c[kQuarter + i], keep = last ? c[kQuarter + i] : c[i];
      c[i] = keep + __shfl_xor_sync(0xffffffffu, give, 2);
    }
    const int begin = (upper ? kHalf : 0) + (last ? kQuarter : 0);
#pragma unroll
    for (int i = 0; i < kQuarter; ++i) {
      const int at = begin + i;
      if (2 * (at % kWide) < columns) sums[(row + 4 * (at / kWide)) * sums_pitch + column + 2 * (at % kWide)] = c[i];
    }
  }
};

// ---- the walk ------------------------------------------------------------------------------------------------------

/// Iterations [first, last) of `step`. Between those of one launch the group's blocks wait for each other, for which
/// all of them must be resident: a cooperative launch, or one iteration a launch. A Step has
///   multiplies(i)               whether iteration i has a product,
///   In load(i, row, unit)       what it reads of its own, before the wait,
///   Out compute(i, in, sum)     the cell; sum(gate) is the unit's sum for that gate,
///   publish<P>(out, to)         the states that other blocks read, to a row of the exchanged buffer from the unit on,
///   store(i, row, unit, out)    what is read after the launch, or later by the same thread.
template <class P, class Step, int Rows, int Width, bool Resident>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walk_kernel(const __grid_constant__ Walk w, const __grid_constant__ Step step, int64_t first, int64_t last) {
  using T = stored_t<P>;
  using R = compute_t<T>;
#ifdef STRATA_TILE_EMULATION
  unsigned char* const shared = cuda::tile::shared_memory();
#else
  extern __shared__ __align__(128) unsigned char shared[];
#endif
  const int group = static_cast<int>(blockIdx.x) / w.parts, part = static_cast<int>(blockIdx.x) % w.parts;
  const int64_t unit0 = static_cast<int64_t>(part) * w.units, row0 = group * w.rows;
  const int units = static_cast<int>(min(static_cast<int64_t>(w.units), w.hidden - unit0));
  const int64_t rows = min(w.rows, w.batch - row0);
  unsigned* const arrivals = w.arrivals + group * (kArrivalBytes / sizeof(unsigned));
  const unsigned char* weight = w.weight + static_cast<int64_t>(part) * w.columns * w.depth_bytes;
  int64_t pitch = w.depth_bytes;
  if constexpr (Resident) {
    const int pieces = static_cast<int>(w.depth_bytes / 16);
    for (int row = threadIdx.x / 32; row < w.columns; row += kWalkWarps) {
#pragma unroll 4
      for (int piece = threadIdx.x % 32; piece < pieces; piece += 32) {
        *reinterpret_cast<uint4*>(shared + row * w.pitch + piece * 16) =
            *reinterpret_cast<const uint4*>(weight + row * w.depth_bytes + piece * 16);
      }
    }
    weight = shared, pitch = w.pitch;
    __syncthreads();
  }
  R* const partial = reinterpret_cast<R*>(shared + w.partial_bytes_at);
  const int of_warp = Rows * w.partial_pitch, warp = threadIdx.x / 32;
  constexpr int kHeld = Rows / 16;  // items of a thread whose operands are loaded before the wait

  for (int64_t i = first; i < last; ++i) {
    const unsigned char* const from = w.states + (i & 1) * w.states_bytes + row0 * w.depth_bytes;
    unsigned char* const to = w.states + ((i + 1) & 1) * w.states_bytes + row0 * w.depth_bytes;
    for (int64_t tile = 0; tile < rows; tile += Rows) {
      const auto has = [&](int row, int unit) { return row < Rows && tile + row < rows && unit < units; };
      const auto load = [&](int item) { return step.load(i, row0 + tile + item / w.units, unit0 + item % w.units); };
      typename Step::In held[kHeld] = {};
#pragma unroll
      for (int k = 0; k < kHeld; ++k) {
        const int item = static_cast<int>(threadIdx.x) + k * kWalkThreads;
        if (has(item / w.units, item % w.units)) held[k] = load(item);
      }
      if (tile == 0 && i > first) {
        if (w.parts > 1 && threadIdx.x == 0)
          cuda::tile::wait_arrivals(arrivals, static_cast<unsigned>(i - first) * w.parts);
        __syncthreads();
      }
      if (step.multiplies(i)) {
        for (int column = 0; column < w.columns; column += Width) {
          Product<P, Rows, Width, Resident>::add(from + tile * w.depth_bytes, w.depth_bytes, weight + column * pitch,
                                                 pitch, w.columns - column, partial + warp * of_warp + column,
                                                 w.partial_pitch);
        }
        __syncthreads();
      }
      // Only what other blocks wait for is written before they are told.
      typename Step::Out out;
      int at = -1;
      for (int item = threadIdx.x, k = 0; item < Rows * w.units; item += kWalkThreads, ++k) {
        const int row = item / w.units, unit = item % w.units;
        if (!has(row, unit)) continue;
        typename Step::In in = held[0];
        if (kHeld > 1 && k == 1) in = held[kHeld - 1];
        if (k >= kHeld) in = load(item);
        if (at >= 0) step.store(i, row0 + tile + at / w.units, unit0 + at % w.units, out);
        out = step.compute(i, in, [&](int gate) {
          const R* const sums = partial + row * w.partial_pitch + gate * w.units + unit;
          R sum = sums[0];
#pragma unroll
          for (int other = 1; other < kWalkWarps; ++other) sum += sums[other * of_warp];
          return sum;
        });
        step.template publish<P>(out, reinterpret_cast<T*>(to + (tile + row) * w.depth_bytes) + unit0 + unit);
        at = item;
      }
      __syncthreads();
      if (w.parts > 1 && tile + Rows >= rows && threadIdx.x == 0) cuda::tile::count_arrival(arrivals);
      if (at >= 0) step.store(i, row0 + tile + at / w.units, unit0 + at % w.units, out);
    }
  }
}

}  // namespace strata::recurrent
