// AdamW's update on a card against a copy: GB/s of the fewest bytes that must move (parameter, gradient and state read
// once, parameter and state written once), for the shapes of GPT-2 (124 M) and of a model of 24 layers of 2048 (1.3 B).
//     cuda_optim_bench [largest number of million parameters]
#include <cstdio>
#include <cstdlib>

#include "bench/device_time.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim.h"

namespace {

using namespace strata;
using namespace strata::optim;

std::vector<Shape> shapes_of(int64_t layers, int64_t dim, int64_t vocab) {
  std::vector<Shape> all{{vocab, dim}, {1024, dim}, {dim}, {dim}};
  for (int64_t i = 0; i < layers; ++i)
    for (const Shape& s :
         {Shape{3 * dim, dim}, Shape{dim, dim}, Shape{4 * dim, dim}, Shape{dim, 4 * dim}, Shape{3 * dim}, Shape{dim},
          Shape{4 * dim}, Shape{dim}, Shape{dim}, Shape{dim}, Shape{dim}, Shape{dim}})
      all.push_back(s);
  return all;
}

Tensor on_card(const Shape& shape, DType dtype, double value) {
  const Tensor t = empty({shape, dtype, Device::cuda(), std::nullopt});
  fill_elements(t, value);
  return t;
}

struct Row {
  const char* name;
  DType dtype;
  LowPrecision low;
  double bytes;  // of each parameter, that must move
};

void measure(const char* model, const std::vector<Shape>& shapes) {
  int64_t n = 0;
  for (const Shape& s : shapes) n += s.product();
  double copy = 0;
  {
    const Tensor a = on_card({n}, DType::f32, 1), b = on_card({n}, DType::f32, 0);
    copy = 8e-6 * static_cast<double>(n) / device_ms(1, [&](int64_t) { copy_elements(b, a); });
  }
  std::printf("%s, %.0f M parameters; copy %.0f GB/s\n", model, static_cast<double>(n) * 1e-6, copy);
  const LowPrecision stochastic{.stochastic_rounding = true}, low{.stochastic_rounding = true, .low_state = true},
      master{.master_weights = true};
  for (const Row& row :
       {Row{"f32", DType::f32, {}, 28}, Row{"bf16, nearest", DType::bf16, {}, 22},
        Row{"bf16, stochastic", DType::bf16, stochastic, 22},
        Row{"bf16, nearest, low state", DType::bf16, {.low_state = true}, 14},
        Row{"bf16, stochastic, low state", DType::bf16, low, 14}, Row{"bf16, master weights", DType::bf16, master, 28},
        Row{"bf16, compensated", DType::bf16, {.compensated_weights = true}, 26},
        Row{"f32, 8 bits", DType::f32, {.state_8bit = true}, 16.06},
        Row{"bf16, nearest, 8 bits", DType::bf16, {.state_8bit = true}, 10.06},
        Row{"bf16, stochastic, 8 bits", DType::bf16, {.stochastic_rounding = true, .state_8bit = true}, 10.06},
        Row{"bf16, compensated, 8 bits", DType::bf16, {.compensated_weights = true, .state_8bit = true}, 14.06},
        Row{"bf16, master weights, 8 bits", DType::bf16, {.master_weights = true, .state_8bit = true}, 16.06}}) {
    TensorList params;
    for (const Shape& s : shapes) {
      Tensor p = on_card(s, row.dtype, 0.5);
      p.set_requires_grad();
      p.set_grad(on_card(s, row.dtype, 0.25));
      params.push_back(p);
    }
    AdamW o(params, {.lr = 1e-4, .low = row.low});
    const double ms = device_ms(1, [&](int64_t) { o.step(); });
    const double rate = row.bytes * 1e-6 * static_cast<double>(n) / ms;
    std::printf("  %-28s %5.2f bytes %8.3f ms %6.0f GB/s %4.0f%% of a copy\n", row.name, row.bytes, ms, rate,
                100 * rate / copy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t most = argc > 1 ? std::atoi(argv[1]) : 2000;
  measure("GPT-2", shapes_of(12, 768, 50257));
  if (most > 1000) measure("24 layers of 2048", shapes_of(24, 2048, 50257));
  return 0;
}
