// What the generated verification does not see: signs and triangles that are free, what is singular, whole batches.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor f64(std::vector<double> v, const Shape& shape) {
  return from_span<double>(v, shape);
}
Tensor mT(const Tensor& A) {
  return transpose(A, -2, -1);
}
Tensor noise(const Shape& shape) {
  manual_seed(7);
  return randn(shape, DType::f64);
}
// Positive definite.
Tensor gram(const Shape& shape) {
  const Tensor x = noise(shape);
  return matmul(x, mT(x)) + eye(shape[shape.size() - 2], {}, DType::f64) * 2.0;
}
template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}
bool all_finite(const Tensor& t) {
  return all(isfinite(t)).item<bool>();
}

TEST(Linalg, FactorsGiveTheMatrixBack) {
  for (const Shape& shape : {Shape{5, 5}, Shape{3, 7, 4}, Shape{2, 4, 7}, Shape{1, 1}, Shape{2, 33, 20}}) {
    const Tensor A = noise(shape);
    const int64_t k = std::min(shape[shape.size() - 2], shape.back());
    auto [Q, R] = linalg_qr(A);
    EXPECT_TRUE(allclose(matmul(Q, R), A, 1e-12, 1e-12));
    EXPECT_TRUE(allclose(matmul(mT(Q), Q), eye(k, {}, DType::f64), 1e-12, 1e-12));
    auto [U, S, Vh] = linalg_svd(A);
    EXPECT_TRUE(allclose(matmul(narrow(U, -1, 0, k) * unsqueeze(S, -2), narrow(Vh, -2, 0, k)), A, 1e-12, 1e-12));
    EXPECT_TRUE(allclose(matmul(U, mT(U)), eye(U.shape().back(), {}, DType::f64), 1e-12, 1e-12));
    EXPECT_TRUE(allclose(linalg_svdvals(A), S, 1e-12, 1e-12));
    auto [P, L, upper] = linalg_lu(A);
    EXPECT_TRUE(allclose(matmul(matmul(P, L), upper), A, 1e-12, 1e-12));
    const Tensor G = gram(shape);
    EXPECT_TRUE(allclose(matmul(linalg_cholesky(G), mT(linalg_cholesky(G))), G, 1e-11, 1e-11));
    auto [values, V] = linalg_eigh(G);
    EXPECT_TRUE(allclose(matmul(V * unsqueeze(values, -2), mT(V)), G, 1e-11, 1e-11));
  }
}

TEST(Linalg, OneTriangleIsRead) {
  const Tensor A = gram({4, 4}), junk = full({4, 4}, 1e3, DType::f64);
  const Tensor low = tril(A) + triu(junk, 1), up = triu(A) + tril(junk, -1);
  EXPECT_TRUE(allclose(linalg_cholesky(low), linalg_cholesky(A)));
  EXPECT_TRUE(allclose(linalg_cholesky(up, true), linalg_cholesky(A, true)));
  EXPECT_TRUE(allclose(linalg_eigvalsh(low), linalg_eigvalsh(A)));
  EXPECT_TRUE(allclose(std::get<0>(linalg_eigh(up, "U")), linalg_eigvalsh(A)));
  EXPECT_TRUE(allclose(linalg_solve_triangular(up, A, true), linalg_solve(triu(A), A)));
}

// The records' samples leave these out: elements of one triangle alone do not move the result.
TEST(Linalg, GradientsOfSymmetricMatrices) {
  const Tensor x = noise({3, 3}).set_requires_grad();
  const auto spd = [](const Tensor& t) { return matmul(t, mT(t)) + eye(3, {}, DType::f64); };
  const auto check = [&](auto&& f) {
    const GradcheckResult first = gradcheck(f, {x}), second = gradgradcheck(f, {x});
    EXPECT_TRUE(first.ok) << first.report;
    EXPECT_TRUE(second.ok) << second.report;
  };
  check([&](const TensorList& in) { return linalg_cholesky(spd(in[0])); });
  check([&](const TensorList& in) { return linalg_cholesky(spd(in[0]), true); });
  check([&](const TensorList& in) { return linalg_eigvalsh(spd(in[0])); });
  check([&](const TensorList& in) { return linalg_eigvalsh(spd(in[0]), "U"); });
  check([&](const TensorList& in) { return square(std::get<1>(linalg_eigh(spd(in[0])))); });
  check([&](const TensorList& in) { return linalg_pinv(spd(in[0]), {}, {}, true); });
}

TEST(Linalg, RankDeficientPseudoInverseHasAGradient) {
  const Tensor u = f64({1, 2, -1}, {3, 1}).set_requires_grad(), v = f64({0.5, 1, 2, -1}, {1, 4}).set_requires_grad();
  const auto f = [](const TensorList& in) { return linalg_pinv(matmul(in[0], in[1])); };  // of rank 1 wherever it moves
  const GradcheckResult r = gradcheck(f, {u, v});
  EXPECT_TRUE(r.ok) << r.report;
  Tensor zero = zeros({3, 2}, DType::f64).set_requires_grad();
  linalg_pinv(zero).sum().backward();
  EXPECT_TRUE(all_finite(zero.grad()));
}

TEST(Linalg, DeterminantOfASingularMatrixHasAGradient) {
  Tensor A = f64({1, 2, 2, 4}, {2, 2}).set_requires_grad();
  linalg_det(A).backward();
  EXPECT_TRUE(allclose(A.grad(), f64({4, -2, -2, 1}, {2, 2}), 1e-12, 1e-12)) << A.grad().to_string();
  Tensor batch = stack({eye(2, {}, DType::f64), f64({1, 2, 2, 4}, {2, 2})}).detach().set_requires_grad();
  linalg_det(batch).sum().backward();
  EXPECT_TRUE(allclose(batch.grad()[0], eye(2, {}, DType::f64)) && allclose(batch.grad()[1], A.grad()));
  EXPECT_EQ(linalg_det(zeros({0, 0}, DType::f64)).item(), 1);
  auto [sign, size] = linalg_slogdet(zeros({2, 2}));
  EXPECT_EQ(sign.item(), 0);
  EXPECT_EQ(size.item(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(logdet(f64({-1}, {1, 1})).item()));
}

TEST(Linalg, ErrorsNameTheBatchElement) {
  const Tensor bad = stack({eye(2), zeros({2, 2})});
  EXPECT_EQ(message<LinAlgError>([&] { linalg_inv(bad); }),
            "linalg_inv: (Batch element 1): the matrix is singular: pivot 1 is 0");
  EXPECT_EQ(message<LinAlgError>([&] { linalg_inv(bad[1]); }), "linalg_inv: the matrix is singular: pivot 1 is 0");
  EXPECT_NE(message<LinAlgError>([&] {
              linalg_solve(bad, ones({2, 2}));
            }).find("(Batch element 1)"),
            std::string::npos);
  EXPECT_EQ(
      message<LinAlgError>([&] { linalg_cholesky(-bad); }),
      "linalg_cholesky: (Batch element 0): the matrix is not positive definite: its leading minor of order 1 is not "
      "positive");
  EXPECT_NE(message<LinAlgError>([&] { linalg_svd(full({2, 2}, std::nan(""))); }).find("converge"), std::string::npos);
  EXPECT_EQ(std::get<1>(linalg_inv_ex(bad)).to_vector<int>(), (std::vector<int>{0, 1}));
  EXPECT_EQ(std::get<1>(linalg_cholesky_ex(f64({1, 0, 0, -1}, {2, 2}))).item<int>(), 2);
  EXPECT_NE(message<DTypeError>([&] {
              linalg_solve(ones({2, 2}), ones({2}, DType::f64));
            }).find("A is f32 and B is f64"),
            std::string::npos);
}

TEST(Linalg, ABatchOnManyThreadsIsThatOnOne) {
  const Tensor A = gram({64, 24, 24}), b = noise({64, 24, 3});
  const int before = num_threads();
  std::vector<TensorList> results;
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    auto [U, S, Vh] = linalg_svd(A);
    auto [values, V] = linalg_eigh(A);
    auto [Q, R] = linalg_qr(A);
    results.push_back(
        {U, S, Vh, values, V, Q, R, linalg_solve(A, b), linalg_cholesky(A), linalg_inv(A), linalg_det(A)});
  }
  set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(equal(results[0][i], results[1][i])) << "result " << i;
}

// A sequential build of OpenBLAS has no locks of its own: callers on threads must not meet in it.
TEST(Linalg, ThreadsThatCallAtOnceGetWhatOneGets) {
  const Tensor A = gram({24, 24}), b = noise({24, 3});
  const Tensor single = A.to(DType::f32), expected[] = {linalg_inv(A), linalg_solve(A, b), linalg_inv(single)};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 300; ++k)
        wrong += !equal(linalg_inv(A), expected[0]) + !equal(linalg_solve(A, b), expected[1]) +
                 !equal(linalg_inv(single), expected[2]);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Linalg, KnownValues) {
  // exp of a rotation's generator; norms and conditions of Hilbert's matrix of order 3.
  const Tensor turn = linalg_matrix_exp(f64({0, -1.5, 1.5, 0}, {2, 2}));
  EXPECT_NEAR(turn[0][0].item(), std::cos(1.5), 1e-14);
  EXPECT_NEAR(turn[1][0].item(), std::sin(1.5), 1e-14);
  // A matrix that is small beside a large one keeps its digits.
  const Tensor both = linalg_matrix_exp(stack({f64({-200}, {1, 1}), f64({1e-3}, {1, 1})}));
  EXPECT_NEAR(both.flatten()[1].item(), std::exp(1e-3), 1e-15);
  const Tensor H = f64({1, 1. / 2, 1. / 3, 1. / 2, 1. / 3, 1. / 4, 1. / 3, 1. / 4, 1. / 5}, {3, 3});
  EXPECT_NEAR(linalg_cond(H).item(), 524.0567775860644, 1e-9);
  EXPECT_NEAR(linalg_cond(H, "1").item(), 748, 1e-9);
  EXPECT_NEAR(linalg_det(H).item(), 1.0 / 2160, 1e-15);
  EXPECT_EQ(linalg_matrix_rank(H).item<int64_t>(), 3);
  EXPECT_EQ(linalg_matrix_rank(ones({3, 4, 4})).to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_TRUE(std::isinf(linalg_cond(zeros({2, 2}), "fro").item()));
  // The line of least squares through (0, 1), (1, 3), (2, 4).
  const Tensor A = f64({0, 1, 1, 1, 2, 1}, {3, 2}), B = f64({1, 3, 4}, {3, 1});
  for (const char* driver : {"gels", "gelsd", "gelss", "gelsy"}) {
    auto [X, residuals, rank, sizes] = linalg_lstsq(A, B, {}, driver);
    EXPECT_NEAR(X.flatten()[0].item(), 1.5, 1e-12) << driver;
    EXPECT_NEAR(X.flatten()[1].item(), 7.0 / 6, 1e-12) << driver;
    EXPECT_EQ(residuals.numel(), std::string_view(driver) == "gelsy" ? 0 : 1);
    EXPECT_NEAR(residuals.numel() > 0 ? residuals.item() : 1.0 / 6, 1.0 / 6, 1e-12) << driver;
  }
  EXPECT_EQ(std::get<2>(linalg_lstsq(A, B)).item<int64_t>(), 2);  // gelsy, which finds the rank
}

}  // namespace
}  // namespace strata
