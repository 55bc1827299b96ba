// Least squares of any rank.

#include <cmath>
#include <limits>
#include <optional>

#include "strata/cuda/graph.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> gram_solve_op{{
    .schema = "gram_solve(Tensor A, Tensor inverse, Tensor B) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc =
        "X with A^T A X = B of matrices A [.., m, n], n <= m, by the inverse of R, A^T A being R^T R, which alone is "
        "read. Gradients go to A and B.",
    .infer =
        [](const Tensor& A, const Tensor& inverse, const Tensor& B) {
          constexpr std::string_view op = "gram_solve";
          check_matrix(op, A);
          check_matrix(op, inverse, "inverse");
          check_matrix(op, B, "B");
          check_same(op, A, "A", inverse, "inverse");
          check_same(op, A, "A", B, "B");
          check<ShapeError>(inverse.shape() == with(batch_of(A), cols(A), cols(A)) && rows(B) == cols(A), op, "A is ",
                            A, ", inverse ", inverse, " and B ", B, ", wants inverse and B with A's columns as rows");
          return like(B).with_shape(with(broadcast_shapes(batch_of(A), batch_of(B), op), rows(B), cols(B)));
        },
    .composed =
        [](const Tensor&, const Tensor& inverse, const Tensor& B) {
          const Exact exact;
          return matmul(inverse, matmul(mT(inverse), B));
        },
    .saves = "A inverse result:A",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor& inverse, const Tensor& B) {
          const Tensor gB = gram_solve_op(A, inverse, b.gy());
          if (b.needs(0)) {  // d(A^T A) = dA^T A + A^T dA
            const Tensor half = matmul(gB, mT(b.y()));
            b.set(0, -sum_to(matmul(A, half + mT(half)), A.shape()));
          }
          if (b.needs(2)) b.set(2, sum_to(gB, B.shape()));
        },
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&, const Tensor&) { return cubic(A, 4); },
    .samples =
        [](Samples& s) {
          // The inverse is A's: gradients by A's elements alone would want it made anew.
          const auto add = [&](const Tensor& A, const Tensor& B) {
            const Tensor R = std::get<1>(linalg_qr(A));
            const Tensor inverse = linalg_solve_triangular(R, expand(identity(R, cols(R)), R.shape()), true);
            return s.add(A, inverse, B).not_differentiable();
          };
          add(apart(s, {5, 3}), s.tensor({3, 2}));
          add(apart(s, {2, 1, 4, 3}), s.tensor({3, 3, 1})).named("broadcast");
          s.invalid<ShapeError>("as rows", s.tensor({3, 2}), s.tensor({2, 2}), s.tensor({3, 2}));
        },
    .reference =
        [](const Tensor& A, const Tensor&, const Tensor& B) {
          const Shape batch = broadcast_shapes(batch_of(A), batch_of(B), "reference");
          const std::vector<naive::Matrix> a = naive::broadcast(A, batch);
          std::vector<naive::Matrix> b = naive::broadcast(B, batch);
          for (size_t i = 0; i < b.size(); ++i)
            b[i] = naive::solve(naive::product(naive::transposed(a[i]), a[i]), b[i]);
          return naive::tensor(b, with(batch, rows(B), cols(B)));
        },
    .tolerance = 8,
    .tolerance_reason = "the condition of A^T A is the square of A's",
}};

// The largest number of a batch, on the host; infinite where one is NaN.
double largest_of(const Tensor& x) {
  const double most = amax(x).item();
  return std::isnan(most) ? std::numeric_limits<double>::infinity() : most;
}
Tensor squares_of(const Tensor& x) {
  return sum(square(x), {-2, -1});
}

// X of f32 matrices, of which every singular value counts; nothing where one may not. Products of f32 are exact in f64,
// so that the square of A's condition takes digits that f32 has not: up to kMost more are right than by linalg_qr.
std::optional<Tensor> by_gram(const Tensor& A, const Tensor& B, double rcond) {
  constexpr double kMost = 1e6;
  const bool tall = rows(A) >= cols(A);
  const Tensor fine = A.to(DType::f64), longer = tall ? fine : mT(fine), right = B.to(DType::f64);
  Tensor inverse;
  {
    const NoGrad none;
    const Tensor gram = matmul(mT(longer), longer), size = sqrt(squares_of(gram));
    auto [R, info] = linalg_cholesky_ex(gram, true);
    inverse = linalg_solve_triangular(R, expand(identity(R, cols(R)), R.shape()), true);
    // The largest eigenvalue of a positive matrix is at most the norm of its fourth power's fourth root, which is near.
    const Tensor scaled = gram / unsqueeze(unsqueeze(size, -1), -1), squared = matmul(scaled, scaled);
    const Tensor largest = size * pow(squares_of(matmul(squared, squared)), 0.125);
    const Tensor smallest = sqrt(squares_of(matmul(inverse, mT(inverse))));  // its inverse
    const double condition = std::sqrt(
        largest_of(where(info > 0, filled(size, {}, std::numeric_limits<double>::infinity()), largest * smallest)));
    if (!(condition < kMost && condition * rcond < 0.9)) return std::nullopt;
  }
  const Tensor X = tall ? gram_solve_op(longer, inverse, matmul(mT(longer), right))
                        : matmul(longer, gram_solve_op(longer, inverse, right));
  return X.to(A.dtype());
}

// The same of f64: condition and solution by reflections.
std::optional<Tensor> by_reflections(const Tensor& A, const Tensor& B, double rcond) {
  const bool tall = rows(A) >= cols(A);
  auto [Q, R] = linalg_qr(tall ? A : mT(A));
  {
    const NoGrad none;
    const Tensor inverse = linalg_solve_triangular(R, expand(identity(R, cols(R)), R.shape()), true);
    const double condition = std::sqrt(largest_of(squares_of(R) * squares_of(inverse)));
    if (!(std::isfinite(condition) && condition * rcond < 0.5)) return std::nullopt;
  }
  return tall ? linalg_solve_triangular(R, matmul(mT(Q), B), true)
              : matmul(Q, linalg_solve_triangular(mT(R), B, false));
}

std::tuple<Tensor, Tensor> by_values(const Tensor& A, const Tensor& B, double rcond) {
  const Tensor X = matmul(linalg_pinv(A, {}, filled(A, {}, rcond)), B);
  const NoGrad none;
  const Tensor S = linalg_svdvals(A);
  return {X, sum(gt(S, amax(S, {-1}, true) * rcond), {-1})};
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, double)> gelsy_op{{
    .schema = "lstsq_gelsy(Tensor A, Tensor B, float rcond) -> (Tensor solution, Tensor rank)",
    .shard = "whole",
    .internal = true,
    .doc = "X of least |A X - B| and of these of least |X|, and the rank (i64) of each matrix A, by factors Q R with "
           "exchanged columns: what rcond times the largest is not above counts as 0 (Quintana-Orti, Sun and Bischof, "
           "1998). On a card by factors without exchanges where all of A counts, else by singular values.",
    .infer =
        [](const Tensor& A, const Tensor& B, double) {
          constexpr std::string_view op = "lstsq_gelsy";
          check_matrix(op, A);
          check_matrix(op, B, "B");
          check<DTypeError>(A.dtype() == B.dtype(), op, "A is ", A, ", B is ", B, ", wants one dtype");
          check<ShapeError>(rows(A) == rows(B) && A.numel() > 0 && B.numel() > 0, op, "A is ", A, ", B is ", B,
                            ", wants elements, and as many rows");
          const Shape batch = broadcast_shapes(batch_of(A), batch_of(B), op);
          return std::array<TensorMeta, 2>{like(A).with_shape(with(batch, cols(A), cols(B))),
                                           like(A).with_shape(batch_of(A)).with_dtype(DType::i64)};
        },
    .kernels = {.cpu = linalg_cpu::gelsy},
    .composed = [](const Tensor& A, const Tensor& B, double rcond) -> std::tuple<Tensor, Tensor> {
      // On a card singular values take 20 times as long as factors. Whether these do is for the host to see.
      if (A.device().is_cuda() && !cuda::capturing()) {
        const Exact exact;
        const double bound = std::max(rcond, 0.0);
        if (const auto X = A.dtype() == DType::f32 ? by_gram(A, B, bound) : by_reflections(A, B, bound)) {
          const DeviceScope device(A.device());
          return {*X, full(batch_of(A), least(A), DType::i64)};
        }
      }
      return by_values(A, B, rcond);
    },
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&, double) { return cubic(A, 4); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {5, 3}), s.tensor({5, 2}), 1e-5);
          s.add(apart(s, {3, 5}), s.tensor({3, 2}), 1e-5).named("wide");
          s.add(apart(s, {2, 1, 4, 3}), s.tensor({3, 4, 1}), 1e-5).named("broadcast");
          s.add(of_rank(s, {4, 3}, 2), s.tensor({4, 1}), 1e-4).named("rank 2").not_differentiable();
          s.invalid<ShapeError>("as many rows", s.tensor({3, 2}), s.tensor({2, 2}), 0.0);
        },
    .tolerance = 32,
    .tolerance_reason = "solutions by factors and by singular values are compared, of matrices that are not unitary",
}};

}  // namespace

std::tuple<Tensor, Tensor> detail::lstsq_gelsy(const Tensor& A, const Tensor& B, double rcond) {
  return gelsy_op(A, B, rcond);
}

}  // namespace strata
