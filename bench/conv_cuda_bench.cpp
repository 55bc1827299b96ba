// Times convolutions (all three directions) and pooling on a CUDA device, on the layers of ResNet-50 with 64 images.
// Prints one line for each row: name, dtype, direction, microseconds, TFLOP/s; bench/pytorch/conv.py prints the same
// lines for PyTorch.
//
//   conv_cuda_bench [images] [words of a row's name...]
//   conv_cuda_bench layouts    dense 3 x 3 layers of ordinary networks, row-major and channels-last (bf16-nhwc)
//   conv_cuda_bench ways       the same, channels-last, by every shape and way of the kernels
//   conv_cuda_bench depthwise  7 x 7 layers of ConvNeXt-T with 256 images, and smaller filters, in both layouts; with
//                              `ways` by both kernels

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_choice_cuda.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/random/random.h"

namespace {
using namespace strata;

struct Layer {
  const char* name;
  int64_t in, size, out, kernel, stride, padding, groups;
};
constexpr Layer kLayers[] = {
    {"7x7/2 3-64 224", 3, 224, 64, 7, 2, 3, 1},
    {"1x1 64-64 56", 64, 56, 64, 1, 1, 0, 1},
    {"3x3 64-64 56", 64, 56, 64, 3, 1, 1, 1},
    {"1x1 64-256 56", 64, 56, 256, 1, 1, 0, 1},
    {"1x1 256-64 56", 256, 56, 64, 1, 1, 0, 1},
    {"3x3/2 128-128 56", 128, 56, 128, 3, 2, 1, 1},
    {"3x3 128-128 28", 128, 28, 128, 3, 1, 1, 1},
    {"1x1 128-512 28", 128, 28, 512, 1, 1, 0, 1},
    {"1x1/2 256-512 56", 256, 56, 512, 1, 2, 0, 1},
    {"3x3 256-256 14", 256, 14, 256, 3, 1, 1, 1},
    {"1x1 1024-256 14", 1024, 14, 256, 1, 1, 0, 1},
    {"3x3 512-512 7", 512, 7, 512, 3, 1, 1, 1},
    {"1x1 512-2048 7", 512, 7, 2048, 1, 1, 0, 1},
    {"3x3 depthwise 256 28", 256, 28, 256, 3, 1, 1, 256},
    {"3x3 32 groups 256 28", 256, 28, 256, 3, 1, 1, 32},
};
struct Batch {
  Layer layer;
  int64_t images;
};
constexpr Batch kLayouts[] = {
    {{"3x3 64-64 56", 64, 56, 64, 3, 1, 1, 1}, 64},       {{"3x3 512-512 7", 512, 7, 512, 3, 1, 1, 1}, 64},
    {{"3x3 128-128 64", 128, 64, 128, 3, 1, 1, 1}, 16},   {{"3x3 192-192 14", 192, 14, 192, 3, 1, 1, 1}, 128},
    {{"3x3 256-256 14", 256, 14, 256, 3, 1, 1, 1}, 64},   {{"3x3/2 128-128 56", 128, 56, 128, 3, 2, 1, 1}, 64},
    {{"3x3/2 256-256 28", 256, 28, 256, 3, 2, 1, 1}, 64}, {{"3x3/2 512-512 14", 512, 14, 512, 3, 2, 1, 1}, 64},
    {{"2x2/2 96-192 56", 96, 56, 192, 2, 2, 0, 1}, 64},
};
constexpr Batch kDepthwise[] = {
    {{"7x7 depthwise 96 56", 96, 56, 96, 7, 1, 3, 96}, 256},
    {{"7x7 depthwise 192 28", 192, 28, 192, 7, 1, 3, 192}, 256},
    {{"7x7 depthwise 384 14", 384, 14, 384, 7, 1, 3, 384}, 256},
    {{"7x7 depthwise 768 7", 768, 7, 768, 7, 1, 3, 768}, 256},
    {{"3x3 depthwise 256 28", 256, 28, 256, 3, 1, 1, 256}, 64},
    {{"5x5 depthwise 480 14", 480, 14, 480, 5, 1, 2, 480}, 128},
    {{"3x3 depthwise 32 112", 32, 112, 32, 3, 1, 1, 32}, 64},
};
constexpr int kSets = 3, kWarmup = 3, kRounds = 12;

// Median of microseconds; f gets the number of the set of tensors, so that the cache does not hold the inputs.
double time(const std::function<void(int)>& f) {
  for (int i = 0; i < kWarmup; ++i) f(i % kSets);
  std::vector<double> us;
  for (int round = 0; round < 5; ++round) {
    cuda::Event start(true), stop(true);
    start.record(cuda::current_stream());
    for (int i = 0; i < kRounds; ++i) f(i % kSets);
    stop.record(cuda::current_stream());
    stop.synchronize();
    us.push_back(stop.elapsed_ms(start) * 1e3 / kRounds);
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

void row(const char* name, const char* dtype, const char* direction, double flops, const std::function<void(int)>& f) {
  const double us = time(f);
  std::printf("%s|%s|%s|%.1f|%.1f\n", name, dtype, direction, us, flops / us * 1e-6);
  std::fflush(stdout);
}

Tensor numbers(const Shape& shape, DType dtype) {
  return randn_like(empty({shape, DType::f32, Device::cuda(), std::nullopt})).to(dtype);
}

bool wanted(const char* name, int argc, char** argv) {
  for (int i = 2; i < argc; ++i)
    if (std::strstr(name, argv[i]) == nullptr) return false;
  return true;
}

// With the channels innermost where `last` says so.
Tensor laid_out(const Tensor& t, bool last) {
  return last ? t.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}) : t;
}

void layer(const Layer& l, int64_t n, DType dtype, const char* label, bool last = false,
           const std::function<void(const char* direction, const std::function<void(const char* label)>&)>& ways = {}) {
  const int64_t out = (l.size + 2 * l.padding - l.kernel) / l.stride + 1;
  std::vector<Tensor> x, y;
  for (int i = 0; i < kSets; ++i) {
    x.push_back(laid_out(numbers({n, l.in, l.size, l.size}, dtype), last));
    y.push_back(laid_out(numbers({n, l.out, out, out}, dtype), last));
  }
  const Tensor w = laid_out(numbers({l.out, l.in / l.groups, l.kernel, l.kernel}, dtype), last);
  const Dims s{l.stride, l.stride}, p{l.padding, l.padding}, d{1, 1}, k{l.kernel, l.kernel}, size{l.size, l.size};
  const double flops = 2.0 * static_cast<double>(n * l.out * out * out * (l.in / l.groups) * l.kernel * l.kernel);
  const auto rows = [&](const char* direction, const std::function<void(int)>& f) {
    const auto run = [&](const char* of) { row(l.name, of, direction, flops, f); };
    ways ? ways(direction, run) : run(label);
  };
  rows("forward", [&](int i) { convolution(x[i], w, {}, s, p, d, l.groups); });
  rows("input", [&](int i) { convolution_transpose(y[i], w, {}, size, s, p, d, l.groups); });
  rows("weight", [&](int i) { convolution_weight(x[i], y[i], k, s, p, d, l.groups); });
}

// A layer by every way that its kernels have; the label is numbers of ConvChoice.
void all_ways(const Batch& b, bool last, bool depthwise) {
  using conv_cuda::conv_choice;
  layer(b.layer, b.images, DType::bf16, "", last,
        [&](const char* direction, const std::function<void(const char*)>& run) {
          const bool weight = std::strcmp(direction, "weight") == 0;
          const auto with = [&](const char* what, int i, int j, conv_cuda::ConvChoice choice) {
            char label[64];
            const int n = std::snprintf(label, sizeof label, what, i, j);
            if (last) std::snprintf(label + n, sizeof label - static_cast<size_t>(n), " nhwc");
            conv_choice() = choice;
            run(label);
          };
          run(last ? "planned nhwc" : "planned");
          for (int i = 0; depthwise && i < 2; ++i) with("depthwise %d", i, 0, {.depthwise = i});
          for (int i = 0; !depthwise && weight && i < 4; ++i)
            with("clusters %d adding %d", i / 2, i % 2, {.clusters = i / 2, .adding = i % 2});
          for (int shape = 0; !depthwise && !weight && shape < 8; ++shape)
            for (int way = 0; way < 3; ++way) with("shape %d way %d", shape, way, {.shape = shape, .way = way});
          conv_choice() = {};
        });
}

void pools(int64_t n, DType dtype, const char* label, int argc, char** argv) {
  std::vector<Tensor> x, y, gy, gp, at;
  for (int i = 0; i < kSets; ++i) {
    x.push_back(numbers({n, 64, 112, 112}, dtype));
    gy.push_back(numbers({n, 64, 56, 56}, dtype));
    at.push_back(std::get<1>(max_pool(x.back(), {3, 3}, {2, 2}, {1, 1}, {1, 1}, false)));
  }
  const auto pool = [&](const char* name, const char* direction, const std::function<void(int)>& f) {
    if (wanted(name, argc, argv)) row(name, label, direction, 0, f);
  };
  pool("max_pool 3x3/2 64 112", "forward", [&](int i) { max_pool(x[i], {3, 3}, {2, 2}, {1, 1}, {1, 1}, false); });
  pool("max_pool 3x3/2 64 112", "input", [&](int i) { plane_scatter(gy[i], at[i], {112, 112}); });
  pool("avg_pool 2x2 64 112", "forward", [&](int i) { avg_pool(x[i], {2, 2}, {2, 2}, {0, 0}, false, true); });
  pool("avg_pool 2x2 64 112", "input", [&](int i) {
    avg_pool_backward(gy[i], {112, 112}, {2, 2}, {2, 2}, {0, 0}, false, true);
  });
  pool("bilinear x2 64 56", "forward", [&](int i) { resize(gy[i], {112, 112}, "linear", false, 0); });
  pool("bilinear x2 64 56", "input", [&](int i) { resize_backward(x[i], {56, 56}, "linear", false, 0); });
  pool("global average 64 112", "forward", [&](int i) { adaptive_avg_pool(x[i], {1, 1}); });
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("skipped: %s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "layouts") == 0) {
    for (const Batch& b : kLayouts) {
      layer(b.layer, b.images, DType::bf16, "bf16");
      layer(b.layer, b.images, DType::bf16, "bf16-nhwc", true);
    }
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "ways") == 0) {
    for (const Batch& b : kLayouts)
      if (wanted(b.layer.name, argc, argv)) all_ways(b, true, false);
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "depthwise") == 0) {
    const bool ways = argc > 2 && std::strcmp(argv[2], "ways") == 0;
    for (const Batch& b : kDepthwise)
      for (const bool last : {false, true})
        ways ? all_ways(b, last, true) : layer(b.layer, b.images, DType::bf16, last ? "bf16-nhwc" : "bf16", last);
    return 0;
  }
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 64;
  for (const auto& [dtype, label] : {std::pair(DType::bf16, "bf16"), {DType::f32, "tf32"}, {DType::f32, "f32"}}) {
    cuda::set_allow_tf32(std::strcmp(label, "tf32") == 0);
    for (const Layer& l : kLayers)
      if (wanted(l.name, argc, argv)) layer(l, n, dtype, label);
    if (std::strcmp(label, "tf32") != 0) pools(n, dtype, label, argc, argv);
  }
  return 0;
}
