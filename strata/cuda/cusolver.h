#pragma once
// cuSOLVER's dense routines and the few of cuBLAS beside them, found at run time as cuBLASLt is. Matrices are
// column-major.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cublas_v2.h>
#include <cusolverDn.h>

#include "strata/core/error.h"

namespace strata::cuda {

/// The routines for elements T, float or double; their arguments are those of cusolverDn<S|D>... and cublas<S|D>...
template <class T>
struct Dense {
  using Handle = cusolverDnHandle_t;
  using Status = cusolverStatus_t;
  Status (*potrf_batched)(Handle, cublasFillMode_t, int, T**, int, int*, int);
  Status (*getrf_size)(Handle, int, int, T*, int, int*);
  Status (*getrf)(Handle, int, int, T*, int, T*, int*, int*);
  Status (*getrs)(Handle, cublasOperation_t, int, int, const T*, int, const int*, T*, int, int*);
  Status (*geqrf_size)(Handle, int, int, T*, int, int*);
  Status (*geqrf)(Handle, int, int, T*, int, T*, T*, int, int*);
  Status (*orgqr_size)(Handle, int, int, int, const T*, int, const T*, int*);
  Status (*orgqr)(Handle, int, int, int, T*, int, const T*, T*, int, int*);
  Status (*syevd_size)(Handle, cusolverEigMode_t, cublasFillMode_t, int, const T*, int, const T*, int*);
  Status (*syevd)(Handle, cusolverEigMode_t, cublasFillMode_t, int, T*, int, T*, T*, int, int*);
  Status (*syevj_batched_size)(Handle, cusolverEigMode_t, cublasFillMode_t, int, const T*, int, const T*, int*,
                               syevjInfo_t, int);
  Status (*syevj_batched)(Handle, cusolverEigMode_t, cublasFillMode_t, int, T*, int, T*, T*, int, int*, syevjInfo_t,
                          int);
  Status (*gesvd_size)(Handle, int, int, int*);
  Status (*gesvd)(Handle, signed char, signed char, int, int, T*, int, T*, T*, int, T*, int, T*, int, T*, int*);
  Status (*gesvdj_size)(Handle, cusolverEigMode_t, int, int, int, const T*, int, const T*, const T*, int, const T*, int,
                        int*, gesvdjInfo_t);
  Status (*gesvdj)(Handle, cusolverEigMode_t, int, int, int, T*, int, T*, T*, int, T*, int, T*, int, int*,
                   gesvdjInfo_t);
  Status (*gesvdj_batched_size)(Handle, cusolverEigMode_t, int, int, const T*, int, const T*, const T*, int, const T*,
                                int, int*, gesvdjInfo_t, int);
  Status (*gesvdj_batched)(Handle, cusolverEigMode_t, int, int, T*, int, T*, T*, int, T*, int, T*, int, int*,
                           gesvdjInfo_t, int);
  cublasStatus_t (*trsm)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int,
                         int, const T*, const T*, int, T*, int);
  cublasStatus_t (*trsm_batched)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t,
                                 cublasDiagType_t, int, int, const T*, const T* const*, int, T* const*, int, int);
  cublasStatus_t (*getrf_batched)(cublasHandle_t, int, T* const*, int, int*, int*, int);
  cublasStatus_t (*getrs_batched)(cublasHandle_t, cublasOperation_t, int, int, const T* const*, int, const int*,
                                  T* const*, int, int*, int);
  cublasStatus_t (*matinv_batched)(cublasHandle_t, int, const T* const*, int, T* const*, int, int*, int);
};
/// Throws DeviceError where a library or a function of it is missing.
template <class T>
const Dense<T>& dense();

/// The routines whose arguments say the elements' type; their arguments are those of cusolverDnX... Cholesky's factor
/// is here alone.
struct Generic {
  using Handle = cusolverDnHandle_t;
  using Status = cusolverStatus_t;
  Status (*potrf_size)(Handle, cusolverDnParams_t, cublasFillMode_t, int64_t, cudaDataType, const void*, int64_t,
                       cudaDataType, size_t*, size_t*);
  Status (*potrf)(Handle, cusolverDnParams_t, cublasFillMode_t, int64_t, cudaDataType, void*, int64_t, cudaDataType,
                  void*, size_t, void*, size_t, int*);
};
const Generic& generic();
/// This thread's parameters of the generic routines, at their defaults.
cusolverDnParams_t generic_parameters();

/// Parameters of Jacobi's methods with their defaults.
syevjInfo_t syevj_parameters();
gesvdjInfo_t gesvdj_parameters();
/// This thread's handles of the current device, on its current stream.
cusolverDnHandle_t cusolver_handle();
cublasHandle_t cublas_handle();

inline void check_dense(cusolverStatus_t s, std::string_view op) {
  check<DeviceError>(s == CUSOLVER_STATUS_SUCCESS, op, "cuSOLVER failed with status ", static_cast<int>(s));
}
inline void check_dense(cublasStatus_t s, std::string_view op) {
  check<DeviceError>(s == CUBLAS_STATUS_SUCCESS, op, "cuBLAS failed with status ", static_cast<int>(s));
}

}  // namespace strata::cuda
