// Linear systems, inverses and determinants.

#include <cmath>

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

// ---- systems -------------------------------------------------------------------------------------------------------

Shape solution_shape(std::string_view op, const Tensor& A, const Tensor& B, bool left) {
  check_square(op, A);
  check<DTypeError>(B.dtype() == A.dtype(), op, "A is ", A.dtype(), " and B is ", B.dtype(), ", wants one dtype");
  check<ShapeError>(B.dim() >= 1, op, "B is ", B, ", wants [.., n, k], or vectors [.., n]");
  if (is_vectors(A, B)) {
    check<ShapeError>(left, op, "left=false wants matrices B, got ", B);
    check<ShapeError>(B.shape().back() == rows(A), op, "A is ", A, ", B is ", B, ", wants vectors of ", rows(A));
    return with(broadcast_shapes(batch_of(A), batch_of(B, 1), op), rows(A));
  }
  check<ShapeError>(B.dim() >= 2 && (left ? rows(B) : cols(B)) == rows(A), op, "A is ", A, ", B is ", B, ", wants B ",
                    left ? "[.., n, k]" : "[.., k, n]", " with n = ", rows(A));
  return with(broadcast_shapes(batch_of(A), batch_of(B), op), rows(B), cols(B));
}

void system_backward(Backward& b, const Tensor& A, const Tensor& B, bool left) {
  if (!b.has_gy(0)) return;
  const bool vectors = is_vectors(A, B);
  const Tensor g = vectors ? unsqueeze(b.gy(0), -1) : b.gy(0);
  const Tensor gB = std::get<0>(linalg_solve_ex(mT(A), g, left));
  if (b.needs(0)) {
    const Tensor X = vectors ? unsqueeze(b.y(0), -1) : b.y(0);
    b.set(0, -sum_to(left ? matmul(gB, mT(X)) : matmul(mT(X), gB), A.shape()));
  }
  if (b.needs(1)) b.set(1, sum_to(vectors ? squeeze(gB, -1) : gB, B.shape()));
}

Cost system_cost(const Tensor& A, const Tensor& B) {
  Cost c = cubic(A, 2.0 / 3);
  c.flops += 2.0 * static_cast<double>(B.numel()) * static_cast<double>(rows(A));
  c.bytes += static_cast<double>(B.nbytes());
  return c;
}

Tensor system_reference(const Tensor& A, const Tensor& B, bool left) {
  const Shape shape = solution_shape("reference", A, B, left);
  const bool vectors = is_vectors(A, B);
  Shape batch = shape;
  for (int i = vectors ? 1 : 2; i > 0; --i) batch.erase(batch.size() - 1);
  const std::vector<naive::Matrix> a = naive::broadcast(A, batch);
  std::vector<naive::Matrix> b = naive::broadcast(vectors ? B.unsqueeze(-1) : B, batch);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = left ? naive::solve(a[i], b[i])
                : naive::transposed(naive::solve(naive::transposed(a[i]), naive::transposed(b[i])));
  return naive::tensor(b, shape);
}

void add_systems(Samples& s) {
  s.add(well(s, {3, 3}), s.tensor({3, 2}));
  s.add(well(s, {4, 4}), s.tensor({4})).named("vector");
  s.add(well(s, {2, 3, 3}), s.tensor({2, 3})).named("vectors");
  s.add(well(s, {2, 3, 3}), s.tensor({3})).named("one vector");
  s.add(well(s, {2, 1, 3, 3}), s.tensor({4, 3, 2})).named("broadcast");
  s.add(flip(well(s, {3, 3}), {0}), s.tensor({2, 3}), false).named("right");
  s.add(well(s, {2, 3, 3}), s.tensor({4, 3}), false).named("right, broadcast");
  s.add(flip(well(s, {5, 5}), {0}), s.tensor({5, 16})).named("by triangles").not_differentiable();
  s.add(flip(well(s, {2, 17, 17}), {1}), s.tensor({17, 17})).named("by triangles, batch").not_differentiable();
  s.add(s.tensor({0, 0}), s.tensor({0, 2})).named("empty");
  s.add(well(s, {3, 3}), s.tensor({3, 0})).named("nothing to solve");
  s.invalid<ShapeError>("square", s.tensor({2, 3}), s.tensor({2, 1}));
  s.invalid<ShapeError>("wants B", well(s, {3, 3}), s.tensor({2, 3}));
  s.invalid<DTypeError>("one dtype", s.tensor({2, 2}, DType::f32), s.tensor({2, 2}, DType::f64));
  s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::i64), s.tensor({2, 2}, DType::i64));
  if (s.benchmarking()) s.bench(well(s, {512, 512}), s.tensor({512, 512}));
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, bool, bool)> solve_system_op{{
    .schema =
        "solve_system(Tensor A, Tensor B, bool left=true, bool check_errors=false) -> (Tensor result, Tensor info)",
    .shard = "whole",
    .internal = true,
    .doc = "linalg_solve_ex in one call of the library, without factors that a gradient could use again.",
    .infer =
        [](const Tensor& A, const Tensor& B, bool left, bool) {
          const Shape x = solution_shape("linalg_solve", A, B, left);
          return std::array<TensorMeta, 2>{like(A).with_shape(x),
                                           like(A).with_shape(batch_of(A)).with_dtype(DType::i32)};
        },
    .kernels = {.cpu = linalg_cpu::solve, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::solve)},
    .saves = "A result:A",
    .backward = [](Backward& b, const Tensor& A, const Tensor& B, bool left, bool) { system_backward(b, A, B, left); },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor& B, bool, bool) { return system_cost(A, B); },
    .samples = add_systems,
    .reference = [](const Tensor& A, const Tensor& B, bool left, bool) -> std::tuple<Tensor, Tensor> {
      return {system_reference(A, B, left), zeros(batch_of(A), DType::i32)};
    },
}};

// The same from A's factors, which the gradient uses again.
std::tuple<Tensor, Tensor> solve_with_factors(const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  solution_shape("linalg_solve", A, B, left);
  Tensor LU, pivots, info;
  {
    const NoGrad none;
    std::tie(LU, pivots, info) = linalg_lu_factor_ex(A);
    if (check_errors) require_success("linalg_solve", info, Failure::singular);
  }
  const bool vectors = is_vectors(A, B);
  const Tensor X = detail::solve_factored(A, LU, pivots, vectors ? unsqueeze(B, -1) : B, left);
  return {vectors ? squeeze(X, -1) : X, info};
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, bool, bool)> solve_ex_op{{
    .schema =
        "linalg_solve_ex(Tensor A, Tensor B, bool left=true, bool check_errors=false) -> (Tensor result, Tensor info)",
    .doc =
        "X with A X = B (X A = B without left) by Gauss's elimination with exchanged rows, and for each matrix A an "
        "info: 0, or the place from 1 of the first zero pivot (X then is not finite), with check_errors a LinAlgError. "
        "B is [.., n, k], or vectors [.., n] where it has one dimension, or A's batch and n. Batches broadcast. "
        "Gradient: gB solves the transposed system (Giles 2008), gA = -gB X^T.",
    .example =
        "auto [X, info] = linalg_solve_ex(eye(2) * 2.0, ones({2})); assert(X[0].item() == 0.5 && info.item() == 0);",
    .composed = [](const Tensor& A, const Tensor& B, bool left, bool check_errors) -> std::tuple<Tensor, Tensor> {
      const bool wanted = grad_enabled() && (A.requires_grad() || B.requires_grad());
      // On a card factoring is most of the time: the gradient takes the same factors.
      if (!A.device().is_cuda() || !wanted) return solve_system_op(A, B, left, check_errors);
      return solve_with_factors(A, B, left, check_errors);
    },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor& B, bool, bool) { return system_cost(A, B); },
    .samples = add_systems,
    .reference = [](const Tensor& A, const Tensor& B, bool left, bool) -> std::tuple<Tensor, Tensor> {
      return {system_reference(A, B, left), zeros(batch_of(A), DType::i32)};
    },
}};

const Op<Tensor(const Tensor&, const Tensor&, bool)> solve_op{{
    .schema = "linalg_solve(Tensor A, Tensor B, bool left=true) -> Tensor",
    .doc = "linalg_solve_ex, with a LinAlgError that names the batch element for a singular matrix.",
    .example = "assert(linalg_solve(eye(2) * 2.0, ones({2}))[1].item() == 0.5);",
    .composed = [](const Tensor& A, const Tensor& B, bool left) { return std::get<0>(solve_ex_op(A, B, left, true)); },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor& B, bool) { return system_cost(A, B); },
    .samples =
        [](Samples& s) {
          add_systems(s);
          s.invalid<LinAlgError>("singular", s.tensor({2, 2}) * 0.0, s.tensor({2}));
        },
    .reference = system_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&, bool, bool, bool)> solve_triangular_op{{
    .schema =
        "linalg_solve_triangular(Tensor A, Tensor B, bool upper, bool left=true, bool unitriangular=false) -> Tensor",
    .shard = "... n! n!, ... n! k! -> ... n! k!",
    .doc = "linalg_solve for a triangle of A, of which nothing else is read; with unitriangular its diagonal counts as "
           "1. B "
           "[.., n, k] ([.., k, n] without left); batches broadcast. A zero on the diagonal gives results that are not "
           "finite.",
    .example = "Tensor x = linalg_solve_triangular(eye(2) * 2.0, ones({2, 1}), true); assert(x[0][0].item() == 0.5);",
    .infer =
        [](const Tensor& A, const Tensor& B, bool, bool left, bool) {
          check_square("linalg_solve_triangular", A);
          check_matrix("linalg_solve_triangular", B, "B");
          check_same("linalg_solve_triangular", A, "A", B, "B");
          check<ShapeError>((left ? rows(B) : cols(B)) == rows(A), "linalg_solve_triangular", "A is ", A, ", B is ", B,
                            ", wants B ", left ? "[.., n, k]" : "[.., k, n]", " with n = ", rows(A));
          const Shape batch = broadcast_shapes(batch_of(A), batch_of(B), "linalg_solve_triangular");
          return like(A).with_shape(with(batch, rows(B), cols(B)));
        },
    .kernels = {.cpu = linalg_cpu::solve_triangular, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::solve_triangular)},
    .saves = "A result:A",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
          const Tensor gB = linalg_solve_triangular(mT(A), b.gy(), !upper, left, unitriangular);
          if (b.needs(0)) {
            const Tensor g = sum_to(left ? matmul(gB, mT(b.y())) : matmul(mT(b.y()), gB), A.shape());
            const int64_t skip = unitriangular ? 1 : 0;
            b.set(0, -(upper ? triu(g, skip) : tril(g, -skip)));
          }
          if (b.needs(1)) b.set(1, sum_to(gB, B.shape()));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, const Tensor& B, bool, bool, bool) {
          return Cost{static_cast<double>(B.numel()) * static_cast<double>(rows(A)),
                      static_cast<double>(A.nbytes() + 2 * B.nbytes())};
        },
    .samples =
        [](Samples& s) {
          for (const bool upper : {true, false})
            for (const bool left : {true, false})
              for (const bool unitriangular : {true, false})
                s.add(well(s, {3, 3}), left ? s.tensor({3, 2}) : s.tensor({2, 3}), upper, left, unitriangular);
          s.add(well(s, {2, 1, 3, 3}), s.tensor({4, 3, 2}), true).named("broadcast");
          s.add(well(s, {65, 65}), s.tensor({65, 2}), false).named("blocked").not_differentiable();
          s.add(well(s, {2, 65, 65}), s.tensor({2, 3, 65}), true, false).named("blocked, batch").not_differentiable();
          s.add(s.tensor({0, 0}), s.tensor({0, 2}), true).named("empty");
          s.invalid<ShapeError>("square", s.tensor({2, 3}), s.tensor({2, 2}), true);
          s.invalid<ShapeError>("wants B", well(s, {3, 3}), s.tensor({2, 3}), true);
          s.invalid<DTypeError>("one dtype", s.tensor({2, 2}, DType::f32), s.tensor({2, 2}, DType::f64), true);
        },
    .reference =
        [](const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
          const Shape batch = broadcast_shapes(batch_of(A), batch_of(B), "reference");
          std::vector<naive::Matrix> a = naive::broadcast(A, batch), b = naive::broadcast(B, batch);
          for (size_t i = 0; i < b.size(); ++i) {
            for (int64_t r = 0; r < a[i].n; ++r)
              for (int64_t c = 0; c < a[i].n; ++c)
                if (r == c ? unitriangular : upper ? c < r : c > r) a[i](r, c) = r == c ? 1 : 0;
            b[i] = left ? naive::solve(a[i], b[i])
                        : naive::transposed(naive::solve(naive::transposed(a[i]), naive::transposed(b[i])));
          }
          return naive::tensor(b, with(batch, rows(B), cols(B)));
        },
}};

// ---- inverses ------------------------------------------------------------------------------------------------------

Tensor inverse_reference(const Tensor& A) {
  std::vector<naive::Matrix> all = naive::matrices(A);
  for (naive::Matrix& a : all) a = naive::solve(a, naive::unit(a.n));
  return naive::tensor(all, A.shape());
}

void add_square(Samples& s) {
  s.add(well(s, {3, 3}));
  s.add(well(s, {2, 1, 2, 2})).named("batch");
  s.add(well(s, {2, 2, 2})).named("as many matrices as rows");
  s.add(flip(well(s, {4, 4}), {0})).named("exchanges");
  s.add(flip(well(s, {33, 33}), {0})).named("by triangles").not_differentiable();
  s.add(flip(well(s, {2, 33, 33}), {2})).named("by triangles, batch").not_differentiable();
  s.add(s.tensor({1, 1}) + 3.0);
  s.add(s.tensor({0, 0})).named("empty");
  s.add(s.tensor({0, 3, 3})).named("no matrices");
  s.invalid<ShapeError>("square", s.tensor({2, 3}));
  s.invalid<ShapeError>("matrices", s.tensor({3}));
  s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::f16));
  if (s.benchmarking()) s.bench(well(s, {512, 512}));
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, bool)> inv_ex_op{{
    .schema = "linalg_inv_ex(Tensor A, bool check_errors=false) -> (Tensor inverse, Tensor info)",
    .shard = "... n! n! -> ... n! n!, ...",
    .doc = "Inverses of square matrices, and for each an info: 0, or the place from 1 of the first zero pivot of a "
           "singular "
           "one, with check_errors a LinAlgError. Gradient: -X^T g X^T of the inverse X.",
    .example = "auto [inverse, info] = linalg_inv_ex(eye(2) * 2.0); assert(inverse[0][0].item() == 0.5);",
    .infer =
        [](const Tensor& A, bool) {
          check_square("linalg_inv_ex", A);
          return std::array<TensorMeta, 2>{like(A), like(A).with_shape(batch_of(A)).with_dtype(DType::i32)};
        },
    .kernels = on_each_device([](auto on, Tensor& X, Tensor& info, const Tensor& A, bool check_errors) {
      // With A's batch: an identity beside a batch of as many matrices would be taken for vectors.
      if constexpr (on.cuda)
        linalg_cuda::inverse(X, info, A);
      else
        linalg_cpu::solve(X, info, A, expand(identity(A, rows(A)), A.shape()), true, false);
      if (check_errors) require_success("linalg_inv_ex", info, Failure::singular);
    }),
    .saves = "inverse",
    .backward =
        [](Backward& b, const Tensor&, bool) {
          if (b.has_gy(0)) b.set(0, -matmul(matmul(mT(b.y(0)), b.gy(0)), mT(b.y(0))));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool) { return cubic(A, 2); },
    .samples = add_square,
    .reference = [](const Tensor& A, bool) -> std::tuple<Tensor, Tensor> {
      return {inverse_reference(A), zeros(batch_of(A), DType::i32)};
    },
}};

const Op<Tensor(const Tensor&)> inv_op{{
    .schema = "linalg_inv(Tensor A) -> Tensor",
    .doc = "Inverses of square matrices; a LinAlgError that names the batch element for a singular one.",
    .example =
        "assert(linalg_inv(eye(2) * 2.0)[0][0].item() == 0.5); try { linalg_inv(zeros({2, 2})); assert(false); } "
        "catch (const LinAlgError& e) { assert(e.op() == \"linalg_inv\"); }",
    .composed =
        [](const Tensor& A) {
          check_square("linalg_inv", A);
          auto [X, info] = inv_ex_op(A, false);
          require_success("linalg_inv", info, Failure::singular);
          return X;
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2); },
    .samples =
        [](Samples& s) {
          add_square(s);
          const Tensor zero = s.tensor({2, 2}) * 0.0;
          s.invalid<LinAlgError>("pivot 1 is 0", zero);
          s.invalid<LinAlgError>("(Batch element 1)", stack({identity(zero, 2), zero}));
        },
    .reference = inverse_reference,
}};

// ---- determinants --------------------------------------------------------------------------------------------------

// The pivots, and the sign of the exchanges.
std::tuple<Tensor, Tensor> pivots_of(const Tensor& LU, const Tensor& pivots) {
  if (pivots.device().is_cpu() && pivots.numel() > 0)  // what the gradient would find
    check<ValueError>(amin(pivots).item() >= 1 && amax(pivots).item() <= static_cast<double>(rows(LU)),
                      "linalg_lu_solve", "pivots are not all in [1, ", rows(LU), "]");
  const Tensor swaps = sum(ne(pivots, counted(LU, rows(LU), DType::i32) + 1), {-1});
  return {diagonal(LU, 0, -2, -1), (1 - remainder(swaps, 2) * 2).to(LU.dtype())};
}
// A's factors, which gradients do not go through.
std::tuple<Tensor, Tensor> factors_of(std::string_view op, const Tensor& A) {
  check_square(op, A);
  const NoGrad none;
  auto [LU, pivots, info] = linalg_lu_factor_ex(A);
  return {LU, pivots};
}
Tensor inverse_by(const Tensor& A, const Tensor& LU, const Tensor& pivots, bool adjoint) {
  return detail::solve_factored(A, LU, pivots, expand(identity(A, rows(A)), A.shape()), true, adjoint);
}
// Calls f(sign of the exchanges, diagonal) for each matrix.
template <class F>
void each_factored(const Tensor& LU, const Tensor& pivots, F&& f) {
  const std::vector<int32_t> p = pivots.to_vector<int32_t>();
  size_t at = 0;
  for (const naive::Matrix& a : naive::matrices(LU)) {
    double sign = 1;
    std::vector<double> diagonal;
    for (int64_t i = 0; i < a.n; ++i, ++at) {
      if (p[at] != i + 1) sign = -sign;
      diagonal.push_back(a(i, i));
    }
    f(sign, diagonal);
  }
}
void add_factored(Samples& s) {
  for (const Tensor& A : {well(s, {3, 3}), flip(well(s, {2, 4, 4}), {1})}) {
    auto [LU, pivots, info] = linalg_lu_factor_ex(A);
    s.add(A, LU, pivots).not_differentiable();
  }
  const Tensor A = well(s, {3, 3});
  s.invalid<ShapeError>("A's factors", A, A, s.integers({2}, 1, 2, DType::i32));
}

// d det / d A: det(A) A^-T; where a matrix is singular, by its singular values U diag(product of the others) Vh.
Tensor cofactors(const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& d) {
  const Tensor turned = inverse_by(A, LU, pivots, true);
  // Rounding hides a zero pivot: a matrix whose inverse has no right digits counts as singular too.
  bool regular = true;
  if (!A.is_meta() && A.numel() > 0) {
    const NoGrad none;
    const double most = 1e-2 / (A.dtype() == DType::f32 ? 0x1p-23 : 0x1p-52);
    for (const double c : (amax(abs(A), {-2, -1}) * amax(abs(turned), {-2, -1})).to_vector<double>())
      regular = regular && c < most;
  }
  if (regular) return unsqueeze(unsqueeze(d, -1), -1) * turned;
  auto [U, S, Vh] = linalg_svd(A, false);
  const int64_t n = rows(A);
  const Tensor own = eq(unsqueeze(counted(A, n), -1), counted(A, n));
  const Tensor others = prod(where(own, 1.0, expand(unsqueeze(S, -2), with(batch_of(A), n, n))), -1);
  const Tensor sign = (linalg_det(U) * linalg_det(Vh)).detach();
  return unsqueeze(unsqueeze(sign, -1), -1) * matmul(U * unsqueeze(others, -2), Vh);
}

using OfFactors = Op<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
const OfFactors det_factored_op{{
    .schema = "det_factored(Tensor A, Tensor LU, Tensor pivots) -> Tensor",
    .shard = "... n! n!, ... n! n!, ... n! -> ...",
    .internal = true,
    .doc = "linalg_det(A) by A's factors, which linalg_lu_factor made. Gradients go to A.",
    .infer =
        [](const Tensor& A, const Tensor& LU, const Tensor& pivots) {
          detail::check_factors("det_factored", A, LU, pivots);
          return like(A).with_shape(batch_of(A));
        },
    .composed =
        [](const Tensor&, const Tensor& LU, const Tensor& pivots) {
          auto [diagonal, sign] = pivots_of(LU, pivots);
          return prod(diagonal, -1) * sign;
        },
    .saves = "A LU pivots result",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor& LU, const Tensor& pivots) {
          b.set(0, unsqueeze(unsqueeze(b.gy(), -1), -1) * cofactors(A, LU, pivots, b.y()));
        },
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, const Tensor&, const Tensor&) {
          return Cost{1.0 * A.size(-1), 4.0 * A.size(-1)};
        },
    .samples = add_factored,
    .reference =
        [](const Tensor& A, const Tensor& LU, const Tensor& pivots) {
          std::vector<double> all;
          each_factored(LU, pivots, [&](double sign, const std::vector<double>& diagonal) {
            for (const double d : diagonal) sign *= d;
            all.push_back(sign);
          });
          return naive::numbers(all, batch_of(A));
        },
}};

const Op<Tensor(const Tensor&)> det_op{{
    .schema = "linalg_det(Tensor A) -> Tensor",
    .doc = "Determinants of square matrices: products of the pivots of linalg_lu_factor. 1 for a matrix of no "
           "elements. The "
           "gradient is the matrix of cofactors, also of a singular matrix.",
    .example = "assert(linalg_det(eye(3) * 2.0).item() == 8);",
    .composed =
        [](const Tensor& A) {
          auto [LU, pivots] = factors_of("linalg_det", A);
          return det_factored_op(A, LU, pivots);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2.0 / 3); },
    .samples =
        [](Samples& s) {
          add_square(s);
          const Tensor x = s.tensor({3, 1}), y = s.tensor({1, 3});
          s.add(x * y +
                where(eq(unsqueeze(counted(x, 3), -1) * counted(x, 3), counted(x, 1) + 4), 1.0, 0.0).to(x.dtype()))
              .named("two singular values");
        },
    .reference =
        [](const Tensor& A) {
          std::vector<double> all;
          for (const naive::Matrix& a : naive::matrices(A)) all.push_back(naive::determinant(a));
          return naive::numbers(all, batch_of(A));
        },
}};

std::tuple<Tensor, Tensor> slogdet_reference(const Tensor& A) {
  std::vector<double> signs, sizes;
  for (const naive::Matrix& a : naive::matrices(A)) {
    const double d = naive::determinant(a);
    signs.push_back(d > 0 ? 1 : d < 0 ? -1 : 0);
    sizes.push_back(std::log(std::abs(d)));
    check<LinAlgError>(std::isfinite(sizes.back()) && std::abs(d) > 1e-6, "reference", "out of range");
  }
  return {naive::numbers(signs, batch_of(A)), naive::numbers(sizes, batch_of(A))};
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&)> slogdet_factored_op{{
    .schema = "slogdet_factored(Tensor A, Tensor LU, Tensor pivots) -> (Tensor sign, Tensor logabsdet)",
    .shard = "... n! n!, ... n! n!, ... n! -> ..., ...",
    .internal = true,
    .doc = "linalg_slogdet(A) by A's factors, which linalg_lu_factor made. Gradients go to A.",
    .infer =
        [](const Tensor& A, const Tensor& LU, const Tensor& pivots) {
          detail::check_factors("slogdet_factored", A, LU, pivots);
          const TensorMeta m = like(A).with_shape(batch_of(A));
          return std::array<TensorMeta, 2>{m, m};
        },
    .composed = [](const Tensor&, const Tensor& LU, const Tensor& pivots) -> std::tuple<Tensor, Tensor> {
      auto [diagonal, s] = pivots_of(LU, pivots);
      return {prod(sign(diagonal), -1) * s, sum(log(abs(diagonal)), {-1})};
    },
    .saves = "A LU pivots",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor& LU, const Tensor& pivots) {
          if (b.has_gy(1)) b.set(0, unsqueeze(unsqueeze(b.gy(1), -1), -1) * inverse_by(A, LU, pivots, true));
        },
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, const Tensor&, const Tensor&) {
          return Cost{1.0 * A.size(-1), 4.0 * A.size(-1)};
        },
    .samples = add_factored,
    .reference = [](const Tensor& A, const Tensor& LU, const Tensor& pivots) -> std::tuple<Tensor, Tensor> {
      std::vector<double> signs, sizes;
      each_factored(LU, pivots, [&](double sign, const std::vector<double>& diagonal) {
        double size = 0;
        for (const double d : diagonal) {
          sign *= d > 0 ? 1 : d < 0 ? -1 : 0;
          size += std::log(std::abs(d));
        }
        signs.push_back(sign);
        sizes.push_back(size);
      });
      return {naive::numbers(signs, batch_of(A)), naive::numbers(sizes, batch_of(A))};
    },
}};

const Op<std::tuple<Tensor, Tensor>(const Tensor&)> slogdet_op{{
    .schema = "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
    .doc = "The sign of the determinant (0 for a singular matrix) and the logarithm of its size (-inf): no overflow of "
           "large matrices. Gradient: A^-T.",
    .example =
        "auto [sign, logabsdet] = linalg_slogdet(eye(3) * -1.0); assert(sign.item() == -1 && logabsdet.item() == 0);",
    .composed = [](const Tensor& A) -> std::tuple<Tensor, Tensor> {
      auto [LU, pivots] = factors_of("linalg_slogdet", A);
      return slogdet_factored_op(A, LU, pivots);
    },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2.0 / 3); },
    .samples = add_square,
    .reference = slogdet_reference,
}};

const Op<Tensor(const Tensor&)> logdet_op{{
    .schema = "logdet(Tensor A) -> Tensor",
    .doc = "Logarithms of the determinants of square matrices: NaN where one is negative, -inf where it is 0.",
    .example = "assert(logdet(eye(3)).item() == 0);",
    .composed =
        [](const Tensor& A) {
          auto [s, size] = linalg_slogdet(A);
          return where(s < 0.0, filled(A, {}, std::nan("")), size);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2.0 / 3); },
    .samples =
        [](Samples& s) {
          s.add(well(s, {3, 3}));
          s.add(well(s, {2, 2, 2})).named("batch");
          s.add(identity(s.tensor({1}), 3) * -1.0).named("negative").not_differentiable();
          s.invalid<ShapeError>("square", s.tensor({2, 3}));
        },
    .reference =
        [](const Tensor& A) {
          std::vector<double> all;
          for (const naive::Matrix& a : naive::matrices(A)) all.push_back(std::log(naive::determinant(a)));
          return naive::numbers(all, batch_of(A));
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  return solve_ex_op(A, B, left, check_errors);
}
Tensor linalg_solve(const Tensor& A, const Tensor& B, bool left) {
  return solve_op(A, B, left);
}
Tensor linalg_solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
  return solve_triangular_op(A, B, upper, left, unitriangular);
}
std::tuple<Tensor, Tensor> linalg_inv_ex(const Tensor& A, bool check_errors) {
  return inv_ex_op(A, check_errors);
}
Tensor linalg_inv(const Tensor& A) {
  return inv_op(A);
}
Tensor linalg_det(const Tensor& A) {
  return det_op(A);
}
std::tuple<Tensor, Tensor> linalg_slogdet(const Tensor& A) {
  return slogdet_op(A);
}
Tensor logdet(const Tensor& A) {
  return logdet_op(A);
}

}  // namespace strata
