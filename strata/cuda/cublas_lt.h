#pragma once
// cuBLASLt, found at run time: a program that never multiplies on a device needs no library of 500 MB beside it.

#include <string_view>

#include <cublasLt.h>

#include "strata/core/error.h"

namespace strata::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusName) status_name;
};
/// Throws DeviceError where the library or a function of it is missing.
const CublasLt& cublas_lt();
/// The handle of a device, made at first use; any thread may use it.
cublasLtHandle_t cublas_lt_handle(int device);

inline void check_lt(cublasStatus_t s, std::string_view what) {
  check<DeviceError>(s == CUBLAS_STATUS_SUCCESS, "matmul", what, " failed: ", cublas_lt().status_name(s));
}

/// Descriptors that destroy themselves.
struct LtDesc {
  cublasLtMatmulDesc_t p = nullptr;
  LtDesc(cublasComputeType_t compute, cudaDataType_t scale) {
    check_lt(cublas_lt().desc_create(&p, compute, scale), "cublasLtMatmulDescCreate");
  }
  ~LtDesc() { cublas_lt().desc_destroy(p); }
  LtDesc(const LtDesc&) = delete;
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) const {
    check_lt(cublas_lt().desc_set(p, what, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
};
struct LtLayout {
  cublasLtMatrixLayout_t p = nullptr;
  LtLayout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld, int64_t batches, int64_t stride) {
    check_lt(cublas_lt().layout_create(&p, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
             "cublasLtMatrixLayoutCreate");
    if (batches == 1) return;
    const auto count = static_cast<int32_t>(batches);
    check_lt(cublas_lt().layout_set(p, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "the batch count");
    check_lt(cublas_lt().layout_set(p, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
             "the batch stride");
  }
  ~LtLayout() { cublas_lt().layout_destroy(p); }
  LtLayout(const LtLayout&) = delete;
};
struct LtPreference {
  cublasLtMatmulPreference_t p = nullptr;
  LtPreference() { check_lt(cublas_lt().preference_create(&p), "cublasLtMatmulPreferenceCreate"); }
  ~LtPreference() { cublas_lt().preference_destroy(p); }
  LtPreference(const LtPreference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t what, const T& value) {
    check_lt(cublas_lt().preference_set(p, what, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
  }
};

}  // namespace strata::cuda
