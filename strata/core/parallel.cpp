#include "strata/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "strata/core/error.h"
#include "strata/core/loop_width_inl.h"

namespace strata {
namespace {
constexpr int kMostThreads = 1024;
std::atomic<int> g_threads{0};
thread_local int t_width = 1;  // of the loop; more in each

struct Region {
  explicit Region(int width) : outer(std::exchange(t_width, width)) {}
  ~Region() { t_width = outer; }
  Region(const Region&) = delete;
  const int outer;
};

int processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int default_threads() {
  for (const char* name : {"STRATA_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* text = std::getenv(name);
    const long n = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    if (n > 0) return static_cast<int>(std::min<long>(n, kMostThreads));
  }
  return processors();
}

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until ready() or for `budget`; says whether it became ready.
template <class Ready>
bool spin(std::chrono::microseconds budget, Ready&& ready) {
  using Clock = std::chrono::steady_clock;
  if (ready()) return true;
  if (budget.count() == 0) return false;
  const auto end = Clock::now() + budget;
  do {
    for (int i = 0; i < 32; ++i) {
      relax();
      if (ready()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

// Workers that share one loop at a time with its caller. Every thread has a slice of the chunks, the same part of a
// tensor loop after loop, which its caches may still hold. Chunks are claimed one by one, first of one's own slice,
// then of the others': a thread that the system has put aside holds up at most the chunk that it holds, and none if it
// holds none. (A team with a barrier, as OpenMP's, waits for every thread, which on a loaded machine costs a scheduling
// period per loop.)
class Pool {
 public:
  explicit Pool(int workers)
      : spin_(workers < processors() ? kSpin : std::chrono::microseconds(0)),
        slices_(static_cast<size_t>(workers) + 1) {
    threads_.reserve(static_cast<size_t>(workers));
    // Where the system gives no more threads (a limit on processes, or no memory for stacks) those that there are do it
    // all: slices of the others are taken like any that is left over.
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i] { work(static_cast<size_t>(i) + 1); });
    } catch (const std::system_error&) {
    }
  }
  ~Pool() {
    stop_.store(true);
    signal_.fetch_add(1);
    signal_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // That were asked for.
  int workers() const { return static_cast<int>(slices_.size()) - 1; }

  // Runs chunk(ctx, 0) .. chunk(ctx, n - 1). One caller at a time.
  void run(uint32_t n, void (*chunk)(void*, uint32_t), void* ctx) {
    chunk_ = chunk;
    ctx_ = ctx;
    chunks_ = n;
    done_.store(0, std::memory_order_relaxed);
    for (size_t t = 0; t < slices_.size(); ++t)
      slices_[t].left.store(end_of(t) - begin_of(t), std::memory_order_release);
    signal_.fetch_add(1, std::memory_order_seq_cst);
    if (n == 2) {
      signal_.notify_one();
    } else {
      signal_.notify_all();
    }
    drain(0);
    const auto finished = [&] { return done_.load(std::memory_order_acquire) == n; };
    if (spin(spin_, finished)) return;
    for (uint32_t d; (d = done_.load(std::memory_order_acquire)) != n;) done_.wait(d, std::memory_order_acquire);
  }

 private:
  static constexpr std::chrono::microseconds kSpin{100};
  struct alignas(64) Slice {
    std::atomic<uint32_t> left{0};  // chunks of the job that nobody has taken yet
  };

  uint32_t begin_of(size_t slice) const { return static_cast<uint32_t>(uint64_t{chunks_} * slice / slices_.size()); }
  uint32_t end_of(size_t slice) const { return begin_of(slice + 1); }

  // Claims and runs chunks until none is left. A claim keeps the job's fields in place until its chunk is done.
  void drain(size_t own) {
    for (size_t i = 0; i < slices_.size(); ++i) {
      const size_t slice = (own + i) % slices_.size();
      std::atomic<uint32_t>& left = slices_[slice].left;
      for (uint32_t l = left.load(std::memory_order_acquire); l != 0;) {
        if (!left.compare_exchange_weak(l, l - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
        const uint32_t n = chunks_;
        chunk_(ctx_, end_of(slice) - l);
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == n) done_.notify_one();
        l = left.load(std::memory_order_acquire);
      }
    }
  }

  void work(size_t own) {
    for (uint32_t seen = 0; !stop_.load(std::memory_order_relaxed);) {
      const auto changed = [&] { return signal_.load(std::memory_order_acquire) != seen; };
      if (!spin(spin_, changed)) signal_.wait(seen, std::memory_order_acquire);
      seen = signal_.load(std::memory_order_acquire);
      drain(own);
    }
  }

  const std::chrono::microseconds spin_;
  std::vector<Slice> slices_;
  std::vector<std::thread> threads_;
  void (*chunk_)(void*, uint32_t) = nullptr;
  void* ctx_ = nullptr;
  uint32_t chunks_ = 0;
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};  // counts jobs; what idle workers sleep on
};

std::mutex g_owner;      // held by the thread whose loop the pool runs
Pool* g_pool = nullptr;  // never destroyed at exit: workers may outlive static objects

// After fork() the child has none of the workers.
void forget_pool() {
  new (&g_owner) std::mutex;
  g_pool = nullptr;
  t_width = 1;
}
}  // namespace

int num_threads() {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    g_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int n) {
  check(n >= 1 && n <= kMostThreads, "set_num_threads", "takes 1 to ", kMostThreads, " threads, got ", n);
  g_threads.store(n, std::memory_order_relaxed);
}

bool in_parallel_region() {
  return t_width > 1;
}
int loop_width() {
  return t_width;
}

void detail::parallel_run(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* ctx) {
  // More chunks than threads, so that a thread held up by others' work is made up for.
  constexpr int64_t kChunksPerThread = 4;
  const int64_t total = end - begin, threads = num_threads();
  const int64_t pieces = (total + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1);
  std::unique_lock owner(g_owner, std::defer_lock);
  // Another thread's loop has the pool: its workers are busy, and results do not depend on who computes them.
  if (threads <= 1 || pieces <= 1 || t_width > 1 || !owner.try_lock()) {
    body(ctx, begin, end);
    return;
  }
  if (g_pool == nullptr || g_pool->workers() != threads - 1) {
    static const int at_fork = pthread_atfork(nullptr, nullptr, forget_pool);
    check(at_fork == 0, "parallel_for", "could not register for fork");
    delete g_pool;
    g_pool = nullptr;
    g_pool = new Pool(static_cast<int>(threads) - 1);
  }
  const auto width = static_cast<int>(std::min(pieces, threads));
  struct Job {
    void (*body)(void*, int64_t, int64_t);
    void* ctx;
    int64_t begin, total, chunks;
    int width;
    std::mutex mutex;
    std::exception_ptr failure;
  } job{body, ctx, begin, total, std::min(pieces, threads * kChunksPerThread), width, {}, {}};
  g_pool->run(
      static_cast<uint32_t>(job.chunks),
      [](void* p, uint32_t i) {
        Job& j = *static_cast<Job*>(p);
        Region region(j.width);
        try {
          j.body(j.ctx, j.begin + j.total * i / j.chunks, j.begin + j.total * (i + 1) / j.chunks);
        } catch (...) {
          std::lock_guard lock(j.mutex);
          if (!j.failure) j.failure = std::current_exception();
        }
      },
      &job);
  owner.unlock();
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace strata
