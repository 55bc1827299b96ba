// Loading cuSOLVER and cuBLAS.

#include "strata/cuda/cusolver.h"

#include <dlfcn.h>

#include <array>
#include <initializer_list>
#include <string>

#include "strata/cuda/check.cuh"

namespace strata::cuda {
namespace {

void* load(std::string_view what, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = dlerror();
  throw DeviceError("linalg", cat("linear algebra on a CUDA device needs ", what,
                                  ", which cannot be loaded: ", reason != nullptr ? reason : "not found"));
}
void* cusolver() {
  static void* const library = load("cuSOLVER (libcusolver.so.12 or .11)",
                                    {"libcusolver.so.12", "libcusolver.so.11", "/usr/local/cuda/lib64/libcusolver.so"});
  return library;
}
void* cublas() {
  static void* const library = load("cuBLAS (libcublas.so.13 or .12)",
                                    {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"});
  return library;
}
template <class F>
void find(F& f, void* library, const std::string& name) {
  f = reinterpret_cast<F>(dlsym(library, name.c_str()));
  check<DeviceError>(f != nullptr, "linalg", "the library has no ", name);
}

// Functions that have one form for all elements.
struct Common {
  decltype(&cusolverDnCreate) create;
  decltype(&cusolverDnSetStream) set_stream;
  decltype(&cusolverDnCreateSyevjInfo) create_syevj;
  decltype(&cusolverDnCreateGesvdjInfo) create_gesvdj;
  decltype(&cusolverDnCreateParams) create_parameters;
  decltype(&cublasCreate_v2) create_blas;
  decltype(&cublasSetStream_v2) set_blas_stream;
};
const Common& common() {
  static const Common table = [] {
    Common t{};
    find(t.create, cusolver(), "cusolverDnCreate");
    find(t.set_stream, cusolver(), "cusolverDnSetStream");
    find(t.create_syevj, cusolver(), "cusolverDnCreateSyevjInfo");
    find(t.create_gesvdj, cusolver(), "cusolverDnCreateGesvdjInfo");
    find(t.create_parameters, cusolver(), "cusolverDnCreateParams");
    find(t.create_blas, cublas(), "cublasCreate_v2");
    find(t.set_blas_stream, cublas(), "cublasSetStream_v2");
    return t;
  }();
  return table;
}

template <class T>
Dense<T> table() {
  const std::string solver = sizeof(T) == 4 ? "cusolverDnS" : "cusolverDnD",
                    blas = sizeof(T) == 4 ? "cublasS" : "cublasD";
  Dense<T> t{};
  find(t.potrf_batched, cusolver(), solver + "potrfBatched");
  find(t.getrf_size, cusolver(), solver + "getrf_bufferSize");
  find(t.getrf, cusolver(), solver + "getrf");
  find(t.getrs, cusolver(), solver + "getrs");
  find(t.geqrf_size, cusolver(), solver + "geqrf_bufferSize");
  find(t.geqrf, cusolver(), solver + "geqrf");
  find(t.orgqr_size, cusolver(), solver + "orgqr_bufferSize");
  find(t.orgqr, cusolver(), solver + "orgqr");
  find(t.syevd_size, cusolver(), solver + "syevd_bufferSize");
  find(t.syevd, cusolver(), solver + "syevd");
  find(t.syevj_batched_size, cusolver(), solver + "syevjBatched_bufferSize");
  find(t.syevj_batched, cusolver(), solver + "syevjBatched");
  find(t.gesvd_size, cusolver(), solver + "gesvd_bufferSize");
  find(t.gesvd, cusolver(), solver + "gesvd");
  find(t.gesvdj_size, cusolver(), solver + "gesvdj_bufferSize");
  find(t.gesvdj, cusolver(), solver + "gesvdj");
  find(t.gesvdj_batched_size, cusolver(), solver + "gesvdjBatched_bufferSize");
  find(t.gesvdj_batched, cusolver(), solver + "gesvdjBatched");
  find(t.trsm, cublas(), blas + "trsm_v2");
  find(t.trsm_batched, cublas(), blas + "trsmBatched");
  find(t.getrf_batched, cublas(), blas + "getrfBatched");
  find(t.getrs_batched, cublas(), blas + "getrsBatched");
  find(t.matinv_batched, cublas(), blas + "matinvBatched");
  return t;
}

// A thread's handles, kept for its life: their making takes milliseconds and memory of the device.
struct Handles {
  cusolverDnHandle_t solver = nullptr;
  cublasHandle_t blas = nullptr;
};
Handles& handles() {
  thread_local std::array<Handles, 64> all;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "linalg", "cudaGetDevice");
  return all[static_cast<size_t>(device)];
}

}  // namespace

template <>
const Dense<float>& dense<float>() {
  static const Dense<float> t = table<float>();
  return t;
}
template <>
const Dense<double>& dense<double>() {
  static const Dense<double> t = table<double>();
  return t;
}

const Generic& generic() {
  static const Generic all = [] {
    Generic t{};
    find(t.potrf_size, cusolver(), "cusolverDnXpotrf_bufferSize");
    find(t.potrf, cusolver(), "cusolverDnXpotrf");
    return t;
  }();
  return all;
}
cusolverDnParams_t generic_parameters() {
  thread_local cusolverDnParams_t p = [] {
    cusolverDnParams_t made = nullptr;
    check_dense(common().create_parameters(&made), "linalg");
    return made;
  }();
  return p;
}

cusolverDnHandle_t cusolver_handle() {
  Handles& h = handles();
  if (h.solver == nullptr) check_dense(common().create(&h.solver), "linalg");
  check_dense(common().set_stream(h.solver, stream()), "linalg");
  return h.solver;
}
cublasHandle_t cublas_handle() {
  Handles& h = handles();
  if (h.blas == nullptr) check_dense(common().create_blas(&h.blas), "linalg");
  check_dense(common().set_blas_stream(h.blas, stream()), "linalg");
  return h.blas;
}
syevjInfo_t syevj_parameters() {
  thread_local syevjInfo_t p = [] {
    syevjInfo_t made = nullptr;
    check_dense(common().create_syevj(&made), "linalg");
    return made;
  }();
  return p;
}
gesvdjInfo_t gesvdj_parameters() {
  thread_local gesvdjInfo_t p = [] {
    gesvdjInfo_t made = nullptr;
    check_dense(common().create_gesvdj(&made), "linalg");
    return made;
  }();
  return p;
}

}  // namespace strata::cuda
