// The raw product against sums in double: every dtype, layout, batch form and epilogue, on every implementation here.

#include "strata/ops/matmul/gemm_cpu.h"

#include <sys/time.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"

namespace strata::cpu {
namespace {

// A strided buffer of any dtype with values that all dtypes hold exactly.
struct Buffer {
  DType t;
  std::vector<char> bytes;
  Buffer(DType t, int64_t n) : t(t), bytes(static_cast<size_t>(n * size_of(t))) {}
  double get(int64_t i) const {
    const void* p = bytes.data() + i * size_of(t);
    switch (t) {
      case DType::u8:
        return *static_cast<const uint8_t*>(p);
      case DType::i8:
        return *static_cast<const int8_t*>(p);
      case DType::i16:
        return *static_cast<const int16_t*>(p);
      case DType::i32:
        return *static_cast<const int32_t*>(p);
      case DType::i64:
        return static_cast<double>(*static_cast<const int64_t*>(p));
      case DType::f16:
        return *static_cast<const Half*>(p);
      case DType::bf16:
        return *static_cast<const BFloat16*>(p);
      case DType::f32:
        return *static_cast<const float*>(p);
      case DType::f64:
        return *static_cast<const double*>(p);
      case DType::boolean:
        return 0;
    }
    return 0;
  }
  void set(int64_t i, double v) {
    void* p = bytes.data() + i * size_of(t);
    switch (t) {
      case DType::u8:
        *static_cast<uint8_t*>(p) = static_cast<uint8_t>(static_cast<int64_t>(v));
        break;
      case DType::i8:
        *static_cast<int8_t*>(p) = static_cast<int8_t>(static_cast<int64_t>(v));
        break;
      case DType::i16:
        *static_cast<int16_t*>(p) = static_cast<int16_t>(static_cast<int64_t>(v));
        break;
      case DType::i32:
        *static_cast<int32_t*>(p) = static_cast<int32_t>(static_cast<int64_t>(v));
        break;
      case DType::i64:
        *static_cast<int64_t*>(p) = static_cast<int64_t>(v);
        break;
      case DType::f16:
        *static_cast<Half*>(p) = Half(static_cast<float>(v));
        break;
      case DType::bf16:
        *static_cast<BFloat16*>(p) = BFloat16(static_cast<float>(v));
        break;
      case DType::f32:
        *static_cast<float*>(p) = static_cast<float>(v);
        break;
      case DType::f64:
        *static_cast<double*>(p) = v;
        break;
      case DType::boolean:
        break;
    }
  }
};

double apply(Epilogue e, double x) {
  switch (e) {
    case Epilogue::none:
      return x;
    case Epilogue::relu:
      return x > 0 ? x : 0;
    case Epilogue::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Epilogue::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Epilogue::silu:
      return x / (1 + std::exp(-x));
    case Epilogue::gelu_tanh_grad: {
      const double h = 1e-5;
      return (apply(Epilogue::gelu_tanh, x + h) - apply(Epilogue::gelu_tanh, x - h)) / (2 * h);
    }
  }
  return x;
}

enum class Layout { rows, cols, padded_rows, padded_cols, spread, broadcast_row };

// Row and column strides; returns the elements one matrix spans.
int64_t lay_out(Layout l, int64_t rows, int64_t cols, int64_t& row, int64_t& col) {
  switch (l) {
    case Layout::rows:
      row = cols, col = 1;
      break;
    case Layout::cols:
      row = 1, col = rows;
      break;
    case Layout::padded_rows:
      row = cols + 3, col = 1;
      break;
    case Layout::padded_cols:
      row = 1, col = rows + 5;
      break;
    case Layout::spread:
      row = 2 * cols + 1, col = 2;
      break;
    case Layout::broadcast_row:
      row = 0, col = 1;
      break;
  }
  return (rows - 1) * row + (cols - 1) * col + 1;
}

struct Spec {
  DType in, out;
  int64_t m, n, k;
  Layout a = Layout::rows, b = Layout::rows, c = Layout::rows;
  Shape batch = {};
  bool a_shared = false, b_shared = false, bias = false;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::none;
};

// Runs one product and compares every element. False where the backend has no kernel for it.
bool verify(const Spec& s, GemmBackend backend) {
  Gemm g;
  g.in = s.in, g.out = s.out, g.m = s.m, g.n = s.n, g.k = s.k, g.alpha = s.alpha, g.beta = s.beta,
  g.epilogue = s.epilogue;
  const int64_t a_span = lay_out(s.a, s.m, s.k, g.a_row, g.a_col), b_span = lay_out(s.b, s.k, s.n, g.b_row, g.b_col);
  const int64_t c_span = lay_out(s.c, s.m, s.n, g.c_row, g.c_col), count = s.batch.product();
  g.batch = s.batch;
  int64_t step = 1;
  g.a_batch = g.b_batch = g.c_batch = Dims::filled(s.batch.size(), 0);
  for (int d = s.batch.size() - 1; d >= 0; --d) {
    // A shared operand is broadcast along the last batch dim.
    const bool last = d == s.batch.size() - 1;
    g.a_batch[d] = s.a_shared && last ? 0 : step * a_span;
    g.b_batch[d] = s.b_shared && last ? 0 : step * b_span;
    g.c_batch[d] = step * c_span;
    step *= s.batch[d];
  }
  std::minstd_rand rng(static_cast<uint32_t>(s.m * 31 + s.n * 7 + s.k));
  const bool whole = is_integral(s.in);
  const auto fill = [&](Buffer& x, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      x.set(i, whole ? static_cast<double>(rng() % 5) : static_cast<double>(static_cast<int>(rng() % 33) - 16) / 16);
  };
  Buffer a(s.in, count * a_span), b(s.in, count * b_span), c(s.out, count * c_span), bias(s.in, s.n);
  fill(a, count * a_span), fill(b, count * b_span), fill(c, count * c_span), fill(bias, s.n);
  const Buffer before = c;
  g.a = a.bytes.data(), g.b = b.bytes.data(), g.c = c.bytes.data();
  if (s.bias) g.bias = bias.bytes.data(), g.bias_dtype = s.in;
  try {
    gemm(g, backend);
  } catch (const ValueError&) {
    return false;
  }
  const double eps = s.out == DType::f64    ? 1e-14
                     : s.out == DType::f32  ? 2e-6
                     : s.out == DType::bf16 ? 8e-3
                     : s.out == DType::f16  ? 1e-3
                                            : 0;
  const double modulus = whole && size_of(s.out) < 4 ? std::ldexp(1, static_cast<int>(8 * size_of(s.out))) : 0;
  for (int64_t t = 0; t < count; ++t) {
    int64_t index = t, ao = 0, bo = 0, co = 0;
    for (int d = s.batch.size() - 1; d >= 0; --d) {
      ao += index % s.batch[d] * g.a_batch[d], bo += index % s.batch[d] * g.b_batch[d],
          co += index % s.batch[d] * g.c_batch[d];
      index /= s.batch[d];
    }
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          const double x = a.get(ao + i * g.a_row + l * g.a_col) * b.get(bo + l * g.b_row + j * g.b_col);
          sum += x, size += std::abs(x);
        }
        const int64_t at = co + i * g.c_row + j * g.c_col;
        double want = s.alpha * sum + (s.bias ? bias.get(j) : 0) + (s.beta != 0 ? s.beta * before.get(at) : 0);
        want = apply(s.epilogue, want);
        double error = std::abs(c.get(at) - want);
        if (modulus > 0) error = std::fmod(error, modulus);
        // Library and own activations differ from the exact ones by a few units of f32.
        const double slack = s.epilogue == Epilogue::none || s.in == DType::f64 ? 0 : 1e-5;
        if (!(error <= eps * std::abs(want) + (whole ? 0 : eps < 1e-10 ? 1e-15 : 3e-7) * size + slack)) {
          ADD_FAILURE() << name_of(s.in) << "->" << name_of(s.out) << " m=" << s.m << " n=" << s.n << " k=" << s.k
                        << " layouts " << static_cast<int>(s.a) << static_cast<int>(s.b) << static_cast<int>(s.c)
                        << " batch " << to_string(s.batch) << " alpha=" << s.alpha << " beta=" << s.beta
                        << " bias=" << s.bias << " epilogue=" << static_cast<int>(s.epilogue)
                        << " backend=" << static_cast<int>(backend) << ": [" << t << "][" << i << ", " << j << "] is "
                        << c.get(at) << ", not " << want;
          return true;
        }
      }
    }
  }
  return true;
}

constexpr GemmBackend kBackends[] = {GemmBackend::best, GemmBackend::blocked, GemmBackend::onednn,
                                     GemmBackend::avx512_bf16, GemmBackend::amx};

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

TEST(Gemm, EmptySumsAndEmptyResults) {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 0, .bias = true, .beta = 1}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 0}, GemmBackend::best);
    verify({.in = t, .out = t, .m = 3, .n = 4, .k = 5, .batch = {0}}, GemmBackend::best);
  }
}

TEST(Gemm, InsideAParallelLoop) {
  const int before = num_threads();
  set_num_threads(3);
  for (DType t : {DType::f32, DType::bf16}) {
    for (GemmBackend backend : kBackends) {
      verify({.in = t, .out = DType::f32, .m = 256, .n = 256, .k = 512, .a = Layout::cols}, backend);
      parallel_for(0, 6, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          verify({.in = t,
                  .out = DType::f32,
                  .m = 96 + 32 * (i % 3),
                  .n = 128,
                  .k = 256,
                  .a = i % 2 ? Layout::cols : Layout::rows},
                 backend);
        }
      });
      verify({.in = t, .out = DType::f32, .m = 256, .n = 256, .k = 512, .a = Layout::cols}, backend);
    }
  }
  set_num_threads(before);
}

TEST(Gemm, SameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  std::minstd_rand rng(1);
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{200, 150, 300},
                           {256, 256, 4096},
                           {40, 50, 3000},
                           {4, 64, 8192},
                           {1000, 1, 4096},
                           {64, 10, 3136}}) {
      for (int layout = 0; layout < 4; ++layout) {
        Buffer a(t, m * k), b(t, k * n), c(t, m * n);
        for (int64_t i = 0; i < m * k; ++i) a.set(i, (static_cast<double>(rng() % 2001) - 1000) / 777);
        for (int64_t i = 0; i < k * n; ++i) b.set(i, (static_cast<double>(rng() % 2001) - 1000) / 777);
        Gemm g;
        g.in = g.out = t, g.m = m, g.n = n, g.k = k, g.a = a.bytes.data(), g.b = b.bytes.data(), g.c = c.bytes.data(),
        g.c_row = n;
        g.a_row = layout & 1 ? 1 : k, g.a_col = layout & 1 ? m : 1, g.b_row = layout & 2 ? 1 : n,
        g.b_col = layout & 2 ? k : 1;
        set_num_threads(1);
        gemm(g);
        const std::vector<char> one = c.bytes;
        set_num_threads(5);
        gemm(g);
        EXPECT_TRUE(c.bytes == one) << name_of(t) << " m=" << m << " n=" << n << " k=" << k << " layout " << layout;
      }
    }
  }
  set_num_threads(before);
}

// Sizes that data decides, as an expert's tokens: no kernel is compiled for each.
TEST(Gemm, FewKernelsForManySizes) {
  const int before = num_threads();
  set_num_threads(1);
  const int64_t most = 1100, n = 96, k = 64;
  const std::vector<float> a(static_cast<size_t>(most * n), 1), b(static_cast<size_t>(most * n), 0.5F);
  std::vector<float> c(static_cast<size_t>(most * n));
  const auto rows = [&](int64_t m, Epilogue e) {
    Gemm g{.in = DType::f32, .out = DType::f32, .m = m, .n = n, .k = k, .a = a.data(), .b = b.data(), .c = c.data()};
    g.a_row = k, g.a_col = 1, g.b_row = n, g.b_col = 1, g.c_row = n, g.c_col = 1, g.epilogue = e;
    gemm(g);
    return c[static_cast<size_t>(m * n - 1)];
  };
  const auto sum = [&](int64_t m) {
    Gemm g{.in = DType::f32, .out = DType::f32, .m = k, .n = n, .k = m, .a = a.data(), .b = b.data(), .c = c.data()};
    g.a_row = 1, g.a_col = k, g.b_row = n, g.b_col = 1, g.c_row = n, g.c_col = 1;
    gemm(g);
    return c[static_cast<size_t>(k * n - 1)];
  };
  for (const auto& [what, call, wanted] :
       std::vector<std::tuple<const char*, std::function<float(int64_t)>, std::function<float(int64_t)>>>{
           {"rows", [&](int64_t m) { return rows(m, Epilogue::none); }, [&](int64_t) { return 0.5F * k; }},
           {"with an epilogue", [&](int64_t m) { return rows(m, Epilogue::relu); }, [&](int64_t) { return 0.5F * k; }},
           {"sums", sum, [](int64_t m) { return 0.5F * static_cast<float>(m); }}}) {
    const int64_t made = detail::gemm_kernels_made();
    for (int64_t m = 65; m < most; ++m) ASSERT_EQ(call(m), wanted(m)) << what << " " << m;
    EXPECT_LE(detail::gemm_kernels_made() - made, 200) << what;
  }
  set_num_threads(before);
}

// A handler's frame goes to wherever the stack pointer points.
TEST(Gemm, SignalsDoNoHarm) {
  static std::atomic<int> handled{0};
  struct sigaction act {
  }, before{};
  act.sa_handler = [](int) { handled.fetch_add(1); };
  act.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &act, &before), 0);
  const int64_t n = 1500;
  std::vector<float> a(n * n), b(n * n), quiet(n * n), disturbed(n * n);
  std::mt19937 rng(5);
  for (float& v : a) v = static_cast<float>(rng() % 201) - 100;
  for (float& v : b) v = static_cast<float>(rng() % 201) - 100;
  Gemm g;
  g.in = g.out = DType::f32, g.m = g.n = g.k = n, g.a = a.data(), g.b = b.data(), g.c = quiet.data();
  g.a_row = g.b_row = g.c_row = n, g.a_col = g.b_col = 1;
  gemm(g);
  const itimerval often{{0, 500}, {0, 500}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  g.c = disturbed.data();
  for (int i = 0; i < 12; ++i) {
    gemm(g);
    std::vector<std::unique_ptr<char[]>> blocks;  // the heap's own lists are walked
    for (size_t size = 16; size < (1 << 20); size *= 2) blocks.push_back(std::make_unique<char[]>(size));
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(handled.load(), 0);
  EXPECT_TRUE(quiet == disturbed);
}

TEST(Gemm, RefusesDTypesItCannotMultiply) {
  Gemm g;
  g.in = DType::boolean, g.out = DType::boolean;
  EXPECT_THROW(gemm(g), DTypeError);
  g.in = DType::f32, g.out = DType::bf16;
  EXPECT_THROW(gemm(g), DTypeError);
  g.in = g.out = DType::i32, g.epilogue = Epilogue::relu;
  EXPECT_THROW(gemm(g), DTypeError);
}

}  // namespace
}  // namespace strata::cpu
