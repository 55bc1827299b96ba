// Bytes a second of elementwise functions and reductions on tensors past the caches, beside a plain copy's; and what an
// element costs one thread where everything is in its first-level cache, which is the arithmetic alone.

#include <cstdio>
#include <cstring>
#include <vector>

#include "bench/clock.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace {

// The vectorised kernels, by themselves.
void arithmetic() {
  using namespace strata;
  constexpr int64_t kCount = 2048;
  const struct {
    const char* name;
    Map map;
    int inputs;
  } kernels[] = {{"mul", Map::mul, 2},
                 {"relu", Map::relu, 1},
                 {"exp", Map::exp, 1},
                 {"tanh", Map::tanh, 1},
                 {"sigmoid", Map::sigmoid, 1},
                 {"silu", Map::silu, 1},
                 {"gelu", Map::gelu, 1},
                 {"gelu tanh", Map::gelu_tanh, 1},
                 {"silu_backward", Map::silu_backward, 2},
                 {"gelu_backward", Map::gelu_backward, 2},
                 {"gelu_backward tanh", Map::gelu_tanh_backward, 2},
                 {"sin", Map::sin, 1},
                 {"log", Map::log, 1},
                 {"log1p", Map::log1p, 1}};
  for (DType t : {DType::f32, DType::bf16}) {
    const Tensor x = (sin(arange(0, kCount)) * 3).to(t);
    Tensor y = empty({kCount}, t);
    const void* in[] = {x.raw_data(), x.raw_data()};
    MapParams params;
    for (const auto& k : kernels) {
      const DenseMap f = simd_map(k.map, t);
      if (!f) continue;
      print_cost(std::string(k.name) + " " + std::string(name_of(t)),
                 best_seconds_of_short([&] { f(y.raw_data(), in, kCount, params); }), kCount);
    }
  }
}

}  // namespace

int main() {
  using namespace strata;
  NoGrad guard;
  arithmetic();
  const int64_t n = 4096;
  for (DType t : {DType::f32, DType::bf16}) {
    const Tensor x = sin(cumsum(ones({n * n}), 0)).reshape({n, n}).to(t), g = (x * 2).to(t);
    const double bytes = static_cast<double>(x.nbytes());
    std::printf("%s [%ld, %ld], %d threads\n", std::string(name_of(t)).c_str(), n, n, num_threads());
    const auto row = [&](const char* what, double moved, auto&& call) {
      const double s = best_seconds(call);
      std::printf("  %-28s %8.2f ms %8.2f GB/s\n", what, s * 1e3, moved * bytes / s * 1e-9);
    };
    row("copy", 2, [&] { Tensor y = x.clone(); });
    row("add", 3, [&] { Tensor y = x + g; });
    row("mul by a number", 2, [&] { Tensor y = x * 3.0; });
    row("mul by a row", 2, [&] { Tensor y = x * g.select(0, 0); });
    row("mul by a column", 2, [&] { Tensor y = x * g.narrow(1, 0, 1); });
    row("relu", 2, [&] { Tensor y = relu(x); });
    row("exp", 2, [&] { Tensor y = exp(x); });
    row("tanh", 2, [&] { Tensor y = tanh(x); });
    row("sigmoid", 2, [&] { Tensor y = sigmoid(x); });
    row("silu", 2, [&] { Tensor y = silu(x); });
    row("gelu", 2, [&] { Tensor y = gelu(x); });
    row("gelu tanh", 2, [&] { Tensor y = gelu(x, "tanh"); });
    row("silu_backward", 3, [&] { Tensor y = silu_backward(g, x); });
    row("gelu_backward", 3, [&] { Tensor y = gelu_backward(g, x); });
    row("gelu_backward tanh", 3, [&] { Tensor y = gelu_backward(g, x, "tanh"); });
    row("sin", 2, [&] { Tensor y = sin(x); });
    row("log1p", 2, [&] { Tensor y = log1p(x); });
    row("sum of all", 1, [&] { Tensor y = sum(x); });
    row("sum of rows", 1, [&] { Tensor y = sum(x, {1}); });
    row("sum of columns", 1, [&] { Tensor y = sum(x, {0}); });
    row("max of rows", 1, [&] { Tensor y = amax(x, {1}); });
    row("argmax of rows", 1, [&] { Tensor y = argmax(x, 1); });
    row("var of rows", 1, [&] { Tensor y = var(x, {1}); });
    row("logsumexp of rows", 1, [&] { Tensor y = logsumexp(x, {1}); });
    row("norm", 1, [&] { Tensor y = norm(x); });
  }
}
