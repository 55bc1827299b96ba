// The machine's measured limits: memory bandwidth and matrix products. The multiply-add peak is in peaks_fma_cpu.cpp.

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <unistd.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "strata/core/parallel.h"
#include "strata/train/machine.h"
#include "strata/train/peaks_inl.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

// Highest rate of `run`, which does `amount` of work per call, over repetitions that take about `seconds` together.
template <class Run>
double best_rate(double amount, double seconds, Run&& run) {
  run();  // first touch, thread start, code generation
  double best = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds; ++i) {
    const auto t = Clock::now();
    run();
    best = std::max(best, amount / std::chrono::duration<double>(Clock::now() - t).count());
  }
  return best;
}

void measure_bandwidth(Peaks& peaks, double seconds) {
  const int64_t free_bytes = static_cast<int64_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  // Three arrays of up to 256 MiB, past any cache.
  const int64_t n = std::clamp<int64_t>(free_bytes / 8 / 3, 4 << 20, 256 << 20) / static_cast<int64_t>(sizeof(float));
  // Not a vector: the threads that use the pages should be the ones that touch them first.
  const std::unique_ptr<float[]> a(new float[n]), b(new float[n]), c(new float[n]);
  const int64_t grain = (n + num_threads() - 1) / num_threads();
  parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
  });
  const auto bytes = static_cast<double>(n * static_cast<int64_t>(sizeof(float)));
  peaks.triad_gb_s = 1e-9 * best_rate(3 * bytes, seconds, [&] {
                       parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
                         detail::triad(a.get() + begin, b.get() + begin, c.get() + begin, end - begin);
                       });
                     });
  std::vector<float> sums(static_cast<size_t>(num_threads()) * 16);  // a cache line apart
  peaks.read_gb_s = 1e-9 * best_rate(bytes, seconds, [&] {
                      parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
                        sums[static_cast<size_t>(begin / grain) * 16 % sums.size()] =
                            detail::sum(b.get() + begin, end - begin);
                      });
                    });
}

// Numbers from 1 to 2 with all bits busy: zeros would let the processor clock higher than real work does.
void fill(dnnl::memory& m, dnnl::memory::data_type type) {
  const size_t bytes = m.get_desc().get_size();
  uint32_t state = 1;
  if (type == dnnl::memory::data_type::f32) {
    auto* p = static_cast<uint32_t*>(m.get_data_handle());
    for (size_t i = 0; i < bytes / 4; ++i) p[i] = 0x3f800000u | ((state = state * 1664525u + 1013904223u) >> 9);
  } else {
    auto* p = static_cast<uint16_t*>(m.get_data_handle());
    for (size_t i = 0; i < bytes / 2; ++i)
      p[i] = static_cast<uint16_t>(0x3f80u | ((state = state * 1664525u + 1013904223u) >> 25));
  }
}

double measure_matmul(dnnl::memory::data_type type, double seconds) {
  constexpr int64_t n = 2048;
  using dnnl::memory;
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const memory::desc md({n, n}, type, memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc pd(engine, md, md, md);
#else
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(md, md, md), engine);
#endif
    const dnnl::matmul matmul(pd);
    memory a(md, engine), b(md, engine), c(md, engine);
    fill(a, type);
    fill(b, type);
    return 1e-9 * best_rate(2.0 * n * n * n, seconds, [&] {
             matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
             stream.wait();
           });
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return 0;  // no bf16 on this processor
    throw;
  }
}

}  // namespace

Peaks measure_peaks(double seconds) {
  Peaks peaks;
  measure_bandwidth(peaks, seconds);
  constexpr int64_t kRounds = 1 << 18;
  const int threads = num_threads();
  std::vector<float> sink(static_cast<size_t>(threads));
  peaks.fma_gflops = 1e-9 * best_rate(threads * static_cast<double>(detail::fma_flops(kRounds)), seconds, [&] {
                       parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) sink[static_cast<size_t>(i)] = detail::fma_loop(kRounds);
                       });
                     });
  peaks.matmul_f32_gflops = measure_matmul(dnnl::memory::data_type::f32, seconds);
  peaks.matmul_bf16_gflops = measure_matmul(dnnl::memory::data_type::bf16, seconds);
  return peaks;
}

}  // namespace strata
