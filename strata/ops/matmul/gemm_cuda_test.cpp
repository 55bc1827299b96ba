// What the records' generated samples do not reach: layouts and epilogues of larger products, and results that must
// not depend on how threads meet.

#include "strata/ops/matmul/gemm_cuda.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/matmul/gemm_from_cuda.h"
#include "strata/ops/matmul/mlp.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

// |got - want| <= bound * (1 + |want|) for every element.
void expect_near(const Tensor& got, const Tensor& want, double bound) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = got.to(DType::f64).to_vector<double>(), b = want.to(DType::f64).to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::fabs(a[i] - b[i]), bound * (1 + std::fabs(b[i]))) << "element " << i << ": " << a[i] << ", " << b[i];
}

class Blas : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
  }
  static Tensor on(const Tensor& t) { return t.defined() ? t.to(Device::cuda()) : t; }
  static double bound(DType t) {
    return t == DType::f64 ? 1e-12 : t == DType::f32 ? 2e-5 : t == DType::f16 ? 5e-3 : 3e-2;
  }
};

// Small whole numbers, whose sums are exact in every dtype.
TEST_F(Blas, ABatchIsAddedToOneMatrix) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(t));
    const Tensor a = randint(-2, 3, {64, 32}).to(t), b = randint(-2, 3, {5, 32, 48}).to(t),
                 start = randint(-9, 10, {64, 48}).to(t);
    const Tensor there_a = on(a), there_b = on(b), there = on(start);
    const Tensor c = empty({{5, 64, 48}, t, Device::cuda(), std::nullopt});
    Gemm g;
    g.in = g.out = t;
    g.m = 64, g.n = 48, g.k = 32;
    g.a = there_a.raw_data(), g.a_row = 32, g.a_col = 1;
    g.b = there_b.raw_data(), g.b_row = 48, g.b_col = 1;
    g.c = c.raw_data(), g.c_row = 48;
    g.batch = {5}, g.a_batch = {0}, g.b_batch = {32 * 48}, g.c_batch = {64 * 48};
    g.beta = 1;
    ASSERT_TRUE(gemm_from(g, there.raw_data(), Device::cuda()));
    expect_near(c.to(Device::cpu()), matmul(a.to(DType::f64), b.to(DType::f64)) + start.to(DType::f64), 0);
    g.batch = {}, g.a_batch = g.b_batch = g.c_batch = {};
    EXPECT_FALSE(gemm_from(g, there.raw_data(), Device::cuda()));  // nothing to share
  }
}

TEST_F(Blas, EveryLayout) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{64, 48, 80}, {33, 17, 51}, {1, 96, 64}, {96, 1, 64}, {1, 1, 7}}) {
      for (int layout = 0; layout < 9; ++layout) {
        // Rows, columns, and every second element.
        const auto make = [&](int64_t rows, int64_t cols, int how) {
          if (how == 0) return randn({rows, cols}).to(t);
          if (how == 1) return randn({cols, rows}).to(t).t();
          return randn({rows, 2 * cols}).to(t).slice(1, 0, 2 * cols, 2);
        };
        const Tensor a = make(m, k, layout % 3), b = make(k, n, layout / 3);
        const auto put = [&](const Tensor& x, int how) {
          if (how == 0) return on(x);
          if (how == 1) return on(x.t().contiguous()).t();
          const Tensor wide = zeros({x.size(0), 2 * x.size(1)}).to(t).to(Device::cuda());
          Tensor view = wide.slice(1, 0, 2 * x.size(1), 2);
          view.copy_(on(x.contiguous()));
          return view;
        };
        SCOPED_TRACE(cat(t, " ", m, "x", n, "x", k, " layout ", layout));
        const Tensor want = matmul(a.to(DType::f64), b.to(DType::f64));
        expect_near(matmul(put(a, layout % 3), put(b, layout / 3)), want, bound(t) * std::sqrt(static_cast<double>(k)));
      }
    }
  }
}

TEST_F(Blas, FewRows) {
  for (const DType t : {DType::bf16, DType::f16})
    for (const auto& [n, k] : {std::array<int64_t, 2>{256, 256}, {1000, 2048}, {4097, 4104}, {6144, 264}, {300, 14336}})
      for (const int64_t m : {1, 2, 3, 4, 5}) {
        SCOPED_TRACE(cat(t, " ", m, "x", n, "x", k));
        const Tensor x = randn({m, k}).to(t), w = randn({n, k}).to(t), b = randn({n}).to(t);
        const Tensor want = linear(x.to(DType::f64), w.to(DType::f64), b.to(DType::f64));
        expect_near(linear(on(x), on(w), on(b)), want, bound(t));
        const Tensor y = linear(on(x), on(w));  // a second one that begins while the first ends
        expect_near(linear(on(x), on(w)), linear(x.to(DType::f64), w.to(DType::f64)), bound(t));
        EXPECT_EQ(y.to(Device::cpu()).to(DType::f32).to_vector<float>(),
                  linear(on(x), on(w)).to(Device::cpu()).to(DType::f32).to_vector<float>());
      }
}

TEST_F(Blas, BatchesThatDoNotMerge) {
  const Tensor q = randn({3, 40, 4, 16}), k = randn({3, 24, 4, 16});
  const Tensor want = matmul(q.transpose(1, 2), k.permute({0, 2, 3, 1}));
  expect_near(matmul(on(q).transpose(1, 2), on(k).permute({0, 2, 3, 1})), want, 1e-4);
  const Tensor a = randn({2, 1, 8, 16}), b = randn({5, 16, 8});
  expect_near(matmul(on(a), on(b)), matmul(a, b), 1e-4);
}

// Every matrix of one batch times every one of the other: one product whose result is put in order.
TEST_F(Blas, BatchesThatBothBroadcast) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor a = randn({6, 1, 7, 16}).to(t), b = randn({5, 16, 9}).to(t);
    expect_near(matmul(on(a), on(b)), matmul(a.to(DType::f64), b.to(DType::f64)), bound(t));
    const Tensor c = randn({4, 1, 5, 1, 3, 16}).to(t), e = randn({3, 1, 8, 7, 16}).to(t).transpose(-1, -2);
    expect_near(matmul(on(c), on(e)), matmul(c.to(DType::f64), e.to(DType::f64)), bound(t));
  }
}

TEST_F(Blas, DotProducts) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const int64_t k : {1, 7, 1000, 5003, 300007}) {
      SCOPED_TRACE(cat(t, ' ', k));
      const Tensor x = uniform({2, k}, -1, 1).to(t), y = uniform({2, k}, -1, 1).to(t);
      const Tensor want = (x.to(DType::f64) * y.to(DType::f64)).sum({1});
      const double near = (t == DType::f64   ? 1e-13
                           : t == DType::f32 ? 1e-6
                                             : bound(t)) *
                          std::sqrt(static_cast<double>(k));
      for (int64_t i = 0; i < 2; ++i)
        EXPECT_NEAR(dot(on(x)[i], on(y)[i]).to(DType::f64).item(), want[i].item(), 4 * near);
      const Tensor rows = matmul(on(x).unsqueeze(1), on(y).unsqueeze(2)).to(Device::cpu()).to(DType::f64);
      const Tensor apart = matmul(on(x.t().contiguous()).t().unsqueeze(1), on(y).unsqueeze(2));
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(rows.view({2})[i].item(), want[i].item(), 4 * near);
        EXPECT_NEAR(apart.to(DType::f64).view({2})[i].item(), want[i].item(), 4 * near) << "strided";
      }
    }
}

TEST_F(Blas, EpiloguesAgreeWithSeparateSteps) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t hidden : {int64_t{128}, int64_t{99}}) {
      SCOPED_TRACE(cat(t, " ", hidden));
      const Tensor x = uniform({70, 64}, -0.5, 0.5).to(t), w = uniform({hidden, 64}, -0.5, 0.5).to(t),
                   b = uniform({hidden}, -1, 1).to(t);
      expect_near(linear(on(x), on(w), on(b)), linear(x, w, b), 4 * bound(t));
      const auto [y, pre] = linear_gelu(on(x), on(w), on(b));
      const auto [want_y, want_pre] = linear_gelu(x, w, b);
      expect_near(pre, want_pre, 4 * bound(t));
      expect_near(y, want_y, 4 * bound(t));
      const Tensor g = uniform({70, 64}, -1, 1).to(t), down = uniform({64, hidden}, -0.5, 0.5).to(t);
      expect_near(matmul_gelu_grad(on(g), on(down), on(want_pre)), matmul_gelu_grad(g, down, want_pre), 8 * bound(t));
    }
  }
}

// Sizes that are not multiples of 8, in all three directions of a layer and in rows that are aligned or not.
TEST_F(Blas, OddSizesOfLargeProducts) {
  const int64_t m = 1003, n = 805, k = 697;
  for (const DType t : {DType::bf16, DType::f16}) {
    const Tensor x = uniform({m, k}, -1, 1).to(t), w = uniform({n, k}, -1, 1).to(t), b = uniform({n}, -1, 1).to(t),
                 g = uniform({m, n}, -1, 1).to(t);
    const auto wide = [](const Tensor& v) { return v.to(DType::f64); };
    const Tensor y = linear(wide(x), wide(w), wide(b)), gx = matmul(wide(g), wide(w)),
                 gw = matmul(wide(g).t(), wide(x));
    for (const int64_t pad : {0, 3}) {
      SCOPED_TRACE(cat(t, " padded by ", pad));
      // pad 3 makes rows of 808 and 700 elements: the first aligned, the second not.
      const auto put = [&](const Tensor& v) {
        Tensor room = full({v.size(0), v.size(1) + pad}, NAN).to(t).to(Device::cuda());
        Tensor part = room.narrow(1, 0, v.size(1));
        part.copy_(on(v));
        return part;
      };
      const Tensor dx = put(x), dw = put(w), dg = put(g);
      const double tolerance = t == DType::bf16 ? 0.1 : 0.02;
      expect_near(linear(dx, dw, on(b)), y, tolerance);
      expect_near(matmul(dg, dw), gx, tolerance);
      expect_near(matmul(dg.t(), dx), gw, tolerance);
      expect_near(matmul(dw, dx.t()), matmul(wide(w), wide(x).t()), tolerance);
      const Tensor base = uniform({m, n}, -1, 1).to(t);
      expect_near(addmm(on(base), dx, dw.t(), 2, -1), wide(base) * 2 - matmul(wide(x), wide(w).t()), tolerance);
    }
  }
}

// C += A^T B in f32, C's rows aligned, as for the gradient of an output layer by chunks.
TEST_F(Blas, OddSizesAreAddedToWhatIsThere) {
  const int64_t rows = 1003, n = 805;
  for (const int64_t k : {int64_t{696}, int64_t{701}}) {
    const Tensor g = uniform({rows, n}, -1, 1).to(DType::bf16), x = uniform({rows, k}, -1, 1).to(DType::bf16),
                 base = uniform({n, k}, -1, 1);
    Tensor gd = zeros({rows, 808}, DType::bf16).to(Device::cuda()),
           xd = zeros({rows, 704}, DType::bf16).to(Device::cuda()), sum = zeros({n, 704}).to(Device::cuda());
    gd.narrow(1, 0, n).copy_(on(g));
    xd.narrow(1, 0, k).copy_(on(x));
    sum.narrow(1, 0, k).copy_(on(base));
    Gemm p;
    p.in = DType::bf16, p.out = DType::f32;
    p.m = n, p.n = k, p.k = rows;
    p.a = gd.raw_data(), p.a_row = 1, p.a_col = 808;
    p.b = xd.raw_data(), p.b_row = 704, p.b_col = 1;
    p.c = sum.raw_data(), p.c_row = 704;
    p.alpha = 2, p.beta = 1;
    gemm(p, Device::cuda());
    expect_near(sum.narrow(1, 0, k), base.to(DType::f64) + matmul(g.to(DType::f64).t(), x.to(DType::f64)) * 2, 1e-3);
    EXPECT_EQ(sum.narrow(1, k, 704 - k).to(Device::cpu()).to_vector<float>(),
              std::vector<float>(static_cast<size_t>(n * (704 - k))));
  }
}

TEST_F(Blas, RepeatedProductsAreBitwiseEqual) {
  const Tensor x = on(uniform({2048, 768}, -1, 1).to(DType::bf16)), w = on(uniform({2304, 768}, -1, 1).to(DType::bf16)),
               g = on(uniform({2048, 2304}, -1, 1).to(DType::bf16));
  const auto bits = [](const Tensor& t) { return t.to(DType::f32).to(Device::cpu()).to_vector<float>(); };
  const auto y = bits(linear(x, w)), gw = bits(matmul(g.t(), x));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(bits(linear(x, w)), y);
    EXPECT_EQ(bits(matmul(g.t(), x)), gw);
  }
}

TEST_F(Blas, Tf32IsOffUntilAskedFor) {
  ASSERT_FALSE(allow_tf32());
  const Tensor a = randn({128, 512}), b = randn({512, 128}), want = matmul(a.to(DType::f64), b.to(DType::f64));
  expect_near(matmul(on(a), on(b)), want, 1e-4);
  set_allow_tf32(true);
  const Tensor rough = matmul(on(a), on(b));
  set_allow_tf32(false);
  expect_near(rough, want, 0.1);
  EXPECT_NE(rough.to_vector<float>(), matmul(on(a), on(b)).to_vector<float>());
}

TEST_F(Blas, IntegersWrap) {
  const Tensor a = full({40, 33}, Scalar(100)).to(DType::i8), b = full({33, 20}, Scalar(3)).to(DType::i8);
  EXPECT_EQ(matmul(on(a), on(b)).to_vector<int8_t>(), matmul(a, b).to_vector<int8_t>());
}

TEST_F(Blas, RepeatedIndicesAddUpInOrder) {
  const int64_t n = 64, rows = 7, d = 40;  // more positions are added up in parts
  std::vector<int64_t> at;
  for (int64_t i = 0; i < n; ++i) at.push_back(i * i % rows);
  const Tensor index = from_span<int64_t>(at, {n}), g = randn({n, d});
  for (const DType t : {DType::f32, DType::bf16}) {
    const Tensor x = randn({rows, d}).to(t), s = g.to(t);
    // Bit for bit what the CPU adds up in the order of the positions.
    EXPECT_EQ(index_add(on(x), 0, on(index), on(s)).to_vector<float>(), index_add(x, 0, index, s).to_vector<float>());
    const Tensor wide = index.unsqueeze(1).expand({n, d}).contiguous();
    const auto got = scatter_add(on(x), 0, on(wide), on(s)).to_vector<float>();
    const auto want = scatter_add(x, 0, wide, s).to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], t == DType::f32 ? 1e-5 : 0.1);
    EXPECT_EQ(scatter(on(x), 0, on(wide), on(s)).to_vector<float>(), scatter(x, 0, wide, s).to_vector<float>());
  }
}

TEST_F(Blas, MasksLargerThanABlock) {
  const Tensor x = randn({37, 1001}), mask = x > full({}, 0.3);
  EXPECT_EQ(masked_select(on(x), on(mask)).to_vector<float>(), masked_select(x, mask).to_vector<float>());
  EXPECT_EQ(nonzero(on(mask)).to_vector<int64_t>(), nonzero(mask).to_vector<int64_t>());
}

}  // namespace
}  // namespace strata::cuda
