// Householder's factors.

#include <cmath>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

// Reflections I - tau v v^T, v having 1 at its own place, that make a an upper triangle: vectors below the diagonal.
// The diagonal's sign is the opposite of what was there, as in LAPACK.
std::vector<double> reflect(naive::Matrix& a) {
  std::vector<double> tau;
  double size = 0;
  for (const double v : a.v) size = std::max(size, std::abs(v));
  for (int64_t c = 0; c < std::min(a.m, a.n); ++c) {
    double rest = 0;
    for (int64_t i = c + 1; i < a.m; ++i) rest += a(i, c) * a(i, c);
    check<LinAlgError>(std::sqrt(rest + a(c, c) * a(c, c)) > 1e-4 * size, "reference", "nearly dependent columns");
    if (rest == 0) {
      tau.push_back(0);
      continue;
    }
    const double beta = -std::copysign(std::sqrt(rest + a(c, c) * a(c, c)), a(c, c)), head = a(c, c) - beta;
    tau.push_back((beta - a(c, c)) / beta);
    for (int64_t i = c + 1; i < a.m; ++i) a(i, c) /= head;
    a(c, c) = beta;
    for (int64_t j = c + 1; j < a.n; ++j) {
      double sum = a(c, j);
      for (int64_t i = c + 1; i < a.m; ++i) sum += a(i, c) * a(i, j);
      a(c, j) -= tau.back() * sum;
      for (int64_t i = c + 1; i < a.m; ++i) a(i, j) -= tau.back() * sum * a(i, c);
    }
  }
  return tau;
}

// The first `columns` columns of the product of the reflections: the last one comes to the identity first.
naive::Matrix gather_reflections(const naive::Matrix& a, const double* tau, int64_t count, int64_t columns) {
  naive::Matrix q(a.m, columns);
  for (int64_t i = 0; i < std::min(a.m, columns); ++i) q(i, i) = 1;
  for (int64_t c = count; c-- > 0;) {
    const auto v = [&](int64_t i) { return i == c ? 1.0 : a(i, c); };
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t i = c; i < a.m; ++i) sum += v(i) * q(i, j);
      for (int64_t i = c; i < a.m; ++i) q(i, j) -= tau[c] * v(i) * sum;
    }
  }
  return q;
}

std::array<TensorMeta, 2> qr_infer(const Tensor& A, const std::string& mode) {
  check_matrix("linalg_qr", A);
  check<ValueError>(mode == "reduced" || mode == "complete" || mode == "r", "linalg_qr", "mode is \"", mode,
                    "\", wants \"reduced\", \"complete\" or \"r\"");
  const Shape batch = batch_of(A);
  const int64_t m = rows(A), k = least(A);
  const TensorMeta q = like(A).with_shape(mode == "r" ? Shape{0} : with(batch, m, mode == "complete" ? m : k));
  return {q, like(A).with_shape(with(batch, mode == "complete" ? m : k, cols(A)))};
}

// For m >= n. With M = gR R^T - Q^T gQ, gA = (gQ + Q symmetric(triu M)) R^-T.
Tensor tall_backward(const Tensor& Q, const Tensor& R, const Tensor& gQ, const Tensor& gR) {
  Tensor M = gR.defined() ? matmul(gR, mT(R)) : Tensor();
  if (gQ.defined()) M = M.defined() ? M - matmul(mT(Q), gQ) : -matmul(mT(Q), gQ);
  const Tensor up = triu(M), all = up + mT(triu(M, 1));
  const Tensor g = gQ.defined() ? gQ + matmul(Q, all) : matmul(Q, all);
  return linalg_solve_triangular(mT(R), g, false, false);
}

void qr_backward(Backward& b, const Tensor& A, const std::string& mode) {
  if (!b.has_gy(0) && !b.has_gy(1)) return;
  const int64_t m = rows(A), n = cols(A);
  if (mode == "r") throw AutogradError("linalg_qr", "mode \"r\" has no gradient, which needs Q; use \"reduced\"");
  if (mode == "complete" && m > n)
    throw AutogradError("linalg_qr", cat("mode \"complete\" of ", A,
                                         " has no gradient: Q's last columns are not determined; "
                                         "use \"reduced\""));
  const Tensor &Q = b.y(0), &R = b.y(1), &gQ = b.gy(0), &gR = b.gy(1);
  if (m >= n) return b.set(0, tall_backward(Q, R, gQ, gR));
  // A = [X Y] and R = [U V] with X = Q U, V = Q^T Y.
  const Tensor U = narrow(R, -1, 0, m), gU = gR.defined() ? narrow(gR, -1, 0, m) : gR;
  if (!gR.defined()) {
    const Tensor gX = tall_backward(Q, U, gQ, gU);
    return b.set(0, cat({gX, filled(A, with(batch_of(A), m, n - m), 0)}, -1));
  }
  const Tensor V = narrow(R, -1, m, n - m), gV = narrow(gR, -1, m, n - m), Y = matmul(Q, V);
  const Tensor more = matmul(Y, mT(gV)), all = gQ.defined() ? gQ + more : more;
  b.set(0, cat({tall_backward(Q, U, all, gU), matmul(Q, gV)}, -1));
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const std::string&)> qr_op{{
    .schema = "linalg_qr(Tensor A, str mode=\"reduced\") -> (Tensor Q, Tensor R)",
    .shard = "... m! n! -> ... m! k!, ... k! n!",
    .doc =
        "A = Q R of matrices [.., m, n] with orthonormal columns of Q and an upper triangle R, by Householder's "
        "reflections. mode \"reduced\": Q [.., m, k], R [.., k, n], k the shorter side; \"complete\": Q [.., m, m], R "
        "[.., m, n]; \"r\": R alone. The gradient (Walter and Lehmann, arXiv:1009.6112) wants the first k columns to "
        "be independent; \"r\", and \"complete\" of tall matrices, have none.",
    .example =
        "auto [Q, R] = linalg_qr(ones({3, 2}) + eye(3, 2)); assert(allclose(matmul(Q, R), ones({3, 2}) + eye(3, 2)));",
    .infer = qr_infer,
    .kernels = {.cpu = linalg_cpu::qr, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::qr)},
    .saves = "Q R",
    .backward = qr_backward,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 4); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(apart(s, {2, 5, 3})).named("tall");
          s.add(apart(s, {2, 3, 5})).named("wide");
          s.add(apart(s, {3, 5}), "complete").named("complete, wide");
          s.add(apart(s, {5, 3}), "complete").named("complete, tall").not_differentiable();
          s.add(apart(s, {5, 3}), "r").named("R alone").not_differentiable();
          s.add(apart(s, {50, 40})).named("blocked").not_differentiable();
          // Beyond a block's shared memory.
          s.add(apart(s, {600, 33})).named("large, tall").not_differentiable();
          s.add(apart(s, {180, 140}), "complete").named("large, complete").not_differentiable();
          s.add(s.tensor({1, 1}) + 3.0);
          s.add(s.tensor({0, 3})).named("no rows");
          s.add(s.tensor({3, 0}), "complete").named("no columns").not_differentiable();
          s.invalid<ValueError>("mode", s.tensor({3, 3}), "full");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
          s.invalid<DTypeError>("f32 or f64", s.tensor({3, 3}, DType::f16));
        },
    .reference = [](const Tensor& A, const std::string& mode) -> std::tuple<Tensor, Tensor> {
      const auto metas = qr_infer(A, mode);
      std::vector<naive::Matrix> Q, R;
      for (naive::Matrix a : naive::matrices(A)) {
        const std::vector<double> tau = reflect(a);
        if (mode != "r")
          Q.push_back(gather_reflections(a, tau.data(), static_cast<int64_t>(tau.size()), metas[0].shape.back()));
        naive::Matrix r(metas[1].shape[metas[1].shape.size() - 2], a.n);
        for (int64_t i = 0; i < std::min(r.m, a.m); ++i)
          for (int64_t j = i; j < r.n; ++j) r(i, j) = a(i, j);
        R.push_back(r);
      }
      return {naive::tensor(Q, metas[0].shape), naive::tensor(R, metas[1].shape)};
    },
}};

const Op<std::tuple<Tensor, Tensor>(const Tensor&)> geqrf_op{{
    .schema = "geqrf(Tensor A) -> (Tensor a, Tensor tau)",
    .shard = "... m! n! -> ... m! n!, ... k!",
    .doc = "R on and above the diagonal, the vectors of Householder's reflections I - tau v v^T below it (their first "
           "element, on the diagonal, is 1): what linalg_householder_product takes. No gradient: linalg_qr has one.",
    .example = "auto [a, tau] = geqrf(ones({3, 2}) + eye(3, 2)); "
               "assert(linalg_householder_product(a, tau).shape() == Shape({3, 2}));",
    .infer =
        [](const Tensor& A) {
          check_matrix("geqrf", A);
          return std::array<TensorMeta, 2>{like(A), like(A).with_shape(with(batch_of(A), least(A)))};
        },
    .kernels = {.cpu = linalg_cpu::geqrf, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::geqrf)},
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {4, 4}));
          s.add(apart(s, {2, 5, 3}));
          s.add(apart(s, {3, 5}));
          s.add(apart(s, {600, 33})).named("large");
          s.add(s.tensor({0, 3}));
          s.invalid<ShapeError>("matrices", s.tensor({3}));
        },
    .reference = [](const Tensor& A) -> std::tuple<Tensor, Tensor> {
      std::vector<naive::Matrix> all = naive::matrices(A);
      std::vector<double> tau;
      for (naive::Matrix& a : all)
        for (const double t : reflect(a)) tau.push_back(t);
      return {naive::tensor(all, A.shape()), naive::numbers(tau, with(batch_of(A), least(A)))};
    },
}};

const Op<Tensor(const Tensor&, const Tensor&)> householder_product_op{{
    .schema = "linalg_householder_product(Tensor A, Tensor tau) -> Tensor",
    .shard = "... m! n!, ... k! -> ... m! n!",
    .doc =
        "The first n columns of the product of the reflections I - tau[i] v v^T, v being column i of A [.., m, n] "
        "below "
        "the diagonal, 1 on it and 0 above; tau [.., k], k <= n <= m. The gradient is that of the product written out.",
    .example = "Tensor q = linalg_householder_product(zeros({3, 2}), zeros({2})); assert(q[0][0].item() == 1);",
    .infer =
        [](const Tensor& A, const Tensor& tau) {
          check_matrix("linalg_householder_product", A);
          check_same("linalg_householder_product", A, "A", tau, "tau");
          check<ShapeError>(rows(A) >= cols(A), "linalg_householder_product", "A is ", A,
                            ", wants no more columns than rows");
          check<ShapeError>(tau.dim() >= 1 && batch_of(tau, 1) == batch_of(A) && tau.shape().back() <= cols(A),
                            "linalg_householder_product", "tau is ", tau, " for A ", A,
                            ", wants its batch and at most one for each column");
          return like(A);
        },
    .kernels = {.cpu = linalg_cpu::householder_product, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::householder_product)},
    .composed =
        [](const Tensor& A, const Tensor& tau) {
          const Exact exact;
          const int64_t m = rows(A), n = cols(A);
          const Tensor first = narrow(identity(A, m), -1, 0, n);
          Tensor q = expand(first, A.shape());
          for (int64_t i = tau.shape().back(); i-- > 0;) {
            // Column i of a unit lower trapezoid.
            const Tensor v = narrow(tril(A, -1) + first, -1, i, 1), t = unsqueeze(narrow(tau, -1, i, 1), -1);
            q = q - matmul(v * t, matmul(mT(v), q));
          }
          return q;
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&) { return cubic(A, 4); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({4, 3}, -1, 1), s.uniform({3}, 0.2, 1));
          s.add(s.uniform({2, 3, 3}, -1, 1), s.uniform({2, 2}, 0.2, 1)).named("fewer reflections");
          s.add(s.uniform({600, 33}, -0.05, 0.05), s.uniform({33}, 0.2, 1)).named("large").not_differentiable();
          s.add(s.tensor({3, 0}), s.tensor({0})).named("empty").not_differentiable();
          s.invalid<ShapeError>("tau", s.tensor({3, 2}), s.tensor({3}));
          s.invalid<ShapeError>("columns", s.tensor({2, 3}), s.tensor({2}));
        },
    .reference =
        [](const Tensor& A, const Tensor& tau) {
          const std::vector<double> t = tau.to_vector<double>();
          const int64_t k = tau.shape().back();
          std::vector<naive::Matrix> all = naive::matrices(A);
          for (size_t b = 0; b < all.size(); ++b)
            all[b] = gather_reflections(all[b], t.data() + static_cast<int64_t>(b) * k, k, cols(A));
          return naive::tensor(all, A.shape());
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> linalg_qr(const Tensor& A, std::string_view mode) {
  return qr_op(A, std::string(mode));
}
std::tuple<Tensor, Tensor> geqrf(const Tensor& A) {
  return geqrf_op(A);
}
Tensor linalg_householder_product(const Tensor& A, const Tensor& tau) {
  return householder_product_op(A, tau);
}

}  // namespace strata
