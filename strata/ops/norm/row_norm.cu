// Layer norm and RMS norm on a CUDA device: one pass over memory where a row fits in its threads' registers.

#include "strata/cuda/rows.cuh"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/norm/norm_cuda.cuh"

namespace strata {
namespace {
using namespace cuda;

// Registers for values, not initialised.
template <class V, int kCount>
struct Kept {
  V v[kCount];
  __device__ Kept() {}
};

template <class T, class A, int V, bool kHold>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(const RowNorm c) {
  using C = compute_t<T>;
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.n : 0;
  const T *x = static_cast<const T*>(c.x) + r * c.n, *residual = static_cast<const T*>(c.residual);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  Kept<Vec<C, V>, kHold ? kHeld<V> : 1> kept;
  const auto read = [&](int64_t i) {
    Vec<C, V> v = load_wide<C, V>(x + i);
    if (residual != nullptr) {
      const Vec<C, V> more = load_wide<C, V>(residual + r * c.n + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] += more.v[j];
    }
    return v;
  };
  const auto at = [&](int64_t i, int k) {
    if constexpr (kHold)
      return kept.v[k];
    else
      return read(i);
  };
  C sum = 0;
  if (kHold || !c.rms || c.sum != nullptr)
    for_row<V, kHold>(n, [&](int64_t i, int k) {
      const Vec<C, V> v = read(i);
      if constexpr (kHold) kept.v[k] = v;
#pragma unroll
      for (int j = 0; j < V; ++j) sum += v.v[j];
      if (c.sum != nullptr) store_narrow(static_cast<T*>(c.sum) + r * c.n + i, v);
    });
  const C count = static_cast<C>(c.n), mean = c.rms ? C(0) : row_reduce(sum, Sum(), shared) / count;
  C squares = 0;
  for_row<V, kHold>(n, [&](int64_t i, int k) {
    const Vec<C, V> v = at(i, k);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (v.v[j] - mean) * (v.v[j] - mean);
  });
  const C rstd = C(1) / sqrt(row_reduce(squares, Sum(), shared) / count + static_cast<C>(c.eps));
  if (threadIdx.x == 0 && n > 0) {
    if (c.mean != nullptr) static_cast<C*>(c.mean)[r] = mean;
    if (c.rstd != nullptr) static_cast<C*>(c.rstd)[r] = rstd;
  }
  for_row<V, kHold>(n, [&](int64_t i, int k) {
    Vec<C, V> v = at(i, k);
#pragma unroll
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - mean) * rstd;
    if (w != nullptr) {
      const Vec<C, V> wv = load_wide<C, V>(w + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] *= wv.v[j];
    }
    if (b != nullptr) {
      const Vec<C, V> bv = load_wide<C, V>(b + i);
#pragma unroll
      for (int j = 0; j < V; ++j) v.v[j] += bv.v[j];
    }
    store_narrow(static_cast<T*>(c.y) + r * c.n + i, v);
  });
}

// grad_x = rstd (g w - m1 - xhat m2), m1 and m2 the means of g w and of g w xhat over the row. A block takes rows
// gridDim.x apart; where rows are held, its threads add up their columns' part of the weight's and the bias's gradients
// on the way and leave them in partial[block][2][n].
template <class T, class A, int V, int kMost>
__global__ void __launch_bounds__(kMostRowThreads) backward_kernel(const RowNormBackward c, compute_t<T>* partial) {
  using C = compute_t<T>;
  constexpr bool kHold = kMost > 0;
  constexpr int kKept = kHold ? kMost : 1, kSmall = kHold ? 2 * 64 * V : 1;  // columns where a block has several rows
  __shared__ PairOf<C> shared[kMostRowThreads / kWarp];
  __shared__ C columns[2][kSmall];
  const A* w = static_cast<const A*>(c.weight);
  C dw[kKept * V], db[kKept * V];
#pragma unroll
  for (int k = 0; k < kKept * V; ++k) dw[k] = db[k] = 0;
  const auto weight = [&](int64_t i) {
    if (w != nullptr) return load_wide<C, V>(w + i);
    Vec<C, V> one;
#pragma unroll
    for (int j = 0; j < V; ++j) one.v[j] = 1;
    return one;
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.y; first < c.rows; first += step) {
    const int64_t r = first + threadIdx.y, n = r < c.rows ? c.n : 0;
    const RowOf<T, V, kHold, kKept> x_row(static_cast<const T*>(c.x) + r * c.n, n),
        g_row(static_cast<const T*>(c.grad_y) + r * c.n, n);
    const C mean = c.rms || n == 0 ? C(0) : static_cast<const C*>(c.mean)[r];
    const C rstd = n == 0 ? C(0) : static_cast<const C*>(c.rstd)[r];
    PairOf<C> s{0, 0};
    for_row<V, kHold, kKept>(n, [&](int64_t i, int k) {
      const auto x = x_row.at(i, k), g = g_row.at(i, k);
      const auto wv = weight(i);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C gw = widen(g.v[j]) * wv.v[j];
        s.a += gw;
        s.b += gw * (widen(x.v[j]) - mean);
      }
    });
    s = row_reduce(s, SumPairs(), shared);
    const C count = static_cast<C>(c.n), a1 = c.rms ? C(0) : s.a / count * rstd, a2 = s.b / count * rstd * rstd * rstd;
    for_row<V, kHold, kKept>(n, [&](int64_t i, int k) {
      const auto x = x_row.at(i, k), g = g_row.at(i, k);
      const auto wv = weight(i);
      Vec<C, V> to;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C xc = widen(x.v[j]) - mean, gv = widen(g.v[j]), gr = gv * rstd;
        to.v[j] = gr * wv.v[j] - a1 - a2 * xc;
        if constexpr (kHold) {
          dw[k * V + j] += gr * xc;
          db[k * V + j] += gv;
        }
      }
      if (c.grad_sum != nullptr) {
        const Vec<C, V> more = load_wide<C, V>(static_cast<const T*>(c.grad_sum) + r * c.n + i);
#pragma unroll
        for (int j = 0; j < V; ++j) to.v[j] += more.v[j];
      }
      store_narrow(static_cast<T*>(c.grad_x) + r * c.n + i, to);
    });
  }
  if constexpr (kHold) {
    if (partial == nullptr) return;
    if (blockDim.y > 1) {
      for (unsigned y = 0; y < blockDim.y; ++y) {
        if (threadIdx.y == y)
          for_row<V, true, kKept>(c.n, [&](int64_t i, int k) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
              const C w0 = y == 0 ? C(0) : columns[0][i + j], b0 = y == 0 ? C(0) : columns[1][i + j];
              columns[0][i + j] = dw[k * V + j] = w0 + dw[k * V + j];
              columns[1][i + j] = db[k * V + j] = b0 + db[k * V + j];
            }
          });
        __syncthreads();
      }
      if (threadIdx.y != blockDim.y - 1) return;
    }
    C* to = partial + static_cast<int64_t>(blockIdx.x) * 2 * c.n;
    for_row<V, true, kKept>(c.n, [&](int64_t i, int k) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        to[i + j] = dw[k * V + j];
        to[c.n + i + j] = db[k * V + j];
      }
    });
  }
}

constexpr int kDown = 16;

// One column a thread of x and grad_y, for rows too long to be held: block y takes `length` rows.
template <class T>
__global__ void __launch_bounds__(kWarp* kDown)
    weight_kernel(const RowNormBackward c, compute_t<T>* partial, int64_t length) {
  using C = compute_t<T>;
  __shared__ PairOf<C> shared[kDown][kWarp];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x, begin = blockIdx.y * length;
  const int64_t end = begin + length < c.rows ? begin + length : c.rows;
  PairOf<C> s{0, 0};
  if (i < c.n)
    for (int64_t r = begin + threadIdx.y; r < end; r += kDown) {
      const C g = widen(static_cast<const T*>(c.grad_y)[r * c.n + i]), x = widen(static_cast<const T*>(c.x)[r * c.n + i]);
      s.a += g * static_cast<const C*>(c.rstd)[r] * (c.rms ? x : x - static_cast<const C*>(c.mean)[r]);
      s.b += g;
    }
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || i >= c.n) return;
  for (int k = 1; k < kDown; ++k) s = SumPairs()(s, shared[k][threadIdx.x]);
  partial[blockIdx.y * 2 * c.n + i] = s.a;
  partial[(blockIdx.y * 2 + 1) * c.n + i] = s.b;
}

// The parts' sums [parts][2][n], in their order.
template <class C, class A>
__global__ void __launch_bounds__(kWarp* kDown)
    parts_kernel(const C* partial, int64_t parts, int64_t n, A* grad_weight, A* grad_bias) {
  __shared__ C shared[kDown][kWarp];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  C s = 0;
  if (i < 2 * n)
    for (int64_t p = threadIdx.y; p < parts; p += kDown) s += partial[p * 2 * n + i];
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || i >= 2 * n) return;
  for (int k = 1; k < kDown; ++k) s += shared[k][threadIdx.x];
  A* to = i < n ? grad_weight : grad_bias;
  if (to != nullptr) to[i < n ? i : i - n] = narrow<A>(s);
}

// T and the type of the weights.
template <class Call, class F>
void dispatch_types(const Call& c, F&& f) {
  dispatch_floats(c.dtype, "norm", [&]<class T>() {
    if constexpr (!std::is_same_v<T, compute_t<T>>)
      if (c.affine == DType::f32) return f.template operator()<T, float>();
    f.template operator()<T, T>();
  });
}

template <class... P>
bool all_aligned(const P*... p) {
  return (aligned16(p) && ...);
}
}  // namespace

void row_norm_cuda(const RowNorm& c) {
  if (c.rows * c.n == 0) return;
  dispatch_types(c, [&]<class T, class A>() {
    const RowLaunch l =
        row_launch<T>(c.rows, c.n, all_aligned(c.x, c.weight, c.bias, c.residual, c.y, c.sum));
    dispatch_rows<T>(l, [&](auto v, auto held) {
      forward_kernel<T, A, decltype(v)::value, decltype(held)::value><<<l.blocks, l.threads, 0, stream()>>>(c);
    });
  });
}

void row_norm_backward_cuda(const RowNormBackward& c) {
  if (c.rows * c.n == 0) {
    for (void* p : {c.grad_weight, c.grad_bias})
      if (p != nullptr)
        check_cuda(cudaMemsetAsync(p, 0, static_cast<size_t>(c.n * size_of(c.affine)), stream()), "norm_backward",
                   "cudaMemsetAsync");
    return;
  }
  dispatch_types(c, [&]<class T, class A>() {
    using C = compute_t<T>;
    const bool sums = c.grad_weight != nullptr || c.grad_bias != nullptr;
    const bool aligned = all_aligned(c.x, c.grad_y, c.weight, c.grad_sum, c.grad_x);
    RowLaunch l = row_launch<T>(c.rows, c.n, aligned, 2, 2);
    const bool two = l.held;
    if (!two) l = row_launch<T>(c.rows, c.n, aligned, 2, 4);
    const int card = current_device();
    const int64_t most = int64_t{6} * properties(card).multiprocessors * 128 / (l.threads.x * l.threads.y);
    int64_t parts = l.held ? std::min<int64_t>(l.blocks, std::max<int64_t>(1, most)) : 0;
    const int64_t length = std::max<int64_t>((c.rows + 63) / 64, 4 * kDown);
    if (!l.held) parts = (c.rows + length - 1) / length;
    const Tensor workspace = sums ? make_workspace<C>(parts * 2 * c.n) : Tensor();
    C* partial = sums ? static_cast<C*>(workspace.raw_data()) : nullptr;
    const auto blocks = static_cast<unsigned>(l.held ? parts : l.blocks);
    const auto launch = [&]<int V>(std::integral_constant<int, V>) {
      if (two)
        backward_kernel<T, A, V, 2><<<blocks, l.threads, 0, stream()>>>(c, partial);
      else if (l.held)
        backward_kernel<T, A, V, 4><<<blocks, l.threads, 0, stream()>>>(c, partial);
      else
        backward_kernel<T, A, V, 0><<<blocks, l.threads, 0, stream()>>>(c, nullptr);
    };
    if (l.vectors)
      launch(std::integral_constant<int, kVec<T>>());
    else
      launch(std::integral_constant<int, 1>());
    if (!sums) return;
    if (!l.held)
      weight_kernel<T><<<dim3(blocks_for(c.n, kWarp), static_cast<unsigned>(parts)), dim3(kWarp, kDown), 0, stream()>>>(
          c, partial, length);
    parts_kernel<C, A><<<blocks_for(2 * c.n, kWarp), dim3(kWarp, kDown), 0, stream()>>>(
        partial, parts, c.n, static_cast<A*>(c.grad_weight), static_cast<A*>(c.grad_bias));
  });
}

}  // namespace strata
