// Bytes a second of elementwise functions and reductions on tensors past the caches, beside a plain copy's.

#include <chrono>
#include <cstdio>
#include <cstring>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace {

using Clock = std::chrono::steady_clock;

template <class F>
double best_seconds(F&& call) {
  double best = 1e30;
  for (int round = 0; round < 40; ++round) {
    const auto begin = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main() {
  using namespace strata;
  NoGrad guard;
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
