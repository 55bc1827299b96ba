#pragma once
// Linear algebra over the matrices in the last two dimensions, every other dimension being a batch: PyTorch's
// torch.linalg. f32 and f64; LAPACK on the CPU (one thread a matrix, the batch spread over the pool), cuSOLVER on a
// card. DTypeError for other dtypes, ShapeError for sizes that do not fit, LinAlgError where a matrix has no such
// decomposition. Gradients can be differentiated again.

#include <optional>
#include <string_view>
#include <tuple>

#include "strata/core/error.h"
#include "strata/core/tensor.h"

namespace strata {

/// A matrix that has no such decomposition, or no inverse; the text names the batch element.
class LinAlgError : public Error {
  using Error::Error;
};

/// @name Factors
/// @{
/// L with A = L L^T (with `upper` U with A = U^T U) of positive definite matrices, of which one triangle is read.
Tensor linalg_cholesky(const Tensor& A, bool upper = false);
/// The same without an error: (L, info), info i32 being 0, or the order of the first minor that is not positive.
std::tuple<Tensor, Tensor> linalg_cholesky_ex(const Tensor& A, bool upper = false, bool check_errors = false);
/// X with A X = B, from A's factor L.
Tensor cholesky_solve(const Tensor& B, const Tensor& L, bool upper = false);
/// The inverse of A, from its factor L.
Tensor cholesky_inverse(const Tensor& L, bool upper = false);
/// (LU, pivots): A = P L U with L (unit diagonal) below and U on and above the diagonal of LU; row i was exchanged
/// with row pivots[i] (i32, from 1).
std::tuple<Tensor, Tensor> linalg_lu_factor(const Tensor& A, bool pivot = true);
/// (LU, pivots, info), info being 0 or the place, from 1, of the first zero on U's diagonal.
std::tuple<Tensor, Tensor, Tensor> linalg_lu_factor_ex(const Tensor& A, bool pivot = true, bool check_errors = false);
/// The order of rows (i64) that the exchanges `pivots` of `rows` rows make: A[order] = L U.
Tensor lu_permutation(const Tensor& pivots, int64_t rows);
/// (P, L, U) from linalg_lu_factor's results; parts that are not asked for are empty.
std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& LU, const Tensor& pivots, bool unpack_data = true,
                                             bool unpack_pivots = true);
/// (P, L, U) with A = P L U.
std::tuple<Tensor, Tensor, Tensor> linalg_lu(const Tensor& A, bool pivot = true);
/// X with A X = B (X A = B without `left`; A^T with `adjoint`), from linalg_lu_factor's results.
Tensor linalg_lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left = true, bool adjoint = false);
/// A = Q R with orthonormal columns of Q and an upper triangle R. mode "reduced", "complete", or "r" (Q is empty).
std::tuple<Tensor, Tensor> linalg_qr(const Tensor& A, std::string_view mode = "reduced");
/// Householder's vectors below the diagonal, R on and above it, and the factors tau: what linalg_householder_product
/// takes. No gradient.
std::tuple<Tensor, Tensor> geqrf(const Tensor& A);
/// The first columns of the product of the reflections I - tau_i v_i v_i^T, v_i being column i of A below its unit
/// diagonal.
Tensor linalg_householder_product(const Tensor& A, const Tensor& tau);
/// @}

/// @name Solutions
/// @{
/// X with A X = B (X A = B without `left`); B [.., n, k], or [.., n] where it is a batch of vectors.
Tensor linalg_solve(const Tensor& A, const Tensor& B, bool left = true);
/// (X, info), info i32 being 0 or the place of the first zero pivot of A.
std::tuple<Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B, bool left = true,
                                           bool check_errors = false);
/// The same of a triangle of A, of which nothing else is read; with `unitriangular` its diagonal is taken as 1.
Tensor linalg_solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left = true,
                               bool unitriangular = false);
/// Inverses. LinAlgError for a singular matrix.
Tensor linalg_inv(const Tensor& A);
/// (inverse, info).
std::tuple<Tensor, Tensor> linalg_inv_ex(const Tensor& A, bool check_errors = false);
/// (solution, residuals, rank, singular_values): X of least |A X - B|, of least norm among these. `driver` "gels" (A
/// has full rank), "gelsy", "gelsd" or "gelss" (any rank; singular values up to rcond times the largest count as 0);
/// "" is gelsy on the CPU and gels on a card, as PyTorch's. What a driver does not compute is empty.
std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& A, const Tensor& B,
                                                        std::optional<double> rcond = {}, std::string_view driver = "");
/// The inverse of a tensor seen as a matrix of its first `ind` dimensions by the others.
Tensor linalg_tensorinv(const Tensor& A, int64_t ind = 2);
/// X with tensordot(A, X, X.dim()) = B; `dims` of A are moved to its end first.
Tensor linalg_tensorsolve(const Tensor& A, const Tensor& B, std::optional<Dims> dims = {});
/// @}

/// @name Spectra
/// @{
/// Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which the triangle `uplo` ("L", "U")
/// is read. Of the two signs of a vector the one with the largest element positive is chosen.
std::tuple<Tensor, Tensor> linalg_eigh(const Tensor& A, std::string_view uplo = "L");
Tensor linalg_eigvalsh(const Tensor& A, std::string_view uplo = "L");
/// (U, S, Vh): A = U diag(S) Vh, S descending; U and Vh square with `full_matrices`. The largest element of each column
/// of U is positive.
std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& A, bool full_matrices = true, std::string_view driver = "");
Tensor linalg_svdvals(const Tensor& A, std::string_view driver = "");
/// Moore and Penrose's pseudo-inverse. Singular values (with `hermitian` eigenvalues) up to max(atol, rtol * largest)
/// count as 0; without both, rtol is the dtype's epsilon times the longer side.
Tensor linalg_pinv(const Tensor& A, const Tensor& atol = {}, const Tensor& rtol = {}, bool hermitian = false);
/// How many singular values are above the same bound; i64.
Tensor linalg_matrix_rank(const Tensor& A, const Tensor& atol = {}, const Tensor& rtol = {}, bool hermitian = false);
/// The norm `p` of A times that of its inverse; without `p` (and for "2", "-2") a ratio of singular values. inf for a
/// singular matrix.
Tensor linalg_cond(const Tensor& A, std::string_view p = "");
/// @}

/// @name Determinants and functions
/// @{
Tensor linalg_det(const Tensor& A);
/// (sign, logabsdet): 0 and -inf for a singular matrix.
std::tuple<Tensor, Tensor> linalg_slogdet(const Tensor& A);
/// The logarithm of the determinant; NaN where that is negative.
Tensor logdet(const Tensor& A);
Tensor linalg_matrix_exp(const Tensor& A);
/// A^n for square matrices; the inverse's power for n < 0.
Tensor linalg_matrix_power(const Tensor& A, int64_t n);
/// @}

/// @name Norms
/// @{
/// (sum |x|^ord)^(1/ord) over `dim` (all without): inf, -inf the extremes, 0 the count of non-zeros.
Tensor linalg_vector_norm(const Tensor& x, double ord = 2, std::optional<Dims> dim = {}, bool keepdim = false,
                          std::optional<DType> dtype = {});
/// Norms of matrices: "fro", "nuc", "inf", "-inf" (sums of rows), "1", "-1" (of columns), "2", "-2" (singular values).
Tensor linalg_matrix_norm(const Tensor& A, std::string_view ord = "fro", const Dims& dim = {-2, -1},
                          bool keepdim = false, std::optional<DType> dtype = {});
/// linalg_matrix_norm where `ord` is given and there are two dimensions, else linalg_vector_norm.
Tensor linalg_norm(const Tensor& x, std::string_view ord = "", std::optional<Dims> dim = {}, bool keepdim = false,
                   std::optional<DType> dtype = {});
/// @}

/// @name Products
/// @{
/// The product of several matrices in the cheapest order; the first may be a row, the last a column.
Tensor linalg_multi_dot(const TensorList& tensors);
/// The cross product of vectors of three along `dim`.
Tensor linalg_cross(const Tensor& a, const Tensor& b, int64_t dim = -1);
/// The same; without `dim` along the first dimension of three.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim = {});
/// Sums of the products along `dim`.
Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim = -1);
/// Rows of powers x^0 .. x^(N - 1); N is the length of x unless given.
Tensor linalg_vander(const Tensor& x, std::optional<int64_t> N = {});
/// @}

/// Matrices with orthonormal columns (rows where they are wide) from the lower triangles of x, times `base`: "cayley",
/// "matrix_exp" or "householder"; "" is matrix_exp where x is square, else householder. Throws ShapeError, ValueError.
Tensor orthogonal_map(const Tensor& x, std::string_view map = "", const Tensor& base = {});
/// The weight, as a matrix W of the slices along `dim`, over u W v, its largest singular value for the vectors u and v
/// that go with it; and u and v after so many power iterations. Gradients take u and v for constants. Throws
/// ShapeError, IndexError, DTypeError, ValueError.
std::tuple<Tensor, Tensor, Tensor> spectral_norm(const Tensor& weight, const Tensor& u, const Tensor& v,
                                                 int64_t iterations = 0, int64_t dim = 0, double eps = 1e-12);

}  // namespace strata
