// The machine's measured limits: memory bandwidth and matrix products. The multiply-add peak is in peaks_fma_cpu.cpp.

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/lab/peaks.h"
#include "strata/lab/peaks_inl.h"
#include "strata/lab/processor_time_inl.h"
#include "strata/memory/bounds.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace strata::lab {
namespace {

using Clock = std::chrono::steady_clock;

// Highest rate of `run`, which does `amount` of work per call and says how long that took, over repetitions that take
// about `seconds` together.
template <class Run>
double best_rate(double amount, double seconds, Run&& run) {
  run();  // first touch, thread start, code generation
  double best = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds; ++i)
    best = std::max(best, amount / run());
  return best;
}

// slice(t) on each of so many threads, and the longest that one took of its thread's own time: that of all of them where
// each has a processor. A processor is not shared while it computes, so others' turns do not count; the way to memory is,
// so what moves is measured by the clock.
template <class Slice>
double computing(int threads, Slice&& slice) {
  std::vector<double> took(static_cast<size_t>(threads));
  parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const double from = thread_seconds();
      slice(t);
      took[static_cast<size_t>(t)] = thread_seconds() - from;
    }
  });
  return *std::ranges::max_element(took);
}

void measure_bandwidth(Peaks& peaks, double seconds, int64_t room) {
  const int64_t free_bytes = memory::tightest_bound(Device::cpu()).free();
  // Three arrays of up to 256 MiB, past any cache.
  const int64_t most = room > 0 ? std::min(room, free_bytes / 8) : free_bytes / 8;
  const int64_t n = std::clamp<int64_t>(most / 3, 4 << 20, 256 << 20) / static_cast<int64_t>(sizeof(float));
  // Not a vector: the threads that use the pages should be the ones that touch them first.
  const std::unique_ptr<float[]> a(new float[n]), b(new float[n]), c(new float[n]);
  // One slice for each thread.
  const int64_t threads = num_threads();
  const auto for_slices = [&](auto&& slice) {
    const auto from = Clock::now();
    parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) slice(t, n * t / threads, n * (t + 1) / threads);
    });
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  for_slices([&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
  });
  const auto bytes = static_cast<double>(n * static_cast<int64_t>(sizeof(float)));
  peaks.triad_gb_s = 1e-9 * best_rate(3 * bytes, seconds, [&] {
                       return for_slices([&](int64_t, int64_t begin, int64_t end) {
                         strata::detail::triad(a.get() + begin, b.get() + begin, c.get() + begin, end - begin);
                       });
                     });
  std::vector<float> sums(static_cast<size_t>(threads) * 16);  // a cache line apart
  peaks.read_gb_s = 1e-9 * best_rate(bytes, seconds, [&] {
                      return for_slices([&](int64_t t, int64_t begin, int64_t end) {
                        sums[static_cast<size_t>(t) * 16] = strata::detail::sum(b.get() + begin, end - begin);
                      });
                    });
}

// Each thread multiplies matrices of its own, small enough for its cache: what the processor can do, not what sharing
// one product out costs.
double measure_matmul(DType type, double seconds) {
  constexpr int64_t n = 512;
  const int threads = num_threads();
  // Numbers from 1 to 2 with all bits busy: zeros would let the processor clock higher than real work does.
  std::vector<char> operand(static_cast<size_t>(n * n * size_of(type)));
  uint32_t state = 1;
  for (int64_t i = 0; i < n * n; ++i) {
    state = state * 1664525u + 1013904223u;
    const uint32_t bits = 0x3f800000u | state >> 9;
    const char* from = reinterpret_cast<const char*>(&bits) + (type == DType::f32 ? 0 : 2);
    std::copy_n(from, size_of(type), operand.data() + i * size_of(type));
  }
  std::vector<std::vector<float>> results(static_cast<size_t>(threads), std::vector<float>(n * n));
  constexpr int kTimes = 8;
  return 1e-9 * best_rate(2.0 * n * n * n * threads * kTimes, seconds, [&] {
           return computing(threads, [&](int64_t i) {
             Gemm g;
             g.in = type, g.m = g.n = g.k = n;
             g.a = g.b = operand.data(), g.a_row = g.b_row = n, g.a_col = g.b_col = 1;
             g.c = results[static_cast<size_t>(i)].data(), g.c_row = n;
             for (int time = 0; time < kTimes; ++time) cpu::gemm(g);
           });
         });
}

}  // namespace

Peaks measure_peaks(double seconds, int64_t room) {
  Peaks peaks;
  measure_bandwidth(peaks, seconds, room);
  constexpr int64_t kRounds = 1 << 18;
  const int threads = num_threads();
  std::vector<float> sink(static_cast<size_t>(threads));
  peaks.fma_gflops = 1e-9 * best_rate(threads * static_cast<double>(strata::detail::fma_flops(kRounds)), seconds, [&] {
                       return computing(threads, [&](int64_t i) {
                         sink[static_cast<size_t>(i)] = strata::detail::fma_loop(kRounds);
                       });
                     });
  peaks.matmul_f32_gflops = measure_matmul(DType::f32, seconds);
  peaks.matmul_bf16_gflops = measure_matmul(DType::bf16, seconds);
  return peaks;
}

Limits measure_limits(Device device, double seconds, int64_t room) {
  if (!device.is_cpu()) return detail::card_limits(device, seconds);
  try {
    const Peaks p = measure_peaks(seconds, room);
    return {std::max(p.read_gb_s, p.triad_gb_s), p.fma_gflops, p.matmul_f32_gflops, p.matmul_bf16_gflops};
  } catch (const std::bad_alloc&) {
    throw MemoryError("measure_limits", "too little memory is free for arrays past the caches");
  }
}

}  // namespace strata::lab
