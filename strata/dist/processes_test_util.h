#pragma once
// Tests over several processes: the test program starts itself once for each rank.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/group.h"

extern char** environ;

namespace strata::distributed {

/// Options of on_processes().
struct ProcessesOptions {
  InitOptions init;
  /// How each rank must end: its exit status, or minus the signal that killed it; 0 where the list is shorter.
  std::vector<int> ends;
  /// CoordinatorOptions::window.
  std::chrono::milliseconds window{10000};
  /// Called in the parent while the ranks run.
  std::function<void(Coordinator&)> watch = nullptr;
};

/// Calls body(rank) in `size` processes that have joined one job, once a test: in the parent it returns when all have
/// ended, in a rank the test is over then.
inline void on_processes(int size, const std::function<void(int)>& body, ProcessesOptions options = {}) {
  if (std::getenv("STRATA_RANKS_OF_TEST") != nullptr) {
    init(options.init);
    body(rank());
    shutdown();
    return;
  }
  const std::string secret = "secret-of-a-test";
  Coordinator coordinator({.size = size, .secret = secret, .window = options.window});
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = cat("--gtest_filter=", info->test_suite_name(), ".", info->name());
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    std::vector<std::string> environment;
    for (char** e = environ; *e != nullptr; ++e) {
      // The one test that a child runs is not for another part of the program's tests.
      if (const std::string_view s = *e; !s.starts_with("GTEST_TOTAL_SHARDS=") && !s.starts_with("GTEST_SHARD_INDEX="))
        environment.emplace_back(s);
    }
    for (const std::string& s : {std::string("STRATA_RANKS_OF_TEST=1"), std::string("STRATA_LAUNCH=1"), cat("RANK=", r),
                                 cat("WORLD_SIZE=", size), cat("LOCAL_RANK=", r), cat("LOCAL_WORLD_SIZE=", size),
                                 std::string("MASTER_ADDR=127.0.0.1"), cat("MASTER_PORT=", coordinator.port()),
                                 cat("STRATA_JOB_SECRET=", secret), std::string("STRATA_NUM_THREADS=1")}) {
      environment.push_back(s);
    }
    std::vector<char*> env, args;
    for (std::string& s : environment) env.push_back(s.data());
    env.push_back(nullptr);
    std::string program = "/proc/self/exe", f = filter, brief = "--gtest_brief=1";
    args = {program.data(), f.data(), brief.data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, args.data(), env.data()), 0);
    children.push_back(pid);
  }
  if (options.watch) options.watch(coordinator);
  for (int r = 0; r < size; ++r) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<size_t>(r)], &status, 0), children[static_cast<size_t>(r)]);
    const int end = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    const int wanted = static_cast<size_t>(r) < options.ends.size() ? options.ends[static_cast<size_t>(r)] : 0;
    EXPECT_EQ(end, wanted) << "rank " << r;
  }
}

/// Ten seconds are promised; a machine that is busy with other tests gets more.
inline constexpr double kPromised = 30;

/// Calls `body`, which must fail in time, with each piece in its error's text.
inline void expect_failure(std::initializer_list<std::string> pieces, const std::function<void()>& body) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    body();
    ADD_FAILURE() << "nothing failed";
  } catch (const DistributedError& e) {
    for (const std::string& piece : pieces) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << "no '" << piece << "' in: " << e.what();
    }
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), kPromised);
}

}  // namespace strata::distributed
