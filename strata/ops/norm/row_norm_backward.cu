// Gradients of layer norm and RMS norm on a CUDA device.

#include <atomic>

#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/norm/row_norm_cluster.cuh"
#include "strata/ops/norm/row_norm_ring.cuh"

namespace strata {
namespace {
using namespace cuda;

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
  Most<T> most(c.most);
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
      store_narrow(static_cast<T*>(c.grad_x) + r * c.n + i, to, most);
    });
  }
  most.leave();
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

// The sums of the parts [parts][all], in their order; all is n, or 2 n where the bias has a gradient.
constexpr int kPartsDown = 32;
template <class C, class A>
__global__ void __launch_bounds__(kWarp* kPartsDown)
    parts_kernel(const C* partial, int64_t parts, int64_t all, int64_t n, A* grad_weight, A* grad_bias) {
  __shared__ C shared[kPartsDown][kWarp];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  constexpr int kAtOnce = 8;
  C s = 0;
  if (i < all)
    for (int64_t p = threadIdx.y; p < parts; p += kAtOnce * kPartsDown) {
      C v[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        v[u] = p + u * kPartsDown < parts ? partial[(p + u * kPartsDown) * all + i] : C(0);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) s += v[u];
    }
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || i >= all) return;
  for (int k = 1; k < kPartsDown; ++k) s += shared[k][threadIdx.x];
  A* to = i < n ? grad_weight : grad_bias;
  if (to != nullptr) to[i < n ? i : i - n] = narrow<A>(s);
}

template <class A, class C>
void sum_parts(const RowNormBackward& c, const C* partial, int64_t parts, int64_t all) {
  parts_kernel<C, A><<<blocks_for(all, kWarp), dim3(kWarp, kPartsDown), 0, stream()>>>(
      partial, parts, all, c.n, static_cast<A*>(c.grad_weight), static_cast<A*>(c.grad_bias));
}

template <class K>
void allow_shared(K kernel, size_t bytes) {
  if (bytes > 32 << 10)  // 48 KiB need no asking, the kernel's own arrays included
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               "norm_backward", "cudaFuncSetAttribute");
}

// How many rows of `stage` bytes are on their way, `most` at most, beside what the kernel itself has in shared memory.
int stages_of(size_t stage, size_t most, const DeviceProperties& card) {
  return static_cast<int>(std::min<size_t>((card.shared_bytes_per_block - 2048) / stage, most));
}
int streams_of(const RowNormBackward& c) {
  return c.grad_sum != nullptr ? 3 : 2;
}
// Queues launch(partial, parts), then the sums of the parts.
template <class T, class A, class Launch>
void with_parts(const RowNormBackward& c, int64_t parts, const Launch& launch) {
  using C = compute_t<T>;
  const bool sums = c.grad_weight != nullptr || c.grad_bias != nullptr;
  const int64_t all = c.rms ? c.n : 2 * c.n;
  const Tensor workspace = sums ? make_workspace<C>(parts * all) : Tensor();
  C* partial = sums ? static_cast<C*>(workspace.raw_data()) : nullptr;
  launch(partial);
  if (sums) sum_parts<A>(c, partial, parts, all);
}

// Aligned rows of up to kRow * kHeld vectors. False where the card has too little shared memory.
template <class T, class A, int kRow, int kHeld>
bool ring_backward(const RowNormBackward& c, const DeviceProperties& card) {
  const size_t stage = size_t{kRingThreads<kHeld>} * kHeld * 16 * streams_of(c);
  const int stages = stages_of(stage, kMostStages<kHeld>, card);
  if (stages < 2) return false;
  const auto launch = [&](auto kernel) {
    allow_shared(kernel, stage * stages);
    const int64_t parts = std::min<int64_t>(card.multiprocessors, c.rows);
    with_parts<T, A>(c, parts, [&](compute_t<T>* partial) {
      kernel<<<static_cast<unsigned>(parts), kRingThreads<kHeld>, stage * stages, stream()>>>(c, partial, stages);
    });
  };
  c.rms ? launch(ring_backward_kernel<T, A, kRow, kHeld, true>)
        : launch(ring_backward_kernel<T, A, kRow, kHeld, false>);
  return true;
}

// Aligned rows of as many vectors as kCluster blocks hold. False where the card has too little shared memory or no
// clusters.
template <class T, class A, int kCluster>
bool cluster_backward(const RowNormBackward& c, const DeviceProperties& card) {
  const size_t stage = size_t{kClusterThreads} * kClusterHeld * 16 * streams_of(c);
  const int stages = stages_of(stage, 5, card);
  if (stages < 3 || card.major != 9) return false;  // other cards run what was compiled without clusters
  const auto launch = [&](auto kernel) {
    allow_shared(kernel, stage * stages);
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(kClusterThreads);
    config.dynamicSmemBytes = stage * stages;
    config.stream = stream();
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kCluster, 1, 1};
    config.attrs = &cluster, config.numAttrs = 1;
    config.gridDim = dim3(static_cast<unsigned>(kCluster * card.multiprocessors));
    // As many as the card runs at once: blocks of a cluster stand side by side, so that some multiprocessors may be
    // left over. Asked once: both kernels have one block a multiprocessor, and the same shared memory for as many
    // streams.
    static std::atomic<int> known[64][2];
    std::atomic<int>& answer = known[current_device() % 64][c.grad_sum != nullptr];
    int at_once = answer.load(std::memory_order_relaxed);
    if (at_once == 0) {
      check_cuda(cudaOccupancyMaxActiveClusters(&at_once, kernel, &config), "norm_backward",
                 "cudaOccupancyMaxActiveClusters");
      if (at_once < 1) return false;
      answer.store(at_once, std::memory_order_relaxed);
    }
    const int64_t parts = std::min<int64_t>(at_once, c.rows);
    config.gridDim = dim3(static_cast<unsigned>(kCluster * parts));
    with_parts<T, A>(c, parts, [&](compute_t<T>* partial) {
      check_cuda(cudaLaunchKernelEx(&config, kernel, c, partial, stages), "norm_backward", "cudaLaunchKernelEx");
    });
    return true;
  };
  return c.rms ? launch(cluster_backward_kernel<T, A, true, kCluster>)
               : launch(cluster_backward_kernel<T, A, false, kCluster>);
}

// Few vectors a thread, so that many threads find registers; a warp alone needs no barrier.
template <class T, class A>
bool ring_backward(const RowNormBackward& c, const DeviceProperties& card) {
  const int64_t vectors = c.n / kVec<T>;
  if (c.n % kVec<T> != 0 || !all_aligned(c.x, c.grad_y, c.weight, c.grad_sum, c.grad_x)) return false;
  if (vectors <= 3 * 32) return ring_backward<T, A, 32, 3>(c, card);
  if (vectors <= 2 * 64) return ring_backward<T, A, 64, 2>(c, card);
  if (vectors <= 2 * 128) return ring_backward<T, A, 128, 2>(c, card);
  if (vectors <= 2 * 256) return ring_backward<T, A, 256, 2>(c, card);
  if (vectors <= 2 * 512) return ring_backward<T, A, 512, 2>(c, card);
  // More vectors a thread would leave no registers for the widened weights, of which f32 needs half as many: a row is
  // shared by several blocks instead.
  if constexpr (sizeof(T) == 2)
    if (vectors <= 2 * 2 * 512 && cluster_backward<T, A, 2>(c, card)) return true;
  if (vectors > 4 * 512 && vectors <= 4 * 2 * 512 && cluster_backward<T, A, 4>(c, card)) return true;
  return vectors <= 4 * 512 && ring_backward<T, A, 512, 4>(c, card);
}

template <class T, class A>
void plain_backward(const RowNormBackward& c, const DeviceProperties& card) {
  using C = compute_t<T>;
  RowLaunch l = row_launch<T>(c.rows, c.n, false, 4, 4);
  void (*kernel)(RowNormBackward, C*) = backward_kernel<T, A, 1, 4>;
  size_t shared = 0;
  if (c.n <= int64_t{4} * l.threads.x) {
    l.held = 4;
    if (l.threads.y > 1) shared = static_cast<size_t>(2 * c.n) * sizeof(C);
  } else {
    l = row_launch<T>(c.rows, c.n, all_aligned(c.x, c.grad_y, c.weight, c.grad_sum, c.grad_x));
    l.held = 0;
    kernel = l.vectors ? backward_kernel<T, A, kVec<T>, 0> : backward_kernel<T, A, 1, 0>;
  }
  allow_shared(kernel, shared);
  // As many blocks as the card runs at once share the rows evenly.
  int at_once = 1;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel,
                                                           static_cast<int>(l.threads.x * l.threads.y), shared),
             "norm_backward", "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const bool sums = c.grad_weight != nullptr || c.grad_bias != nullptr;
  const int64_t most = int64_t{std::max(at_once, 1)} * card.multiprocessors;
  const int64_t length = std::max<int64_t>((c.rows + 63) / 64, 4 * kDown);  // rows of a block of weight_kernel
  const int64_t parts = l.held > 0 ? std::min<int64_t>(l.blocks, most) : (c.rows + length - 1) / length;
  const Tensor workspace = sums ? make_workspace<C>(parts * 2 * c.n) : Tensor();
  C* partial = sums ? static_cast<C*>(workspace.raw_data()) : nullptr;
  kernel<<<static_cast<unsigned>(l.held > 0 ? parts : l.blocks), l.threads, shared, stream()>>>(c, partial);
  if (!sums) return;
  if (l.held == 0)
    weight_kernel<T><<<dim3(blocks_for(c.n, kWarp), static_cast<unsigned>(parts)), dim3(kWarp, kDown), 0, stream()>>>(
        c, partial, length);
  sum_parts<A>(c, partial, parts, 2 * c.n);
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
    if constexpr (sizeof(T) <= 4)
      if (ring_backward<T, A>(c, card)) return;
    plain_backward<T, A>(c, card);
  });
}

}  // namespace strata
