// Products of fp8 and i8. cuBLASLt is column-major: C = A B in rows is C^T = B^T A^T in columns, so our B goes first.

#include "strata/ops/matmul/gemm_scaled.h"

#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"
#include "strata/ops/matmul/gemm_choice.h"

namespace strata::cuda {
namespace {

constexpr int64_t kUnit = 16;

cudaDataType_t data_type(EightBit t) {
  return t == EightBit::e4m3 ? CUDA_R_8F_E4M3 : t == EightBit::e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8I;
}
cudaDataType_t data_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : t == DType::i32 ? CUDA_R_32I : CUDA_R_32F;
}
bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kUnit == 0;
}

// Whether the library, which may be older than the header, takes a scale for each row.
bool by_row_scales(const LtDesc& desc) {
#if CUBLAS_VERSION >= 120900
  const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  for (const auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
    if (cublas_lt().desc_set(desc.p, which, &mode, sizeof mode) != CUBLAS_STATUS_SUCCESS) return false;
  return true;
#else
  return false;
#endif
}

}  // namespace

bool scaled_gemm(const ScaledGemm& g, Device device) {
  const DeviceProperties& card = properties(device.index);
  const bool integers = g.a_type == EightBit::i8;
  if (!integers && card.major * 10 + card.minor < 89) return false;
  if (g.a_type == EightBit::e5m2 && g.b_type == EightBit::e5m2) return false;
  if (g.m == 0 || g.n % kUnit != 0 || g.k % kUnit != 0 || g.lda % kUnit != 0 || g.ldb % kUnit != 0 ||
      g.ldc * size_of(g.out) % kUnit != 0)
    return false;
  if (!aligned(g.a) || !aligned(g.b) || !aligned(g.c) || (g.bias != nullptr && !aligned(g.bias))) return false;

  const LtDesc desc(integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, integers ? CUDA_R_32I : CUDA_R_32F);
  const cublasLtEpilogue_t epilogue = g.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  desc.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  desc.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  desc.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (g.bias != nullptr) {
    desc.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    desc.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(g.out)));
  }
  if (!integers) {
    if (g.by_row && !by_row_scales(desc)) return false;
    if (g.scale_b != nullptr) desc.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g.scale_b);
    if (g.scale_a != nullptr) desc.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g.scale_a);
    if (g.fast) desc.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  }
  const LtLayout first(data_type(g.b_type), g.k, g.n, g.ldb, 1, 0), second(data_type(g.a_type), g.k, g.m, g.lda, 1, 0),
      result(data_type(g.out), g.n, g.m, g.ldc, 1, 0);

  const float one = 1, zero = 0;
  const int32_t whole = 1, nothing = 0;
  const LtCall call{cublas_lt_handle(device.index),
                    desc.p,
                    first.p,
                    second.p,
                    result.p,
                    integers ? static_cast<const void*>(&whole) : &one,
                    integers ? static_cast<const void*>(&nothing) : &zero,
                    g.b,
                    g.a,
                    g.c};
  Problem p;
  p.m = g.m, p.n = g.n, p.k = g.k, p.lda = g.lda, p.ldb = g.ldb, p.ldc = g.ldc;
  p.in = 256 + 16 * static_cast<int32_t>(g.a_type) + static_cast<int32_t>(g.b_type);  // no dtype's number
  p.out = static_cast<int32_t>(g.out);
  p.epilogue = epilogue;
  p.extra = (g.fast ? 1 : 0) + (g.by_row ? 2 : 0) + (g.scale_a == nullptr ? 4 : 0);
  p.by_rows_a = 1;
  p.align_a = p.align_b = p.align_c = kUnit;
  return run_chosen(call, choose(p, call, device), device);
}

}  // namespace strata::cuda
