// A plain matrix product, and passes over its results.

#include "strata/ops/matmul/gemm_own.h"

#include <type_traits>

#include "strata/cuda/kernel.cuh"

namespace strata::cuda {
namespace {

constexpr int kTile = 16;
constexpr int kThreads = 256;

// Sums of integers wrap, so that any width holds them.
template <class T>
using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;
template <class T>
__device__ __forceinline__ Acc<T> load(const T* p) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(*p));
  } else {
    return widen(*p);
  }
}

// A Gemm as kernels take it.
struct Job {
  const void *a, *b, *bias;
  void *c, *aux;
  int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col, batches;
  int dims;
  int64_t sizes[kMaxDims], a_batch[kMaxDims], b_batch[kMaxDims], c_batch[kMaxDims];
  double alpha, beta;
  bool bias_is_out;
  Epilogue epilogue;

  __device__ void offsets(int64_t z, int64_t& ao, int64_t& bo, int64_t& co) const {
    ao = bo = co = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t i = z % sizes[d];
      z /= sizes[d];
      ao += i * a_batch[d], bo += i * b_batch[d], co += i * c_batch[d];
    }
  }
};

Job job_of(const Gemm& g) {
  Job j{};
  j.a = g.a, j.b = g.b, j.bias = g.bias, j.c = g.c, j.aux = g.aux;
  j.m = g.m, j.n = g.n, j.k = g.k;
  j.a_row = g.a_row, j.a_col = g.a_col, j.b_row = g.b_row, j.b_col = g.b_col, j.c_row = g.c_row, j.c_col = g.c_col;
  j.batches = g.batch.product();
  j.dims = g.batch.size();
  for (int d = 0; d < j.dims; ++d) {
    j.sizes[d] = g.batch[d];
    j.a_batch[d] = g.a_batch[d], j.b_batch[d] = g.b_batch[d], j.c_batch[d] = g.c_batch[d];
  }
  j.alpha = g.alpha, j.beta = g.beta;
  j.bias_is_out = g.bias_dtype == g.out;
  j.epilogue = g.epilogue;
  return j;
}

template <class A>
__device__ A epilogue_of(Epilogue e, A v, A at) {
  const A k = A(0.79788456080286535588), c = A(0.044715);
  switch (e) {
    case Epilogue::relu:
      return v < A(0) ? A(0) : v;
    case Epilogue::gelu:
      return A(0.5) * v * (A(1) + std::erf(v * A(0.70710678118654752440)));
    case Epilogue::gelu_tanh:
      return A(0.5) * v * (A(1) + std::tanh(k * (v + c * v * v * v)));
    case Epilogue::silu:
      return v / (A(1) + std::exp(-v));
    case Epilogue::gelu_tanh_grad: {
      const A t = std::tanh(k * (at + c * at * at * at)), du = k * (A(1) + A(3) * c * at * at);
      return v * (A(0.5) * (A(1) + t) + A(0.5) * at * (A(1) - t * t) * du);
    }
    default:
      return v;
  }
}

// Stores the sum of element (i, j) of the matrix at `base`.
template <class T, class O>
__device__ __forceinline__ void finish(const Job& g, Acc<T> v, int64_t i, int64_t j, int64_t base) {
  const int64_t at = base + i * g.c_row + j * g.c_col;
  O* c = static_cast<O*>(g.c) + at;
  if constexpr (std::is_integral_v<T>) {
    v *= static_cast<uint64_t>(static_cast<int64_t>(g.alpha));
    if (g.beta != 0) v += static_cast<uint64_t>(static_cast<int64_t>(g.beta)) * load(c);
    if (g.bias != nullptr) v += load(static_cast<const T*>(g.bias) + j);
    *c = static_cast<O>(v);
  } else {
    using A = Acc<T>;
    v *= static_cast<A>(g.alpha);
    if (g.beta != 0) v += static_cast<A>(g.beta) * static_cast<A>(widen(*c));
    if (g.bias != nullptr)
      v += g.bias_is_out ? static_cast<A>(widen(static_cast<const O*>(g.bias)[j]))
                         : static_cast<A>(widen(static_cast<const T*>(g.bias)[j]));
    A other = 0;
    if (g.aux != nullptr) {
      O* aux = static_cast<O*>(g.aux) + at;
      if (g.epilogue == Epilogue::gelu_tanh_grad) {
        other = static_cast<A>(widen(*aux));
      } else {
        *aux = narrow<O>(v);
      }
    }
    *c = narrow<O>(epilogue_of<A>(g.epilogue, v, other));
  }
}

template <class T, class O>
__global__ void __launch_bounds__(kTile* kTile) product_kernel(Job g, int64_t tiles_n) {
  __shared__ Acc<T> as[kTile][kTile + 1], bs[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row0 = blockIdx.x / tiles_n * kTile, col0 = blockIdx.x % tiles_n * kTile;
  const int64_t i = row0 + y, j = col0 + x;
  for (int64_t z = blockIdx.y; z < g.batches; z += gridDim.y) {
    int64_t ao, bo, co;
    g.offsets(z, ao, bo, co);
    const T* a = static_cast<const T*>(g.a) + ao;
    const T* b = static_cast<const T*>(g.b) + bo;
    Acc<T> sum = 0;
    for (int64_t l0 = 0; l0 < g.k; l0 += kTile) {
      as[y][x] = i < g.m && l0 + x < g.k ? load(a + i * g.a_row + (l0 + x) * g.a_col) : Acc<T>(0);
      bs[y][x] = j < g.n && l0 + y < g.k ? load(b + (l0 + y) * g.b_row + j * g.b_col) : Acc<T>(0);
      __syncthreads();
#pragma unroll
      for (int l = 0; l < kTile; ++l) sum += as[y][l] * bs[l][x];
      __syncthreads();
    }
    if (i < g.m && j < g.n) finish<T, O>(g, sum, i, j, co);
  }
}

template <class T, class O>
__global__ void __launch_bounds__(kThreads) finish_kernel(Job g) {
  const int64_t total = g.batches * g.m * g.n, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total; e += step) {
    const int64_t row = e / g.n, j = e - row * g.n, z = row / g.m, i = row - z * g.m;
    int64_t ao, bo, co;
    g.offsets(z, ao, bo, co);
    const O v = static_cast<const O*>(g.c)[co + i * g.c_row + j * g.c_col];
    finish<T, O>(g, static_cast<Acc<T>>(widen(v)), i, j, co);
  }
}

template <class B>
__global__ void __launch_bounds__(kThreads) copy_kernel(const B* from, int64_t batch, int64_t row, int64_t col, B* to,
                                                        int64_t total, int64_t rows, int64_t cols) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total; e += step) {
    const int64_t r = e / cols, j = e - r * cols, z = r / rows, i = r - z * rows;
    to[e] = from[z * batch + i * row + j * col];
  }
}

// Rows that are not aligned: a block for each, each thread an element at a time.
template <class B>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(const B* from, int64_t from_row, B* to, int64_t to_row, int64_t rows, int64_t cols) {
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const B* source = from + i * from_row;
    B* target = to + i * to_row;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < cols; j += kThreads) target[j] = source[j];
  }
}

unsigned some_blocks(int64_t n) {
  return static_cast<unsigned>(std::min<int64_t>((n + kThreads - 1) / kThreads, 132 * 32));
}

// Calls f.operator()<T, O>() with the types of A and C.
template <class F>
void dispatch_pair(const Gemm& g, F&& f) {
  if (is_integral(g.in)) return dispatch_ints(g.in, "gemm", [&]<class T>() { f.template operator()<T, T>(); });
  dispatch_floats(g.in, "gemm", [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (g.out == DType::f32) return f.template operator()<T, float>();
    }
    f.template operator()<T, T>();
  });
}

}  // namespace

void gemm_own(const Gemm& g) {
  const Job job = job_of(g);
  const int64_t tiles_m = (g.m + kTile - 1) / kTile, tiles_n = (g.n + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>(tiles_m * tiles_n),
                  static_cast<unsigned>(std::min<int64_t>(job.batches, 65535)));
  dispatch_pair(g,
                [&]<class T, class O>() { product_kernel<T, O><<<grid, kTile * kTile, 0, stream()>>>(job, tiles_n); });
}

void finish_own(const Gemm& g) {
  const Job job = job_of(g);
  if (is_integral(g.in)) return;
  dispatch_floats(g.in, "gemm", [&]<class T>() {
    const unsigned blocks = some_blocks(job.batches * g.m * g.n);
    if constexpr (sizeof(T) == 2) {
      if (g.out == DType::f32) {
        finish_kernel<T, float><<<blocks, kThreads, 0, stream()>>>(job);
        return;
      }
    }
    finish_kernel<T, T><<<blocks, kThreads, 0, stream()>>>(job);
  });
}

void copy_matrices(DType t, const void* from, int64_t batch, int64_t row, int64_t col, void* to, int64_t batches,
                   int64_t rows, int64_t cols) {
  const int64_t total = batches * rows * cols;
  if (total == 0) return;
  dispatch_bytes(t, [&]<class B>() {
    copy_kernel<B><<<some_blocks(total), kThreads, 0, stream()>>>(static_cast<const B*>(from), batch, row, col,
                                                                  static_cast<B*>(to), total, rows, cols);
  });
}

void copy_rows(DType t, const void* from, int64_t from_row, void* to, int64_t to_row, int64_t rows, int64_t cols) {
  if (rows == 0 || cols == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, 1 << 20));
  dispatch_bytes(t, [&]<class B>() {
    copy_rows_kernel<B><<<blocks, kThreads, 0, stream()>>>(static_cast<const B*>(from), from_row, static_cast<B*>(to),
                                                           to_row, rows, cols);
  });
}

}  // namespace strata::cuda
