// The raw product against sums in double: every dtype, layout, batch form and epilogue, on every implementation here.

#include "strata/ops/matmul/gemm_cpu.h"

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/matmul/gemm_test_util.h"

namespace strata::cpu {
namespace {

using namespace testing;

TEST(Gemm, EveryDTypeLayoutAndBackend) {
  int runs = 0;
  for (auto [in, out] : {std::pair{DType::f32, DType::f32},
                         {DType::bf16, DType::bf16},
                         {DType::bf16, DType::f32},
                         {DType::f16, DType::f16},
                         {DType::f16, DType::f32},
                         {DType::f64, DType::f64}}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                           {1, 40, 33},
                           {37, 1, 5},
                           {16, 16, 16},
                           {33, 65, 70},
                           {64, 96, 128},
                           {130, 17, 300}}) {
      for (Layout a : {Layout::rows, Layout::cols, Layout::padded_cols, Layout::spread, Layout::broadcast_row}) {
        for (Layout b : {Layout::rows, Layout::cols, Layout::padded_rows, Layout::spread}) {
          for (GemmBackend backend : kBackends)
            runs += verify({.in = in, .out = out, .m = m, .n = n, .k = k, .a = a, .b = b}, backend);
        }
      }
    }
  }
  EXPECT_GT(runs, 6 * 7 * 20 * 2);
}

TEST(Gemm, AccumulatesScalesAddsBiasAndActivates) {
  for (auto [in, out] : {std::pair{DType::f32, DType::f32},
                         {DType::bf16, DType::bf16},
                         {DType::bf16, DType::f32},
                         {DType::f16, DType::f16},
                         {DType::f64, DType::f64}}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{5, 7, 3}, {64, 64, 64}, {70, 45, 129}}) {
      for (GemmBackend backend : kBackends) {
        for (double beta : {0.0, 1.0, 0.5}) {
          for (bool bias : {false, true}) {
            verify({.in = in, .out = out, .m = m, .n = n, .k = k, .bias = bias, .beta = beta}, backend);
            verify({.in = in, .out = out, .m = m, .n = n, .k = k, .bias = bias, .alpha = -0.25, .beta = beta}, backend);
            for (Epilogue e : {Epilogue::relu, Epilogue::gelu, Epilogue::gelu_tanh, Epilogue::silu}) {
              verify({.in = in, .out = out, .m = m, .n = n, .k = k, .bias = bias, .beta = beta, .epilogue = e},
                     backend);
            }
          }
        }
      }
    }
  }
}

// GELU that also keeps its argument, and the product with its derivative.
TEST(Gemm, GeluWithItsArgumentAndItsDerivative) {
  for (auto [t, bound] : {std::pair{DType::f32, 1e-4}, {DType::f64, 1e-9}, {DType::bf16, 0.03}, {DType::f16, 0.01}}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{3, 5, 7}, {64, 96, 48}, {130, 70, 129}}) {
      for (GemmBackend backend : kBackends) {
        for (bool columns : {false, true}) {
          Buffer a(t, m * k), b(t, k * n), c(t, m * n), aux(t, m * n), bias(t, n);
          std::minstd_rand rng(7);
          for (Buffer* x : {&a, &b, &bias}) {
            for (int64_t i = 0; i < static_cast<int64_t>(x->bytes.size()) / size_of(t); ++i)
              x->set(i, (static_cast<double>(rng() % 33) - 16) / 32);
          }
          Gemm g;
          g.in = g.out = t, g.m = m, g.n = n, g.k = k, g.a = a.bytes.data(), g.a_row = k, g.a_col = 1;
          g.b = b.bytes.data(), g.b_row = n, g.b_col = 1, g.c = c.bytes.data();
          g.c_row = columns ? 1 : n, g.c_col = columns ? m : 1;
          g.aux = aux.bytes.data(), g.epilogue = Epilogue::gelu_tanh;
          if (!columns) g.bias = bias.bytes.data(), g.bias_dtype = t;
          const auto sum = [&, k = k, n = n](int64_t i, int64_t j) {
            double s = 0;
            for (int64_t l = 0; l < k; ++l) s += a.get(i * k + l) * b.get(l * n + j);
            return s;
          };
          try {
            gemm(g, backend);
          } catch (const ValueError&) {
            continue;
          }
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              const int64_t at = i * g.c_row + j * g.c_col;
              const double pre = sum(i, j) + (columns ? 0 : bias.get(j)), size = 1 + std::abs(pre);
              ASSERT_NEAR(aux.get(at), pre, bound * size) << name_of(t) << " backend " << static_cast<int>(backend);
              ASSERT_NEAR(c.get(at), apply(Epilogue::gelu_tanh, pre), bound * size)
                  << name_of(t) << " backend " << static_cast<int>(backend);
            }
          }
          g.epilogue = Epilogue::gelu_tanh_grad, g.bias = nullptr;
          gemm(g, backend);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              const int64_t at = i * g.c_row + j * g.c_col;
              const double s = sum(i, j);
              ASSERT_NEAR(c.get(at), s * apply(Epilogue::gelu_tanh_grad, aux.get(at)), bound * (1 + std::abs(s)))
                  << name_of(t) << " backend " << static_cast<int>(backend);
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, GeluFarFromZero) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    Buffer x(t, 5), y(t, 5), slope(t, 5);
    const double at[5] = {-1e30, -40, 40, 1e30, std::nan("")}, gelu[4] = {0, 0, 40, 1e30}, want[4] = {0, 0, 1, 1};
    for (int i = 0; i < 5; ++i) x.set(i, at[i]), slope.set(i, 1);
    detail::gelu_tanh_run(t, false, x.bytes.data(), y.bytes.data(), 5);
    detail::gelu_tanh_run(t, true, x.bytes.data(), slope.bytes.data(), 5);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(y.get(i), gelu[i], 1e-2 * gelu[i] + 1e-6) << name_of(t) << at[i];
      EXPECT_NEAR(slope.get(i), want[i], 1e-6) << name_of(t) << at[i];
    }
    EXPECT_TRUE(std::isnan(y.get(4)));
    EXPECT_TRUE(std::isnan(slope.get(4)));
  }
}

TEST(Gemm, ResultOfAnyLayout) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    for (Layout c : {Layout::cols, Layout::padded_rows, Layout::padded_cols, Layout::spread}) {
      for (double beta : {0.0, 1.0}) {
        for (bool bias : {false, true}) {
          verify({.in = t, .out = t, .m = 96, .n = 64, .k = 200, .b = Layout::cols, .c = c, .bias = bias, .beta = beta},
                 GemmBackend::best);
          verify({.in = t, .out = t, .m = 3, .n = 4, .k = 5, .c = c, .bias = bias, .beta = beta}, GemmBackend::best);
        }
      }
    }
  }
}

TEST(Gemm, Batches) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    for (Shape batch : {Shape{3}, Shape{2, 3}, Shape{2, 1, 3}}) {
      for (bool a_shared : {false, true}) {
        for (bool b_shared : {false, true}) {
          for (GemmBackend backend : kBackends) {
            for (int64_t m : {1, 40}) {
              verify({.in = t,
                      .out = t,
                      .m = m,
                      .n = 50,
                      .k = 60,
                      .b = Layout::cols,
                      .batch = batch,
                      .a_shared = a_shared,
                      .b_shared = b_shared},
                     backend);
            }
            verify({.in = t,
                    .out = t,
                    .m = 40,
                    .n = 50,
                    .k = 60,
                    .a = Layout::spread,
                    .b = Layout::spread,
                    .batch = batch,
                    .a_shared = a_shared,
                    .b_shared = b_shared},
                   backend);
          }
        }
      }
    }
  }
}

TEST(Gemm, LongSums) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    verify({.in = t, .out = t, .m = 1, .n = 1, .k = 200000}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 3, .n = 5, .k = 70000, .b = Layout::cols, .bias = true, .alpha = 2, .beta = 1},
           GemmBackend::best);
  }
  // Deeper than one visit of a block of results.
  for (DType out : {DType::f32, DType::bf16}) {
    for (GemmBackend backend : kBackends) {
      for (int64_t n : {64, 70}) {
        for (double beta : {0.0, 1.0}) {
          verify({.in = DType::bf16, .out = out, .m = 64, .n = n, .k = 2500, .a = Layout::cols, .beta = beta}, backend);
          verify({.in = DType::bf16, .out = out, .m = 96, .n = n, .k = 2048, .b = Layout::cols, .beta = beta}, backend);
        }
      }
    }
  }
}

// f32 products of so many rows that the second operand is packed once for all (see gemm_rows()), to and past the edges
// of its blocks, with rows of A that lie apart, and batches of which they are the rows of one product.
TEST(Gemm, ManyRowsOfF32) {
  const auto check = [](Spec s) {
    s.in = s.out = DType::f32;
    verify(s, GemmBackend::best);
  };
  for (auto [m, n, k] : {std::array<int64_t, 3>{256, 64, 16}, {259, 70, 33}, {300, 200, 257}, {517, 65, 31}}) {
    for (Layout a : {Layout::rows, Layout::padded_rows, Layout::cols})
      for (Layout b : {Layout::rows, Layout::cols, Layout::padded_rows, Layout::padded_cols})
        check({.m = m, .n = n, .k = k, .a = a, .b = b});
    for (Epilogue e : {Epilogue::none, Epilogue::relu, Epilogue::gelu_tanh})
      check({.m = m, .n = n, .k = k, .b = Layout::cols, .bias = true, .beta = 0.5, .epilogue = e});
    check({.m = m, .n = n, .k = k, .alpha = -0.25});
  }
  check({.m = 31, .n = 70, .k = 40, .b = Layout::cols, .batch = {9}, .b_shared = true, .bias = true});
  check({.m = 31, .n = 70, .k = 40, .a = Layout::padded_rows, .batch = {3, 9}, .b_shared = true});
  check({.m = 31, .n = 70, .k = 40, .batch = {9}});
  check({.m = 1, .n = 70, .k = 40, .batch = {300}, .b_shared = true});
  // Where oneDNN has the kernel, it is the one that is taken.
  Buffer a(DType::f32, 300 * 48), b(DType::f32, 48 * 80), c(DType::f32, 300 * 80);
  Gemm g;
  g.m = 300, g.n = 80, g.k = 48, g.a_row = 48, g.a_col = 1, g.b_row = 80, g.b_col = 1, g.c_row = 80;
  g.a = a.bytes.data(), g.b = b.bytes.data(), g.c = c.bytes.data();
  EXPECT_EQ(detail::gemm_rows(g), detail::gemm_packed(g, true));
}

// f32 products whose second operand lies by columns, of few rows and of many, alone and in batches that share it or
// not: it is turned first, by parts or at once.
TEST(Gemm, ColumnsAreTurned) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{16, 32, 192}, {33, 65, 193}, {260, 40, 200}})
    for (Layout a : {Layout::rows, Layout::cols, Layout::padded_cols}) {
      const Spec s{.in = DType::f32, .out = DType::f32, .m = m, .n = n, .k = k, .a = a, .b = Layout::padded_cols};
      Spec more = s;
      more.bias = true, more.beta = 0.5, more.epilogue = Epilogue::relu, more.b = Layout::cols;
      verify(more, GemmBackend::best);
      more = s;
      more.batch = {2}, more.alpha = -2;
      verify(more, GemmBackend::best);
      more.b_shared = true;
      verify(more, GemmBackend::best);
    }
}

// Batches of products that are hardly larger than a call.
TEST(Gemm, SmallBatches) {
  for (DType t : {DType::f32, DType::f64, DType::bf16})
    for (auto [m, n, k] : {std::array<int64_t, 3>{1, 2, 3},
                           {2, 1, 5},
                           {3, 1, 21},
                           {1, 1, 100},
                           {3, 3, 3},
                           {4, 4, 4},
                           {2, 2, 30},
                           {1, 16, 8},
                           {1, 17, 4},
                           {8, 8, 8},
                           {5, 16, 16},
                           {40, 40, 40}})
      for (Layout a : {Layout::rows, Layout::padded_cols})
        for (Layout b : {Layout::padded_rows, Layout::cols}) {
          const Spec s{.in = t, .out = t, .m = m, .n = n, .k = k, .a = a, .b = b, .batch = {9}};
          verify(s, GemmBackend::best);
          Spec more = s;
          more.b_shared = true, more.batch = {3, 7};
          verify(more, GemmBackend::best);
          more = s;
          more.alpha = -0.5, more.beta = 2;
          verify(more, GemmBackend::best);
          more = s;
          more.bias = true, more.epilogue = Epilogue::relu;
          verify(more, GemmBackend::best);
        }
}

TEST(Gemm, IntegersWrap) {
  for (DType t : {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    verify({.in = t, .out = t, .m = 20, .n = 33, .k = 300, .b = Layout::cols}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 20, .n = 33, .k = 300, .batch = {2, 2}, .alpha = -2, .beta = 3}, GemmBackend::best);
  }
}

// One row of a layer, or one column: loops of dots or of columns, then the bias.
TEST(Gemm, VectorsWithABias) {
  for (auto [in, out] : {std::pair{DType::f32, DType::f32},
                         {DType::bf16, DType::bf16},
                         {DType::bf16, DType::f32},
                         {DType::f16, DType::f16},
                         {DType::f64, DType::f64}}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{1, 70, 130}, {1, 512, 2}, {70, 1, 130}, {1, 1, 65}, {1, 33, 1}}) {
      for (Layout a : {Layout::rows, Layout::cols, Layout::spread}) {
        for (Layout b : {Layout::rows, Layout::cols, Layout::padded_rows}) {
          const Spec plain{.in = in, .out = out, .m = m, .n = n, .k = k, .a = a, .b = b, .bias = true};
          Spec more = plain, spread = plain;
          more.beta = 0.5, more.epilogue = Epilogue::silu;
          spread.c = Layout::spread;
          for (const Spec& s : {plain, more, spread}) EXPECT_TRUE(verify(s, GemmBackend::best));
        }
      }
    }
  }
}

TEST(Gemm, EmptySumsAndEmptyResults) {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 0, .bias = true, .beta = 1}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 0}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 5, .batch = {0}}, GemmBackend::best);
  }
}

}  // namespace
}  // namespace strata::cpu
