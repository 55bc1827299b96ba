// Low-bit matrices on a CUDA device: decoding, and products with few rows of x.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/lowbit/lowbit_tiles.cuh"
#include "strata/ops/lowbit/lowbit_tiles_kernel.h"
#include "strata/ops/matmul/fp8.h"

namespace strata {
namespace {

constexpr int kUnit = 32;  // columns that a thread decodes at a time

__constant__ float nf4_numbers[16] = {STRATA_NF4_VALUES};
// NF4's numbers in shared memory, once for each lane: lanes with other codes would read constant memory one after the
// other, and one table's banks too.
constexpr int kNf4Table = 16 * cuda::kWarp;
__device__ __forceinline__ const float* nf4_table(float* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kNf4Table; i += static_cast<int>(blockDim.x))
    shared[i] = nf4_numbers[i / cuda::kWarp];
  __syncthreads();
  return shared + threadIdx.x % cuda::kWarp;
}
__device__ __forceinline__ float nf4_of(const float* table, int code) {
  return table[code * cuda::kWarp];
}

__device__ __forceinline__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(p[0] | p[1] << 8)));
}

// Numbers are made as R: float, or double where W is wanted in f64. One rounding for each step that a format has.
__device__ __forceinline__ float times(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ double times(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ __forceinline__ float plus(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ double plus(double a, double b) {
  return __dadd_rn(a, b);
}

// The scale and the zero of a block. Scales have one of four dtypes, or are codes themselves.
template <class R>
struct Block {
  R scale, zero;
};
template <class R>
__device__ __forceinline__ Block<R> block_at(const PackedView& w, int64_t at) {
  Block<R> b{0, static_cast<R>(w.kind == WeightCodes::int4 ? 8 : 0)};
  if (w.nested != nullptr) {
    const R code = w.nested[1 + static_cast<const uint8_t*>(w.scales)[at]];
    b.scale =
        plus(times(code, static_cast<R>(w.nested[257 + static_cast<uint64_t>(at) / 256])), static_cast<R>(w.nested[0]));
  } else if (w.scale_dtype == DType::f32) {
    b.scale = static_cast<const float*>(w.scales)[at];
  } else if (w.scale_dtype == DType::f64) {
    b.scale = static_cast<R>(static_cast<const double*>(w.scales)[at]);
  } else if (w.scale_dtype == DType::f16) {
    b.scale = cuda::widen(static_cast<const Half*>(w.scales)[at]);
  } else {
    b.scale = cuda::widen(static_cast<const BFloat16*>(w.scales)[at]);
  }
  if (w.zeros != nullptr)
    b.zero =
        w.kind == WeightCodes::int8 ? static_cast<R>(static_cast<int8_t>(w.zeros[at])) : static_cast<R>(w.zeros[at]);
  return b;
}

template <class R>
__device__ __forceinline__ Block<R> block_at(const PackedView& w, int64_t row, int64_t column) {
  return block_at<R>(w, row / w.block_rows * w.grid_columns + column / w.block_columns);
}

// 4 * N bytes, in loads of sixteen where they are aligned.
template <int N>
__device__ __forceinline__ void load_words(const uint8_t* p, uint32_t (&to)[N]) {
  if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(p + 4 * i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      to[i] = p[4 * i] | p[4 * i + 1] << 8 | p[4 * i + 2] << 16 | static_cast<uint32_t>(p[4 * i + 3]) << 24;
  }
}
__device__ __forceinline__ int byte_of(const uint32_t* words, int i) {
  return static_cast<int>(words[i / 4] >> (8 * (i % 4)) & 255);
}

// The bytes of unit `u` of a row that has one byte a column; zeros past its end.
__device__ __forceinline__ void load_bytes(const PackedView& w, const uint8_t* row, int64_t u, uint32_t (&to)[8]) {
  const int64_t left = w.columns - u * kUnit;
  if (left >= kUnit) {
    load_words(row + u * kUnit, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    to[i] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (4 * i + j < left) to[i] |= static_cast<uint32_t>(row[u * kUnit + 4 * i + j]) << (8 * j);
  }
}

template <class R>
struct SubBlock {
  R scale, least;
};
template <class R>
__device__ __forceinline__ SubBlock<R> sub_block(const uint8_t* b, int j) {
  const uint8_t* s = b + 4;
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  return {static_cast<R>(half_at(b)) * scale, static_cast<R>(half_at(b + 2)) * least};  // exact
}

// Columns [32 u, 32 u + 32) of a row, in the order of the codes; `nf4` is nf4_table()'s, of nf4.
template <WeightCodes kKind, class R>
__device__ __forceinline__ void decode_unit(const PackedView& w, int64_t row, int64_t u, const float* nf4,
                                            R (&v)[kUnit]) {
  const uint8_t* codes = w.codes + row * w.row_bytes;
  if constexpr (kKind == WeightCodes::int8 || kKind == WeightCodes::e4m3) {
    uint32_t words[8];
    load_bytes(w, codes, u, words);
    const Block<R> b = block_at<R>(w, row, u * kUnit);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = byte_of(words, i);
      if constexpr (kKind == WeightCodes::int8)
        v[i] = (static_cast<R>(static_cast<int8_t>(code)) - b.zero) * b.scale;
      else
        v[i] = static_cast<R>(fp8_value(static_cast<uint8_t>(code), kE4m3)) * b.scale;
    }
  } else if constexpr (kKind == WeightCodes::int4 || kKind == WeightCodes::nf4) {
    uint32_t words[4];
    load_words(codes + u * 16, words);
    const Block<R> b = block_at<R>(w, row, u * kUnit);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = byte_of(words, i % 16) >> (i / 16 * 4) & 15;
      if constexpr (kKind == WeightCodes::int4)
        v[i] = (static_cast<R>(code) - b.zero) * b.scale;
      else
        v[i] = static_cast<R>(nf4_of(nf4, code)) * b.scale;
    }
  } else if constexpr (kKind == WeightCodes::q8_0) {
    const uint8_t* b = codes + u * 34;
    const R d = half_at(b);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) v[i] = static_cast<R>(static_cast<int8_t>(b[2 + i])) * d;
  } else if constexpr (kKind == WeightCodes::q4_0) {
    const uint8_t* b = codes + u * 18;
    const R d = half_at(b);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) v[i] = static_cast<R>((b[2 + i % 16] >> (i / 16 * 4) & 15) - 8) * d;
  } else if constexpr (kKind == WeightCodes::q4_k || kKind == WeightCodes::q5_k) {
    constexpr bool five = kKind == WeightCodes::q5_k;
    const int j = static_cast<int>(u % 8);
    const uint8_t *b = codes + u / 8 * (five ? 176 : 144), *q = b + (five ? 48 : 16) + j / 2 * 32;
    const SubBlock<R> s = sub_block<R>(b, j);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      int code = q[i] >> (j % 2 * 4) & 15;
      if constexpr (five) code |= (b[16 + i] >> j & 1) << 4;
      v[i] = plus(times(static_cast<R>(code), s.scale), -s.least);
    }
  } else {
    const int j = static_cast<int>(u % 8), in = j % 4;
    const uint8_t *b = codes + u / 8 * 210, *low = b + j / 4 * 64 + in % 2 * 32, *high = b + 128 + j / 4 * 32;
    const R d = half_at(b + 208);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = (low[i] >> (in / 2 * 4) & 15) | (high[i] >> (in * 2) & 3) << 4;
      v[i] = static_cast<R>(code - 32) * (d * static_cast<R>(static_cast<int8_t>(b[192 + 2 * j + i / 16])));
    }
  }
}

// f.template operator()<kind>().
template <class F>
void by_kind(WeightCodes kind, F&& f) {
  switch (kind) {
    case WeightCodes::int8:
      return f.template operator()<WeightCodes::int8>();
    case WeightCodes::e4m3:
      return f.template operator()<WeightCodes::e4m3>();
    case WeightCodes::int4:
      return f.template operator()<WeightCodes::int4>();
    case WeightCodes::nf4:
      return f.template operator()<WeightCodes::nf4>();
    case WeightCodes::q8_0:
      return f.template operator()<WeightCodes::q8_0>();
    case WeightCodes::q4_0:
      return f.template operator()<WeightCodes::q4_0>();
    case WeightCodes::q4_k:
      return f.template operator()<WeightCodes::q4_k>();
    case WeightCodes::q5_k:
      return f.template operator()<WeightCodes::q5_k>();
    case WeightCodes::q6_k:
      return f.template operator()<WeightCodes::q6_k>();
  }
}

constexpr int kThreads = 128;

// The table where codes are NF4's, else null.
template <WeightCodes kKind>
__device__ __forceinline__ const float* table_of() {
  if constexpr (kKind == WeightCodes::nf4) {
    __shared__ float shared[kNf4Table];
    return nf4_table(shared);
  } else {
    return nullptr;
  }
}

// A thread for each unit of W.
template <WeightCodes kKind, class T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(PackedView w, int64_t begin, T* y, int64_t rows, int64_t units) {
  const float* const nf4 = table_of<kKind>();
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= rows * units) return;
  // In 32 bits where that is enough: in 64 they are a hundred instructions.
  const int64_t row = rows * units <= UINT32_MAX ? static_cast<uint32_t>(e) / static_cast<uint32_t>(units) : e / units,
                u = e - row * units;
  compute_t<T> v[kUnit];
  decode_unit<kKind>(w, begin + row, u, nf4, v);
  T* const to = y + row * w.columns;
  constexpr int kN = cuda::kVec<T>;
  if (w.order == nullptr && w.columns % kUnit == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kUnit; i += kN) {
      cuda::Vec<T, kN> all;
#pragma unroll
      for (int j = 0; j < kN; ++j) all.v[j] = cuda::narrow<T>(v[i + j]);
      cuda::store_vec<kN>(to + u * kUnit + i, all);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    int64_t column = u * kUnit + i;
    if (column >= w.columns) break;
    if (w.order != nullptr) column = w.order[column];
    // Where an order is wrong, which only the host could have seen, nothing is written past a row.
    if (static_cast<uint64_t>(column) < static_cast<uint64_t>(w.columns)) to[column] = cuda::narrow<T>(v[i]);
  }
}

// A block for each row of W whose codes lie apart from their scales, eight columns a thread: neighbours write side by
// side, as memory wants it, and what is written is most of what moves.
constexpr int kPiece = 8, kTogether = 4;  // columns; pieces whose codes are on their way at a time
template <WeightCodes kKind, class T>
__global__ void __launch_bounds__(kThreads) pieces_kernel(PackedView w, int64_t begin, T* y) {
  constexpr bool four = kKind == WeightCodes::int4 || kKind == WeightCodes::nf4;
  const float* const nf4 = table_of<kKind>();
  const int64_t row = begin + blockIdx.x, scales = row / w.block_rows * w.grid_columns;
  const uint8_t* const codes = w.codes + row * w.row_bytes;
  T* const to = y + static_cast<int64_t>(blockIdx.x) * w.columns;
  const uint32_t pieces = static_cast<uint32_t>(w.columns) / kPiece,
                 of_block = static_cast<uint32_t>(w.block_columns) / kPiece;
  for (uint32_t first = threadIdx.x; first < pieces; first += kTogether * kThreads) {
    uint2 words[kTogether];
    Block<float> blocks[kTogether];
#pragma unroll
    for (uint32_t i = 0; i < kTogether; ++i) {
      const uint32_t piece = first + i * kThreads;
      if (piece >= pieces) break;
      // Low halves of a unit's sixteen bytes are its first two pieces.
      words[i] = __ldg(reinterpret_cast<const uint2*>(codes + (four ? piece / 4 * 16 + piece % 2 * 8 : piece * 8)));
      blocks[i] = block_at<float>(w, scales + piece / of_block);
    }
#pragma unroll
    for (uint32_t i = 0; i < kTogether; ++i) {
      const uint32_t piece = first + i * kThreads;
      if (piece >= pieces) break;
      const uint32_t shift = four ? piece / 2 % 2 * 4 : 0, both[2] = {words[i].x >> shift, words[i].y >> shift};
      const Block<float> b = blocks[i];
      float v[kPiece];
      if constexpr (kKind == WeightCodes::e4m3) {
#pragma unroll
        for (int j = 0; j < kPiece; j += 2) {
          const float2 two = cuda::lowbit_tiles::two_e4m3(both[j / 4] >> (j % 4 * 8) & 0xffff);
          v[j] = two.x * b.scale, v[j + 1] = two.y * b.scale;
        }
      } else {
#pragma unroll
        for (int j = 0; j < kPiece; ++j) {
          const int code = byte_of(both, j) & (four ? 15 : 255);
          if constexpr (kKind == WeightCodes::int8)
            v[j] = (static_cast<float>(static_cast<int8_t>(code)) - b.zero) * b.scale;
          else if constexpr (kKind == WeightCodes::int4)
            v[j] = (static_cast<float>(code) - b.zero) * b.scale;
          else
            v[j] = nf4_of(nf4, code) * b.scale;
        }
      }
      constexpr int kN = cuda::kVec<T>;
#pragma unroll
      for (int j = 0; j < kPiece; j += kN) {
        cuda::Vec<T, kN> all;
#pragma unroll
        for (int k = 0; k < kN; ++k) all.v[k] = cuda::narrow<T>(v[j + k]);
        cuda::store_vec<kN>(to + piece * kPiece + j, all);
      }
    }
  }
}

// x's columns in the order of the codes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ordered_kernel(T* y, const T* x, const int32_t* order, int64_t m, int64_t columns) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= m * columns) return;
  const int64_t column = order[e % columns];
  y[e] = static_cast<uint64_t>(column) < static_cast<uint64_t>(columns) ? x[e / columns * columns + column] : T{};
}

// A warp for each row of W, whose lanes take units in turn; sums for up to kM rows of x, from row `first` on. The order
// in which a lane and then the warp adds depends on the sizes alone.
template <WeightCodes kKind, class T, int kM>
__global__ void __launch_bounds__(kThreads) product_kernel(PackedView w, const T* x, const T* bias, T* y, int64_t m) {
  const float* const nf4 = table_of<kKind>();
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / cuda::kWarp) + threadIdx.x / cuda::kWarp;
  if (row >= w.rows) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kM, units = (w.columns + kUnit - 1) / kUnit;
  const int rows = static_cast<int>(m - first < kM ? m - first : kM);
  float sums[kM] = {};
  const bool vectors = w.columns % kUnit == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  for (int64_t u = lane; u < units; u += cuda::kWarp) {
    float v[kUnit];
    decode_unit<kKind>(w, row, u, nf4, v);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      if (i >= rows) break;
      const T* const from = x + (first + i) * w.columns + u * kUnit;
      constexpr int kN = cuda::kVec<T>;
      if (vectors) {
#pragma unroll
        for (int k = 0; k < kUnit; k += kN) {
          const cuda::Vec<T, kN> four = cuda::load_vec<kN>(from + k);
#pragma unroll
          for (int j = 0; j < kN; ++j) sums[i] = fmaf(v[k + j], cuda::widen(four.v[j]), sums[i]);
        }
      } else {
#pragma unroll
        for (int k = 0; k < kUnit; ++k)
          if (u * kUnit + k < w.columns) sums[i] = fmaf(v[k], cuda::widen(from[k]), sums[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kM; ++i) {
    float sum = sums[i];
#pragma unroll
    for (int step = cuda::kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0 && i < rows) {
      if (bias != nullptr) sum += cuda::widen(bias[row]);
      y[(first + i) * w.rows + row] = cuda::narrow<T>(sum);
    }
  }
}

template <class F>
void by_dtype(DType t, F&& f) {
  switch (t) {
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Half>();
    default:
      return f.template operator()<float>();
  }
}

}  // namespace

void lowbit_decode_cuda(const PackedView& w, int64_t begin, const Tensor& y) {
  const int64_t rows = y.size(0), units = (w.columns + kUnit - 1) / kUnit;
  if (rows * units == 0) return;
  const unsigned blocks = cuda::blocks_for(rows * units, kThreads);
  by_kind(w.kind, [&]<WeightCodes kKind>() {
    if (y.dtype() == DType::f64) {
      decode_kernel<kKind, double>
          <<<blocks, kThreads, 0, cuda::stream()>>>(w, begin, static_cast<double*>(y.raw_data()), rows, units);
      return;
    }
    by_dtype(y.dtype(), [&]<class T>() {
      if constexpr (kKind == WeightCodes::int8 || kKind == WeightCodes::e4m3 || kKind == WeightCodes::int4 ||
                    kKind == WeightCodes::nf4) {
        if (w.order == nullptr && w.columns % kPiece == 0 && w.columns <= INT32_MAX &&
            (w.block_columns % kPiece == 0 || w.block_columns >= w.columns) && w.row_bytes % 8 == 0 &&
            reinterpret_cast<uintptr_t>(w.codes) % 8 == 0 && cuda::aligned16(y.raw_data()))
          return pieces_kernel<kKind, T>
              <<<static_cast<unsigned>(rows), kThreads, 0, cuda::stream()>>>(w, begin, static_cast<T*>(y.raw_data()));
      }
      decode_kernel<kKind, T>
          <<<blocks, kThreads, 0, cuda::stream()>>>(w, begin, static_cast<T*>(y.raw_data()), rows, units);
    });
  });
}

void lowbit_product_cuda(const PackedView& w, const Tensor& x, const Tensor& bias, const Tensor& y) {
  const int64_t m = x.numel() / w.columns;
  const unsigned blocks = cuda::blocks_for(w.rows, kThreads / cuda::kWarp);
  by_dtype(x.dtype(), [&]<class T>() {
    Tensor ordered = x;
    if (w.order != nullptr) {
      ordered = empty({x.shape(), x.dtype(), x.device(), std::nullopt});
      ordered_kernel<T><<<cuda::blocks_for(x.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
          static_cast<T*>(ordered.raw_data()), static_cast<const T*>(x.raw_data()), w.order, m, w.columns);
    }
    const auto* from = static_cast<const T*>(ordered.raw_data());
    const auto* add = bias.defined() ? static_cast<const T*>(bias.raw_data()) : nullptr;
    auto* const to = static_cast<T*>(y.raw_data());
    if (lowbit_tiles_cuda(w, x.dtype(), from, m, add, to)) return;
    by_kind(w.kind, [&]<WeightCodes kKind>() {
      const auto launch = [&]<int kM>(std::integral_constant<int, kM>) {
        product_kernel<kKind, T, kM>
            <<<dim3(blocks, cuda::blocks_for(m, kM)), kThreads, 0, cuda::stream()>>>(w, from, add, to, m);
      };
      if (m == 1)
        launch(std::integral_constant<int, 1>{});
      else if (m <= 4)
        launch(std::integral_constant<int, 4>{});
      else
        launch(std::integral_constant<int, 8>{});
    });
  });
}

}  // namespace strata
