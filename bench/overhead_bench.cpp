// Time of one small call: add of two [4] f32, which is all overhead. Prints ns a call, the best of several rounds.
// On a CUDA device it is the host's time, beside that of a bare kernel launch; nothing waits for the device.

#include <algorithm>
#include <chrono>
#include <cstdio>
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

// The host's nanoseconds for one call, the median of rounds that the device's queue can hold.
template <class F>
double queued_ns(F&& call) {
  constexpr int kCalls = 400, kRounds = 101;
  std::vector<double> each;
  for (int round = 0; round < kRounds; ++round) {
    strata::cuda::synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    each.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls);
  }
  std::nth_element(each.begin(), each.begin() + kRounds / 2, each.end());
  return each[kRounds / 2];
}

}  // namespace

#ifdef STRATA_WITH_CUDA
namespace strata {
void bare_launch(void* stream);
}
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
  for (int i = 0; i < 2; ++i) {
    const double bare = queued_ns([&] { bare_launch(stream); });
    const auto row = [&](const char* what, double ns) {
      std::printf("%-44s %8.1f ns   %+8.1f\n", what, ns, ns - bare);
    };
    row("cuda: bare launch", bare);
    row("cuda: add [4] f32, no gradient", queued_ns([&] { Tensor y = a + b; }));
    row("cuda: add [4] f32, recorded", queued_ns([&] { Tensor y = a + w; }));
    row("cuda: add [4] f32 and a number", queued_ns([&] { Tensor y = a + 1.5; }));
    row("cuda: exp [4] f32, no gradient", queued_ns([&] { Tensor y = exp(a); }));
    row("cuda: sum [4] f32, no gradient", queued_ns([&] { Tensor y = sum(a); }));
    row("cuda: empty [4] f32 (no launch)", queued_ns([&] { Tensor y = empty({4}, DType::f32); }));
  }
}
}  // namespace
#endif

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
#ifdef STRATA_WITH_CUDA
  on_device();
#endif
}
