// Products from tiles (strata/ops/matmul/gemm_tiles.cuh) beside cuBLASLt's in one run: cuda_tiles_bench [seconds each]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

#ifdef STRATA_WITH_CUDA
#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/matmul/gemm_gated.h"
#include "strata/ops/matmul/gemm_scaled.h"
#include "strata/ops/matmul/gemm_tiles.h"

using namespace strata;

namespace {

// Median milliseconds of each function, in turns.
std::vector<double> time_ms(double seconds, const std::vector<std::function<void()>>& all) {
  const cuda::Stream s = cuda::Stream::main();
  for (int i = 0; i < 3; ++i)
    for (const auto& f : all) f();
  std::vector<std::vector<double>> ms(all.size());
  for (double total = 0; total < seconds * 1e3 && ms[0].size() < 200;) {
    for (size_t k = 0; k < all.size(); ++k) {
      cuda::Event begin(true), end(true);
      begin.record(s);
      for (int i = 0; i < 4; ++i) all[k]();
      end.record(s);
      end.synchronize();
      ms[k].push_back(end.elapsed_ms(begin) / 4);
      total += end.elapsed_ms(begin);
    }
  }
  std::vector<double> medians;
  for (auto& m : ms) {
    std::sort(m.begin(), m.end());
    medians.push_back(m[m.size() / 2]);
  }
  return medians;
}

struct Size {
  int64_t m, n, k;
};
constexpr Size kSizes[] = {{4096, 4096, 4096}, {8192, 8192, 8192}, {2048, 2048, 2048}, {8192, 3072, 2048},
                           {32768, 768, 3072}, {1024, 1024, 4096}, {4090, 4095, 1000}};

void report(const char* name, const Size& s, const std::vector<double>& ms) {
  const double flops = 2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  std::printf("%-16s %6lld %6lld %6lld  tiles %9.4f ms %6.0f TFLOP/s   cuBLASLt %9.4f ms %6.0f TFLOP/s   %5.2f\n", name,
              static_cast<long long>(s.m), static_cast<long long>(s.n), static_cast<long long>(s.k), ms[0],
              flops / ms[0], ms[1], flops / ms[1], ms[1] / ms[0]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("%s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.2;
  NoGrad guard;
  const Device device = Device::cuda();
  DeviceScope on{device};
  const auto up8 = [](int64_t n) { return (n + 15) / 16 * 16; };
  for (const Size& s : kSizes) {
    for (int turn = 0; turn < 4; ++turn) {
      if (turn % 3 != 0 && &s != kSizes) continue;  // two layouts each, all of the first size
      const bool turn_a = turn & 1, turn_b = turn & 2;
      const Tensor a = uniform({turn_a ? s.k : s.m, up8(turn_a ? s.m : s.k)}, -1, 1).to(DType::bf16),
                   b = uniform({turn_b ? s.k : s.n, up8(turn_b ? s.n : s.k)}, -1, 1).to(DType::bf16),
                   c = zeros({s.m, up8(s.n)}).to(DType::bf16);
      Gemm g;
      g.in = g.out = DType::bf16, g.m = s.m, g.n = s.n, g.k = s.k, g.beta = 0;
      g.a = a.raw_data(), g.a_row = turn_a ? 1 : a.size(1), g.a_col = turn_a ? a.size(1) : 1;
      g.b = b.raw_data(), g.b_row = turn_b ? b.size(1) : 1, g.b_col = turn_b ? 1 : b.size(1);
      g.c = c.raw_data(), g.c_row = c.size(1);
      if (!cuda::gemm_tiles(g, device)) {
        std::printf("no kernel of tiles\n");
        return 1;
      }
      static constexpr const char* kNames[] = {"bf16 A B^T", "bf16 A^T B^T", "bf16 A B", "bf16 A^T B"};
      report(kNames[turn], s, time_ms(seconds, {[&] { cuda::gemm_tiles(g, device); }, [&] { cuda::gemm(g, device); }}));
    }
  }
  for (const Size& s : {Size{8192, 8192, 2048}, Size{4096, 11008, 4096}, Size{512, 8192, 2048}}) {  // m, N, in
    const Tensor x = uniform({s.m, s.k}, -1, 1).to(DType::bf16), w = uniform({2 * s.n, s.k}, -1, 1).to(DType::bf16);
    Tensor y = zeros({s.m, s.n}).to(DType::bf16);
    report("linear_swiglu", {s.m, 2 * s.n, s.k},
           time_ms(seconds, {[&] { cuda::gated_tiles(y, x, w); }, [&] { swiglu(linear(x, w)); }}));
  }
  using Type = cuda::TileGemm8::Type;
  for (const bool whole : {false, true})
    for (const Size& s : {Size{4096, 4096, 4096}, Size{8192, 8192, 8192}}) {
      const Tensor a = (uniform({s.m, s.k}, 0, 64)).to(DType::u8), b = (uniform({s.n, s.k}, 0, 64)).to(DType::u8),
                   c = zeros({s.m, s.n}).to(whole ? DType::i32 : DType::bf16), ones = full({1}, 1.0);
      cuda::TileGemm8 g;
      g.a_type = g.b_type = whole ? Type::s8 : Type::e4m3, g.out = c.dtype();
      g.m = s.m, g.n = s.n, g.k = s.k, g.lda = g.ldb = s.k, g.ldc = s.n;
      g.a = a.raw_data(), g.b = b.raw_data(), g.c = c.raw_data();
      if (!whole) g.scale_a = g.scale_b = static_cast<const float*>(ones.raw_data());
      cuda::ScaledGemm l;
      l.a_type = l.b_type = whole ? cuda::EightBit::i8 : cuda::EightBit::e4m3, l.out = g.out;
      l.m = s.m, l.n = s.n, l.k = s.k, l.lda = l.ldb = s.k, l.ldc = s.n;
      l.a = g.a, l.b = g.b, l.c = g.c, l.scale_a = g.scale_a, l.scale_b = g.scale_b;
      if (!cuda::gemm_tiles(g, device) || !cuda::scaled_gemm(l, device)) continue;
      report(whole ? "s8 A B^T" : "e4m3 A B^T", s,
             time_ms(seconds, {[&] { cuda::gemm_tiles(g, device); }, [&] { cuda::scaled_gemm(l, device); }}));
    }
}
#else
int main() {
  std::printf("built without CUDA\n");
}
#endif
