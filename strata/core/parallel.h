#pragma once
// Data-parallel loops on the process's one pool of threads.

#include <cstdint>
#include <type_traits>

namespace strata {

/// Threads that a parallel loop may use: the environment's STRATA_NUM_THREADS or OMP_NUM_THREADS, else one for each
/// processor that this process may run on.
int num_threads();
/// Sets it for the whole process, 1 <= n <= 1024: else ValueError. Results of Strata's ops do not depend on it. Where
/// the system does not give so many threads, loops run on those that it gave.
void set_num_threads(int n);
/// True inside a parallel loop; nested loops run serially.
bool in_parallel_region();

namespace detail {
void parallel_run(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* ctx);
}

/// Splits [begin, end) into contiguous chunks of at least `grain` items and runs body(chunk_begin, chunk_end) on
/// several threads; runs inline when one chunk suffices or another thread's loop has the pool. Chunks go to whichever
/// thread is free, so bodies must not depend on who runs them or on where they are cut. An exception from a chunk is
/// rethrown on the caller.
template <class Body>
inline void parallel_for(int64_t begin, int64_t end, int64_t grain, Body&& body) {
  if (end - begin <= grain || end <= begin) {
    if (begin < end) body(begin, end);
    return;
  }
  detail::parallel_run(
      begin, end, grain,
      [](void* ctx, int64_t b, int64_t e) { (*static_cast<std::remove_reference_t<Body>*>(ctx))(b, e); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace strata
