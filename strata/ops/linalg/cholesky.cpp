// Cholesky's factor, and what is solved with it.

#include <cmath>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

// Column by column, of the triangle that is read.
naive::Matrix factor(const naive::Matrix& a, bool upper) {
  naive::Matrix l(a.n, a.n);
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t i = j; i < a.n; ++i) {
      double sum = upper ? a(j, i) : a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * l(j, k);
      if (i == j) check<LinAlgError>(sum > 1e-4 * std::abs(a(j, j)), "reference", "not positive definite");
      l(i, j) = i == j ? std::sqrt(sum) : sum / l(j, j);
    }
  }
  return upper ? naive::transposed(l) : l;
}

Tensor factor_reference(const Tensor& A, bool upper) {
  std::vector<naive::Matrix> all;
  for (const naive::Matrix& a : naive::matrices(A)) all.push_back(factor(a, upper));
  return naive::tensor(all, A.shape());
}

void add_factor_samples(Samples& s) {
  s.add(positive(s, {4, 4})).not_differentiable();
  s.add(positive(s, {2, 3, 3}), true).named("upper").not_differentiable();
  s.add(positive(s, {3, 1, 2, 2})).named("two batch dimensions").not_differentiable();
  s.add(positive(s, {1, 1})).not_differentiable();
  s.add(positive(s, {5, 5}), true).named("upper, one").not_differentiable();
  s.add(positive(s, {70, 70})).named("blocked").not_differentiable();
  s.add(s.tensor({0, 0})).named("empty");
  s.add(s.tensor({0, 3, 3})).named("no matrices");
  s.invalid<ShapeError>("square", s.tensor({2, 3}));
  s.invalid<ShapeError>("matrices", s.tensor({3}));
  s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::f16));
  if (s.benchmarking()) s.bench(positive(s, {512, 512}));
}

const Op<std::tuple<Tensor, Tensor>(const Tensor&, bool, bool)> cholesky_ex_op{{
    .schema = "linalg_cholesky_ex(Tensor A, bool upper=false, bool check_errors=false) -> (Tensor L, Tensor info)",
    .shard = "... n! n! -> ... n! n!, ...",
    .doc =
        "The lower triangle L with A = L L^T of positive definite matrices (with upper, U with A = U^T U), of which "
        "that triangle alone is read, and for each matrix an info: 0, or the order of the first leading minor that is "
        "not positive (L is then unfinished). With check_errors that is a LinAlgError. Gradient: Murray, "
        "arXiv:1602.07527; it is symmetric.",
    .example = "auto [L, info] = linalg_cholesky_ex(eye(2) * 4.0); assert(L[0][0].item() == 2 && info.item() == 0);",
    .infer =
        [](const Tensor& A, bool, bool) {
          check_square("linalg_cholesky", A);
          return std::array<TensorMeta, 2>{like(A), like(A).with_shape(batch_of(A)).with_dtype(DType::i32)};
        },
    .kernels = {.cpu = linalg_cpu::cholesky, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::cholesky)},
    .saves = "L",
    .backward =
        [](Backward& b, const Tensor&, bool upper, bool) {
          if (!b.has_gy(0)) return;
          const Tensor L = upper ? mT(b.y(0)) : b.y(0), g = upper ? mT(b.gy(0)) : b.gy(0);
          // P = tril(L^T gL), its diagonal halved; the rest follows from A = L L^T.
          const Tensor p = tril(matmul(mT(L), g)), half = p - diag_embed(diagonal(p, 0, -2, -1)) * 0.5;
          const Tensor left = linalg_solve_triangular(mT(L), half, true);
          const Tensor gA = linalg_solve_triangular(L, left, false, false);
          b.set(0, (gA + mT(gA)) * 0.5);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool, bool) { return cubic(A, 1.0 / 3); },
    .samples = add_factor_samples,
    .reference = [](const Tensor& A, bool upper, bool) -> std::tuple<Tensor, Tensor> {
      return {factor_reference(A, upper), empty({batch_of(A), DType::i32, Device::cpu(), std::nullopt}).zero_()};
    },
}};

const Op<Tensor(const Tensor&, bool)> cholesky_op{{
    .schema = "linalg_cholesky(Tensor A, bool upper=false) -> Tensor",
    .doc = "linalg_cholesky_ex, with a LinAlgError that names the batch element for a matrix that is not positive "
           "definite.",
    .example = "Tensor A = eye(2) * 4.0; assert(linalg_cholesky(A)[1][1].item() == 2);",
    .composed = [](const Tensor& A, bool upper) { return std::get<0>(cholesky_ex_op(A, upper, true)); },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool) { return cubic(A, 1.0 / 3); },
    .samples =
        [](Samples& s) {
          add_factor_samples(s);
          const Tensor bad = identity(s.tensor({1}), 3) * -1.0;
          s.invalid<LinAlgError>("minor of order 1", bad);
          s.invalid<LinAlgError>("(Batch element 1)", stack({identity(bad, 3), bad}));
        },
    .reference = factor_reference,
}};

// The gradient of the factor L of A = L L^T (L^T L with upper) where -g is that of A. Nothing else of L is read.
Tensor factor_gradient(const Tensor& g, const Tensor& L, bool upper) {
  const Tensor both = g + mT(g);
  return -(upper ? triu(matmul(triu(L), both)) : tril(matmul(both, tril(L))));
}

const Op<Tensor(const Tensor&, const Tensor&, bool)> cholesky_solve_op{{
    .schema = "cholesky_solve(Tensor B, Tensor L, bool upper=false) -> Tensor",
    .shard = "... n! k!, ... n! n! -> ... n! k!",
    .doc = "X with A X = B, A being L L^T (with upper L^T L): two triangles solved. B [.., n, k]; batches broadcast.",
    .example = "Tensor L = eye(2) * 2.0; assert(cholesky_solve(ones({2, 1}), L)[0].item() == 0.25);",
    .infer =
        [](const Tensor& B, const Tensor& L, bool) {
          constexpr std::string_view op = "cholesky_solve";
          check_square(op, L, "L");
          check_matrix(op, B, "B");
          check_same(op, L, "L", B, "B");
          check<ShapeError>(rows(B) == rows(L), op, "L is ", L, ", B is ", B,
                            ", wants B [.., n, k] with n = ", rows(L));
          return like(B).with_shape(with(broadcast_shapes(batch_of(L), batch_of(B), op), rows(B), cols(B)));
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(linalg_cuda::cholesky_solve)},
    .composed =
        [](const Tensor& B, const Tensor& L, bool upper) {
          const Tensor low = upper ? mT(L) : L;
          return linalg_solve_triangular(mT(low), linalg_solve_triangular(low, B, false), true);
        },
    .saves = "L result:L",
    .backward =
        [](Backward& b, const Tensor& B, const Tensor& L, bool upper) {
          const Tensor gB = cholesky_solve(b.gy(), L, upper);
          // With g the gradient of A, which is -gB X^T: (g + g^T) L.
          if (b.needs(1)) {
            const Tensor g = sum_to(matmul(gB, mT(b.y())), L.shape());
            b.set(1, factor_gradient(g, L, upper));
          }
          if (b.needs(0)) b.set(0, sum_to(gB, B.shape()));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& B, const Tensor& L, bool) {
          Cost c = cubic(L, 1);
          c.flops += 2.0 * static_cast<double>(B.numel()) * static_cast<double>(rows(L));
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 2}), well(s, {3, 3}));
          s.add(s.tensor({2, 3, 2}), well(s, {3, 3}), true).named("upper, broadcast");
          s.add(s.tensor({3, 2}), well(s, {2, 3, 3})).named("factors broadcast it");
          s.add(s.tensor({3, 0}), well(s, {3, 3})).named("nothing to solve");
          s.invalid<ShapeError>("square", s.tensor({3, 2}), s.tensor({3, 2}));
          s.invalid<DTypeError>("one dtype", s.tensor({2, 2}, DType::f32), s.tensor({2, 2}, DType::f64));
        },
    .reference =
        [](const Tensor& B, const Tensor& L, bool upper) {
          const Shape batch = broadcast_shapes(batch_of(B), batch_of(L), "reference");
          std::vector<naive::Matrix> b = naive::broadcast(B, batch), l = naive::broadcast(L, batch);
          for (size_t i = 0; i < b.size(); ++i) {
            naive::Matrix& t = l[i];
            for (int64_t r = 0; r < t.n; ++r)
              for (int64_t c = 0; c < t.n; ++c)
                if (upper ? c < r : c > r) t(r, c) = 0;
            const naive::Matrix a =
                upper ? naive::product(naive::transposed(t), t) : naive::product(t, naive::transposed(t));
            b[i] = naive::solve(a, b[i]);
          }
          return naive::tensor(b, with(batch, rows(B), cols(B)));
        },
}};

// By halves, so that products do most of the work and zeros are not multiplied.
constexpr int64_t kHalved = 96;

Tensor block(const Tensor& A, int64_t row, int64_t rows_end, int64_t col, int64_t cols_end) {
  return slice(slice(A, -2, row, rows_end), -1, col, cols_end);
}
Tensor joined(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  return cat({cat({a, b}, -1), cat({c, d}, -1)}, -2);
}
Tensor lower_inverse(const Tensor& L) {
  const int64_t n = rows(L), h = n / 2;
  if (n <= kHalved) return linalg_solve_triangular(L, expand(identity(L, n), L.shape()), false);
  const Tensor a = lower_inverse(block(L, 0, h, 0, h)), d = lower_inverse(block(L, h, n, h, n));
  const Tensor c = neg(matmul(d, matmul(block(L, h, n, 0, h), a)));
  return joined(a, zeros_like(mT(c)), c, d);
}
// mT(M) M of a lower triangle M.
Tensor gram_of_lower(const Tensor& M) {
  const int64_t n = rows(M), h = n / 2;
  if (n <= kHalved) return matmul(mT(M), M);
  const Tensor low = block(M, h, n, 0, h), d = block(M, h, n, h, n);
  const Tensor c = matmul(mT(d), low);
  return joined(gram_of_lower(block(M, 0, h, 0, h)) + matmul(mT(low), low), mT(c), c, gram_of_lower(d));
}

const Op<Tensor(const Tensor&, bool)> cholesky_inverse_op{{
    .schema = "cholesky_inverse(Tensor L, bool upper=false) -> Tensor",
    .shard = "... n! n! -> ... n! n!",
    .doc = "The inverse of the matrix whose factor is L: cholesky_solve of the identity.",
    .example = "assert(cholesky_inverse(eye(2) * 2.0)[0][0].item() == 0.25);",
    .infer =
        [](const Tensor& L, bool) {
          check_square("cholesky_inverse", L, "L");
          return like(L);
        },
    .composed =
        [](const Tensor& L, bool upper) {
          if (!L.device().is_cuda()) {
            if (rows(L) <= kHalved) return cholesky_solve(identity(L, rows(L)), L, upper);
            return gram_of_lower(lower_inverse(upper ? mT(L) : L));
          }
          // A product is there a third of a triangle's time.
          const Exact exact;
          const Tensor inverse = linalg_solve_triangular(L, expand(identity(L, rows(L)), L.shape()), upper);
          return upper ? matmul(inverse, mT(inverse)) : matmul(mT(inverse), inverse);
        },
    .saves = "L result",
    .backward =
        [](Backward& b, const Tensor& L, bool upper) {
          const Tensor &W = b.y(), g = matmul(matmul(W, b.gy()), W);
          b.set(0, factor_gradient(g, L, upper));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& L, bool) { return cubic(L, 3); },
    .samples =
        [](Samples& s) {
          s.add(well(s, {3, 3}));
          s.add(well(s, {2, 4, 4}), true).named("upper");
          s.add(s.tensor({0, 0})).named("empty");
          s.add(well(s, {101, 101})).not_differentiable().named("by halves");
          s.add(well(s, {2, 98, 98}), true).not_differentiable().named("by halves, upper");
          s.invalid<ShapeError>("square", s.tensor({3, 2}));
        },
    .reference =
        [](const Tensor& L, bool upper) {
          std::vector<naive::Matrix> all = naive::matrices(L);
          for (naive::Matrix& t : all) {
            for (int64_t r = 0; r < t.n; ++r)
              for (int64_t c = 0; c < t.n; ++c)
                if (upper ? c < r : c > r) t(r, c) = 0;
            const naive::Matrix a =
                upper ? naive::product(naive::transposed(t), t) : naive::product(t, naive::transposed(t));
            t = naive::solve(a, naive::unit(a.n));
          }
          return naive::tensor(all, L.shape());
        },
}};

}  // namespace

Tensor linalg_cholesky(const Tensor& A, bool upper) {
  return cholesky_op(A, upper);
}
std::tuple<Tensor, Tensor> linalg_cholesky_ex(const Tensor& A, bool upper, bool check_errors) {
  return cholesky_ex_op(A, upper, check_errors);
}
Tensor cholesky_solve(const Tensor& B, const Tensor& L, bool upper) {
  return cholesky_solve_op(B, L, upper);
}
Tensor cholesky_inverse(const Tensor& L, bool upper) {
  return cholesky_inverse_op(L, upper);
}

}  // namespace strata
