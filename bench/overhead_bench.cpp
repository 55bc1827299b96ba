// Time of one small call: add of two [4] f32, which is all overhead. Prints ns a call, the best of several rounds.
// On a CUDA device it is the host's time, beside that of a bare kernel launch; nothing waits for the device.
// overhead_bench [cuda]: that alone.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
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

#ifdef STRATA_WITH_CUDA
namespace strata {
void bare_launch(void* stream);
void driver_launch(void* stream);
}  // namespace strata
namespace {
void on_device() {
  using namespace strata;
  if (cuda::device_count() == 0) {
    std::printf("no CUDA device: %s\n", cuda::unavailable_reason().c_str());
    return;
  }
  const DeviceScope on(Device::cuda());
  const Tensor a = ones({4}), b = ones({4});
  Tensor w = ones({4});
  w.set_requires_grad();
  void* const stream = cuda::current_stream().handle();
  struct Row {
    const char* what;
    std::function<void()> call;
    std::vector<double> ns;
  };
  Row rows[] = {
      {"cuda: bare launch", [&] { bare_launch(stream); }},
      {"cuda: bare launch, driver", [&] { driver_launch(stream); }},
      {"cuda: add [4] f32, no gradient", [&] { Tensor y = a + b; }},
      {"cuda: add [4] f32, recorded", [&] { Tensor y = a + w; }},
      {"cuda: add [4] f32 and a number", [&] { Tensor y = a + 1.5; }},
      {"cuda: exp [4] f32, no gradient", [&] { Tensor y = exp(a); }},
      {"cuda: sum [4] f32, no gradient", [&] { Tensor y = sum(a); }},
      {"cuda: empty [4] f32 (no launch)", [&] { Tensor y = empty({4}, DType::f32); }},
  };
  // Rounds that the device's queue can hold; the rows take turns, because the driver's own time wanders.
  constexpr int kCalls = 400, kRounds = 201;
  for (int round = 0; round < kRounds; ++round)
    for (Row& r : rows) {
      cuda::synchronize();
      const auto begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) r.call();
      r.ns.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls);
    }
  for (Row& r : rows) std::sort(r.ns.begin(), r.ns.end());
  const double bare = rows[0].ns[kRounds / 2];
  for (const Row& r : rows)
    std::printf("%-44s %8.1f ns   %+8.1f   (quarters %.1f, %.1f)\n", r.what, r.ns[kRounds / 2],
                r.ns[kRounds / 2] - bare, r.ns[kRounds / 4], r.ns[3 * kRounds / 4]);
}
}  // namespace
#endif

int main(int argc, char** argv) {
  using namespace strata;
#ifdef STRATA_WITH_CUDA
  if (argc > 1 && std::string_view(argv[1]) == "cuda") {
    on_device();
    return 0;
  }
#endif
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
#ifdef STRATA_WITH_CUDA
  on_device();
#endif
}
