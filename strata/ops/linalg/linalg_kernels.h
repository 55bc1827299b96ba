#pragma once
// The kernels of this family. All take strided arguments; results are row-major.

#include <string>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

namespace detail {
/// X with A X = B, A^T X = B with adjoint (X A = B, X A^T = B without left), of matrices B, by LU and pivots, which
/// linalg_lu_factor made of A and which are taken as they are: gradients go to A and B, and use them again.
Tensor solve_factored(const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left = true,
                      bool adjoint = false);
/// The shortest X of least |A X - B|, and the rank of each matrix A; neither is empty.
std::tuple<Tensor, Tensor> lstsq_gelsy(const Tensor& A, const Tensor& B, double rcond);
/// Throws unless LU and pivots have the shapes and dtypes of what linalg_lu_factor makes of square matrices A.
void check_factors(std::string_view op, const Tensor& A, const Tensor& LU, const Tensor& pivots);
}  // namespace detail

#define STRATA_LINALG_KERNELS                                                                                    \
  void cholesky(Tensor& L, Tensor& info, const Tensor& A, bool upper, bool check_errors);                        \
  void lu_factor(Tensor& LU, Tensor& pivots, Tensor& info, const Tensor& A, bool pivot, bool check_errors);      \
  void lu_permutation(Tensor& order, const Tensor& pivots, int64_t rows);                                        \
  void solve(Tensor& X, Tensor& info, const Tensor& A, const Tensor& B, bool left, bool check_errors);           \
  void solve_triangular(Tensor& X, const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular); \
  void qr(Tensor& Q, Tensor& R, const Tensor& A, const std::string& mode);                                       \
  void geqrf(Tensor& a, Tensor& tau, const Tensor& A);                                                           \
  void householder_product(Tensor& Q, const Tensor& A, const Tensor& tau);                                       \
  void eigh(Tensor& values, Tensor& vectors, const Tensor& A, const std::string& uplo);                          \
  void eigvalsh(Tensor& values, const Tensor& A, const std::string& uplo);                                       \
  void svd(Tensor& U, Tensor& S, Tensor& Vh, const Tensor& A, bool full_matrices, const std::string& driver);    \
  void svdvals(Tensor& S, const Tensor& A, const std::string& driver);

namespace linalg_cpu {
STRATA_LINALG_KERNELS
void gelsy(Tensor& X, Tensor& rank, const Tensor& A, const Tensor& B, double rcond);
}  // namespace linalg_cpu
/// On a card; defined in builds with CUDA.
namespace linalg_cuda {
STRATA_LINALG_KERNELS
/// Matrices B [.., n, k]; see the record.
void solve_factored(Tensor& X, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint);
void inverse(Tensor& X, Tensor& info, const Tensor& A);
void cholesky_solve(Tensor& X, const Tensor& B, const Tensor& L, bool upper);
void lu_triangles(Tensor& L, Tensor& U, const Tensor& LU);
}  // namespace linalg_cuda
#undef STRATA_LINALG_KERNELS

}  // namespace strata
