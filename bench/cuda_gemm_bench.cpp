// The matrix products of a training step on a CUDA device: each layer's forward product and both gradients, as the
// records queue them. cuda_gemm_bench [--lines FILE] [seconds per product] [first letters of the names]
// FILE: what pytorch/cuda_gemm.py sets beside PyTorch's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "strata/cuda/runtime.h"
#include "strata/ops/matmul/mlp.h"
#include "strata/strata.h"

using namespace strata;

namespace {

// Median milliseconds of f.
double time_ms(double seconds, const std::function<void()>& f) {
  const cuda::Stream s = cuda::Stream::main();
  for (int i = 0; i < 3; ++i) f();
  std::vector<double> ms;
  double total = 0;
  while (total < seconds * 1e3 && ms.size() < 200) {
    cuda::Event begin(true), end(true);
    begin.record(s);
    const int times = 4;
    for (int i = 0; i < times; ++i) f();
    end.record(s);
    end.synchronize();
    ms.push_back(end.elapsed_ms(begin) / times);
    total += end.elapsed_ms(begin);
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

struct Layer {
  const char* name;
  int64_t rows, out, in;
  bool bias;
};
constexpr int64_t kGpt = 32768, kLlama = 8192;
constexpr Layer kLayers[] = {
    {"gpt2 qkv", kGpt, 2304, 768, true},
    {"gpt2 out", kGpt, 768, 768, true},
    {"gpt2 up", kGpt, 3072, 768, true},
    {"gpt2 down", kGpt, 768, 3072, true},
    {"gpt2 head 50304", kGpt, 50304, 768, false},
    {"gpt2 head 50257", kGpt, 50257, 768, false},
    {"gpt2 head 50257, rows of 50304", kGpt, 50257, 768, false},
    {"llama qkv", kLlama, 3072, 2048, false},
    {"llama out", kLlama, 2048, 2048, false},
    {"llama gate_up", kLlama, 16384, 2048, false},
    {"llama down", kLlama, 2048, 8192, false},
    {"llama head", kLlama, 128256, 2048, false},
};

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("%s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  std::FILE* lines = nullptr;
  if (argc > 2 && std::string_view(argv[1]) == "--lines") {
    lines = std::fopen(argv[2], "w");
    argc -= 2;
    argv += 2;
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.1;
  const std::string_view only = argc > 2 ? argv[2] : "";
  NoGrad guard;
  DeviceScope on{Device::cuda()};
  const auto make = [](const Shape& s, double scale) { return uniform(s, -scale, scale).to(DType::bf16); };
  std::printf("%-32s %9s %6s %9s %6s %9s %6s   ms and TFLOP/s\n", cuda::properties().name.c_str(), "forward", "",
              "d input", "", "d weight", "");
  for (const Layer& l : kLayers) {
    if (!std::string_view(l.name).starts_with(only)) continue;
    const Tensor x = make({l.rows, l.in}, 1), w = make({l.out, l.in}, 0.05), b = l.bias ? make({l.out}, 1) : Tensor();
    const bool wide_rows = std::string_view(l.name).ends_with("rows of 50304");
    const Tensor room = make({l.rows, wide_rows ? 50304 : l.out}, 1);
    Tensor g = room.narrow(1, 0, l.out);
    const double flops = 2.0 * l.rows * l.out * l.in * 1e-9;
    const double f = time_ms(seconds, [&] { linear(x, w, b); });
    const double dx = time_ms(seconds, [&] { matmul(g, w); });
    const double dw = time_ms(seconds, [&] { matmul(g.t(), x); });
    std::printf("%-32s %9.4f %6.0f %9.4f %6.0f %9.4f %6.0f\n", l.name, f, flops / f, dx, flops / dx, dw, flops / dw);
    std::fflush(stdout);
    if (lines != nullptr)
      std::fprintf(lines, "%s\t%lld\t%lld\t%lld\t%d\t%.5f\t%.5f\t%.5f\n", l.name, static_cast<long long>(l.rows),
                   static_cast<long long>(l.out), static_cast<long long>(l.in), l.bias, f, dx, dw);
  }
  if (lines != nullptr) std::fclose(lines);
  if (!only.empty() && !std::string_view("gpt2 mlp").starts_with(only)) return 0;
  const Tensor x = make({kGpt, 768}, 1), up = make({3072, 768}, 0.05), bias = make({3072}, 1), g = make({kGpt, 768}, 1),
               down = make({768, 3072}, 0.05), pre = make({kGpt, 3072}, 1);
  const double flops = 2.0 * kGpt * 3072 * 768 * 1e-9;
  const auto report = [&](const char* name, const std::function<void()>& f) {
    const double t = time_ms(seconds, f);
    std::printf("%-42s %9.4f ms %6.0f\n", name, t, flops / t);
  };
  report("linear_gelu", [&] { linear_gelu(x, up, bias); });
  report("linear, gelu", [&] { gelu(linear(x, up, bias), "tanh"); });
  report("matmul_gelu_grad", [&] { matmul_gelu_grad(g, down, pre); });
  report("matmul, gelu_backward", [&] { gelu_backward(matmul(g, down), pre, "tanh"); });
  report("sum of [32768, 3072] over rows", [&] { pre.sum({0}); });
  // The host's part of a product that the device finishes at once.
  const Tensor s = make({16, 16}, 1);
  for (int i = 0; i < 100; ++i) matmul(s, s);
  cuda::synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) matmul(s, s);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  cuda::synchronize();
  std::printf("host time of a product of [16, 16]: %.2f us\n", took.count() / 2000 * 1e6);
}
