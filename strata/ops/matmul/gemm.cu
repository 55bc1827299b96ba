// Products through cuBLASLt. It is column-major: C = A B in rows is C^T = B^T A^T in columns, so our B goes first.

#include "strata/ops/matmul/gemm_cuda.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/tile/tensor_map.cuh"
#include "strata/ops/matmul/gemm_choice.h"
#include "strata/ops/matmul/gemm_dot.h"
#include "strata/ops/matmul/gemm_few.h"
#include "strata/ops/matmul/gemm_odd.h"
#include "strata/ops/matmul/gemm_own.h"
#include "strata/ops/matmul/gemm_shape.h"
#include "strata/ops/matmul/gemm_tiles.h"

namespace strata::cuda {
namespace {

cudaDataType_t data_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : t == DType::f64 ? CUDA_R_64F : CUDA_R_32F;
}

// The largest power of two, at most 256, that divides the addresses of all matrices of a batch.
uint32_t alignment(const void* p, int64_t batch_bytes = 0) {
  const uintptr_t a = reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(batch_bytes) | 256;
  return static_cast<uint32_t>(a & (~a + 1));
}

// cuBLASLt's descriptors for a problem and the kernel chosen for it: making them costs more than the launch.
struct Plan {
  Plan(const Problem& p, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t in, cudaDataType_t out)
      : desc(compute, scale),
        first(in, p.by_rows_b ? p.n : p.k, p.by_rows_b ? p.k : p.n, p.ldb, p.batches, p.b_batch),
        second(in, p.by_rows_a ? p.k : p.m, p.by_rows_a ? p.m : p.k, p.lda, p.batches, p.a_batch),
        result(out, p.n, p.m, p.ldc, p.batches, p.c_batch) {}
  LtDesc desc;
  LtLayout first, second, result;
  Choice choice;
};

struct PlanKey {
  Problem problem;
  int64_t device;
  bool operator==(const PlanKey& o) const { return std::memcmp(this, &o, sizeof o) == 0; }
};
struct PlanHash {
  size_t operator()(const PlanKey& k) const {
    return std::hash<std::string_view>()(std::string_view(reinterpret_cast<const char*>(&k), sizeof k));
  }
};

// A thread's plans; when there are too many, all are made anew.
using Plans = std::unordered_map<PlanKey, std::unique_ptr<Plan>, PlanHash>;
constexpr size_t kMostPlans = 512;

// One product with at most one batch dim. False, with nothing queued, where cuBLASLt has no kernel for it.
// g.bias is aligned to 16 bytes. With `fuse` the library applies the epilogue where it can, else a pass of ours.
// `sums`: see gemm_with_sums(); no bias and no epilogue then.
bool multiply(const Gemm& g, const Lie& a, const Lie& b, Device device, bool fuse, void* sums = nullptr) {
  const bool batched = !g.batch.empty();
  const int64_t batches = batched ? g.batch[0] : 1;
  if (batches > INT32_MAX) return false;
  const bool wide = g.in == DType::f64;
  const cublasComputeType_t compute =
      wide ? CUBLAS_COMPUTE_64F
           : (g.in == DType::f32 && (g.tf32 || allow_tf32()) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  const cudaDataType_t in = data_type(g.in), out = data_type(g.out);

  // What the kernel does after the product; the rest is another pass.
  Gemm rest = g;
  rest.alpha = 1, rest.beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const bool bias = g.bias != nullptr && g.bias_dtype == g.out && !wide;
  const bool aux = fuse && g.aux != nullptr && g.in == DType::bf16 && g.out == DType::bf16 && g.n % 8 == 0 &&
                   g.c_row % 8 == 0 && aligned16(g.aux) && aligned16(g.c);
  if (aux && g.epilogue == Epilogue::gelu_tanh && (bias || g.bias == nullptr)) {
    epilogue = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  } else if (aux && g.epilogue == Epilogue::gelu_tanh_grad && g.bias == nullptr) {
    epilogue = CUBLASLT_EPILOGUE_DGELU;
  } else if (fuse && g.epilogue == Epilogue::relu && !wide && (bias || g.bias == nullptr)) {
    epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  } else if (bias) {
    epilogue = CUBLASLT_EPILOGUE_BIAS;
  } else if (sums != nullptr) {
    epilogue = CUBLASLT_EPILOGUE_BGRADB;  // of the library's second operand, which is our A
  }
  const bool uses_aux = epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
                        epilogue == CUBLASLT_EPILOGUE_DGELU;
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    if (bias) rest.bias = nullptr;
    if (epilogue != CUBLASLT_EPILOGUE_BIAS) rest.epilogue = Epilogue::none;
  }

  PlanKey key{};
  Problem& p = key.problem;
  key.device = device.index;
  p.m = g.m, p.n = g.n, p.k = g.k, p.lda = a.ld, p.ldb = b.ld, p.ldc = g.c_row;
  p.ld_aux = uses_aux ? g.c_row : 0;
  p.batches = batches;
  if (batched) p.a_batch = g.a_batch[0], p.b_batch = g.b_batch[0], p.c_batch = g.c_batch[0];
  p.in = static_cast<int32_t>(g.in), p.out = static_cast<int32_t>(g.out);
  p.compute = compute, p.epilogue = epilogue;
  p.by_rows_a = a.by_rows, p.by_rows_b = b.by_rows, p.accumulates = g.beta != 0;
  p.align_a = alignment(g.a, p.a_batch * size_of(g.in)), p.align_b = alignment(g.b, p.b_batch * size_of(g.in));
  p.align_c = alignment(g.c, p.c_batch * size_of(g.out));
  p.align_aux = uses_aux ? alignment(g.aux) : 0;

  thread_local Plans plans;
  if (plans.size() >= kMostPlans && !plans.contains(key)) plans.clear();
  std::unique_ptr<Plan>& known = plans[key];
  const bool fresh = known == nullptr;
  if (fresh) {
    known = std::make_unique<Plan>(p, compute, wide ? CUDA_R_64F : CUDA_R_32F, in, out);
    const LtDesc& desc = known->desc;
    desc.set(CUBLASLT_MATMUL_DESC_TRANSA, b.by_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
    desc.set(CUBLASLT_MATMUL_DESC_TRANSB, a.by_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
    desc.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (bias || sums != nullptr) desc.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(out));
    if (uses_aux) desc.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.c_row);
  }
  const Plan& plan = *known;
  if (bias) plan.desc.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  if (sums != nullptr) plan.desc.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(sums));
  if (uses_aux) plan.desc.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.aux);
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  const LtCall call{cublas_lt_handle(device.index),
                    plan.desc.p,
                    plan.first.p,
                    plan.second.p,
                    plan.result.p,
                    wide ? static_cast<const void*>(&g.alpha) : &alpha,
                    wide ? static_cast<const void*>(&g.beta) : &beta,
                    g.b,
                    g.a,
                    g.c};
  if (fresh) {
    try {
      known->choice = choose(p, call, device);
    } catch (...) {
      plans.erase(key);
      throw;
    }
  }
  if (!run_chosen(call, plan.choice, device)) return false;
  if (rest.bias != nullptr || rest.epilogue != Epilogue::none) finish_own(rest);
  return true;
}

void check_dtypes(const Gemm& g) {
  const bool reduced = is_reduced_floating(g.in);
  check<DTypeError>(g.in != DType::boolean && (g.out == g.in || (reduced && g.out == DType::f32)), "gemm",
                    "no product of ", g.in, " into ", g.out);
  check<DTypeError>(g.bias == nullptr || g.bias_dtype == g.in || g.bias_dtype == g.out, "gemm", "bias is ",
                    g.bias_dtype, ", wants ", g.in, " or ", g.out);
  check<DTypeError>(g.epilogue == Epilogue::none || is_floating(g.in), "gemm",
                    "an epilogue wants a floating dtype, got ", g.in);
}

// Dense rows of what lies otherwise: [batches, rows, cols] from one batch dim.
Tensor dense(DType t, const void* from, Shape batch, Strides& batch_strides, int64_t rows, int64_t cols, int64_t& row,
             int64_t& col, Device device) {
  const int64_t stride = batch.empty() ? 0 : batch_strides[0], batches = stride == 0 ? 1 : batch[0];
  Tensor to = empty({{batches, rows, cols}, t, device, std::nullopt});
  copy_matrices(t, from, stride, row, col, to.raw_data(), batches, rows, cols);
  row = cols, col = 1;
  if (stride != 0) batch_strides[0] = rows * cols;
  return to;
}

// STRATA_MATMUL=tiles at the start of the program: our own kernels where they fit, for measuring and for programs that
// want no library's choice.
bool tiles_first() {
  static const bool first = [] {
    const char* const s = std::getenv("STRATA_MATMUL");
    return s != nullptr && std::string_view(s) == "tiles";
  }();
  return first;
}

// Products of i8, whose sums wrap: on tensor cores where the depth is a multiple of 16, an operand whose depth is not
// contiguous copied first. The library has no such result.
bool multiply_i8(const Gemm& given, Device device) {
  constexpr double kWorthCopies = 1 << 20;
  Gemm g = given;
  const double products = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (g.in != DType::i8 || !g.batch.empty() || g.k % 16 != 0 || g.c_col != 1 || g.c_row % 16 != 0 || !aligned16(g.c) ||
      g.alpha != 1 || g.beta != 0 || g.bias != nullptr || products < kWorthCopies || !tile::has_tiles())
    return false;
  Tensor a_copy, b_copy;
  if (g.a_col != 1 || g.a_row % 16 != 0 || !aligned16(g.a)) {
    a_copy = empty({{g.m, g.k}, g.in, device, std::nullopt});
    copy_matrices(g.in, g.a, 0, g.a_row, g.a_col, a_copy.raw_data(), 1, g.m, g.k);
    g.a = a_copy.raw_data(), g.a_row = g.k, g.a_col = 1;
  }
  if (g.b_row != 1 || g.b_col % 16 != 0 || !aligned16(g.b)) {
    b_copy = empty({{g.n, g.k}, g.in, device, std::nullopt});
    copy_matrices(g.in, g.b, 0, g.b_col, g.b_row, b_copy.raw_data(), 1, g.n, g.k);
    g.b = b_copy.raw_data(), g.b_col = g.k, g.b_row = 1;
  }
  return gemm_tiles(g, device);
}

}  // namespace

void gemm(const Gemm& given, Device device) {
  check_dtypes(given);
  if (given.m == 0 || given.n == 0 || given.batch.product() == 0) return;
  check((given.epilogue != Epilogue::gelu_tanh_grad && given.aux == nullptr) ||
            (given.aux != nullptr && given.batch.empty() && given.beta == 0),
        "gemm", "this epilogue needs aux, no batch and beta 0");
  Gemm g = given;
  merge_batch(g);
  if (g.k != 0 && multiply_i8(g, device)) return;
  if (g.k == 0 || is_integral(g.in)) return gemm_own(g);
  // A column of results is its own transpose; so is one that lies by columns, unless a bias tells the two apart.
  if (g.c_col != 1 && g.n > 1) {
    if (g.bias != nullptr || g.aux != nullptr || (g.c_row != 1 && g.m > 1)) return gemm_own(g);
    transpose(g);
  }
  if (g.m > 1 && g.c_row < g.n) return gemm_own(g);
  g.c_col = 1;
  if (g.m == 1) g.c_row = g.n;
  if (gemm_dot(g, device) || gemm_few(g, device)) return;
  if (tiles_first() && g.batch.empty() && gemm_tiles(g, device)) return;
  if (g.batch.empty() && gemm_odd(g, device)) return;

  // The library wants an aligned bias, and adding it later would round twice.
  Tensor aligned_bias;
  if (g.bias != nullptr && !aligned16(g.bias)) {
    aligned_bias = empty({{g.n}, g.bias_dtype, device, std::nullopt});
    copy_matrices(g.bias_dtype, g.bias, 0, 0, 1, aligned_bias.raw_data(), 1, 1, g.n);
    g.bias = aligned_bias.raw_data();
  }

  // The longest batch dim goes to the library, the others are a loop.
  int inner = -1;
  for (int d = 0; d < g.batch.size(); ++d)
    if (inner < 0 || g.batch[d] > g.batch[inner]) inner = d;
  const int64_t steps = inner < 0 ? 1 : g.batch.product() / g.batch[inner];
  const int64_t in = size_of(g.in), out = size_of(g.out);
  for (int64_t s = 0; s < steps; ++s) {
    Gemm one = g;
    int64_t index = s, ao = 0, bo = 0, co = 0;
    for (int d = g.batch.size() - 1; d >= 0; --d) {
      if (d == inner) continue;
      const int64_t i = index % g.batch[d];
      index /= g.batch[d];
      ao += i * g.a_batch[d], bo += i * g.b_batch[d], co += i * g.c_batch[d];
    }
    if (inner >= 0) {
      one.batch = {g.batch[inner]};
      one.a_batch = {g.a_batch[inner]}, one.b_batch = {g.b_batch[inner]}, one.c_batch = {g.c_batch[inner]};
    }
    one.a = static_cast<const char*>(g.a) + ao * in;
    one.b = static_cast<const char*>(g.b) + bo * in;
    one.c = static_cast<char*>(g.c) + co * out;
    if (tiles_first() && !g.batch.empty() && gemm_tiles(one, device)) continue;
    Tensor a_copy, b_copy;
    auto a = lie(one.m, one.k, one.a_row, one.a_col), b = lie(one.k, one.n, one.b_row, one.b_col);
    if (!a) {
      a_copy = dense(one.in, one.a, one.batch, one.a_batch, one.m, one.k, one.a_row, one.a_col, device);
      one.a = a_copy.raw_data();
      a = Lie{true, one.k};
    }
    if (!b) {
      b_copy = dense(one.in, one.b, one.batch, one.b_batch, one.k, one.n, one.b_row, one.b_col, device);
      one.b = b_copy.raw_data();
      b = Lie{true, one.n};
    }
    const bool done =
        multiply(one, *a, *b, device, true) || (one.epilogue != Epilogue::none && multiply(one, *a, *b, device, false));
    if (!done) gemm_own(one);
  }
}

bool gemm_with_sums(const Gemm& g, void* sums, Device device) {
  check_dtypes(g);
  const auto a = lie(g.m, g.k, g.a_row, g.a_col), b = lie(g.k, g.n, g.b_row, g.b_col);
  const bool plain = g.batch.empty() && g.bias == nullptr && g.epilogue == Epilogue::none && g.aux == nullptr &&
                     g.c_col == 1 && g.c_row >= g.n && g.m > 1 && g.n > 1 && g.k > 0;
  if (!plain || !a || !b || !is_floating(g.in) || g.in == DType::f64 || !aligned16(sums) || tiles_first()) return false;
  return multiply(g, *a, *b, device, false, sums);
}

}  // namespace strata::cuda
