// Products with low-bit matrices beside f32 and bf16 ones of the same sizes, on the processor, in turns: microseconds
// (the least of the rounds, which other programs disturb the least), bytes of the weight a second, and times the f32
// product. First what reading memory gives.
//
//   build/release/bench/lowbit_bench [rows] [columns] [rows of x ..]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/lowbit/lowbit_samples_inl.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

using namespace strata;

namespace {

struct Way {
  std::string name;
  std::vector<Tensor> dense;         // one of these is the weight,
  std::vector<PackedWeight> packed;  // or one of these: by turns, so that none stays in the caches
  DType x;
  double bytes;
  std::vector<double> seconds;
};

// Seconds of f().
template <class F>
double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
double least(const std::vector<double>& v) {
  return *std::ranges::min_element(v);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4096, columns = argc > 2 ? std::atoll(argv[2]) : 4096;
  constexpr int kCopies = 6, kRounds = 25;
  const NoGrad guard;
  manual_seed(1);
  std::vector<Way> ways;
  const Tensor w = randn({rows, columns});
  for (const DType t : {DType::f32, DType::bf16}) {
    Way way{std::string(name_of(t)), {}, {}, t, static_cast<double>(rows * columns * size_of(t)), {}};
    for (int i = 0; i < kCopies; ++i) way.dense.push_back(w.to(t).clone());
    ways.push_back(way);
  }
  const struct {
    const char* format;
    QuantizeOptions options;
  } formats[] = {{"int8", {}},
                 {"e4m3", {.block_rows = 128, .block_columns = 128}},
                 {"int4", {.block_columns = 128, .scale_dtype = DType::f16}},
                 {"nf4", {.nested = true}},
                 {"q8_0", {}},
                 {"q4_0", {}},
                 {"q4_k", {}},
                 {"q5_k", {}},
                 {"q6_k", {}}};
  Samples samples(DType::f32);
  for (const auto& f : formats)
    for (const DType t : {DType::f32, DType::bf16}) {
      // Some of GGUF's blocks are read and never made: any codes will do.
      const bool made = std::string_view(f.format).find("_k") == std::string_view::npos;
      const PackedWeight one =
          made ? quantize_weight(w, f.format, f.options) : lowbit::random_packed(samples, f.format, rows, columns);
      Way way{cat(f.format, ", x ", t), {}, {}, t, static_cast<double>(one.nbytes()), {}};
      for (int i = 0; i < kCopies; ++i) {
        PackedWeight copy = one;
        for (Tensor* part : {&copy.codes, &copy.scales, &copy.nested})
          if (part->defined()) *part = part->clone();
        way.packed.push_back(copy);
      }
      ways.push_back(way);
    }
  std::vector<double> reading;
  const Tensor big = randn({64 << 20});
  for (int i = 0; i < 9; ++i) reading.push_back(seconds_of([&] { static_cast<void>(big.sum().item()); }));
  const double memory = static_cast<double>(big.nbytes()) / least(reading);
  std::printf("[%lld, %lld], %d threads; reading memory: %.1f GB/s\n", static_cast<long long>(rows),
              static_cast<long long>(columns), num_threads(), memory / 1e9);
  std::vector<int64_t> counts;
  for (int i = 3; i < argc; ++i) counts.push_back(std::atoll(argv[i]));
  if (counts.empty()) counts = {1, 2, 4, 8, 16, 32, 64, 128};
  for (const int64_t m : counts) {
    for (Way& way : ways) way.seconds.clear();
    for (int round = -2; round < kRounds; ++round)
      for (Way& way : ways) {
        const auto at = static_cast<size_t>((round + 2) % kCopies);
        const Tensor x = full({m, columns}, 0.5).to(way.x);
        const double s = seconds_of(
            [&] { const Tensor y = way.dense.empty() ? packed_linear(x, way.packed[at]) : linear(x, way.dense[at]); });
        if (round >= 0) way.seconds.push_back(s);
      }
    std::printf("\n| %lld rows of x | us | GB/s of weight | least us by bytes | times f32 |\n|---|---|---|---|---|\n",
                static_cast<long long>(m));
    for (const Way& way : ways) {
      const double s = least(way.seconds);
      std::printf("| %s | %.0f | %.1f | %.0f | %.2f |\n", way.name.c_str(), s * 1e6, way.bytes / s / 1e9,
                  way.bytes / memory * 1e6, least(ways[0].seconds) / s);
    }
  }
}
