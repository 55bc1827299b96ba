// Eigenvalues of symmetric matrices, and singular values.

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

// 1 / (v[j] - v[i]), 0 on the diagonal.
Tensor inverse_gaps(const Tensor& v) {
  const int64_t n = v.shape().back();
  const Tensor own = identity(v, n);
  return reciprocal(unsqueeze(v, -2) - unsqueeze(v, -1) + own) * (1.0 - own);
}

// ---- symmetric matrices --------------------------------------------------------------------------------------------

void check_symmetric(std::string_view op, const Tensor& A, const std::string& uplo) {
  check_square(op, A);
  check<ValueError>(uplo == "L" || uplo == "U" || uplo == "l" || uplo == "u", op, "UPLO is \"", uplo,
                    "\", wants \"L\" or \"U\"");
}

std::vector<naive::Matrix> symmetric(const Tensor& A, const std::string& uplo) {
  std::vector<naive::Matrix> all = naive::matrices(A);
  const bool upper = uplo == "U" || uplo == "u";
  for (naive::Matrix& a : all)
    for (int64_t i = 0; i < a.m; ++i)
      for (int64_t j = 0; j < i; ++j) (upper ? a(i, j) : a(j, i)) = upper ? a(j, i) : a(i, j);
  return all;
}

void add_symmetric(Samples& s) {
  s.add(positive(s, {3, 3})).not_differentiable();
  s.add(positive(s, {2, 4, 4}) - 3.0, "U").named("upper, batch").not_differentiable();
  s.add(positive(s, {1, 1})).not_differentiable();
  s.add(positive(s, {40, 40})).named("blocked").not_differentiable();
  s.add(positive(s, {2, 33, 33})).named("blocked, batch").not_differentiable();
  s.add(positive(s, {5, 33, 33})).named("blocked, as many as are one call").not_differentiable();
  s.add(s.tensor({0, 0})).named("empty");
  s.add(s.tensor({0, 2, 2})).named("no matrices");
  s.invalid<ShapeError>("square", s.tensor({2, 3}));
  s.invalid<ValueError>("UPLO", s.tensor({2, 2}), "X");
  s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::f16));
  if (s.benchmarking()) s.bench(positive(s, {256, 256}));
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, const std::string&)> eigh_op{{
    .schema = "linalg_eigh(Tensor A, str UPLO=\"L\") -> (Tensor eigenvalues, Tensor eigenvectors)",
    .shard = "... n! n! -> ... n!, ... n! n!",
    .doc =
        "Eigenvalues, ascending, and orthonormal eigenvectors (columns) of symmetric matrices, of which the triangle "
        "UPLO "
        "alone is read. A vector's sign is that which makes its largest element positive. The gradient (Giles 2008) of "
        "the vectors wants eigenvalues that differ. LinAlgError where the algorithm does not converge.",
    .example = "auto [values, vectors] = linalg_eigh(diag(ones({2}))); assert(values[0].item() == 1);",
    .infer =
        [](const Tensor& A, const std::string& uplo) {
          check_symmetric("linalg_eigh", A, uplo);
          return std::array<TensorMeta, 2>{like(A).with_shape(batch_of(A, 1)), like(A)};
        },
    .kernels = {.cpu = linalg_cpu::eigh, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::eigh)},
    .saves = "eigenvalues eigenvectors",
    .backward =
        [](Backward& b, const Tensor&, const std::string&) {
          if (!b.has_gy(0) && !b.has_gy(1)) return;
          const Tensor& V = b.y(1);
          Tensor inner;
          if (b.has_gy(1)) {
            inner = matmul(mT(V), b.gy(1)) * inverse_gaps(b.y(0));
            if (b.has_gy(0)) inner = inner + diag_embed(b.gy(0));
          }
          b.set(0, inner.defined() ? matmul(matmul(V, inner), mT(V)) : matmul(V * unsqueeze(b.gy(0), -2), mT(V)));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 9); },
    .samples = add_symmetric,
    .reference = [](const Tensor& A, const std::string& uplo) -> std::tuple<Tensor, Tensor> {
      std::vector<double> values, one;
      std::vector<naive::Matrix> vectors;
      for (const naive::Matrix& a : symmetric(A, uplo)) {
        vectors.emplace_back();
        naive::eigen(a, one, vectors.back());
        naive::require_apart(one);
        values.insert(values.end(), one.begin(), one.end());
      }
      return {naive::numbers(values, batch_of(A, 1)), naive::tensor(vectors, A.shape())};
    },
}};

const Op<Tensor(const Tensor&, const std::string&)> eigenvalues_op{{
    .schema = "symmetric_eigenvalues(Tensor A, str UPLO) -> Tensor",
    .shard = "... n! n! -> ... n!",
    .internal = true,
    .doc = "The eigenvalues of linalg_eigh, without vectors. Gradient: V diag(g) V^T.",
    .infer =
        [](const Tensor& A, const std::string& uplo) {
          check_symmetric("linalg_eigvalsh", A, uplo);
          return like(A).with_shape(batch_of(A, 1));
        },
    .kernels = {.cpu = linalg_cpu::eigvalsh, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::eigvalsh)},
    .saves = "A",
    .backward =
        [](Backward& b, const Tensor& A, const std::string& uplo) {
          const Tensor V = std::get<1>(linalg_eigh(A, uplo));
          b.set(0, matmul(V * unsqueeze(b.gy(), -2), mT(V)));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 4.0 / 3); },
    .samples =
        [](Samples& s) {
          s.add(positive(s, {2, 4, 4}) - 3.0, "U").not_differentiable();
          s.add(positive(s, {40, 40}), "L").named("blocked").not_differentiable();
          s.invalid<ShapeError>("square", s.tensor({2, 3}), "L");
        },
    .reference =
        [](const Tensor& A, const std::string& uplo) {
          std::vector<double> values, one;
          naive::Matrix vectors;
          for (const naive::Matrix& a : symmetric(A, uplo)) {
            naive::eigen(a, one, vectors);
            values.insert(values.end(), one.begin(), one.end());
          }
          return naive::numbers(values, batch_of(A, 1));
        },
}};

const Op<Tensor(const Tensor&, const std::string&)> eigvalsh_op{{
    .schema = "linalg_eigvalsh(Tensor A, str UPLO=\"L\") -> Tensor",
    .doc = "The eigenvalues of linalg_eigh alone. Gradient: V diag(g) V^T.",
    .example = "assert(linalg_eigvalsh(eye(2) * 3.0)[1].item() == 3);",
    .composed =
        [](const Tensor& A, const std::string& uplo) {
          // Vectors, which the gradient wants, are computed with the values, not by a second decomposition.
          return grad_enabled() && A.requires_grad() ? std::get<0>(linalg_eigh(A, uplo)) : eigenvalues_op(A, uplo);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 4.0 / 3); },
    .samples = add_symmetric,
    .reference =
        [](const Tensor& A, const std::string& uplo) {
          std::vector<double> values, one;
          naive::Matrix vectors;
          for (const naive::Matrix& a : symmetric(A, uplo)) {
            naive::eigen(a, one, vectors);
            values.insert(values.end(), one.begin(), one.end());
          }
          return naive::numbers(values, batch_of(A, 1));
        },
}};

// ---- singular values -----------------------------------------------------------------------------------------------

std::array<TensorMeta, 3> svd_infer(const Tensor& A, bool full, const std::string&) {
  check_matrix("linalg_svd", A);
  const Shape batch = batch_of(A);
  const int64_t m = rows(A), n = cols(A), k = least(A);
  return {like(A).with_shape(with(batch, m, full ? m : k)), like(A).with_shape(with(batch, k)),
          like(A).with_shape(with(batch, full ? n : k, n))};
}

// Townsend, "Differentiating the singular value decomposition" (2016), with F[i, j] = 1 / (s[j]^2 - s[i]^2). Further
// columns, which full_matrices has, are not determined by A: their gradient is left out.
void svd_backward(Backward& b, const Tensor& A, bool, const std::string&) {
  if (!b.has_gy(0) && !b.has_gy(1) && !b.has_gy(2)) return;
  const int64_t m = rows(A), n = cols(A), k = least(A);
  const Tensor U = narrow(b.y(0), -1, 0, k), S = b.y(1), Vh = narrow(b.y(2), -2, 0, k), V = mT(Vh);
  if (!b.has_gy(0) && !b.has_gy(2)) return b.set(0, matmul(U * unsqueeze(b.gy(1), -2), Vh));
  const Tensor row = unsqueeze(S, -2), column = unsqueeze(S, -1);
  Tensor inner, g;
  const auto add_to = [](Tensor& sum, const Tensor& t) { sum = sum.defined() ? sum + t : t; };
  if (b.has_gy(1)) inner = diag_embed(b.gy(1));
  if (b.has_gy(0) || b.has_gy(2)) {
    const Tensor F = inverse_gaps(square(S));
    if (b.has_gy(0)) {
      const Tensor gU = narrow(b.gy(0), -1, 0, k), turn = F * matmul(mT(U), gU);
      add_to(inner, (turn + mT(turn)) * row);
      if (m > k) add_to(g, matmul((gU - matmul(U, matmul(mT(U), gU))) / row, Vh));
    }
    if (b.has_gy(2)) {
      const Tensor gV = mT(narrow(b.gy(2), -2, 0, k)), turn = F * matmul(Vh, gV);
      add_to(inner, column * (turn + mT(turn)));
      if (n > k) add_to(g, matmul(U, mT((gV - matmul(V, matmul(Vh, gV))) / row)));
    }
  }
  add_to(g, matmul(matmul(U, inner), Vh));
  b.set(0, g);
}

const Op<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, bool, const std::string&)> svd_op{{
    .schema = "linalg_svd(Tensor A, bool full_matrices=true, str driver=\"\") -> (Tensor U, Tensor S, Tensor Vh)",
    .shard = "... m! n! -> ... m! a!, ... k!, ... b! n!",
    .doc =
        "A = U diag(S) Vh of matrices [.., m, n]: orthonormal columns of U and rows of Vh, S descending. With "
        "full_matrices U is [.., m, m] and Vh [.., n, n], else [.., m, k] and [.., k, n], k the shorter side. The "
        "largest element of each column of U is positive. driver (gesvd, gesvdj) chooses among cuSOLVER's "
        "algorithms on a card; without one it is gesvdj, for larger matrices of f32 the eigenvalues of A^T A in f64, "
        "unless the condition is too large for them. The gradient (Townsend 2016) of the vectors wants singular values "
        "that differ and, of matrices that are not square, are not 0; that of columns beyond the first k is left out.",
    .example = "auto [U, S, Vh] = linalg_svd(ones({3, 2}), false); assert(allclose(matmul(U * S, Vh), ones({3, 2}), "
               "1e-5, 1e-6));",
    .infer = svd_infer,
    .kernels = {.cpu = linalg_cpu::svd, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::svd)},
    .saves = "U S Vh",
    .backward = svd_backward,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool, const std::string&) { return cubic(A, 12); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(apart(s, {2, 5, 3}), false).named("tall");
          s.add(apart(s, {2, 3, 5}), false).named("wide");
          s.add(apart(s, {4, 3}), true).named("full").not_differentiable();
          s.add(apart(s, {40, 30}), false).named("blocked").not_differentiable();
          s.add(apart(s, {2, 33, 34}), true).named("blocked, full, batch").not_differentiable();
          s.add(s.tensor({1, 1}) + 3.0);
          s.add(s.tensor({3, 0}), true).named("no columns");
          s.add(s.tensor({0, 3}), false).named("no rows");
          s.add(s.tensor({0, 2, 3})).named("no matrices");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
          s.invalid<DTypeError>("f32 or f64", s.tensor({3, 3}, DType::f16));
          s.invalid<ValueError>("driver", s.tensor({3, 3}), true, "gesvdx");
          if (s.benchmarking()) s.bench(s.tensor({256, 256}), false);
        },
    .reference = [](const Tensor& A, bool full, const std::string& driver) -> std::tuple<Tensor, Tensor, Tensor> {
      const auto metas = svd_infer(A, full, driver);
      std::vector<naive::Matrix> us, vs;
      std::vector<double> sizes, one;
      for (const naive::Matrix& a : naive::matrices(A)) {
        naive::Matrix u, v;
        naive::svd(a, u, one, v);
        naive::require_apart(one);
        check<ValueError>(one.empty() || one.back() > 1e-3 * one[0], "reference", "nearly singular");
        sizes.insert(sizes.end(), one.begin(), one.end());
        v = naive::transposed(v);
        // One more column, or row, is what is left of a unit vector; more are not determined.
        for (const bool left : {true, false}) {
          naive::Matrix& m = left ? u : v;
          const int64_t side = left ? a.m : a.n, have = std::min(a.m, a.n);
          if (!full || side == have) continue;
          check<ValueError>(side == have + 1 || have == 0, "reference", "not determined");
          naive::Matrix all = naive::unit(side);
          if (have > 0) {
            naive::Matrix rest(side, 1);
            int64_t best = 0;
            for (int64_t e = 0; e < side; ++e) {
              naive::Matrix r(side, 1);
              r(e, 0) = 1;
              double size = 0;
              for (int64_t j = 0; j < have; ++j)
                for (int64_t i = 0; i < side; ++i) r(i, 0) -= (left ? m(i, j) : m(j, i)) * (left ? m(e, j) : m(j, e));
              for (int64_t i = 0; i < side; ++i) size += r(i, 0) * r(i, 0);
              if (size < 1e-6) continue;
              for (double& x : r.v) x /= std::sqrt(size);
              if (r(e, 0) > rest(best, 0)) rest = r, best = e;
            }
            for (int64_t i = 0; i < side; ++i)
              for (int64_t j = 0; j < side; ++j) {
                const double x = (left ? j : i) < have ? m(i, j < m.n ? j : 0) : rest(left ? i : j, 0);
                all(i, j) = x;
              }
          }
          m = all;
        }
        us.push_back(u), vs.push_back(v);
      }
      return {naive::tensor(us, metas[0].shape), naive::numbers(sizes, metas[1].shape),
              naive::tensor(vs, metas[2].shape)};
    },
}};

const Op<Tensor(const Tensor&, const std::string&)> singular_values_op{{
    .schema = "singular_values(Tensor A, str driver) -> Tensor",
    .shard = "... m! n! -> ... k!",
    .internal = true,
    .doc = "The singular values of linalg_svd, without vectors. Gradient: U diag(g) Vh.",
    .infer =
        [](const Tensor& A, const std::string&) {
          check_matrix("linalg_svdvals", A);
          return like(A).with_shape(with(batch_of(A), least(A)));
        },
    .kernels = {.cpu = linalg_cpu::svdvals, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::svdvals)},
    .saves = "A",
    .backward =
        [](Backward& b, const Tensor& A, const std::string& driver) {
          auto [U, S, Vh] = linalg_svd(A, false, driver);
          b.set(0, matmul(U * unsqueeze(b.gy(), -2), Vh));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 3); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {2, 5, 3}), "");
          s.add(apart(s, {3, 5}), "").named("wide");
          s.invalid<ShapeError>("matrices", s.tensor({3}), "");
        },
    .reference =
        [](const Tensor& A, const std::string&) {
          std::vector<double> all, one;
          naive::Matrix u, v;
          for (const naive::Matrix& a : naive::matrices(A)) {
            naive::svd(a, u, one, v);
            all.insert(all.end(), one.begin(), one.end());
          }
          return naive::numbers(all, with(batch_of(A), least(A)));
        },
}};

const Op<Tensor(const Tensor&, const std::string&)> svdvals_op{{
    .schema = "linalg_svdvals(Tensor A, str driver=\"\") -> Tensor",
    .doc = "The singular values of linalg_svd alone. Gradient: U diag(g) Vh.",
    .example = "assert(linalg_svdvals(eye(2) * 3.0)[1].item() == 3);",
    .composed =
        [](const Tensor& A, const std::string& driver) {
          // Vectors, which the gradient wants, are computed with the values, not by a second decomposition.
          return grad_enabled() && A.requires_grad() ? std::get<1>(linalg_svd(A, false, driver))
                                                     : singular_values_op(A, driver);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 3); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(apart(s, {2, 5, 3})).named("tall");
          s.add(apart(s, {2, 3, 5})).named("wide");
          s.add(apart(s, {2, 34, 33})).named("blocked").not_differentiable();
          s.add(s.tensor({3, 0})).named("no columns");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
        },
    .reference =
        [](const Tensor& A, const std::string&) {
          std::vector<double> all, one;
          naive::Matrix u, v;
          for (const naive::Matrix& a : naive::matrices(A)) {
            naive::svd(a, u, one, v);
            all.insert(all.end(), one.begin(), one.end());
          }
          return naive::numbers(all, with(batch_of(A), least(A)));
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> linalg_eigh(const Tensor& A, std::string_view uplo) {
  return eigh_op(A, std::string(uplo));
}
Tensor linalg_eigvalsh(const Tensor& A, std::string_view uplo) {
  return eigvalsh_op(A, std::string(uplo));
}
std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& A, bool full_matrices, std::string_view driver) {
  return svd_op(A, full_matrices, std::string(driver));
}
Tensor linalg_svdvals(const Tensor& A, std::string_view driver) {
  return svdvals_op(A, std::string(driver));
}

}  // namespace strata
