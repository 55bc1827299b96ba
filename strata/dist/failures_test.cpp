// What the ranks of a job say when one of them dies, stops, or does something else than the others.

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "strata/dist/collectives/collectives.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/processes_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Failures, AnotherShapeIsNamedOnEveryRank) {
  on_processes(4, [](int rank) {
    all_reduce(ones({3}));
    expect_failure({"rank 2 called all_reduce(sum) f32 [5] where ranks 0, 1 and 3 called all_reduce(sum) f32 [4]"},
                   [&] { all_reduce(ones({rank == 2 ? 5 : 4})); });
    // The job is over, and says why again.
    expect_failure({"failed before", "rank 2 called"}, [] { all_reduce(ones({3})); });
  });
}

TEST(Failures, AnotherOperationIsNamed) {
  on_processes(3, [](int rank) {
    all_reduce(ones({3}));  // all are connected
    expect_failure({"rank 0 called all_gather(dim 0) f32 [4] where ranks 1 and 2 called all_reduce(sum) f32 [4]"}, [&] {
      if (rank == 0) {
        all_gather(ones({4}));
      } else {
        all_reduce(ones({4}));
      }
    });
  });
}

TEST(Failures, AnotherTypeIsNamed) {
  on_processes(3, [](int rank) {
    all_reduce(ones({3}));
    expect_failure({"rank 1 called all_reduce(sum) f64 [4] where ranks 0 and 2 called all_reduce(sum) f32 [4]"},
                   [&] { all_reduce(ones({4}, rank == 1 ? DType::f64 : DType::f32)); });
  });
}

TEST(Failures, ASkippedCollectiveIsNamed) {
  on_processes(4, [](int rank) {
    expect_failure({"rank 3 called all_reduce(sum) f32 [2] where ranks 0, 1 and 2 called all_reduce(sum) f32 [1]"},
                   [&] {
                     if (rank != 3) all_reduce(ones({1}));
                     all_reduce(ones({2}));
                   });
  });
}

TEST(Failures, AKilledRankIsNamed) {
  on_processes(4,
               [](int rank) {
                 all_reduce(ones({1}));
                 if (rank == 1) raise(SIGKILL);
                 expect_failure({"rank 1", "all_reduce(sum) f32 [7]"}, [] { all_reduce(ones({7})); });
               },
               {.ends = {0, -SIGKILL}});
}

// Puts this process's other threads last, and keeps every core busy meanwhile.
class OthersStarve {
 public:
  OthersStarve() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const pid_t id = std::stoi(task.path().filename());
      const sched_param none{};
      if (id != getpid()) sched_setscheduler(id, SCHED_IDLE, &none);
    }
    for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
      busy_.emplace_back([this] {
        while (!over_) {
        }
      });
    }
  }
  ~OthersStarve() {
    over_ = true;
    for (std::thread& t : busy_) t.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> busy_;
};

// The second write after the other's end raises SIGPIPE, unless the transport's own thread has read that end before: here
// it has no time to.
TEST(Failures, WritingToAKilledRankIsAnErrorNoSignal) {
  on_processes(4,
               [](int rank) {
                 const Tensor x = ones({1});
                 all_reduce(x);
                 if (rank != 0) {
                   std::this_thread::sleep_for(std::chrono::milliseconds(500));
                   raise(SIGKILL);
                 }
                 std::optional<OthersStarve> starve(std::in_place);
                 std::this_thread::sleep_for(std::chrono::milliseconds(550));
                 std::thread end([&] {
                   std::this_thread::sleep_for(std::chrono::milliseconds(300));
                   starve.reset();
                 });
                 expect_failure({"rank ", "all_reduce(sum) f32 [1]"}, [&] { all_reduce(x); });
                 end.join();
               },
               {.init = {}, .ends = {0, -SIGKILL, -SIGKILL, -SIGKILL}});
}

TEST(Failures, AStoppedRankIsNamed) {
  on_processes(3,
               [](int rank) {
                 all_reduce(ones({1}));
                 if (rank == 2) {
                   // Something outside the job ends it for good, much later.
                   if (fork() == 0) {
                     std::this_thread::sleep_for(std::chrono::seconds(14));
                     kill(getppid(), SIGKILL);
                     _exit(0);
                   }
                   raise(SIGSTOP);
                 }
                 expect_failure({"rank 2", "no heartbeat", "all_reduce(sum) f32 [7]"}, [] { all_reduce(ones({7})); });
               },
               {.ends = {0, 0, -SIGKILL}});
}

TEST(Failures, ARankThatWaitsTooLongSaysForWhom) {
  on_processes(2,
               [](int rank) {
                 all_reduce(ones({1}));
                 if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(6));
                 expect_failure(rank == 0 ? std::initializer_list<std::string>{"rank 0 waits for rank 1"}
                                          : std::initializer_list<std::string>{"all_reduce(sum) f32 [7]"},
                                [] { all_reduce(ones({7})); });
               },
               {.init = {.complain = std::chrono::milliseconds(1000), .timeout = std::chrono::milliseconds(3000)}});
}

TEST(Failures, AnErrorInOneRanksOwnCodeEndsTheOthers) {
  on_processes(3,
               [](int rank) {
                 if (rank == 0) std::_Exit(7);
                 expect_failure({"rank 0"}, [] { all_reduce(ones({7})); });
               },
               {.init = {}, .ends = {7}});
}

}  // namespace
}  // namespace strata::distributed
