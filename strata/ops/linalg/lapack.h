#pragma once
// LAPACK's Fortran routines that the CPU kernels call. Matrices are column-major; strings have a hidden length at the
// end of the argument list.

#include <cstddef>

namespace strata::linalg {

#define STRATA_LAPACK_ROUTINES(T, p)                                                                                 \
  extern "C" {                                                                                                       \
  void p##potrf_(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);                           \
  void p##getrf_(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);                          \
  void p##getrs_(const char* trans, const int* n, const int* nrhs, const T* a, const int* lda, const int* pivots,    \
                 T* b, const int* ldb, int* info, size_t);                                                           \
  void p##trsm_(const char* side, const char* uplo, const char* trans, const char* diag, const int* m, const int* n, \
                const T* alpha, const T* a, const int* lda, T* b, const int* ldb, size_t, size_t, size_t, size_t);   \
  void p##geqrf_(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, const int* lwork, int* info);    \
  void p##orgqr_(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau, T* work,              \
                 const int* lwork, int* info);                                                                       \
  void p##syevd_(const char* jobz, const char* uplo, const int* n, T* a, const int* lda, T* w, T* work,              \
                 const int* lwork, int* iwork, const int* liwork, int* info, size_t, size_t);                        \
  void p##gesdd_(const char* jobz, const int* m, const int* n, T* a, const int* lda, T* s, T* u, const int* ldu,     \
                 T* vt, const int* ldvt, T* work, const int* lwork, int* iwork, int* info, size_t);                  \
  void p##gesvd_(const char* jobu, const char* jobvt, const int* m, const int* n, T* a, const int* lda, T* s, T* u,  \
                 const int* ldu, T* vt, const int* ldvt, T* work, const int* lwork, int* info, size_t, size_t);      \
  }
STRATA_LAPACK_ROUTINES(float, s)
STRATA_LAPACK_ROUTINES(double, d)
#undef STRATA_LAPACK_ROUTINES

/// The routines of one element type.
template <class T>
struct Lapack;
#define STRATA_LAPACK_TABLE(T, p)            \
  template <>                                \
  struct Lapack<T> {                         \
    static constexpr auto potrf = p##potrf_; \
    static constexpr auto getrf = p##getrf_; \
    static constexpr auto getrs = p##getrs_; \
    static constexpr auto trsm = p##trsm_;   \
    static constexpr auto geqrf = p##geqrf_; \
    static constexpr auto orgqr = p##orgqr_; \
    static constexpr auto syevd = p##syevd_; \
    static constexpr auto gesdd = p##gesdd_; \
    static constexpr auto gesvd = p##gesvd_; \
  };
STRATA_LAPACK_TABLE(float, s)
STRATA_LAPACK_TABLE(double, d)
#undef STRATA_LAPACK_TABLE

}  // namespace strata::linalg
