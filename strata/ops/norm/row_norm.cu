// Layer norm and RMS norm on a CUDA device: one pass over memory where a row fits in its threads' registers.

#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata {
namespace {
using namespace cuda;

// Some of a row's elements: their sum, the squares of their distances from their mean, and how many they are.
template <class C>
struct Moments {
  C sum, squares, count;
};

// The mean of a held row and the mean of the squares about it, with one barrier: each warp takes its own mean first.
// value(k) is vector k, widened.
template <class C, int V, int kHeld, class F, class Renew>
__device__ __forceinline__ PairOf<C> row_moments(int64_t n, F&& value, Renew&& renew, Moments<C>* shared) {
  C sum = 0;
  for_row<V, kHeld>(n, [&](int64_t, int k) {
    const Vec<C, V> v = value(k);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += v.v[j];
  });
  sum = warp_reduce(sum, Sum());
  int count = static_cast<int>(n);
  if (blockDim.x > kWarp) {
    count = 0;
    const int first = static_cast<int>(threadIdx.x / kWarp) * kWarp * V, step = static_cast<int>(blockDim.x) * V;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) count += min(max(static_cast<int>(n) - first - k * step, 0), kWarp * V);
  }
  const C mean = count > 0 ? sum / static_cast<C>(count) : C(0);
  renew();
  C squares = 0;
  for_row<V, kHeld>(n, [&](int64_t, int k) {
    const Vec<C, V> v = value(k);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (v.v[j] - mean) * (v.v[j] - mean);
  });
  squares = warp_reduce(squares, Sum());
  if (blockDim.x == kWarp) return {mean, squares / static_cast<C>(n)};
  const int warps = static_cast<int>(blockDim.x / kWarp), first = static_cast<int>(threadIdx.y) * warps;
  if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = {sum, squares, static_cast<C>(count)};
  __syncthreads();
  C all = 0;
  for (int w = 0; w < warps; ++w) all += shared[first + w].sum;
  all /= static_cast<C>(n);
  squares = 0;
  for (int w = 0; w < warps; ++w) {
    const Moments<C> m = shared[first + w];
    const C away = m.count > 0 ? m.sum / m.count - all : C(0);
    squares += m.squares + m.count * away * away;
  }
  return {all, squares / static_cast<C>(n)};
}

// kAdd: there may be a residual; what is held then is the sum, not yet rounded.
template <class T, class A, int V, int kHeld, bool kAdd>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(const RowNorm c) {
  using C = compute_t<T>;
  using Stored = std::conditional_t<kAdd, C, T>;
  __shared__ Moments<C> moments[kMostRowThreads / kWarp];
  __shared__ C shared[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.n : 0;
  const T *x = static_cast<const T*>(c.x) + r * c.n, *residual = static_cast<const T*>(c.residual);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  Kept<Vec<Stored, V>, kHeld == 0 ? 1 : kHeld> kept;
  const auto read = [&](int64_t i) {
    if constexpr (kAdd) {
      Vec<C, V> v = load_wide<C, V>(x + i);
      if (residual != nullptr) {
        const Vec<C, V> more = load_wide<C, V>(residual + r * c.n + i);
#pragma unroll
        for (int j = 0; j < V; ++j) v.v[j] += more.v[j];
      }
      return v;
    } else {
      return load_vec<V>(x + i);
    }
  };
  const auto at = [&](int64_t i, int k) {
    if constexpr (kHeld > 0)
      return kept.v[k];
    else
      return read(i);
  };
  const auto store_sum = [&](int64_t i, const Vec<Stored, V>& v) {
    if constexpr (kAdd)
      if (c.sum != nullptr) store_narrow(static_cast<T*>(c.sum) + r * c.n + i, v);
  };
  C mean = 0, square = 0;
  if constexpr (kHeld > 0) {
    // All loads are under way before anything is stored.
    for_row<V, kHeld>(n, [&](int64_t i, int k) { kept.v[k] = read(i); });
    for_row<V, kHeld>(n, [&](int64_t i, int k) { store_sum(i, kept.v[k]); });
    if (c.rms) {
      for_row<V, kHeld>(n, [&](int64_t, int k) {
        const auto v = widen_all(kept.v[k]);
#pragma unroll
        for (int j = 0; j < V; ++j) square += v.v[j] * v.v[j];
      });
      square = row_reduce(square, Sum(), shared, true) / static_cast<C>(c.n);
    } else {
      const PairOf<C> m = row_moments<C, V, kHeld>(
          n, [&](int k) { return widen_all(kept.v[k]); }, [&] { kept.renew(); }, moments);
      mean = m.a, square = m.b;
    }
  } else {
    if (!c.rms || c.sum != nullptr)
      for_row<V, 0>(n, [&](int64_t i, int) {
        const auto v = read(i);
#pragma unroll
        for (int j = 0; j < V; ++j) mean += widen(v.v[j]);
        store_sum(i, v);
      });
    mean = c.rms ? C(0) : row_reduce(mean, Sum(), shared) / static_cast<C>(c.n);
    for_row<V, 0>(n, [&](int64_t i, int) {
      const auto v = read(i);
#pragma unroll
      for (int j = 0; j < V; ++j) square += (widen(v.v[j]) - mean) * (widen(v.v[j]) - mean);
    });
    square = row_reduce(square, Sum(), shared, true) / static_cast<C>(c.n);
  }
  kept.renew();
  const C rstd = C(1) / sqrt(square + static_cast<C>(c.eps));
  if (threadIdx.x == 0 && n > 0) {
    if (c.mean != nullptr) static_cast<C*>(c.mean)[r] = mean;
    if (c.rstd != nullptr) static_cast<C*>(c.rstd)[r] = rstd;
  }
  for_row<V, kHeld>(n, [&](int64_t i, int k) {
    Vec<C, V> v = widen_all(at(i, k));
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

// ---- backward ----
//
// grad_x = rstd (g w - m1 - xhat m2), m1 and m2 the means of g w and of g w xhat over the row. A block takes rows
// gridDim.x apart; where rows are held, its threads add up their columns' part of the weight's and the bias's gradients
// on the way and leave them in partial[block][2][n].

// The sums over a block's rows, side by side, of what each thread has of them, in the rows' order.
template <class C, int V, int kHeld>
__device__ __forceinline__ void store_columns(const C* dw, const C* db, int64_t n, C* columns, C* to) {
  if (blockDim.y > 1) {
    for (unsigned y = 0; y < blockDim.y; ++y) {
      if (threadIdx.y == y)
        for_row<V, kHeld>(n, [&](int64_t i, int k) {
#pragma unroll
          for (int j = 0; j < V; ++j) {
            const C w0 = y == 0 ? C(0) : columns[i + j], b0 = y == 0 ? C(0) : columns[n + i + j];
            columns[i + j] = w0 + dw[k * V + j];
            columns[n + i + j] = b0 + db[k * V + j];
          }
        });
      __syncthreads();
    }
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int64_t i = thread; i < 2 * n; i += blockDim.x * blockDim.y) to[i] = columns[i];
    return;
  }
  for_row<V, kHeld>(n, [&](int64_t i, int k) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      to[i + j] = dw[k * V + j];
      to[n + i + j] = db[k * V + j];
    }
  });
}

// A row's rows of x, grad_y and grad_sum come through shared memory, kStages rows ahead; each thread reads only what it
// asked for itself, so that no barrier is needed for that.
template <class T, class A, int kHeld, int kStages>
__global__ void __launch_bounds__(kMostRowThreads) pipelined_kernel(const RowNormBackward c, compute_t<T>* partial) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>;
  extern __shared__ uint4 staged[];
  __shared__ PairOf<C> shared[2][kMostRowThreads / kWarp];
  const A* w = static_cast<const A*>(c.weight);
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int streams = c.grad_sum != nullptr ? 3 : 2, n = static_cast<int>(c.n);
  const auto slot = [&](int stage, int stream, int k) {
    return ((stage * streams + stream) * kHeld + k) * threads + thread;
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y, step_elements = step * n;
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // The row that is asked for next, and this thread's first element in it.
  int64_t asked = mine, at = mine * n + static_cast<int64_t>(threadIdx.x) * V;
  const auto ask = [&](int stage) {
    if (asked < c.rows) {
      const auto stream = [&](int q, const void* from) {
        const T* p = static_cast<const T*>(from) + at;
        uint4* to = staged + slot(stage, q, 0);
#pragma unroll
        for (int k = 0; k < kHeld; ++k)
          if (static_cast<int>(threadIdx.x + k * blockDim.x) * V < n)
            copy_async(to + k * threads, p + static_cast<int64_t>(k * blockDim.x) * V);
      };
      stream(0, c.x);
      stream(1, c.grad_y);
      if (streams == 3) stream(2, c.grad_sum);
    }
    asked += step, at += step_elements;
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const auto weight = [&](int64_t i) {
    if (w != nullptr) return load_wide<C, V>(w + i);
    Vec<C, V> one;
#pragma unroll
    for (int j = 0; j < V; ++j) one.v[j] = 1;
    return one;
  };
  const auto mean_of = [&](int64_t r) { return c.rms || r >= c.rows ? C(0) : static_cast<const C*>(c.mean)[r]; };
  const auto rstd_of = [&](int64_t r) { return r >= c.rows ? C(0) : static_cast<const C*>(c.rstd)[r]; };
#pragma unroll
  for (int s = 0; s < kStages; ++s) ask(s);
  C dw[kHeld * V], db[kHeld * V];
#pragma unroll
  for (int k = 0; k < kHeld * V; ++k) dw[k] = db[k] = 0;
  const C share = C(1) / static_cast<C>(n);
  C next_mean = mean_of(mine), next_rstd = rstd_of(mine);
  int stage = 0, parity = 0;
  // All rows of a block go round together, for the barrier's sake.
  for (int64_t r = mine; r - threadIdx.y < c.rows; r += step) {
    const C mean = next_mean, rstd = next_rstd;
    const int there = r < c.rows ? n : 0;
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    Kept<Vec<T, V>, kHeld> xs, gs, more;
    PairOf<C> s{0, 0};
    for_row<V, kHeld>(there, [&](int64_t i, int k) {
      xs.v[k] = *reinterpret_cast<const Vec<T, V>*>(staged + slot(stage, 0, k));
      gs.v[k] = *reinterpret_cast<const Vec<T, V>*>(staged + slot(stage, 1, k));
      if (streams == 3) more.v[k] = *reinterpret_cast<const Vec<T, V>*>(staged + slot(stage, 2, k));
      const Vec<C, V> wv = weight(i), x = widen_all(xs.v[k]), g = widen_all(gs.v[k]);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C both = g.v[j] * (x.v[j] - mean);
        s.a += g.v[j] * wv.v[j];
        s.b += both * wv.v[j];
        dw[k * V + j] += both * rstd;
        db[k * V + j] += g.v[j];
      }
    });
    xs.renew(), gs.renew();
    ask(stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next_mean = mean_of(r + step), next_rstd = rstd_of(r + step);
    // The other half of `shared` is written next time round: one barrier is enough.
    s = row_reduce(s, SumPairs(), shared[parity], true);
    parity ^= 1;
    const C a1 = c.rms ? C(0) : s.a * share * rstd, a2 = s.b * share * rstd * rstd * rstd;
    for_row<V, kHeld>(there, [&](int64_t i, int k) {
      const Vec<C, V> wv = weight(i), x = widen_all(xs.v[k]), g = widen_all(gs.v[k]);
      Vec<C, V> to;
#pragma unroll
      for (int j = 0; j < V; ++j) to.v[j] = g.v[j] * wv.v[j] * rstd - a1 - a2 * (x.v[j] - mean);
      if (streams == 3) {
        const Vec<C, V> added = widen_all(more.v[k]);
#pragma unroll
        for (int j = 0; j < V; ++j) to.v[j] += added.v[j];
      }
      store_narrow(static_cast<T*>(c.grad_x) + r * n + i, to);
    });
  }
  if (partial == nullptr) return;
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  store_columns<C, V, kHeld>(dw, db, n, reinterpret_cast<C*>(staged),
                             partial + static_cast<int64_t>(blockIdx.x) * 2 * n);
}

// Rows that lie unaligned, or that are too long to be held.
template <class T, class A, int V, int kHeld>
__global__ void __launch_bounds__(kMostRowThreads) backward_kernel(const RowNormBackward c, compute_t<T>* partial) {
  using C = compute_t<T>;
  constexpr int kKept = kHeld > 0 ? kHeld : 1;
  extern __shared__ uint4 columns[];
  __shared__ PairOf<C> shared[kMostRowThreads / kWarp];
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
    const RowOf<T, V, kHeld> x_row(static_cast<const T*>(c.x) + r * c.n, n),
        g_row(static_cast<const T*>(c.grad_y) + r * c.n, n);
    const C mean = c.rms || n == 0 ? C(0) : static_cast<const C*>(c.mean)[r];
    const C rstd = n == 0 ? C(0) : static_cast<const C*>(c.rstd)[r];
    PairOf<C> s{0, 0};
    for_row<V, kHeld>(n, [&](int64_t i, int k) {
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
    for_row<V, kHeld>(n, [&](int64_t i, int k) {
      const auto x = x_row.at(i, k), g = g_row.at(i, k);
      const auto wv = weight(i);
      Vec<C, V> to;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C xc = widen(x.v[j]) - mean, gv = widen(g.v[j]), gr = gv * rstd;
        to.v[j] = gr * wv.v[j] - a1 - a2 * xc;
        if constexpr (kHeld > 0) {
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
  if constexpr (kHeld > 0)
    if (partial != nullptr)
      store_columns<C, V, kHeld>(dw, db, c.n, reinterpret_cast<C*>(columns),
                                 partial + static_cast<int64_t>(blockIdx.x) * 2 * c.n);
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
      const C g = widen(static_cast<const T*>(c.grad_y)[r * c.n + i]),
              x = widen(static_cast<const T*>(c.x)[r * c.n + i]);
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
constexpr int kPartsDown = 32;
template <class C, class A>
__global__ void __launch_bounds__(kWarp* kPartsDown)
    parts_kernel(const C* partial, int64_t parts, int64_t n, A* grad_weight, A* grad_bias) {
  __shared__ C shared[kPartsDown][kWarp];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  constexpr int kAtOnce = 8;
  C s = 0;
  if (i < 2 * n)
    for (int64_t p = threadIdx.y; p < parts; p += kAtOnce * kPartsDown) {
      C v[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        v[u] = p + u * kPartsDown < parts ? partial[(p + u * kPartsDown) * 2 * n + i] : C(0);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) s += v[u];
    }
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || i >= 2 * n) return;
  for (int k = 1; k < kPartsDown; ++k) s += shared[k][threadIdx.x];
  A* to = i < n ? grad_weight : grad_bias;
  if (to != nullptr) to[i < n ? i : i - n] = narrow<A>(s);
}

template <class... P>
bool all_aligned(const P*... p) {
  return (aligned16(p) && ...);
}
}  // namespace

void row_norm_cuda(const RowNorm& c) {
  if (c.rows * c.n == 0) return;
  dispatch_types(c, [&]<class T, class A>() {
    const RowLaunch l = row_launch<T>(c.rows, c.n, all_aligned(c.x, c.weight, c.bias, c.residual, c.y, c.sum));
    dispatch_rows<T>(l, [&](auto v, auto held) {
      constexpr int V = decltype(v)::value, kHeld = decltype(held)::value;
      // Rows that are read in single elements have no kernel of their own for want of a residual.
      if (V == 1 || c.residual != nullptr)
        forward_kernel<T, A, V, kHeld, true><<<l.blocks, l.threads, 0, stream()>>>(c);
      else
        forward_kernel<T, A, V, kHeld, V == 1><<<l.blocks, l.threads, 0, stream()>>>(c);
    });
  });
}

namespace {
// How rows are taken: by a kernel, with so much shared memory.
template <class C>
struct BackwardPlan {
  void (*kernel)(RowNormBackward, C*) = nullptr;
  RowLaunch launch;
  size_t shared = 0;
};

template <class T, class A>
BackwardPlan<compute_t<T>> plan_backward(const RowNormBackward& c, int64_t most_shared) {
  using C = compute_t<T>;
  const bool aligned = all_aligned(c.x, c.grad_y, c.weight, c.grad_sum, c.grad_x);
  BackwardPlan<C> p;
  const auto pipelined = [&]<int kHeld, int kStages>() {
    const auto threads = static_cast<size_t>(p.launch.threads.x * p.launch.threads.y);
    p.shared = threads * kHeld * 16 * kStages * (c.grad_sum != nullptr ? 3 : 2);
    if (p.shared > static_cast<size_t>(most_shared)) return false;
    p.kernel = pipelined_kernel<T, A, kHeld, kStages>;
    return true;
  };
  // Few vectors a thread, so that many threads find registers; a warp alone needs no barrier.
  if (const int64_t vectors = c.n / kVec<T>; aligned && c.n % kVec<T> == 0 && vectors <= 4 * kMostRowThreads) {
    const int held = vectors <= 3 * kWarp ? 3 : vectors <= 2 * kMostRowThreads ? 2 : 4;
    p.launch = row_launch<T>(c.rows, c.n, aligned, held, held);
    if (held == 3 && pipelined.template operator()<3, 4>()) return p;
    if (held == 2 && pipelined.template operator()<2, 4>()) return p;
    if (held == 4 && pipelined.template operator()<4, 2>()) return p;
  }
  p.launch = row_launch<T>(c.rows, c.n, false, 4, 4);
  const bool held = c.n <= int64_t{4} * p.launch.threads.x;
  p.launch.held = held ? 4 : 0;
  p.shared = held && p.launch.threads.y > 1 ? static_cast<size_t>(2 * c.n) * sizeof(C) : 0;
  if (held) {
    p.kernel = backward_kernel<T, A, 1, 4>;
  } else {
    p.launch = row_launch<T>(c.rows, c.n, aligned);
    p.launch.held = 0;
    p.kernel = p.launch.vectors ? backward_kernel<T, A, kVec<T>, 0> : backward_kernel<T, A, 1, 0>;
  }
  return p;
}
}  // namespace

void row_norm_backward_cuda(const RowNormBackward& c) {
  if (c.rows * c.n == 0) {
    for (void* p : {c.grad_weight, c.grad_bias})
      if (p != nullptr)
        check_cuda(cudaMemsetAsync(p, 0, static_cast<size_t>(c.n * size_of(c.affine)), stream()), "norm_backward",
                   "cudaMemsetAsync");
    return;
  }
  const DeviceProperties& card = properties(current_device());
  dispatch_types(c, [&]<class T, class A>() {
    using C = compute_t<T>;
    const bool sums = c.grad_weight != nullptr || c.grad_bias != nullptr;
    const BackwardPlan<C> plan = plan_backward<T, A>(c, card.shared_bytes_per_block - 1024);
    const RowLaunch& l = plan.launch;
    if (plan.shared > 32 << 10)  // 48 KiB need no asking, the kernel's own arrays included
      check_cuda(
          cudaFuncSetAttribute(plan.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared)),
          "norm_backward", "cudaFuncSetAttribute");
    // As many blocks as the card runs at once share the rows evenly.
    int at_once = 1;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, plan.kernel,
                                                             static_cast<int>(l.threads.x * l.threads.y), plan.shared),
               "norm_backward", "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    const int64_t most = int64_t{std::max(at_once, 1)} * card.multiprocessors;
    const int64_t length = std::max<int64_t>((c.rows + 63) / 64, 4 * kDown);  // rows of a block of weight_kernel
    const int64_t parts = l.held > 0 ? std::min<int64_t>(l.blocks, most) : (c.rows + length - 1) / length;
    const Tensor workspace = sums ? make_workspace<C>(parts * 2 * c.n) : Tensor();
    C* partial = sums ? static_cast<C*>(workspace.raw_data()) : nullptr;
    const auto blocks = static_cast<unsigned>(l.held > 0 ? parts : l.blocks);
    plan.kernel<<<blocks, l.threads, plan.shared, stream()>>>(c, partial);
    if (!sums) return;
    if (l.held == 0)
      weight_kernel<T><<<dim3(blocks_for(c.n, kWarp), static_cast<unsigned>(parts)), dim3(kWarp, kDown), 0, stream()>>>(
          c, partial, length);
    parts_kernel<C, A><<<blocks_for(2 * c.n, kWarp), dim3(kWarp, kPartsDown), 0, stream()>>>(
        partial, parts, c.n, static_cast<A*>(c.grad_weight), static_cast<A*>(c.grad_bias));
  });
}

}  // namespace strata
