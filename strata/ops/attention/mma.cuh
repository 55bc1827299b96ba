#pragma once
// Tiles of the attention kernels on mma.sync: copied in rows, and read as its operands. What operands are made of is a
// type of the kernels: numbers of 16 bits as they lie, or f32 as one or two numbers of TF32.

#include "strata/cuda/tile/copy.cuh"
#include "strata/cuda/tile/fragment.cuh"
#include "strata/cuda/tile/shared_tile.cuh"
#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda {

using namespace cuda::tile;

/// Starts the copy of rows [first, first + Rows) of `p` (rows `stride` apart) to a tile; rows from `end` on and columns
/// from `size` on are zeros.
template <class M, int Rows, int D, int Threads>
__device__ __forceinline__ void copy_tile(typename M::Stored* tile, const typename M::T* p, int64_t stride,
                                          int64_t first, int64_t end, int size) {
  constexpr int kPieces = D / M::kPiece, kAll = Rows * kPieces;
  const typename M::T* const from = p + first * stride;
  const int rows = static_cast<int>(min(end - first, int64_t{Rows}));
  if constexpr (Threads % kPieces == 0 && kAll % Threads == 0) {
    // A thread has one place of every so many rows.
    constexpr int kStep = Threads / kPieces;
    const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
    const int left = M::kPiece * piece < size ? rows - row : 0;
    const typename M::T* mine = from + row * stride + piece * M::kPiece;
#pragma unroll
    for (int i = 0; i < kAll / Threads; ++i, mine += kStep * stride)
      copy_async(shared_address(tile + M::template Shape<D>::at(row + i * kStep, piece)), mine, i * kStep < left);
  } else {
    for (int i = threadIdx.x; i < kAll; i += Threads) {
      const int row = i / kPieces, piece = i % kPieces;
      copy_async(shared_address(tile + M::template Shape<D>::at(row, piece)), from + row * stride + piece * M::kPiece,
                 row < rows && M::kPiece * piece < size);
    }
  }
}

/// Operands of 16 bits. A product has a depth of 16.
template <class Number>
struct Sixteen {
  using T = Number;
  using Stored = uint16_t;
  template <int D>
  using Shape = TileShape<D>;
  static constexpr int kPiece = 8;   // numbers in 16 bytes
  static constexpr int kDepth = 16;  // of a product
  static constexpr bool kExact = false;

  struct A {
    uint32_t r[4];
  };
  using B = A;

  /// Rows row0 .. row0 + 15, columns 16 k .. 16 k + 15.
  template <int D>
  static __device__ __forceinline__ void load_a(A& a, const Stored* tile, int row0, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices(a.r, tile + Shape<D>::at(row0 + lane % 16, 2 * k + lane / 16));
  }
  /// Two neighbouring blocks of 8 columns of b = tile^T: b[k][n] = tile[n][k], rows n0 .. n0 + 15 of the tile, its
  /// columns 16 k .. 16 k + 15. The first two registers are the first block's.
  template <int D>
  static __device__ __forceinline__ void load_b_rows(B& b, const Stored* tile, int n0, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices(b.r, tile + Shape<D>::at(n0 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
  }
  /// The same for b = tile: b[k][n] = tile[k0 + k][8 block + n], blocks `block` and `block` + 1.
  template <int D>
  static __device__ __forceinline__ void load_b_columns(B& b, const Stored* tile, int k0, int block) {
    const int lane = threadIdx.x % 32;
    load_transposed(b.r, tile + Shape<D>::at(k0 + lane % 16, block + lane / 16));
  }
  /// What a product left in registers, from column `k0` on, as the a of the next.
  template <int N>
  static __device__ __forceinline__ A of_sums(const float (&w)[N][4], int k0) {
    const float(&lo)[4] = w[k0 / 8], (&hi)[4] = w[k0 / 8 + 1];
    return {{pack2<T>(lo[0], lo[1]), pack2<T>(lo[2], lo[3]), pack2<T>(hi[0], hi[1]), pack2<T>(hi[2], hi[3])}};
  }
  static __device__ __forceinline__ void multiply(float (&first)[4], float (&second)[4], const A& a, const B& b) {
    mma<T>(first, a.r, b.r[0], b.r[1]);
    mma<T>(second, a.r, b.r[2], b.r[3]);
  }
  /// Two neighbours into global memory.
  static __device__ __forceinline__ void put(T* to, float x, float y) {
    *reinterpret_cast<uint32_t*>(to) = pack2<T>(x, y);
  }

  /// The soft cap's slopes at scores, in pairs of f16.
  template <int N>
  struct Slopes {
    uint32_t pairs[N][2];
    __device__ __forceinline__ void keep(const float (&u)[N][4]) {
#pragma unroll
      for (int j = 0; j < N; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float x = u[j][2 * r], y = u[j][2 * r + 1];
          pairs[j][r] = pack2<Half>(fmaf(x, -x, 1.f), fmaf(y, -y, 1.f));
        }
    }
    __device__ __forceinline__ float at(int j, int e) const {
      const float2 slope = unpack2<Half>(pairs[j][e / 2]);
      return e % 2 ? slope.y : slope.x;
    }
  };
};

/// Rows of D numbers of f32 and 16 bytes, which are an odd number of 16 bytes: whether eight rows are read at one place
/// or four rows, two apart, at eight columns, all are in different banks.
template <int D>
struct SinglesShape {
  static constexpr int kPitch = D + 4;
  __device__ static int at(int row, int piece) { return row * kPitch + 4 * piece; }
};

/// Operands of f32, each one number of TF32 (10 bits of mantissa), or the sum of two, which has 21: then the product is
/// the sum of three, the fourth being 2^-22 of it. A product has a depth of 8.
template <int kParts>
struct Singles {
  using T = float;
  using Stored = float;
  template <int D>
  using Shape = SinglesShape<D>;
  static constexpr int kPiece = 4;
  static constexpr int kDepth = 8;
  static constexpr bool kExact = kParts == 2;  // as f32 is

  // Products leave the last 13 bits out. A number a third of 2^-10 larger becomes the nearest one that is left, or
  // nearly so: on average nothing is lost, and what has no such bits stays as it is, no number too.
  static __device__ __forceinline__ float rounded(float x) { return x * (1 + 0.69f / 2048); }

  struct B {
    uint32_t r[kParts][4];

    __device__ __forceinline__ void split(int i, float x, float large) {
      r[0][i] = __float_as_uint(large);
      if constexpr (kParts == 2) {
        r[0][i] &= 0xffffe000u;
        r[1][i] = __float_as_uint(x - __uint_as_float(r[0][i]));
      }
    }
    // Of two parts the second has what the first leaves out, and its own end may be cut off.
    __device__ __forceinline__ void set(int i, float x) { split(i, x, kParts == 1 ? rounded(x) : x); }
  };
  // One of two operands is rounded, so that the second parts have either sign and what is lost has no direction.
  struct A : B {
    __device__ __forceinline__ void set(int i, float x) { this->split(i, x, rounded(x)); }
  };
  template <class Operand>
  static __device__ __forceinline__ void set_all(Operand& to, const uint32_t (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to.set(i, __uint_as_float(x[i]));
  }

  // Matrices of 8 x 8 numbers of 16 bits are of 8 x 4 of f32.
  template <int D>
  static __device__ __forceinline__ void load_a(A& a, const Stored* tile, int row0, int k) {
    const int lane = threadIdx.x % 32;
    uint32_t x[4];
    load_matrices(x, reinterpret_cast<const uint16_t*>(tile + Shape<D>::at(row0 + lane % 16, 2 * k + lane / 16)));
    set_all(a, x);
  }
  template <int D>
  static __device__ __forceinline__ void load_b_rows(B& b, const Stored* tile, int n0, int k) {
    const int lane = threadIdx.x % 32;
    uint32_t x[4];
    load_matrices(
        x, reinterpret_cast<const uint16_t*>(tile + Shape<D>::at(n0 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2)));
    set_all(b, x);
  }
  // A thread of four has numbers t and t + 4 of an operand's depth, and columns 2 t and 2 t + 1 of a sum. As any order
  // of the depth will do, those are what it has of both.
  template <int D>
  static __device__ __forceinline__ void load_b_columns(B& b, const Stored* tile, int k0, int block) {
    const int lane = threadIdx.x % 32;
    const float* const p = tile + Shape<D>::at(k0 + 2 * (lane % 4), 2 * block) + lane / 4;
    b.set(0, p[0]), b.set(1, p[Shape<D>::kPitch]);
    b.set(2, p[8]), b.set(3, p[Shape<D>::kPitch + 8]);
  }
  template <int N>
  static __device__ __forceinline__ A of_sums(const float (&w)[N][4], int k0) {
    const float(&x)[4] = w[k0 / 8];
    A a;
    a.set(0, x[0]), a.set(1, x[2]), a.set(2, x[1]), a.set(3, x[3]);
    return a;
  }
  static __device__ __forceinline__ void multiply(float (&first)[4], float (&second)[4], const A& a, const B& b) {
    if constexpr (kParts == 2) {
      mma<float>(first, a.r[1], b.r[0][0], b.r[0][1]);
      mma<float>(second, a.r[1], b.r[0][2], b.r[0][3]);
      mma<float>(first, a.r[0], b.r[1][0], b.r[1][1]);
      mma<float>(second, a.r[0], b.r[1][2], b.r[1][3]);
    }
    mma<float>(first, a.r[0], b.r[0][0], b.r[0][1]);
    mma<float>(second, a.r[0], b.r[0][2], b.r[0][3]);
  }
  static __device__ __forceinline__ void put(T* to, float x, float y) {
    *reinterpret_cast<float2*>(to) = {x, y};
  }

  template <int N>
  struct Slopes {
    float all[N][4];
    __device__ __forceinline__ void keep(const float (&u)[N][4]) {
#pragma unroll
      for (int j = 0; j < N; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) all[j][e] = fmaf(u[j][e], -u[j][e], 1.f);
    }
    __device__ __forceinline__ float at(int j, int e) const {
      return all[j][e];
    }
  };
};

#ifndef STRATA_TILE_EMULATION
/// Calls f.operator()<D>() with the next head size that there are kernels for; what is missing is filled up with zeros.
template <class M, class F>
void with_mma_size(const AttentionCall& c, F&& f) {
  if (c.d <= 32) return f.template operator()<32>();
  if (c.d <= 64) return f.template operator()<64>();
  if constexpr (M::kPiece == 8) {
    if (c.d <= 80) return f.template operator()<80>();
  }
  if (c.d <= 96) return f.template operator()<96>();
  if (c.d <= 128) return f.template operator()<128>();
  f.template operator()<256>();
}
#endif

/// s += rows columns^T of exact operands, for the 16 rows from row0 on and a tile of BC columns. Tensor cores cut their
/// sums off where f32 rounds them, always towards zero: those are short, and what they come to is added up by f32.
template <class M, int D, int BC>
__device__ __forceinline__ void add_exact_scores(float (&s)[BC / 8][4], const typename M::Stored* rows, int row0,
                                                 const typename M::Stored* columns) {
  constexpr int kSteps = 32 / M::kDepth;
#pragma unroll 1
  for (int from = 0; from < D / M::kDepth; from += kSteps) {
    float part[BC / 8][4] = {};
#pragma unroll
    for (int d = from; d < from + kSteps; ++d) {
      typename M::A a;
      M::template load_a<D>(a, rows, row0, d);
#pragma unroll
      for (int j = 0; j < BC; j += 16) {
        typename M::B b;
        M::template load_b_rows<D>(b, columns, j, d);
        M::multiply(part[j / 8], part[j / 8 + 1], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < BC / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] += part[j][e];
  }
}

/// sum += w tile, for a warp's 16 rows of w and D columns of the tile. What is exact takes kPart blocks of 8 columns at
/// a time, as it has sums of their own in registers.
template <class M, int D, int BC, int kPart>
__device__ __forceinline__ void add_products(float (&sum)[D / 8][4], const float (&w)[BC / 8][4],
                                             const typename M::Stored* tile) {
  if constexpr (!M::kExact) {
#pragma unroll
    for (int j = 0; j < BC; j += M::kDepth) {
      const typename M::A a = M::of_sums(w, j);
#pragma unroll
      for (int d = 0; d < D / 8; d += 2) {
        typename M::B b;
        M::template load_b_columns<D>(b, tile, j, d);
        M::multiply(sum[d], sum[d + 1], a, b);
      }
    }
  } else {
    // As add_exact_scores(): each tile's sum is one of its own.
#pragma unroll
    for (int from = 0; from < D / 8; from += kPart) {
      float part[kPart][4] = {};
#pragma unroll
      for (int j = 0; j < BC; j += M::kDepth) {
        const typename M::A a = M::of_sums(w, j);
#pragma unroll
        for (int d = 0; d < kPart; d += 2) {
          typename M::B b;
          M::template load_b_columns<D>(b, tile, j, from + d);
          M::multiply(part[d], part[d + 1], a, b);
        }
      }
#pragma unroll
      for (int d = 0; d < kPart; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[from + d][e] += part[d][e];
    }
  }
}

}  // namespace strata::attention_cuda
