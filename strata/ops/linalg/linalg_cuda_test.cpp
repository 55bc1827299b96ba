// Factors and solutions on a CUDA device, of sizes and conditions that samples lack: batches, large sides, what
// counts as 0, and each driver.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

class LinalgCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    manual_seed(9);
  }
  static Tensor on(const Tensor& t) { return t.to(Device::cuda()); }
  static Tensor mT(const Tensor& t) { return transpose(t, -2, -1); }
  // Against the same in f64 on the host, relative to the largest.
  static void expect_near(const Tensor& got, const Tensor& want, double bound = 1e-4) {
    const Tensor x = got.to(Device::cpu()).to(DType::f64), y = want.to(Device::cpu()).to(DType::f64);
    ASSERT_EQ(x.shape(), y.shape());
    const double most = amax(abs(y)).item();
    EXPECT_LT(amax(abs(x - y)).item(), bound * (most > 0 ? most : 1)) << "of " << most;
  }
  // Jacobi's rotations, and squares of f32 columns: seen were 200 eps (2.4e-5), half of that in a product of factors,
  // and 70 eps in values.
  static constexpr double kOrthogonal = 5e-5, kProduct = 2.5e-5, kValues = 1.5e-5;
  static void expect_identity(const Tensor& t) { expect_near(t, expand(eye(t.size(-1)), t.shape()), kOrthogonal); }
  static Tensor positive(const Shape& shape) {
    const Tensor x = randn(shape);
    return matmul(x, mT(x)) / static_cast<double>(shape.back()) + eye(shape.back());
  }
  static void expect_decomposed(const Tensor& A, bool full, const char* driver) {
    auto [U, S, Vh] = linalg_svd(on(A), full, driver);
    const int64_t k = S.size(-1);
    expect_identity(matmul(mT(U), U));
    expect_identity(matmul(Vh, mT(Vh)));
    expect_near(matmul(narrow(U, -1, 0, k) * unsqueeze(S, -2), narrow(Vh, -2, 0, k)), A, kProduct);
    expect_near(S, linalg_svdvals(A.to(DType::f64)), kValues);
    expect_near(linalg_svdvals(on(A), driver), S, kValues);
    EXPECT_TRUE(all(amax(U, {-2}) >= amax(-U, {-2})).item<bool>());
  }
};

// Sums of products: by vectors and one by one, of a lane to a block each, and where a product of all is summed.
TEST_F(LinalgCuda, SumsOfProducts) {
  for (const Shape& shape : {Shape{512, 512}, {300, 37}, {3, 5000}, {1, 40000}, {70, 3}, {6, 40, 24}, {4, 0}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64, DType::u8, DType::i32}) {
      const Tensor x = randint(0, 4, shape).to(t), y = randint(0, 4, shape).to(t), row = y.select(0, 0);
      SCOPED_TRACE(cat(x));
      const auto expect_same = [&](auto&& f) {  // whole numbers, whose sums are exact in any order
        const Tensor got = f(on(x), on(y), on(row)).to(Device::cpu()), want = f(x, y, row);
        ASSERT_EQ(got.dtype(), want.dtype());
        EXPECT_EQ(got.to_vector<double>(), want.to_vector<double>());
      };
      expect_same([](const Tensor& a, const Tensor& b, const Tensor&) { return linalg_vecdot(a, b); });
      expect_same([](const Tensor& a, const Tensor& b, const Tensor&) { return linalg_vecdot(a, b, 0); });
      expect_same([](const Tensor& a, const Tensor&, const Tensor& r) { return linalg_vecdot(a, r); });
      expect_same([](const Tensor& a, const Tensor& b, const Tensor&) {
        return linalg_vecdot(slice(a, -1, 1, a.size(-1), 2), slice(b, -1, 1, b.size(-1), 2));
      });
      expect_same([](const Tensor& a, const Tensor& b, const Tensor&) {
        return linalg_vecdot(transpose(a, 0, 1).contiguous().transpose(0, 1), b);
      });
    }
}

TEST_F(LinalgCuda, NormsOfDifferences) {
  for (const Shape& shape : {Shape{512, 512}, {300, 37}, {3, 5000}, {1, 40000}, {6, 40, 24}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64})
      for (const double p : {1.0, 2.0, 3.0, -2.0, static_cast<double>(INFINITY)}) {
        const Tensor x = randn(shape).to(t), y = randn({shape.back()}).to(t);
        SCOPED_TRACE(cat(x, " p ", p));
        expect_near(pairwise_distance(on(x), on(y), p), pairwise_distance(x.to(DType::f64), y.to(DType::f64), p),
                    t == DType::bf16 ? 1e-2 : 1e-4);
      }
}

TEST_F(LinalgCuda, BatchesAndLargeSides) {
  for (const Shape& shape : {Shape{64, 32, 32}, {5, 70, 70}, {20, 40, 40}, {2, 520, 520}}) {
    SCOPED_TRACE(cat("matrices ", shape[0], " x ", shape[1]));
    const Tensor A = positive(shape), B = randn(shape), fine = A.to(DType::f64), one = eye(shape.back());
    const Tensor mixed = matmul(A, flip(one, {0})), turned = mixed.to(DType::f64);  // rows and columns are exchanged
    for (const bool upper : {false, true}) expect_near(linalg_cholesky(on(A), upper), linalg_cholesky(fine, upper));
    expect_near(linalg_inv(on(mixed)), linalg_inv(turned));
    for (const bool left : {true, false})
      expect_near(linalg_solve(on(mixed), on(B), left), linalg_solve(turned, B.to(DType::f64), left));
    expect_near(cholesky_solve(on(B), linalg_cholesky(on(A))), linalg_solve(fine, B.to(DType::f64)));
    expect_near(cholesky_inverse(linalg_cholesky(on(A), true), true), linalg_inv(fine));
    expect_near(std::get<1>(linalg_slogdet(on(mixed))), std::get<1>(linalg_slogdet(turned)));
    auto [P, L, U] = linalg_lu(on(narrow(mixed, -2, 0, shape[1] - 3)));
    expect_near(matmul(P, matmul(L, U)), narrow(mixed, -2, 0, shape[1] - 3), 1e-5);
    auto [values, V] = linalg_eigh(on(A));
    expect_identity(matmul(mT(V), V));
    expect_near(matmul(V * unsqueeze(values, -2), mT(V)), A, kProduct);
    auto [Q, R] = linalg_qr(on(mixed));
    expect_identity(matmul(mT(Q), Q));
    expect_near(matmul(Q, R), mixed, 1e-5);
  }
}

TEST_F(LinalgCuda, GradientsBySavedFactors) {
  for (const int64_t n : {20, 100}) {
    const Tensor A = positive({n, n}), B = randn({n, n}), g = randn({n, n});
    const auto gradients = [&](const Tensor& a, const Tensor& b, const Tensor& gy) {
      TensorList all;
      for (int i = 0; i < 5; ++i) {
        const Tensor x = a.clone().set_requires_grad(true), y = b.clone().set_requires_grad(true);
        const Tensor out = i == 0   ? linalg_inv(x)
                           : i == 1 ? linalg_solve(x, y, false)
                           : i == 2 ? cholesky_solve(y, linalg_cholesky(x))
                           : i == 3 ? cholesky_inverse(linalg_cholesky(x, true), true)
                                    : linalg_det(x / 2.0) * y;
        sum(out * gy).backward();
        all.push_back(x.grad());
      }
      return all;
    };
    const TensorList got = gradients(on(A), on(B), on(g)),
                     want = gradients(A.to(DType::f64), B.to(DType::f64), g.to(DType::f64));
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(cat("case ", i, ", side ", n));
      expect_near(got[i], want[i], 1e-3);
    }
  }
}

TEST_F(LinalgCuda, SingularValuesByEachWay) {
  for (const Shape& shape : {Shape{5, 3}, {30, 32}, {50, 40}, {3, 40, 50}, {64, 33, 33}})
    for (const char* driver : {"", "gesvd", "gesvdj"})
      for (const bool full : {false, true}) {
        SCOPED_TRACE(cat("driver ", driver, full ? ", full" : "", ", side ", shape.back()));
        expect_decomposed(randn(shape), full, driver);
      }
  // Conditions at which the longer vectors do not follow from the shorter ones.
  auto [Q, R] = linalg_qr(randn({50, 40}));
  for (const double least : {1e-3, 1e-6, 0.0}) {
    SCOPED_TRACE(cat("least ", least));
    const Tensor sizes = linspace(1, least, 40);
    expect_decomposed(matmul(Q * sizes, std::get<0>(linalg_qr(randn({40, 40})))), false, "");
  }
  // Many values next to nothing, wide, and in a batch of which one matrix is well conditioned.
  const Tensor low = matmul(randn({40, 9}), randn({9, 60}));
  expect_decomposed(low, false, "");
  expect_decomposed(stack({low, randn({40, 60})}), false, "");
  expect_near(linalg_svdvals(on(zeros({40, 40}))), zeros({40}));
}

TEST_F(LinalgCuda, LeastSquaresOfAnyRank) {
  for (const Shape& shape : {Shape{60, 40}, {40, 60}, {4, 60, 40}, {45, 45}})
    for (const bool full : {true, false})
      for (const DType dtype : {DType::f32, DType::f64}) {
        const int64_t m = shape[shape.size() - 2], n = shape.back();
        SCOPED_TRACE(cat(m, " x ", n, full ? "" : ", of rank 20", dtype == DType::f32 ? "" : ", f64"));
        Shape left = shape, right = shape;
        left[shape.size() - 1] = right[shape.size() - 2] = 20;
        const Tensor A =
            full ? randn(shape, dtype) + eye(m, n, dtype) * 20.0 : matmul(randn(left, dtype), randn(right, dtype));
        const Tensor B = randn({m, 3}, dtype);
        const auto got = linalg_lstsq(on(A), on(B), {}, "gelsy"),
                   want = linalg_lstsq(A.to(DType::f64), B.to(DType::f64), 1e-5);
        expect_near(std::get<0>(got), std::get<0>(want), 1e-3);
        EXPECT_TRUE(equal(std::get<2>(got).to(Device::cpu()), std::get<2>(want)));
        if (!full) continue;
        // What nobody asked for takes the rank as full, and neither finds it nor waits for the host.
        const auto [X, residuals, rank, sizes] = linalg_lstsq(on(A), on(B));
        expect_near(X, std::get<0>(want), 1e-3);
        EXPECT_EQ(rank.numel() + sizes.numel(), 0);
        EXPECT_EQ(residuals.numel(), m > n ? X.numel() / n : 0);
        const auto gradients = [](const Tensor& a, const Tensor& b) {
          const Tensor x = a.clone().set_requires_grad(true), y = b.clone().set_requires_grad(true);
          sum(square(std::get<0>(linalg_lstsq(x, y)))).backward();
          return TensorList{x.grad(), y.grad()};
        };
        const TensorList here = gradients(on(A), on(B)), there = gradients(A.to(DType::f64), B.to(DType::f64));
        expect_near(here[0], there[0], 1e-3);
        expect_near(here[1], there[1], 1e-3);
      }
}

}  // namespace
}  // namespace strata
