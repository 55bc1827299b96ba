// Time of one small call: add of two [4] f32, which is all overhead. Prints ns a call, the best of several rounds.

#include <chrono>
#include <cstdio>

#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace {

using Clock = std::chrono::steady_clock;

template <class F>
double best_ns(F&& call) {
  constexpr int kCalls = 200000, kRounds = 15;
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls);
  }
  return best;
}

}  // namespace

int main() {
  using namespace strata;
  const Tensor a = ones({4}), b = ones({4});
  Tensor w = ones({4});
  w.set_requires_grad();
  const auto row = [](const char* what, double ns, double limit) {
    std::printf("%-44s %8.1f ns", what, ns);
    if (limit > 0) std::printf("   (at most %.0f)", limit);
    std::printf("\n");
  };
  // The result is dropped each time, as in a program that goes on.
  row("add [4] f32, no gradient", best_ns([&] { Tensor y = a + b; }), 250);
  row("add [4] f32, recorded", best_ns([&] { Tensor y = a + w; }), 600);
  row("mul [4] f32, recorded, argument saved", best_ns([&] { Tensor y = a * w; }), 0);
  row("add [4] f32 and a number", best_ns([&] { Tensor y = a + 1.5; }), 0);
  row("add [4] f32 in place", best_ns([&] {
        NoGrad guard;
        w.add_(a);
      }),
      0);
  row("exp [4] f32, no gradient", best_ns([&] { Tensor y = exp(a); }), 0);
  row("sum [4] f32, no gradient", best_ns([&] { Tensor y = sum(a); }), 0);
  row("empty [4] f32", best_ns([&] { Tensor y = empty({4}, DType::f32); }), 0);
}
