#include "strata/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <omp.h>

#include "strata/core/error.h"

namespace strata {
namespace {
std::atomic<int> g_threads{0};
thread_local bool t_in_parallel = false;

struct Region {
  bool outer = t_in_parallel;
  Region() { t_in_parallel = true; }
  ~Region() { t_in_parallel = outer; }
};

// Runs one(0) .. one(n-1), each on its own thread.
template <class One>
void run_team(int n, One&& one) {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not see libgomp's barriers; plain threads keep its reports truthful.
  std::vector<std::thread> team;
  for (int i = 1; i < n; ++i) team.emplace_back([&one, i] { one(i); });
  one(0);
  for (std::thread& t : team) t.join();
#else
#pragma omp parallel num_threads(n)
  {
    // The runtime may grant fewer threads than asked; every chunk must still run.
    for (int i = omp_get_thread_num(); i < n; i += omp_get_num_threads()) one(i);
  }
#endif
}
}  // namespace

int num_threads() {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = omp_get_max_threads();
    g_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int n) {
  check(n >= 1, "set_num_threads", "needs at least 1 thread, got ", n);
  g_threads.store(n, std::memory_order_relaxed);
  omp_set_num_threads(n);
}

bool in_parallel_region() { return t_in_parallel || omp_in_parallel(); }

void detail::parallel_run(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* ctx) {
  const int64_t total = end - begin;
  const int64_t chunks = std::min<int64_t>(num_threads(), (total + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1));
  if (chunks <= 1 || in_parallel_region()) {
    body(ctx, begin, end);
    return;
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
  run_team(static_cast<int>(chunks), [&](int i) {
    Region region;
    const int64_t b = begin + total * i / chunks, e = begin + total * (i + 1) / chunks;
    try {
      body(ctx, b, e);
    } catch (...) {
      std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace strata
