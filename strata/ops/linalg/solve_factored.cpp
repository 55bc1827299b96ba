// Systems whose matrix was factored before: the gradient rules' way to the transposed system.

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, bool)> solve_factored_op{{
    .schema = "solve_factored(Tensor A, Tensor LU, Tensor pivots, Tensor B, bool left=true, bool adjoint=false) -> "
              "Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "X with A X = B of matrices (X A = B without left; A^T in A's place with adjoint) by A's factors LU and "
           "pivots of linalg_lu_factor, which alone are read. Gradients go to A and B: gB solves the transposed "
           "system by the same factors (Giles 2008).",
    .infer =
        [](const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool) {
          constexpr std::string_view op = "solve_factored";
          detail::check_factors(op, A, LU, pivots);
          check_matrix(op, B, "B");
          check_same(op, A, "A", B, "B");
          check<ShapeError>((left ? rows(B) : cols(B)) == rows(A), op, "A is ", A, ", B is ", B);
          return like(A).with_shape(with(broadcast_shapes(batch_of(A), batch_of(B), op), rows(B), cols(B)));
        },
    .kernels = on_each_device([](auto on, Tensor& X, const Tensor&, const Tensor& LU, const Tensor& pivots,
                                 const Tensor& B, bool left, bool adjoint) {
      if constexpr (on.cuda)
        linalg_cuda::solve_factored(X, LU, pivots, B, left, adjoint);
      else
        X.copy_(linalg_lu_solve(LU, pivots, B, left, adjoint));
    }),
    .saves = "A LU pivots result",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left,
           bool adjoint) {
          const Tensor gB = detail::solve_factored(A, LU, pivots, b.gy(), left, !adjoint);
          if (b.needs(0)) {
            const Tensor g = left ? matmul(gB, mT(b.y())) : matmul(mT(b.y()), gB);
            b.set(0, -sum_to(adjoint ? mT(g) : g, A.shape()));
          }
          if (b.needs(3)) b.set(3, sum_to(gB, B.shape()));
        },
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, const Tensor&, const Tensor&, const Tensor& B, bool, bool) {
          return Cost{2.0 * static_cast<double>(B.numel()) * static_cast<double>(rows(A)),
                      static_cast<double>(A.nbytes() + 2 * B.nbytes())};
        },
    .samples =
        [](Samples& s) {
          // A is what the factors are of: gradients by A's elements alone would want them made anew.
          const auto add = [&](const Tensor& A, const Tensor& B, bool left, bool adjoint) {
            auto [LU, pivots, info] = linalg_lu_factor_ex(A);
            return s.add(A, LU, pivots, B, left, adjoint).not_differentiable();
          };
          for (const bool left : {true, false})
            for (const bool adjoint : {false, true}) {
              add(flip(well(s, {3, 3}), {0}), left ? s.tensor({3, 2}) : s.tensor({2, 3}), left, adjoint);
              add(well(s, {2, 3, 3}), s.tensor({3, 3}), left, adjoint).named("batch");
            }
          for (const bool adjoint : {false, true}) {
            add(flip(well(s, {5, 5}), {0}), s.tensor({5, 16}), true, adjoint).named("by triangles");
            add(flip(well(s, {2, 17, 17}), {1}), s.tensor({17, 17}), false, adjoint).named("by triangles, batch");
          }
          add(well(s, {3, 3}), s.tensor({3, 0}), true, false).named("nothing to solve");
          const Tensor A = well(s, {3, 3});
          auto [LU, pivots, info] = linalg_lu_factor_ex(A);
          s.invalid<ShapeError>("A's factors", A, LU, s.integers({2}, 1, 2, DType::i32), s.tensor({3, 2}));
          s.invalid<ShapeError>("B is", A, LU, pivots, s.tensor({2, 2}));
        },
    .reference =
        [](const Tensor& A, const Tensor&, const Tensor&, const Tensor& B, bool left, bool adjoint) {
          const Shape batch = broadcast_shapes(batch_of(A), batch_of(B), "reference");
          const std::vector<naive::Matrix> a = naive::broadcast(A, batch);
          std::vector<naive::Matrix> b = naive::broadcast(B, batch);
          for (size_t i = 0; i < b.size(); ++i) {
            const naive::Matrix m = adjoint ? naive::transposed(a[i]) : a[i];
            b[i] = left ? naive::solve(m, b[i])
                        : naive::transposed(naive::solve(naive::transposed(m), naive::transposed(b[i])));
          }
          return naive::tensor(b, with(batch, rows(B), cols(B)));
        },
}};

}  // namespace

void detail::check_factors(std::string_view op, const Tensor& A, const Tensor& LU, const Tensor& pivots) {
  check_square(op, A);
  check<ShapeError>(LU.shape() == A.shape() && pivots.shape() == with(batch_of(A), rows(A)), op, "A is ", A, ", LU ",
                    LU, " and pivots ", pivots, ", wants A's factors");
  check<DTypeError>(LU.dtype() == A.dtype() && pivots.dtype() == DType::i32, op, "A is ", A, ", LU ", LU,
                    " and pivots ", pivots, ", wants LU in A's dtype and pivots in i32");
}
Tensor detail::solve_factored(const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left,
                              bool adjoint) {
  return solve_factored_op(A, LU, pivots, B, left, adjoint);
}

}  // namespace strata
