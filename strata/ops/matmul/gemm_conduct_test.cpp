// Products among threads, signals and sizes that change: conduct, not numbers.

#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/matmul/gemm_test_util.h"

namespace strata::cpu {
namespace {

using namespace testing;

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
