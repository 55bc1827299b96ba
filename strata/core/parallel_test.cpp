#include "strata/core/parallel.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/core/thread_limit_test_util.h"

namespace strata {
namespace {

struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

// Every index of [0, n) exactly once, in chunks of at least `grain` but for the last.
void expect_covers(int64_t n, int64_t grain) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
  parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const std::atomic<int>& s : seen) ASSERT_EQ(s.load(), 1);
}

TEST(Parallel, EveryIndexOnceWhateverTheNumberOfThreads) {
  for (int threads : {1, 2, 5, 3, 16, 2}) {
    const Threads scope(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      for (int64_t grain : {1, 2, 10, 5000}) expect_covers(n, grain);
    }
  }
}

TEST(Parallel, ManyShortLoopsInARow) {
  const Threads scope(4);
  int64_t sum = 0;
  for (int round = 0; round < 20000; ++round) {
    std::atomic<int64_t> one{0};
    parallel_for(0, 2 + round % 9, 1, [&](int64_t begin, int64_t end) { one += end - begin; });
    ASSERT_EQ(one.load(), 2 + round % 9);
    sum += one;
  }
  EXPECT_GT(sum, 20000);
}

TEST(Parallel, NestedLoopsRunOnTheirThread) {
  const Threads scope(3);
  std::atomic<int> inner{0};
  EXPECT_FALSE(in_parallel_region());
  parallel_for(0, 6, 1, [&](int64_t begin, int64_t end) {
    EXPECT_TRUE(in_parallel_region());
    const std::thread::id self = std::this_thread::get_id();
    for (int64_t i = begin; i < end; ++i) {
      parallel_for(0, 10, 1, [&](int64_t b, int64_t e) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        inner += static_cast<int>(e - b);
      });
    }
  });
  EXPECT_FALSE(in_parallel_region());
  EXPECT_EQ(inner.load(), 60);
}

TEST(Parallel, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  const Threads scope(4);
  for (int bad = 0; bad < 8; ++bad) {
    EXPECT_THROW(parallel_for(0, 8, 1,
                              [&](int64_t begin, int64_t end) {
                                if (begin <= bad && bad < end) throw std::runtime_error("chunk");
                              }),
                 std::runtime_error);
    EXPECT_FALSE(in_parallel_region());
    expect_covers(100, 1);
  }
}

TEST(Parallel, CallersOnSeveralThreads) {
  const Threads scope(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([] {
      for (int round = 0; round < 300; ++round) expect_covers(50, 1);
    });
  }
  for (std::thread& t : callers) t.join();
}

TEST(Parallel, RunsOnFewerThreadsWhereNoneCanStart) {
  const Threads scope(7);  // a number that no loop before had
  {
    const NoMoreThreads none;
    ASSERT_TRUE(none.works());
    EXPECT_THROW(std::thread([] {}), std::system_error);
    for (int64_t n : {2, 7, 100, 1000}) expect_covers(n, 1);
    EXPECT_THROW(parallel_for(0, 100, 1, [](int64_t, int64_t) { throw std::runtime_error("mine"); }),
                 std::runtime_error);
  }
  expect_covers(1000, 1);
}

TEST(Parallel, RefusesAbsurdNumbersOfThreads) {
  EXPECT_THROW(set_num_threads(0), ValueError);
  EXPECT_THROW(set_num_threads(1'000'000'000), ValueError);
}

#if !defined(__SANITIZE_THREAD__)
// ThreadSanitizer does not support threads in a forked child.
TEST(Parallel, WorksInAForkedChild) {
  const Threads scope(3);
  expect_covers(50, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int64_t> sum{0};
    parallel_for(0, 100, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    ::_exit(sum == 4950 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  expect_covers(50, 1);
}
#endif

}  // namespace
}  // namespace strata
