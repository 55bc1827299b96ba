#pragma once
// LAPACK's Fortran routines that the CPU kernels call. Matrices are column-major; strings have a hidden length at the
// end of the argument list.

#include <cstddef>
#include <mutex>

namespace strata::linalg {

template <class F>
struct Routine;

/// One routine. A build of OpenBLAS without threads shares its scratch memory between callers without a lock: there
/// `turn` is set, and one call runs at a time.
template <class... A>
struct Routine<void(A...)> {
  void (*call)(A...) = nullptr;
  std::mutex* turn = nullptr;
  template <class... Given>
  void operator()(Given... given) const {
    std::unique_lock<std::mutex> lock;
    if (turn) lock = std::unique_lock(*turn);
    call(static_cast<A>(given)...);
  }
};

/// The routines of one element type, float (s) or double (d).
template <class T>
struct Lapack {
  Routine<void(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t)> potrf;
  Routine<void(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info)> getrf;
  Routine<void(const char* trans, const int* n, const int* nrhs, const T* a, const int* lda, const int* pivots, T* b,
               const int* ldb, int* info, size_t)>
      getrs;
  Routine<void(const char* side, const char* uplo, const char* trans, const char* diag, const int* m, const int* n,
               const T* alpha, const T* a, const int* lda, T* b, const int* ldb, size_t, size_t, size_t, size_t)>
      trsm;
  Routine<void(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, const int* lwork, int* info)> geqrf;
  Routine<void(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau, T* work, const int* lwork,
               int* info)>
      orgqr;
  Routine<void(const char* jobz, const char* uplo, const int* n, T* a, const int* lda, T* w, T* work, const int* lwork,
               int* iwork, const int* liwork, int* info, size_t, size_t)>
      syevd;
  Routine<void(const char* jobz, const int* m, const int* n, T* a, const int* lda, T* s, T* u, const int* ldu, T* vt,
               const int* ldvt, T* work, const int* lwork, int* iwork, int* info, size_t)>
      gesdd;
  Routine<void(const char* jobu, const char* jobvt, const int* m, const int* n, T* a, const int* lda, T* s, T* u,
               const int* ldu, T* vt, const int* ldvt, T* work, const int* lwork, int* info, size_t, size_t)>
      gesvd;
  Routine<void(const int* m, const int* n, const int* nrhs, T* a, const int* lda, T* b, const int* ldb, int* jpvt,
               const T* rcond, int* rank, T* work, const int* lwork, int* info)>
      gelsy;
};

/// OpenBLAS's routines. It is loaded by the first call: most programs solve nothing, and loading it at their start
/// would double the time that takes. Beside the file that holds this code it is looked for first. Throws Error where it
/// is not found, with the package that has it. T is float or double.
template <class T>
const Lapack<T>& lapack();

}  // namespace strata::linalg
