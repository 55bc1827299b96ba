#pragma once
// Timing that the benchmarks share: the least of many repetitions, and nanoseconds as cycles of this processor's clock.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace strata {

/// Seconds of the fastest of 5 to 200 calls of f (0.4 s in all), after one that is not counted.
template <class F>
double best_seconds(F&& f) {
  using clock = std::chrono::steady_clock;
  f();
  double best = 1e30, total = 0;
  for (int i = 0; i < 200 && (i < 5 || total < 0.4); ++i) {
    const auto t0 = clock::now();
    f();
    const double s = std::chrono::duration<double>(clock::now() - t0).count();
    best = std::min(best, s);
    total += s;
  }
  return best;
}

/// The same for calls of some microseconds: runs of 20 calls are timed.
template <class F>
double best_seconds_of_short(F&& f) {
  constexpr int kCalls = 20;
  return best_seconds([&] {
           for (int i = 0; i < kCalls; ++i) f();
         }) /
         kCalls;
}

/// Clock of the processor now, in cycles a second, from a chain of multiplications of three cycles each (Intel since
/// Nehalem, AMD since Zen); 0 where that is not known.
inline double clock_rate() {
#if defined(__x86_64__)
  constexpr int kLength = 100000;
  static const double rate = 3. * kLength / best_seconds([] {
                               uint64_t v = 3;
                               for (int i = 0; i < kLength / 10; ++i)
                                 asm volatile(
                                     "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
                                     "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
                                     : "+r"(v));
                             });
  return rate;
#else
  return 0;
#endif
}

/// A line: what one element of `n` cost, in nanoseconds and cycles.
inline void print_cost(const std::string& name, double seconds, double n) {
  std::printf("%-34s in cache, 1 thread: %7.4f ns an element", name.c_str(), seconds / n * 1e9);
  if (clock_rate() > 0) std::printf("  %6.3f cycles at %.2f GHz", seconds / n * clock_rate(), clock_rate() * 1e-9);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace strata
