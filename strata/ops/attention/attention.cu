// Attention on a CUDA device with ordinary arithmetic, for what the tensor-core kernels do not take, also with padded
// heads (padded_heads.cuh): every dtype, head size, mask and option. Tiles of 32 rows by 32
// columns, in the order of FlashAttention-2 (Dao, arXiv:2307.08691). A warp owns four rows of a tile, a lane one
// column. Gradients have one kernel for all three: each result's rows stay with their block, which computes weights
// again for every tile that it passes; so nothing is added across blocks, and results are the same every time.

#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/options.cuh"
#include "strata/ops/attention/padded_heads.cuh"

#include <limits>

namespace strata {
namespace attention_cuda {
namespace {
using cuda::kWarp;
using cuda::narrow;
using cuda::Vec;
using cuda::widen;

constexpr int kThreads = 256, kTile = 32, kRows = kTile / (kThreads / kWarp);  // rows of a warp
constexpr int kStep = 32, kPitch = kStep + 4;  // rows 16 bytes apart from a multiple of 32 banks

template <class T>
struct Rows {
  const T* p;  // row 0 of the tile
  int64_t stride;
  int64_t n;  // rows that exist
};

template <class T>
__device__ __forceinline__ Rows<T> rows_of(const AttentionView& v, int64_t b, int64_t h, int64_t first, int64_t end) {
  return {head_of<const T>(v, b, h) + first * v.time, v.time, end - first};
}

// s[r] = A[row r] . B[column], rows of this warp, the lane's column; what does not exist counts as 0.
template <class T, class C>
__device__ void products(const Rows<T>& a, const Rows<T>& b, int64_t size, C (*sa)[kPitch], C (*sb)[kPitch],
                         C (&s)[kRows]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int r = 0; r < kRows; ++r) s[r] = 0;
  for (int64_t d0 = 0; d0 < size; d0 += kStep) {
    __syncthreads();
    const bool in = d0 + lane < size;
#pragma unroll
    for (int r = warp; r < kTile; r += kThreads / kWarp) {
      sa[r][lane] = in && r < a.n ? widen(a.p[r * a.stride + d0 + lane]) : C(0);
      sb[r][lane] = in && r < b.n ? widen(b.p[r * b.stride + d0 + lane]) : C(0);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kStep; d += 4) {
      const auto y = cuda::load_vec<4>(&sb[lane][d]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const auto x = cuda::load_vec<4>(&sa[warp * kRows + r][d]);
#pragma unroll
        for (int k = 0; k < 4; ++k) s[r] += x.v[k] * y.v[k];
      }
    }
  }
}

// acc[r][n] += sum over j of w[row r][j] X[j][first + lane + 32 n]; w holds this warp's rows.
template <class T, class C, int N>
__device__ void accumulate(const C (*w)[kPitch], const Rows<T>& x, int64_t first, int64_t size, C (*sx)[kWarp * N],
                           C (&acc)[kRows][N]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  __syncthreads();
  for (int r = warp; r < kTile; r += kThreads / kWarp)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t d = first + lane + kWarp * n;
      sx[r][lane + kWarp * n] = r < x.n && d < size ? widen(x.p[r * x.stride + d]) : C(0);
    }
  __syncthreads();
#pragma unroll 2
  for (int j = 0; j < kTile; j += 4) {
    Vec<C, 4> p[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) p[r] = cuda::load_vec<4>(&w[warp * kRows + r][j]);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const C v = sx[j + k][lane + kWarp * n];
#pragma unroll
        for (int r = 0; r < kRows; ++r) acc[r][n] += p[r].v[k] * v;
      }
  }
}

// Where a block works: which tile of rows of which head, and from which column of the result on.
struct Place {
  int64_t b, h, row0, column;
};
__device__ __forceinline__ Place place_of(int64_t heads, int64_t tiles, int64_t parts, int columns) {
  int64_t i = blockIdx.x;
  const int64_t part = i % parts;
  i /= parts;
  const int64_t tile = i % tiles;
  i /= tiles;
  return {i / heads, i % heads, tile * kTile, part * columns};
}
// The same for a call of several sequences, whose tiles have been counted through.
template <class T, bool kOfQueries>
__device__ bool take_place(AttentionCall& c, const Sequences& sequences, Place& at,
                           RowTerms<compute_t<T>>* terms = nullptr) {
  int64_t tile = at.row0 / kTile;
  const bool there = take_sequence<T, kOfQueries>(c, sequences, tile, terms);
  at.row0 = tile * kTile;
  return there;
}

// Blocks that share a multiprocessor, which bounds registers.
template <class C, int N>
inline constexpr int kBlocks = sizeof(C) == 4 && N == 2 ? 3 : 2;

template <class T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks<compute_t<T>, N>)
    forward_kernel(AttentionCall c, Sequences sequences, int64_t tiles, int64_t parts) {
  using C = compute_t<T>;
  __shared__ alignas(32) C sa[kTile][kPitch], sb[kTile][kPitch], sp[kTile][kPitch], sx[kTile][kWarp * N];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Place at = place_of(c.heads, tiles, parts, kWarp * N);
  if (sequences.all != nullptr && !take_place<T, true>(c, sequences, at)) return;
  take_length(c, at.b);
  const int64_t hk = at.h / (c.heads / c.kv_heads), q0 = at.row0, row = q0 + warp * kRows;
  const auto q = rows_of<T>(c.q, at.b, at.h, q0, c.tq);

  C m[kRows], l[kRows], acc[kRows][N] = {};
  const C sink = c.sinks ? static_cast<const C*>(c.sinks)[at.h] : -static_cast<C>(INFINITY);
  const bool sunk = sink > -static_cast<C>(INFINITY);
#pragma unroll
  for (int r = 0; r < kRows; ++r) m[r] = sunk ? sink * C(kLog2e) : std::numeric_limits<C>::lowest(), l[r] = sunk;
  int64_t begin, end;
  visible_keys(c, q0, min(q0 + kTile, c.tq), begin, end);
  for (int64_t k0 = begin; k0 < end; k0 += kTile) {
    C s[kRows];
    products(q, rows_of<T>(c.k, at.b, hk, k0, c.tk), c.d, sa, sb, s);
    const int64_t j = k0 + lane;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t i = row + r;
      const bool seen = sees(c, i, j);
      C v = -static_cast<C>(INFINITY), slope;
      if (seen) v = score<C>(c, at.b, at.h, i, j, s[r], slope);
      const C top = max(m[r], cuda::warp_reduce(v, cuda::Max{}));
      const C alpha = exp2(m[r] - top);
      C p = exp2(v - top);
      m[r] = top;
      l[r] = l[r] * alpha + cuda::warp_reduce(p, cuda::Sum{});
      if (c.dropout > 0 && seen) p *= kept<C>(c, at.b, at.h, i, j);
      sp[warp * kRows + r][lane] = p;
#pragma unroll
      for (int n = 0; n < N; ++n) acc[r][n] *= alpha;
    }
    accumulate(sp, rows_of<T>(c.v, at.b, hk, k0, c.tk), at.column, c.dv, sx, acc);
  }

  T* out = head_of<T>(c.out, at.b, at.h);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t i = row + r;
    if (i >= c.tq) break;
    const C inverse = l[r] == 0 ? C(0) : 1 / l[r];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t d = at.column + lane + kWarp * n;
      if (d < c.dv) out[i * c.out.time + d] = narrow<T>(acc[r][n] * inverse);
    }
    if (lane == 0 && at.column == 0)
      static_cast<C*>(c.lse)[(at.b * c.heads + at.h) * c.lse_head + i] =
          l[r] == 0 ? -static_cast<C>(INFINITY) : (m[r] + log2(l[r])) * C(kLn2);
  }
}

enum class Gradient { query, key, value };

// The gradient of one operand: a block has 32 of its rows and passes over the tiles of the other side, keys for
// Gradient::query, else the queries of every head that reads the key head.
template <class T, int N, Gradient kOf>
__global__ void __launch_bounds__(kThreads, kBlocks<compute_t<T>, N>)
    gradient_kernel(AttentionCall c, RowTerms<compute_t<T>> terms, Sequences sequences, int64_t tiles, int64_t parts) {
  using C = compute_t<T>;
  constexpr bool kOfQuery = kOf == Gradient::query;
  __shared__ alignas(32) C sa[kTile][kPitch], sb[kTile][kPitch], sp[kTile][kPitch], sx[kTile][kWarp * N];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Place at = place_of(kOfQuery ? c.heads : c.kv_heads, tiles, parts, kWarp * N);
  if (sequences.all != nullptr && !take_place<T, kOfQuery>(c, sequences, at, &terms)) return;
  const int64_t keys = c.tk;  // which have gradients
  take_length(c, at.b);
  const int64_t group = c.heads / c.kv_heads, row0 = at.row0, row = row0 + warp * kRows;
  const int64_t hk = kOfQuery ? at.h / group : at.h;

  C acc[kRows][N] = {};
  for (int64_t g = 0; g < (kOfQuery ? 1 : group); ++g) {
    const int64_t h = kOfQuery ? at.h : hk * group + g, first = (at.b * c.heads + h) * c.lse_head;
    int64_t begin, end;
    if constexpr (kOfQuery) {
      visible_keys(c, row0, min(row0 + kTile, c.tq), begin, end);
    } else {
      visible_queries(c, row0, min(row0 + kTile, c.tk), begin, end);
    }
    for (int64_t c0 = begin; c0 < end; c0 += kTile) {
      const int64_t q0 = kOfQuery ? row0 : c0, k0 = kOfQuery ? c0 : row0;
      const auto q = rows_of<T>(c.q, at.b, h, q0, c.tq), go = rows_of<T>(c.grad_out, at.b, h, q0, c.tq);
      const auto k = rows_of<T>(c.k, at.b, hk, k0, c.tk), v = rows_of<T>(c.v, at.b, hk, k0, c.tk);
      C s[kRows], dp[kRows];
      products(kOfQuery ? q : k, kOfQuery ? k : q, c.d, sa, sb, s);
      if constexpr (kOf != Gradient::value) products(kOfQuery ? go : v, kOfQuery ? v : go, c.dv, sa, sb, dp);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t i = kOfQuery ? row + r : c0 + lane, j = kOfQuery ? c0 + lane : row + r;
        C w = 0;
        if (sees(c, i, j)) {
          C slope;
          w = exp2(score<C>(c, at.b, h, i, j, s[r], slope) - terms.lse2[first + i]);
          const C keep = c.dropout > 0 ? kept<C>(c, at.b, h, i, j) : C(1);
          if constexpr (kOf == Gradient::value) {
            w *= keep;
          } else {
            w *= (dp[r] * keep - terms.delta[first + i]) * slope;
          }
        }
        sp[warp * kRows + r][lane] = w;
      }
      accumulate(sp,
                 kOfQuery               ? k
                 : kOf == Gradient::key ? q
                                        : go,
                 at.column, kOf == Gradient::value ? c.dv : c.d, sx, acc);
    }
  }

  const AttentionView& to = kOfQuery ? c.grad_q : kOf == Gradient::key ? c.grad_k : c.grad_v;
  const int64_t time = kOfQuery ? c.tq : keys, size = kOf == Gradient::value ? c.dv : c.d;
  const C scale = kOf == Gradient::value ? C(1) : static_cast<C>(c.scale);
  T* out = head_of<T>(to, at.b, at.h);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t d = at.column + lane + kWarp * n;
      if (row + r < time && d < size) out[(row + r) * to.time + d] = narrow<T>(acc[r][n] * scale);
    }
}

// A warp a query.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_terms_kernel(AttentionCall c, RowTerms<compute_t<T>> terms, compute_t<T> lse_unit) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= c.batch * c.heads * c.tq) return;
  const int64_t i = row % c.tq, h = row / c.tq % c.heads, b = row / c.tq / c.heads;
  const T* out = head_of<const T>(c.out, b, h) + i * c.out.time;
  const T* g = head_of<const T>(c.grad_out, b, h) + i * c.grad_out.time;
  C sum = 0;
  for (int64_t d = lane; d < c.dv; d += kWarp) sum += widen(out[d]) * widen(g[d]);
  sum = cuda::warp_reduce(sum, cuda::Sum{});
  if (lane != 0) return;
  const C lse = static_cast<const C*>(c.lse)[row];
  terms.delta[row] = sum - (c.grad_lse ? static_cast<const C*>(c.grad_lse)[row] : C(0));
  terms.lse2[row] = lse == -static_cast<C>(INFINITY) ? static_cast<C>(INFINITY) : lse * lse_unit;
}

int64_t tiles_of(int64_t n) {
  return (n + kTile - 1) / kTile;
}

// Calls f.operator()<T, N>(): 32 N columns of a result are a block's.
template <class F>
void dispatch_columns(DType t, int64_t size, F&& f) {
  dispatch_floats(t, "scaled_dot_product_attention", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      if (size > 64) return f.template operator()<T, 4>();
    }
    f.template operator()<T, 2>();
  });
}

template <Gradient kOf>
void queue_gradient(const AttentionCall& c, const Tensor& terms, const Sequences& sequences) {
  const int64_t size = kOf == Gradient::value ? c.dv : c.d, heads = kOf == Gradient::query ? c.heads : c.kv_heads;
  dispatch_columns(c.dtype, size, [&]<class T, int N>() {
    using C = compute_t<T>;
    C* p = static_cast<C*>(terms.raw_data());
    int64_t tiles = tiles_of(kOf == Gradient::query ? c.tq : c.tk), parts = (size + kTile * N - 1) / (kTile * N);
    if (c.sequences > 0) tiles = kOf == Gradient::query ? sequences.q_tiles : sequences.k_tiles;
    const int64_t blocks = c.batch * heads * tiles * parts;
    if (blocks > 0)
      gradient_kernel<T, N, kOf><<<cuda::blocks_for(blocks, 1), kThreads, 0, cuda::stream()>>>(
          c, RowTerms<C>{p, p + c.batch * c.heads * c.tq}, sequences, tiles, parts);
  });
}

}  // namespace

Tensor row_terms(const AttentionCall& c, double lse_unit, const Tensor& like_this) {
  const int64_t rows = c.batch * c.heads * c.tq;
  const Tensor terms =
      empty({Shape{2, rows}, c.dtype == DType::f64 ? DType::f64 : DType::f32, like_this.device(), std::nullopt});
  if (rows > 0)
    dispatch_floats(c.dtype, "scaled_dot_product_attention_backward", [&]<class T>() {
      using C = compute_t<T>;
      C* p = static_cast<C*>(terms.raw_data());
      row_terms_kernel<T><<<cuda::blocks_for(rows, kThreads / kWarp), kThreads, 0, cuda::stream()>>>(
          c, RowTerms<C>{p, p + rows}, static_cast<C>(lse_unit));
    });
  return terms;
}

bool fits_mma_f32(const AttentionCall& c, bool backward) {
  if (c.dtype != DType::f32 || !fits_copied_rows(c, backward, 4)) return false;
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "scaled_dot_product_attention", "cudaGetDevice");
  return cuda::properties(device).shared_bytes_per_block >= 227 * 1024;
}

}  // namespace attention_cuda

using namespace attention_cuda;

void attention_forward_cuda(const AttentionCall& c, const Tensor& like_this) {
  if (c.batch * c.heads * c.tq == 0) return;
  if (pads_heads(c, false)) {
    with_padded_heads(c, false, like_this, [&](const AttentionCall& padded) {
      attention_forward_cuda(padded, like_this);
      return true;
    });
    return;
  }
  if (fits_mma(c, false)) return fits_hopper(c, false) ? forward_hopper(c, like_this) : forward_mma(c, like_this);
  if (fits_mma_f32(c, false))
    return cuda::allow_tf32() ? forward_mma_tf32(c, like_this) : forward_mma_f32(c, like_this);
  Tensor space;
  const Sequences sequences = sequences_of(c, kTile, kTile, like_this, space);
  dispatch_columns(c.dtype, c.dv, [&]<class T, int N>() {
    const int64_t tiles = c.sequences > 0 ? sequences.q_tiles : tiles_of(c.tq);
    const int64_t parts = std::max<int64_t>(1, (c.dv + kTile * N - 1) / (kTile * N));
    forward_kernel<T, N><<<cuda::blocks_for(c.batch * c.heads * tiles * parts, 1), kThreads, 0, cuda::stream()>>>(
        c, sequences, tiles, parts);
  });
}

void attention_backward_cuda(const AttentionCall& c, const Tensor& like_this) {
  if (c.batch * c.heads == 0) return;
  if (pads_heads(c, true)) {
    with_padded_heads(c, true, like_this, [&](const AttentionCall& padded) {
      attention_backward_cuda(padded, like_this);
      return true;
    });
    return;
  }
  if (fits_mma(c, true) && fits_hopper(c, true)) return backward_hopper(c, like_this);
  // The tensor-core kernels with options want lse in the unit of their scores.
  const bool singles = fits_mma_f32(c, true), on_tensor_cores = singles || fits_mma(c, true);
  const bool scores_unit = on_tensor_cores && has_options(c);
  const Tensor terms = row_terms(c, scores_unit ? 1 / score_unit(c) : kLog2e, like_this);
  if (on_tensor_cores) {
    float* p = static_cast<float*>(terms.raw_data());
    const RowTerms<float> rows{p, p + c.batch * c.heads * c.tq};
    const auto queue = !singles ? backward_mma : cuda::allow_tf32() ? backward_mma_tf32 : backward_mma_f32;
    return queue(c, rows, like_this);
  }
  Tensor space;
  const Sequences sequences = sequences_of(c, kTile, kTile, like_this, space);
  queue_gradient<Gradient::query>(c, terms, sequences);
  queue_gradient<Gradient::key>(c, terms, sequences);
  queue_gradient<Gradient::value>(c, terms, sequences);
}

}  // namespace strata
