// Times the CPU's matrix products, by implementation, on the shapes of two GPT training steps and a few others, and
// checks 200 elements of each result against sums in double. Prints GFLOP/s and exits 1 on a wrong result.
//
//   gemm_bench [threads] [words of a row's name...]
//
// Rows: `fwd` is x W^T (+ bias), `dx` is dy W, `dw` is dy^T x added to an f32 gradient.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace {
using namespace strata;
using cpu::GemmBackend;

struct Case {
  std::string name;
  Gemm g;
};

double element(DType t, const void* p, int64_t i) {
  switch (t) {
    case DType::f32:
      return static_cast<const float*>(p)[i];
    case DType::f64:
      return static_cast<const double*>(p)[i];
    case DType::bf16:
      return static_cast<const BFloat16*>(p)[i];
    case DType::f16:
      return static_cast<const Half*>(p)[i];
    default:
      return 0;
  }
}

void fill(DType t, void* p, int64_t n, uint32_t seed) {
  std::minstd_rand rng(seed);
  std::uniform_real_distribution<float> u(-1, 1);
  for (int64_t i = 0; i < n; ++i) {
    const float v = u(rng);
    switch (t) {
      case DType::f32:
        static_cast<float*>(p)[i] = v;
        break;
      case DType::f64:
        static_cast<double*>(p)[i] = v;
        break;
      case DType::bf16:
        static_cast<BFloat16*>(p)[i] = BFloat16(v);
        break;
      case DType::f16:
        static_cast<Half*>(p)[i] = Half(v);
        break;
      default:
        break;
    }
  }
}

struct Buffer {
  explicit Buffer(int64_t bytes) : p(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))) {
    std::memset(p, 0, static_cast<size_t>(bytes));
  }
  ~Buffer() { std::free(p); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* p;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool g_failed = false;

// GFLOP/s, or 0 where the backend has no kernel.
double time_one(Gemm g, GemmBackend backend, const char* name) {
  const int64_t batches = g.batch.product(), in = size_of(g.in), out = size_of(g.out);
  Buffer a(batches * g.m * g.k * in), b(batches * g.k * g.n * in), c(batches * g.m * g.n * out), bias(g.n * in);
  fill(g.in, a.p, batches * g.m * g.k, 1);
  fill(g.in, b.p, batches * g.k * g.n, 2);
  fill(g.in, bias.p, g.n, 3);
  g.a = a.p, g.b = b.p, g.c = c.p;
  if (g.bias != nullptr) g.bias = bias.p, g.bias_dtype = g.in;
  try {
    cpu::gemm(g, backend);
  } catch (const ValueError&) {
    return 0;
  }
  std::minstd_rand rng(4);
  const double eps = g.out == DType::f64 ? 1e-14 : g.out == DType::f32 ? 1e-6 : g.out == DType::bf16 ? 4e-3 : 1e-3;
  for (int i = 0; i < 200; ++i) {
    const int64_t r = rng() % g.m, col = rng() % g.n, bt = rng() % batches;
    const int64_t ao = g.batch.empty() ? 0 : bt * g.a_batch[0], bo = g.batch.empty() ? 0 : bt * g.b_batch[0];
    const int64_t co = g.batch.empty() ? 0 : bt * g.c_batch[0];
    double want = g.bias != nullptr ? element(g.bias_dtype, g.bias, col) : 0, size = 1;
    for (int64_t l = 0; l < g.k; ++l) {
      const double x =
          element(g.in, g.a, ao + r * g.a_row + l * g.a_col) * element(g.in, g.b, bo + l * g.b_row + col * g.b_col);
      want += x;
      size += std::abs(x);
    }
    const double got = element(g.out, g.c, co + r * g.c_row + col * g.c_col);
    if (!(std::abs(got - want) <=
          eps * (g.out == DType::bf16 || g.out == DType::f16 ? std::abs(want) : 0) + 2e-6 * size)) {
      std::printf("WRONG %s: [%ld, %ld] is %g, not %g\n", name, static_cast<long>(r), static_cast<long>(col), got,
                  want);
      g_failed = true;
      break;
    }
  }
  cpu::gemm(g, backend);
  double best = 1e30;
  const double flops = 2.0 * static_cast<double>(batches * g.m * g.n) * static_cast<double>(g.k);
  const int rounds = std::clamp(static_cast<int>(2e8 / flops), 1, 20000);
  const double stop = seconds() + 0.15;
  do {
    const double t = seconds();
    for (int i = 0; i < rounds; ++i) cpu::gemm(g, backend);
    best = std::min(best, (seconds() - t) / rounds);
  } while (seconds() < stop);
  return flops / best * 1e-9;
}

// x W^T: x [m, k], W [n, k].
Gemm forward(int64_t m, int64_t n, int64_t k, DType t, bool bias) {
  static const char present = 0;
  Gemm g;
  g.in = g.out = t, g.m = m, g.n = n, g.k = k;
  g.a_row = k, g.a_col = 1, g.b_row = 1, g.b_col = k, g.c_row = n;
  g.bias = bias ? &present : nullptr;
  return g;
}
// dy W: dy [m, n], W [n, k].
Gemm grad_input(int64_t m, int64_t n, int64_t k, DType t) {
  Gemm g;
  g.in = g.out = t, g.m = m, g.n = k, g.k = n;
  g.a_row = n, g.a_col = 1, g.b_row = k, g.b_col = 1, g.c_row = k;
  return g;
}
// dy^T x: dy [m, n], x [m, k].
Gemm grad_weight(int64_t m, int64_t n, int64_t k, DType t) {
  Gemm g;
  g.in = t, g.out = is_reduced_floating(t) ? DType::f32 : t, g.m = n, g.n = k, g.k = m;
  g.a_row = 1, g.a_col = n, g.b_row = k, g.b_col = 1, g.c_row = k;
  return g;
}
Gemm batched(int64_t batch, int64_t m, int64_t n, int64_t k, DType t) {
  Gemm g = grad_input(m, k, n, t);
  g.batch = {batch}, g.a_batch = {m * k}, g.b_batch = {k * n}, g.c_batch = {m * n};
  return g;
}
}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) {
    std::fprintf(stderr, "usage: gemm_bench [threads >= 1] [words of a row's name...]\n");
    return 2;
  }
  set_num_threads(threads);
  std::vector<Case> cases;
  const auto name = [](const char* kind, int64_t m, int64_t n, int64_t k, DType t) {
    char text[96];
    std::snprintf(text, sizeof text, "%-4s %-4s %5ldx%5ldx%5ld", std::string(name_of(t)).c_str(), kind,
                  static_cast<long>(m), static_cast<long>(n), static_cast<long>(k));
    return std::string(text);
  };
  const int64_t layers[][3] = {{2048, 768, 256},  {2048, 256, 256},  {2048, 1024, 256},
                               {2048, 256, 1024}, {4096, 1536, 512}, {4096, 512, 512},
                               {4096, 2048, 512}, {4096, 512, 2048}, {4096, 8192, 512}};
  for (DType t : {DType::f32, DType::bf16}) {
    for (const auto& [m, n, k] : layers) {
      cases.push_back({name("fwd", m, n, k, t), forward(m, n, k, t, true)});
      cases.push_back({name("dx", m, n, k, t), grad_input(m, n, k, t)});
      cases.push_back({name("dw", m, n, k, t), grad_weight(m, n, k, t)});
      cases.back().g.beta = 0;
    }
    cases.push_back({name("fwd", 1, 1024, 256, t), forward(1, 1024, 256, t, true)});
    cases.push_back({name("fwd", 8, 1024, 256, t), forward(8, 1024, 256, t, true)});
    cases.push_back({name("dot", 1, 1, 1 << 20, t), forward(1, 1, 1 << 20, t, false)});
    cases.push_back({name("bmm", 256, 256, 32, t), batched(64, 256, 256, 32, t)});
    for (int64_t s : {4, 8, 16, 24, 32, 64, 128}) cases.push_back({name("dx", s, s, s, t), grad_input(s, s, s, t)});
  }
  for (DType t : {DType::f64, DType::f16}) {
    cases.push_back({name("fwd", 2048, 768, 256, t), forward(2048, 768, 256, t, true)});
    cases.push_back({name("dw", 2048, 768, 256, t), grad_weight(2048, 768, 256, t)});
    cases.push_back({name("dx", 8, 8, 8, t), grad_input(8, 8, 8, t)});
  }
  std::printf("%d threads, GFLOP/s\n%-30s %10s %10s %10s %10s %10s\n", threads, "", "best", "onednn", "amx",
              "avx512bf16", "blocked");
  for (const Case& c : cases) {
    bool wanted = true;
    for (int i = 2; i < argc; ++i) wanted = wanted && c.name.find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    std::printf("%-30s", c.name.c_str());
    for (GemmBackend b :
         {GemmBackend::best, GemmBackend::onednn, GemmBackend::amx, GemmBackend::avx512_bf16, GemmBackend::blocked}) {
      const double rate = time_one(c.g, b, c.name.c_str());
      if (rate == 0) {
        std::printf(" %10s", "-");
      } else {
        std::printf(" %10.2f", rate);
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return g_failed ? 1 : 0;
}
