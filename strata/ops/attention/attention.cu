// Attention on a CUDA device: which kernels take a call, and the launches of those with ordinary arithmetic
// (plain_tiles.cuh), for what the tensor-core kernels do not take, also with padded heads (padded_heads.cuh).

#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/options.cuh"
#include "strata/ops/attention/padded_heads.cuh"
#include "strata/ops/attention/plain_tiles.cuh"

namespace strata {
namespace attention_cuda {
namespace {
using cuda::kWarp;
using cuda::widen;
using plain::Gradient;
using plain::kTile;

constexpr int kThreads = 256;

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

// Calls f.operator()<T, N>(): 64 N columns of a result are a block's.
template <class F>
void dispatch_columns(DType t, int64_t size, F&& f) {
  dispatch_floats(t, "scaled_dot_product_attention", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      if (size > kTile) return f.template operator()<T, 2>();
    }
    f.template operator()<T, 1>();
  });
}

template <class C, class... P, class... A>
void launch_plain(void (*kernel)(P...), int64_t blocks, const A&... arguments) {
  constexpr int kBytes = plain::kSharedBytes<C>;
  cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                   "scaled_dot_product_attention", "cudaFuncSetAttribute");
  kernel<<<cuda::blocks_for(blocks, 1), plain::kThreads, kBytes, cuda::stream()>>>(arguments...);
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
      launch_plain<C>(plain::gradient_kernel<T, N, kOf>, blocks, c, RowTerms<C>{p, p + c.batch * c.heads * c.tq},
                      sequences, tiles, parts);
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
    launch_plain<compute_t<T>>(plain::forward_kernel<T, N>, c.batch * c.heads * tiles * parts, c, sequences, tiles,
                               parts);
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
