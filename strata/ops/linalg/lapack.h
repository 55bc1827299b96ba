#pragma once
// LAPACK's Fortran routines that the CPU kernels call. Matrices are column-major; strings have a hidden length at the
// end of the argument list.

#include <cstddef>

namespace strata::linalg {

/// The routines of one element type, float (s) or double (d).
template <class T>
struct Lapack {
  void (*potrf)(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);
  void (*getrf)(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);
  void (*getrs)(const char* trans, const int* n, const int* nrhs, const T* a, const int* lda, const int* pivots, T* b,
                const int* ldb, int* info, size_t);
  void (*trsm)(const char* side, const char* uplo, const char* trans, const char* diag, const int* m, const int* n,
               const T* alpha, const T* a, const int* lda, T* b, const int* ldb, size_t, size_t, size_t, size_t);
  void (*geqrf)(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, const int* lwork, int* info);
  void (*orgqr)(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau, T* work, const int* lwork,
                int* info);
  void (*syevd)(const char* jobz, const char* uplo, const int* n, T* a, const int* lda, T* w, T* work, const int* lwork,
                int* iwork, const int* liwork, int* info, size_t, size_t);
  void (*gesdd)(const char* jobz, const int* m, const int* n, T* a, const int* lda, T* s, T* u, const int* ldu, T* vt,
                const int* ldvt, T* work, const int* lwork, int* iwork, int* info, size_t);
  void (*gesvd)(const char* jobu, const char* jobvt, const int* m, const int* n, T* a, const int* lda, T* s, T* u,
                const int* ldu, T* vt, const int* ldvt, T* work, const int* lwork, int* info, size_t, size_t);
};

/// OpenBLAS's routines. It is loaded by the first call: most programs solve nothing, and loading it at their start
/// would double the time that takes. Beside the file that holds this code it is looked for first. Throws Error where it
/// is not found, with the package that has it. T is float or double.
template <class T>
const Lapack<T>& lapack();

}  // namespace strata::linalg
