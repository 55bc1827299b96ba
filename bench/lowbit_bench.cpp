// Products with low-bit matrices beside f32 and bf16 ones of the same sizes, in turns: microseconds (the least of the
// rounds, which other programs disturb the least), bytes of the weight a second, and times the first row's product.
// First what reading memory gives. On a card x is bf16, and a round is a CUDA graph of 48 products: the host's part is
// left out.
//
//   build/release/bench/lowbit_bench [cpu|cuda] [rows] [columns] [rows of x ..]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
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

  Tensor product(const Tensor& of, size_t at) const {
    return dense.empty() ? packed_linear(of, packed[at]) : linear(of, dense[at]);
  }
};

constexpr int kCopies = 6;

// Products of a round on a card.
constexpr int kCalls = 48;
class Rounds {
 public:
  Rounds(const Way& way, const Tensor& x) : graph_(cuda::GraphPool(x.device().index)) {
    static_cast<void>(way.product(x, 0));  // what happens at first use only
    graph_.capture([&] {
      for (int i = 0; i < kCalls; ++i) static_cast<void>(way.product(x, static_cast<size_t>(i % kCopies)));
    });
  }
  double seconds() {
    const cuda::Stream stream = cuda::current_stream();
    cuda::Event begin(true), end(true);
    begin.record(stream);
    graph_.replay();
    end.record(stream);
    end.synchronize();
    return end.elapsed_ms(begin) / 1e3 / kCalls;
  }

 private:
  cuda::Graph graph_;
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
  const bool named = argc > 1 && std::atoll(argv[1]) == 0;
  const Device device = parse_device(named ? argv[1] : "cpu");
  std::vector<int64_t> numbers;
  for (int i = named ? 2 : 1; i < argc; ++i) numbers.push_back(std::atoll(argv[i]));
  const bool card = device.is_cuda();
  const int64_t rows = numbers.empty() ? 4096 : numbers[0], columns = numbers.size() > 1 ? numbers[1] : 4096;
  const NoGrad guard;
  manual_seed(1);
  std::vector<Way> ways;
  const Tensor w = randn({rows, columns});
  std::vector<DType> of_x = {DType::bf16};
  if (!card) of_x.insert(of_x.begin(), DType::f32);
  for (const DType t : of_x) {
    Way way{std::string(name_of(t)), {}, {}, t, static_cast<double>(rows * columns * size_of(t)), {}};
    for (int i = 0; i < kCopies; ++i) way.dense.push_back(w.to(t).to(device).clone());
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
  for (const auto& f : formats) {
    // Some of GGUF's blocks are read and never made: any codes will do.
    const bool made = std::string_view(f.format).find("_k") == std::string_view::npos;
    const PackedWeight one =
        moved(made ? quantize_weight(w, f.format, f.options) : lowbit::random_packed(samples, f.format, rows, columns),
              device);
    for (const DType t : of_x) {
      Way way{cat(f.format, ", x ", t), {}, {}, t, static_cast<double>(one.nbytes()), {}};
      for (int i = 0; i < kCopies; ++i) {
        PackedWeight copy = one;
        for (Tensor* part : {&copy.codes, &copy.scales, &copy.nested})
          if (part->defined()) *part = part->clone();
        way.packed.push_back(copy);
      }
      ways.push_back(way);
    }
  }
  std::vector<double> reading;
  const Tensor big = randn({card ? 256 << 20 : 64 << 20}).to(device);
  for (int i = 0; i < 9; ++i) reading.push_back(seconds_of([&] { static_cast<void>(big.sum().item()); }));
  const double memory = static_cast<double>(big.nbytes()) / least(reading);
  std::printf(
      "[%lld, %lld], %s; reading memory: %.1f GB/s\n", static_cast<long long>(rows), static_cast<long long>(columns),
      card ? cuda::properties(device.index).name.c_str() : cat(num_threads(), " threads").c_str(), memory / 1e9);
  std::vector<int64_t> counts(numbers.begin() + std::min<int64_t>(2, static_cast<int64_t>(numbers.size())),
                              numbers.end());
  if (counts.empty()) counts = {1, 2, 4, 8, 16, 32, 64, 128};
  const int rounds = card ? 9 : 25;
  for (const int64_t m : counts) {
    for (Way& way : ways) way.seconds.clear();
    std::vector<std::unique_ptr<Rounds>> graphs;
    if (card)
      for (const Way& way : ways)
        graphs.push_back(std::make_unique<Rounds>(way, full({m, columns}, 0.5).to(way.x).to(device)));
    for (int round = -2; round < rounds; ++round)
      for (size_t i = 0; i < ways.size(); ++i) {
        Way& way = ways[i];
        double s = 0;
        if (card) {
          s = graphs[i]->seconds();
        } else {
          const Tensor x = full({m, columns}, 0.5).to(way.x);
          s = seconds_of([&] { static_cast<void>(way.product(x, static_cast<size_t>((round + 2) % kCopies))); });
        }
        if (round >= 0) way.seconds.push_back(s);
      }
    std::printf("\n| %lld rows of x | us | GB/s of weight | least us by bytes | times %s |\n|---|---|---|---|---|\n",
                static_cast<long long>(m), ways[0].name.c_str());
    for (const Way& way : ways) {
      const double s = least(way.seconds);
      std::printf("| %s | %.1f | %.1f | %.1f | %.2f |\n", way.name.c_str(), s * 1e6, way.bytes / s / 1e9,
                  way.bytes / memory * 1e6, least(ways[0].seconds) / s);
    }
    std::fflush(stdout);
  }
}
