#pragma once
// What the records of this family share: checks, shapes, small matrices, samples and slow references.

#include <string_view>
#include <tuple>
#include <vector>

#include "strata/core/autocast.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/linalg/linalg.h"

namespace strata::linalg {

inline constexpr DTypeSet kWide = dtype_bit(DType::f32) | dtype_bit(DType::f64);

/// What a positive info of a factorization means.
enum class Failure { not_positive, singular, not_converged };
/// Throws LinAlgError for the first element of `info` (i32, one a matrix) that is not 0. Reads it on the host.
void require_success(std::string_view op, const Tensor& info, Failure what);

void check_matrix(std::string_view op, const Tensor& A, std::string_view name = "A");
void check_square(std::string_view op, const Tensor& A, std::string_view name = "A");
/// Throws DTypeError, naming both, unless they have one dtype.
void check_same(std::string_view op, const Tensor& a, std::string_view name_a, const Tensor& b,
                std::string_view name_b);

inline int64_t rows(const Tensor& A) {
  return A.shape()[A.dim() - 2];
}
inline int64_t cols(const Tensor& A) {
  return A.shape().back();
}
inline int64_t least(const Tensor& A) {
  return std::min(rows(A), cols(A));
}
/// The sizes before the last `n`.
Shape batch_of(const Tensor& A, int n = 2);
Shape with(Shape batch, int64_t a);
Shape with(Shape batch, int64_t a, int64_t b);
/// The transposes of the matrices, a view.
Tensor mT(const Tensor& A);
/// The identity of order n, with A's dtype and device.
Tensor identity(const Tensor& A, int64_t n);
/// 0, 1, .. n - 1 on A's device.
Tensor counted(const Tensor& A, int64_t n, DType dtype = DType::i64);
/// A tensor of `value` with A's dtype and device.
Tensor filled(const Tensor& A, const Shape& shape, double value);
/// Whether `B` is a batch of vectors beside the matrices A: linalg_solve's rule.
bool is_vectors(const Tensor& A, const Tensor& B);

/// Composed forms are computed as they are, not in the low precision: their products would be rounded.
struct Exact {
  AutocastScope off{DType::bf16, false};
};

/// @name Samples
/// @{
/// Diagonally dominant: far from singular.
Tensor well(Samples& s, const Shape& shape);
/// Symmetric, positive definite, with eigenvalues that are apart.
Tensor positive(Samples& s, const Shape& shape);
/// Any shape, singular values apart.
Tensor apart(Samples& s, const Shape& shape);
/// [m, n] of rank r, whose other singular values are 0 up to rounding.
Tensor of_rank(Samples& s, const Shape& shape, int64_t r);
/// @}

/// n^3 operations times `factor` for each matrix of A, and its bytes twice.
Cost cubic(const Tensor& A, double factor);

// ---- slow references in f64, written without LAPACK and without the ops of this family ----
namespace naive {

/// A dense matrix by rows.
struct Matrix {
  int64_t m = 0, n = 0;
  std::vector<double> v;
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols) : m(rows), n(cols), v(static_cast<size_t>(rows * cols), 0.0) {}
  double& operator()(int64_t i, int64_t j) { return v[static_cast<size_t>(i * n + j)]; }
  double operator()(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * n + j)]; }
};
Matrix unit(int64_t n);
Matrix transposed(const Matrix& a);
Matrix product(const Matrix& a, const Matrix& b);
/// The matrices of a batch; a tensor of `shape` from them.
std::vector<Matrix> matrices(const Tensor& A);
Tensor tensor(const std::vector<Matrix>& all, const Shape& shape);
/// A tensor of one number a matrix, or of a vector a matrix.
Tensor numbers(const std::vector<double>& all, const Shape& shape, DType dtype = DType::f64);
/// The matrices of `A` seen with the batch dimensions `batch`.
std::vector<Matrix> broadcast(const Tensor& A, const Shape& batch);

/// Gauss and Jordan with the largest pivot of the column. Throws LinAlgError near a singular matrix, whose results say
/// nothing.
Matrix solve(Matrix a, Matrix b);
/// By elimination; 0 for a singular matrix.
double determinant(Matrix a);
/// Jacobi's rotations: eigenvalues ascending, vectors as columns with their largest element positive.
void eigen(Matrix a, std::vector<double>& values, Matrix& vectors);
/// One-sided Jacobi (Hestenes): a [m, n] = u diag(s) v^T with u [m, k], v [n, k], k = min(m, n).
void svd(const Matrix& a, Matrix& u, std::vector<double>& s, Matrix& v);
/// Throws ValueError where two of `values` are nearly equal: vectors are then not determined.
void require_apart(const std::vector<double>& values);
Matrix pseudo_inverse(const Matrix& a, double bound_of_largest, double atol);

}  // namespace naive
}  // namespace strata::linalg
