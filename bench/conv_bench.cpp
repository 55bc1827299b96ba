// Times convolutions on the CPU, forward and both gradients, in layers of ordinary networks. Prints milliseconds and
// GFLOP/s; `pytorch/conv_cpu.py` prints the same lines of PyTorch.
// Usage: conv_bench [threads] [f32|bf16]

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/clock.h"
#include "strata/autograd/autograd.h"
#include "strata/core/parallel.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/random/random.h"

int main(int argc, char** argv) {
  using namespace strata;
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  const DType t = argc > 2 && std::string(argv[2]) == "bf16" ? DType::bf16 : DType::f32;
  struct Layer {
    const char* of;
    int64_t n, ic, oc, size, kernel, stride, groups;
  };
  constexpr std::array layers{Layer{"ResNet18, 224: first", 8, 3, 64, 224, 7, 2, 1},
                              Layer{"ResNet18, 224", 8, 64, 64, 56, 3, 1, 1},
                              Layer{"ResNet18, 224", 8, 64, 128, 56, 3, 2, 1},
                              Layer{"ResNet18, 224", 8, 128, 128, 28, 3, 1, 1},
                              Layer{"ResNet18, 224", 8, 256, 256, 14, 3, 1, 1},
                              Layer{"ResNet18, 224", 8, 512, 512, 7, 3, 1, 1},
                              Layer{"ResNet50, 224", 8, 256, 1024, 14, 1, 1, 1},
                              Layer{"ResNet50, 224", 8, 512, 1024, 14, 1, 2, 1},
                              Layer{"ResNet18, 32: first", 64, 3, 64, 32, 3, 1, 1},
                              Layer{"ResNet18, 32", 64, 64, 64, 32, 3, 1, 1},
                              Layer{"ResNet18, 32", 64, 128, 128, 16, 3, 1, 1},
                              Layer{"ResNet18, 32", 64, 256, 256, 8, 3, 1, 1},
                              Layer{"ResNet18, 32", 64, 512, 512, 4, 3, 1, 1},
                              Layer{"VGG11, 32", 64, 512, 512, 2, 3, 1, 1},
                              Layer{"MobileNet, 224: depthwise", 8, 192, 192, 28, 3, 1, 192},
                              Layer{"U-Net", 4, 96, 96, 24, 3, 1, 1}};
  std::printf("%-26s %-26s %9s %7s  %9s %7s  %9s %7s\n", "layer", "n, in, out, size, kernel, by", "forward", "GF/s",
              "of x", "GF/s", "of w", "GF/s");
  Generator g(1);
  for (const Layer& l : layers) {
    const int64_t pad = l.kernel / 2;
    const Tensor x = randn({l.n, l.ic, l.size, l.size}, DType::f32, g).to(t);
    const Tensor w = randn({l.oc, l.ic / l.groups, l.kernel, l.kernel}, DType::f32, g).to(t);
    const Dims stride{l.stride, l.stride}, padding{pad, pad}, dilation{1, 1};
    const Tensor y = conv2d(x, w, {}, stride, padding, dilation, l.groups);
    const double flops = 2. * static_cast<double>(y.numel() * (l.ic / l.groups) * l.kernel * l.kernel);
    const double forward = best_seconds([&] { conv2d(x, w, {}, stride, padding, dilation, l.groups); });
    double of[2];
    for (const int which : {0, 1}) {
      Tensor leaf = (which == 0 ? x : w).detach();
      leaf.set_requires_grad(true);
      const Tensor out = which == 0 ? conv2d(leaf, w, {}, stride, padding, dilation, l.groups)
                                    : conv2d(x, leaf, {}, stride, padding, dilation, l.groups);
      of[which] = best_seconds([&] { grad({out}, {leaf}, {y}, false, true); });
    }
    const std::string shape = std::to_string(l.n) + ", " + std::to_string(l.ic) + ", " + std::to_string(l.oc) + ", " +
                              std::to_string(l.size) + ", " + std::to_string(l.kernel) + ", " +
                              std::to_string(l.stride);
    std::printf("%-26s %-26s %9.3f %7.0f  %9.3f %7.0f  %9.3f %7.0f\n", l.of, shape.c_str(), forward * 1e3,
                flops / forward * 1e-9, of[0] * 1e3, flops / of[0] * 1e-9, of[1] * 1e3, flops / of[1] * 1e-9);
    std::fflush(stdout);
  }
}
