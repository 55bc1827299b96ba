// The parts of a product that are left when its sizes are rounded down to multiples of 8.

#include "strata/ops/matmul/gemm_odd.h"

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/matmul/gemm_own.h"

namespace strata::cuda {
namespace {

constexpr int kUnit = 8;  // elements in 16 bytes
constexpr int kThreads = 256;
constexpr double kLarge = 1e9;   // flops
constexpr int64_t kLeast = 64;   // of each size: below, a copy costs more than it saves
constexpr int64_t kSlice = 128;  // rows that one block sums

// What a finished sum becomes: alpha sum + beta C + bias.
struct Finish {
  float alpha, beta;
  const void* bias;
  bool bias_is_out;

  template <class T, class O>
  __device__ __forceinline__ void store(float sum, int64_t j, O* c) const {
    float v = alpha * sum;
    if (beta != 0) v += beta * static_cast<float>(widen(*c));
    if (bias != nullptr)
      v += bias_is_out ? static_cast<float>(widen(static_cast<const O*>(bias)[j]))
                       : widen(static_cast<const T*>(bias)[j]);
    *c = narrow<O>(v);
  }
};
Finish finish_of(const Gemm& g) {
  return {static_cast<float>(g.alpha), static_cast<float>(g.beta), g.bias, g.bias_dtype == g.out};
}

// C[i, j] from sum_l A[i, l] B[l, j] for fewer than 8 columns j; A's rows and B's columns are dense. A warp for each
// row.
template <class T, class O>
__global__ void __launch_bounds__(kThreads)
    few_columns_kernel(const T* a, int64_t lda, const T* b, int64_t ldb, O* c, int64_t ldc, int64_t m, int n, int64_t k,
                       Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= m) return;
  float sum[kUnit] = {};
  for (int64_t l = lane; l < k; l += kWarp) {
    const float x = widen(a[i * lda + l]);
#pragma unroll
    for (int j = 0; j < kUnit - 1; ++j) {
      if (j < n) sum[j] += x * widen(b[j * ldb + l]);
    }
  }
#pragma unroll
  for (int j = 0; j < kUnit - 1; ++j) {
    if (j >= n) break;
    const float total = warp_reduce(sum[j], Sum());
    if (lane == 0) finish.store<T>(total, j, c + i * ldc + j);
  }
}

// partial[s, i, j] = the sum over slice s of A[i, l] B[l, j] for fewer than 8 rows i; A's columns and B's rows are
// dense. A thread for each j.
template <class T>
__global__ void __launch_bounds__(kThreads)
    few_rows_kernel(const T* a, int64_t lda, const T* b, int64_t ldb, float* partial, int m, int64_t n, int64_t k) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= n) return;
  const int64_t begin = blockIdx.y * kSlice, end = begin + kSlice < k ? begin + kSlice : k;
  float sum[kUnit] = {};
#pragma unroll 4
  for (int64_t l = begin; l < end; ++l) {
    const float x = widen(b[l * ldb + j]);
#pragma unroll
    for (int i = 0; i < kUnit - 1; ++i) {
      if (i < m) sum[i] += x * widen(a[l * lda + i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kUnit - 1; ++i) {
    if (i < m) partial[(blockIdx.y * m + i) * n + j] = sum[i];
  }
}
template <class T, class O>
__global__ void __launch_bounds__(kThreads)
    sum_slices_kernel(const float* partial, int64_t slices, O* c, int64_t ldc, int64_t m, int64_t n, Finish finish) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= m * n) return;
  const int64_t i = e / n, j = e - i * n;
  float v = 0;
  for (int64_t s = 0; s < slices; ++s) v += partial[s * m * n + e];
  finish.store<T>(v, j, c + i * ldc + j);
}

// C[i, j] from S[i, j] + sum_l A[i, l] B[l, j] for fewer than 8 summands l.
template <class T, class O>
__global__ void __launch_bounds__(kThreads)
    few_summands_kernel(const float* s, int64_t lds, const T* a, int64_t a_row, int64_t a_col, const T* b,
                        int64_t b_row, int64_t b_col, O* c, int64_t ldc, int64_t m, int64_t n, int k, Finish finish) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; j < n; j += step) {
    for (int64_t i = blockIdx.y; i < m; i += gridDim.y) {
      float v = s[i * lds + j];
      for (int l = 0; l < k; ++l) v += widen(a[i * a_row + l * a_col]) * widen(b[l * b_row + j * b_col]);
      finish.store<T>(v, j, c + i * ldc + j);
    }
  }
}

// Calls f.operator()<T, O>() with the types of A and C.
template <class F>
void dispatch_reduced(const Gemm& g, F&& f) {
  const auto with = [&]<class T>() {
    if (g.out == DType::f32) {
      f.template operator()<T, float>();
    } else {
      f.template operator()<T, T>();
    }
  };
  if (g.in == DType::bf16) {
    with.template operator()<BFloat16>();
  } else {
    with.template operator()<Half>();
  }
}

// The part of g from row i, column j and summand l on.
Gemm part(const Gemm& g, int64_t i, int64_t m, int64_t j, int64_t n, int64_t l, int64_t k) {
  Gemm p = g;
  p.m = m, p.n = n, p.k = k;
  const int64_t in = size_of(g.in), out = size_of(g.out);
  p.a = static_cast<const char*>(g.a) + (i * g.a_row + l * g.a_col) * in;
  p.b = static_cast<const char*>(g.b) + (l * g.b_row + j * g.b_col) * in;
  p.c = static_cast<char*>(g.c) + (i * g.c_row + j) * out;
  if (g.bias != nullptr) p.bias = static_cast<const char*>(g.bias) + j * size_of(g.bias_dtype);
  return p;
}

void few_columns(const Gemm& g, const Lie& a, const Lie& b, Device device) {
  if (!a.by_rows || b.by_rows) return gemm(g, device);
  const unsigned blocks = blocks_for(g.m, kThreads / kWarp);
  dispatch_reduced(g, [&]<class T, class O>() {
    few_columns_kernel<T, O><<<blocks, kThreads, 0, stream()>>>(static_cast<const T*>(g.a), a.ld,
                                                                static_cast<const T*>(g.b), b.ld, static_cast<O*>(g.c),
                                                                g.c_row, g.m, static_cast<int>(g.n), g.k, finish_of(g));
  });
}

void few_rows(const Gemm& g, const Lie& a, const Lie& b, Device device) {
  const int64_t slices = (g.k + kSlice - 1) / kSlice;
  if (a.by_rows || !b.by_rows || slices > 65535) return gemm(g, device);
  const Tensor partial = empty({{slices, g.m, g.n}, DType::f32, device, std::nullopt});
  auto* p = static_cast<float*>(partial.raw_data());
  const dim3 grid(blocks_for(g.n, kThreads), static_cast<unsigned>(slices));
  dispatch_reduced(g, [&]<class T, class O>() {
    few_rows_kernel<T><<<grid, kThreads, 0, stream()>>>(static_cast<const T*>(g.a), a.ld, static_cast<const T*>(g.b),
                                                        b.ld, p, static_cast<int>(g.m), g.n, g.k);
    sum_slices_kernel<T, O><<<blocks_for(g.m * g.n, kThreads), kThreads, 0, stream()>>>(
        p, slices, static_cast<O*>(g.c), g.c_row, g.m, g.n, finish_of(g));
  });
}

void split_summands(const Gemm& g, int64_t k, Device device) {
  Gemm main = part(g, 0, g.m, 0, g.n, 0, k), rest = part(g, 0, g.m, 0, g.n, k, g.k - k);
  main.bias = nullptr;
  main.alpha = 1, main.beta = 0;
  main.out = DType::f32;
  main.c_row = (g.n + kUnit - 1) / kUnit * kUnit;
  const Tensor sums = empty({{g.m, main.c_row}, DType::f32, device, std::nullopt});
  main.c = sums.raw_data();
  gemm(main, device);
  const dim3 grid(blocks_for(g.n, kThreads), static_cast<unsigned>(std::min<int64_t>(g.m, 65535)));
  dispatch_reduced(g, [&]<class T, class O>() {
    few_summands_kernel<T, O><<<grid, kThreads, 0, stream()>>>(
        static_cast<const float*>(main.c), main.c_row, static_cast<const T*>(rest.a), g.a_row, g.a_col,
        static_cast<const T*>(rest.b), g.b_row, g.b_col, static_cast<O*>(g.c), g.c_row, g.m, g.n,
        static_cast<int>(rest.k), finish_of(g));
  });
}

bool well(const void* p, int64_t ld) {
  return ld % kUnit == 0 && aligned16(p);
}

// A copy of the [rows, cols] matrix whose rows are aligned.
Tensor padded(DType t, const void* from, int64_t rows, int64_t cols, int64_t ld, Device device) {
  const int64_t wide = (cols + kUnit - 1) / kUnit * kUnit;
  Tensor to = empty({{rows, wide}, t, device, std::nullopt});
  copy_rows(t, from, ld, to.raw_data(), wide, rows, cols);
  return to;
}

}  // namespace

std::optional<Lie> lie(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) return Lie{true, rows == 1 ? cols : row};
  if ((row == 1 || rows == 1) && (col >= rows || cols == 1)) return Lie{false, cols == 1 ? rows : col};
  return std::nullopt;
}

namespace {
bool large(const Gemm& g) {
  return std::min({g.m, g.n, g.k}) >= kLeast &&
         2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) >= kLarge;
}

bool multiply_large(const Gemm& g, Device device) {
  const auto a = lie(g.m, g.k, g.a_row, g.a_col), b = lie(g.k, g.n, g.b_row, g.b_col);
  if (!a || !b) return false;

  // Rows first: copies where they are not aligned.
  const bool well_a = well(g.a, a->ld), well_b = well(g.b, b->ld), well_c = well(g.c, g.c_row);
  if (!well_c && g.beta != 0) return false;
  if (!well_a || !well_b || !well_c) {
    Gemm aligned = g;
    Tensor copy_a, copy_b, copy_c;
    if (!well_a) {
      const int64_t rows = a->by_rows ? g.m : g.k, cols = a->by_rows ? g.k : g.m;
      copy_a = padded(g.in, g.a, rows, cols, a->ld, device);
      aligned.a = copy_a.raw_data();
      (a->by_rows ? aligned.a_row : aligned.a_col) = copy_a.size(1);
    }
    if (!well_b) {
      const int64_t rows = b->by_rows ? g.k : g.n, cols = b->by_rows ? g.n : g.k;
      copy_b = padded(g.in, g.b, rows, cols, b->ld, device);
      aligned.b = copy_b.raw_data();
      (b->by_rows ? aligned.b_row : aligned.b_col) = copy_b.size(1);
    }
    if (!well_c) {
      aligned.c_row = (g.n + kUnit - 1) / kUnit * kUnit;
      copy_c = empty({{g.m, aligned.c_row}, g.out, device, std::nullopt});
      aligned.c = copy_c.raw_data();
    }
    gemm(aligned, device);
    if (!well_c) copy_rows(g.out, aligned.c, aligned.c_row, g.c, g.c_row, g.m, g.n);
    return true;
  }

  // Sizes that matrices are dense along.
  const bool k_matters = a->by_rows || !b->by_rows;
  const int64_t m = a->by_rows ? g.m : g.m / kUnit * kUnit, n = g.n / kUnit * kUnit,
                k = k_matters ? g.k / kUnit * kUnit : g.k;
  if (k != g.k) {
    split_summands(g, k, device);
  } else if (n != g.n) {
    gemm(part(g, 0, g.m, 0, n, 0, k), device);
    few_columns(part(g, 0, g.m, n, g.n - n, 0, k), *a, *b, device);
  } else if (m != g.m) {
    gemm(part(g, 0, m, 0, n, 0, k), device);
    few_rows(part(g, m, g.m - m, 0, n, 0, k), *a, *b, device);
  } else {
    return false;
  }
  return true;
}
}  // namespace

bool gemm_odd(const Gemm& g, Device device) {
  if (!is_reduced_floating(g.in) || g.aux != nullptr || g.epilogue != Epilogue::none) return false;
  if (large(g) && multiply_large(g, device)) return true;
  if (g.bias == nullptr || g.out == DType::f32 || (g.n % kUnit == 0 && well(g.c, g.c_row))) return false;
  split_summands(g, g.k, device);  // cuBLASLt would round the product before it adds the bias
  return true;
}

}  // namespace strata::cuda
