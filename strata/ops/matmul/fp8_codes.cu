// A matrix's fp8 codes with dynamic scales: its largest magnitudes, then the codes as they lie and transposed in one
// reading. Nothing waits, and no value depends on the order of blocks: the largest of numbers is the same in any.

#include <algorithm>

#include <cuda_fp8.h>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/magnitudes.h"
#include "strata/ops/matmul/scaled_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;
constexpr int kMostPartials = 1024;  // of the whole matrix's largest magnitude
constexpr int kAtOnce = 4;           // loads of a thread in flight

// A block's tile of a matrix. A thread's piece of it is 4 rows of 8 columns; 16 threads lie along a row.
constexpr int kTile = 128, kRows = 4, kCols = 8, kAlong = kTile / kCols, kPieces = kTile / kRows * kAlong / kThreads;
static_assert(kPieces * kThreads * kRows * kCols == kTile * kTile && kThreads % kAlong == 0);

__device__ __forceinline__ uint32_t magnitude(float v) {
  return __float_as_uint(v) & 0x7fffffffu;  // ordered as the numbers are, NaN above all
}

template <class T>
__global__ void __launch_bounds__(kThreads) amax_kernel(uint32_t* partial, const T* __restrict__ x, int64_t vectors) {
  constexpr int kN = cuda::kVec<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t most = 0;
  const auto take = [&](const cuda::Vec<T, kN>& v) {
#pragma unroll
    for (int e = 0; e < kN; ++e) most = max(most, magnitude(cuda::widen(v.v[e])));
  };
  for (; i + (kAtOnce - 1) * stride < vectors; i += kAtOnce * stride) {
    cuda::Vec<T, kN> v[kAtOnce];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) v[a] = cuda::load_vec<kN>(x + (i + a * stride) * kN);
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) take(v[a]);
  }
  for (; i < vectors; i += stride) take(cuda::load_vec<kN>(x + i * kN));
  __shared__ uint32_t shared[kThreads / cuda::kWarp];
  most = cuda::block_reduce<kThreads>(most, cuda::Max(), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

// The largest magnitudes of a tile's rows, [column tiles, m], and of its columns, [row tiles, k].
struct Partials {
  uint32_t *rows, *cols;
  int64_t m, k;
  uint32_t col_tiles;
};

// The thread's piece: row r holds 8 numbers from column `col` on; zeros outside of the matrix.
template <class T>
struct Piece {
  float v[kRows][kCols];
  __device__ __forceinline__ void load(const T* __restrict__ x, int64_t row, int64_t col, int64_t m, int64_t k) {
    constexpr int kN = cuda::kVec<T>;
    cuda::Vec<T, kN> raw[kRows][kCols / kN];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool in = row + r < m && col < k;
#pragma unroll
      for (int p = 0; p < kCols / kN; ++p)
        raw[r][p] = in ? cuda::load_vec<kN>(x + (row + r) * k + col + p * kN) : cuda::Vec<T, kN>{};
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kCols; ++c) v[r][c] = cuda::widen(raw[r][c / kN].v[c % kN]);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) amax_tile_kernel(Partials to, const T* __restrict__ x) {
  constexpr int kWarps = kThreads / cuda::kWarp;
  __shared__ uint32_t of_warp[kWarps][kTile];
  const int64_t row_tile = blockIdx.x / to.col_tiles, col_tile = blockIdx.x % to.col_tiles;
  const int along = static_cast<int>(threadIdx.x) % kAlong;
  const int64_t col = col_tile * kTile + along * kCols;
  uint32_t of_col[kCols] = {};
  for (int p = 0; p < kPieces; ++p) {
    const int64_t row = row_tile * kTile + (static_cast<int>(threadIdx.x) + p * kThreads) / kAlong * kRows;
    Piece<T> piece;
    piece.load(x, row, col, to.m, to.k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t of_row = 0;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const uint32_t u = magnitude(piece.v[r][c]);
        of_row = max(of_row, u);
        of_col[c] = max(of_col[c], u);
      }
      of_row = cuda::warp_reduce<kAlong>(of_row, cuda::Max());
      if (along == 0 && row + r < to.m) to.rows[col_tile * to.m + row + r] = of_row;
    }
  }
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const uint32_t both = max(of_col[c], __shfl_xor_sync(0xffffffffu, of_col[c], kAlong));
    if (static_cast<int>(threadIdx.x) % cuda::kWarp < kAlong) of_warp[warp][along * kCols + c] = both;
  }
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c < kTile && col_tile * kTile + c < to.k) {
    uint32_t most = of_warp[0][c];
    for (int w = 1; w < kWarps; ++w) most = max(most, of_warp[w][c]);
    to.cols[row_tile * to.k + col_tile * kTile + c] = most;
  }
}

// A scale for each row and for each column, from the tiles' largest magnitudes. Either may be null.
__global__ void __launch_bounds__(kThreads)
    scales_kernel(float* scale, float* scale_t, Partials from, uint32_t row_tiles, Fp8 format) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool of_row = i < from.m;
  const int64_t n = of_row ? from.m : from.k, at = of_row ? i : i - from.m;
  float* to = of_row ? scale : scale_t;
  if (at >= n || to == nullptr) return;
  const uint32_t* partial = of_row ? from.rows : from.cols;
  uint32_t most = 0;
  for (uint32_t p = 0; p < (of_row ? from.col_tiles : row_tiles); ++p) most = max(most, partial[p * n + at]);
  to[at] = fp8_scale(__uint_as_float(most), format);
}

struct Into {
  uint8_t *codes, *codes_t;  // null: not wanted
  float *scale, *scale_t;    // one number: written here; by rows: read
  const uint32_t* partial;   // of one number's magnitude
  int partials;
  int64_t m, k, padded;  // codes_t is [k, padded]
  uint32_t col_tiles;
};

template <bool kWide>
__device__ __forceinline__ uint32_t four_codes(float a, float b, float c, float d) {
  constexpr __nv_fp8_interpretation_t kAs = kWide ? __NV_E5M2 : __NV_E4M3;
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kAs),
                 high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kAs);
  return low | high << 16;
}

// Codes of a tile. Transposed they pass through shared memory: words of four rows of one column, 32 of them a column,
// whose groups of four are turned by the column so that neither writing nor reading meets in a bank.
template <class T, bool kByRow, bool kWide>
__global__ void __launch_bounds__(kThreads) codes_kernel(Into to, const T* __restrict__ x) {
  __shared__ alignas(16) uint32_t words[kTile * kTile / kRows];
  __shared__ uint32_t shared[kThreads / cuda::kWarp];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / to.col_tiles) * kTile,
                first_col = static_cast<int64_t>(blockIdx.x % to.col_tiles) * kTile;
  const int along = static_cast<int>(threadIdx.x) % kAlong;
  const int64_t col = first_col + along * kCols;
  float inverse = 1, inverse_of_col[kCols];
  if constexpr (kByRow) {
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      inverse_of_col[c] = to.codes_t != nullptr && col < to.k ? 1 / to.scale_t[col + c] : 1;
  } else {
    uint32_t most = 0;
    for (int i = static_cast<int>(threadIdx.x); i < to.partials; i += kThreads) most = max(most, to.partial[i]);
    most = cuda::block_reduce<kThreads>(most, cuda::Max(), shared);
    const float scale = fp8_scale(__uint_as_float(most), kWide ? kE5m2 : kE4m3);
    inverse = 1 / scale;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      if (to.codes != nullptr) *to.scale = scale;
      if (to.codes_t != nullptr) *to.scale_t = scale;
    }
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int group = (static_cast<int>(threadIdx.x) + p * kThreads) / kAlong;
    const int64_t row = first_row + group * kRows;
    Piece<T> piece;
    piece.load(x, row, col, to.m, to.k);
    uint32_t lying[kRows][2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool in = row + r < to.m && col < to.k;
      if constexpr (kByRow) inverse = in && to.codes != nullptr ? 1 / to.scale[row + r] : 1;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* v = &piece.v[r][4 * h];
        // Not of zeros times the inverse: where that is NaN, what lies outside stays 0.
        lying[r][h] = in ? four_codes<kWide>(v[0] * inverse, v[1] * inverse, v[2] * inverse, v[3] * inverse) : 0;
      }
      if (in && to.codes != nullptr)
        *reinterpret_cast<uint2*>(to.codes + (row + r) * to.k + col) = make_uint2(lying[r][0], lying[r][1]);
      if constexpr (kByRow) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float *v = &piece.v[r][4 * h], *by = &inverse_of_col[4 * h];
          lying[r][h] = in ? four_codes<kWide>(v[0] * by[0], v[1] * by[1], v[2] * by[2], v[3] * by[3]) : 0;
        }
      }
    }
    if (to.codes_t == nullptr) continue;
    const int place = ((group >> 2) ^ (along & 7)) << 2 | (group & 3);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t ab = __byte_perm(lying[0][h], lying[1][h], 0x5140),
                     ab2 = __byte_perm(lying[0][h], lying[1][h], 0x7362),
                     cd = __byte_perm(lying[2][h], lying[3][h], 0x5140),
                     cd2 = __byte_perm(lying[2][h], lying[3][h], 0x7362);
      uint32_t* at = words + (along * kCols + 4 * h) * (kTile / kRows) + place;
      at[0] = __byte_perm(ab, cd, 0x5410);
      at[kTile / kRows] = __byte_perm(ab, cd, 0x7632);
      at[2 * (kTile / kRows)] = __byte_perm(ab2, cd2, 0x5410);
      at[3 * (kTile / kRows)] = __byte_perm(ab2, cd2, 0x7632);
    }
  }
  if (to.codes_t == nullptr) return;
  __syncthreads();
  constexpr int kChunks = kTile / 16;  // of 16 rows, in a column
#pragma unroll
  for (int i = 0; i < kTile * kChunks / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads, c = at / kChunks, chunk = at % kChunks;
    const int64_t row = first_row + chunk * 16;
    if (first_col + c >= to.k || row >= to.padded) continue;
    const uint4 v = *reinterpret_cast<const uint4*>(&words[c * (kTile / kRows) + ((chunk ^ ((c >> 3) & 7)) << 2)]);
    *reinterpret_cast<uint4*>(to.codes_t + (first_col + c) * to.padded + row) = v;
  }
}

// `magnitudes`: those of x, where whoever wrote it left them; `kept`: of a parameter, many.
template <class T>
void codes_of(const Fp8CodesOf& to, const Tensor& x, const Tensor& magnitudes, const Tensor& kept) {
  const int64_t m = x.size(0), k = x.size(1);
  const auto row_tiles = cuda::blocks_for(m, kTile), col_tiles = cuda::blocks_for(k, kTile);
  const cudaStream_t stream = cuda::stream();
  const auto* from = static_cast<const T*>(x.raw_data());
  const auto bytes = [](const Tensor& t) { return t.defined() ? static_cast<uint8_t*>(t.raw_data()) : nullptr; };
  const auto floats = [](const Tensor& t) { return t.defined() ? static_cast<float*>(t.raw_data()) : nullptr; };
  const auto workspace = [&](int64_t n) { return empty({{n}, DType::i32, x.device(), std::nullopt}); };
  Into into{.codes = bytes(to.codes),
            .codes_t = bytes(to.codes_t),
            .scale = floats(to.scale),
            .scale_t = floats(to.scale_t),
            .partial = nullptr,
            .partials = 0,
            .m = m,
            .k = k,
            .padded = to.codes_t.defined() ? to.codes_t.size(1) : 0,
            .col_tiles = col_tiles};
  const bool wide = to.format.mantissa_bits == kE5m2.mantissa_bits;
  Tensor partial;
  if (to.by_row) {
    partial = workspace(m * col_tiles + k * row_tiles);
    auto* rows = static_cast<uint32_t*>(partial.raw_data());
    const Partials p{rows, rows + m * col_tiles, m, k, col_tiles};
    amax_tile_kernel<T><<<row_tiles * col_tiles, kThreads, 0, stream>>>(p, from);
    scales_kernel<<<cuda::blocks_for(m + k, kThreads), kThreads, 0, stream>>>(into.scale, into.scale_t, p, row_tiles,
                                                                              to.format);
    const auto kernel = wide ? codes_kernel<T, true, true> : codes_kernel<T, true, false>;
    kernel<<<row_tiles * col_tiles, kThreads, 0, stream>>>(into, from);
    return;
  }
  if (magnitudes.defined()) {
    into.partials = cuda::kMagnitudeParts;
    into.partial = static_cast<const uint32_t*>(magnitudes.raw_data());
  } else {
    const int64_t vectors = kept.defined() ? kept.numel() / cuda::kVec<float> : m * k / cuda::kVec<T>;
    into.partials = static_cast<int>(std::min<int64_t>(kMostPartials, cuda::blocks_for(vectors, kThreads * kAtOnce)));
    partial = workspace(into.partials);
    auto* parts = static_cast<uint32_t*>(partial.raw_data());
    into.partial = parts;
    const auto blocks = static_cast<unsigned>(into.partials);
    if (kept.defined())
      amax_kernel<float><<<blocks, kThreads, 0, stream>>>(parts, static_cast<const float*>(kept.raw_data()), vectors);
    else
      amax_kernel<T><<<blocks, kThreads, 0, stream>>>(parts, from, vectors);
  }
  const auto kernel = wide ? codes_kernel<T, false, true> : codes_kernel<T, false, false>;
  kernel<<<row_tiles * col_tiles, kThreads, 0, stream>>>(into, from);
}

}  // namespace

void fp8_codes_cuda(const Fp8CodesOf& to, const Tensor& x) {
  const Tensor from = cuda::aligned16(x.raw_data()) ? x : x.clone();
  const Tensor left = to.by_row ? Tensor() : cuda::magnitudes_of(x),
               kept = to.by_row ? Tensor() : cuda::readable_magnitudes(x);
  if (x.dtype() == DType::bf16)
    codes_of<BFloat16>(to, from, left, kept);
  else if (x.dtype() == DType::f16)
    codes_of<Half>(to, from, left, kept);
  else
    codes_of<float>(to, from, left, kept);
}

}  // namespace strata
