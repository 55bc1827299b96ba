#pragma once
// What group.cpp and world.cpp share.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "strata/dist/group.h"

namespace strata::distributed {

namespace detail {
struct WorkState {
  virtual ~WorkState() = default;
  virtual void wait() = 0;
};
class DeviceGroup;
}  // namespace detail

/// Done by a thread of the host.
struct HostWork final : detail::WorkState {
  void wait() override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    if (error) std::rethrow_exception(error);
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};

struct Group::Impl {
  struct Task {
    std::string what;
    std::function<void(Communicator&)> run;
    std::shared_ptr<HostWork> state;
  };

  Impl(std::string group_name, std::vector<int> group_ranks, int rank, std::unique_ptr<Transport> transport)
      : name(std::move(group_name)),
        ranks(std::move(group_ranks)),
        communicator(std::move(transport), rank, static_cast<int>(ranks.size())) {}

  void perform(const Task& task);
  void work();

  const std::string name;
  const std::vector<int> ranks;
  Communicator communicator;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool busy = false;  // a call runs, on the thread or on a caller's
  bool ending = false;
  uint64_t sequence = 0;
  std::thread thread;
  std::mutex cards_mutex;
  std::shared_ptr<detail::DeviceGroup> cards;                                           // once it was asked for
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<detail::DeviceGroup>> ways;  // between cards
};

/// A rank that is a thread of this process: strata/dist/rank_threads.h.
class ThreadRank {
 public:
  virtual ~ThreadRank() = default;
  virtual int rank() const = 0;
  virtual const Mesh& mesh() const = 0;
  virtual Group& group(std::string_view name) = 0;
};
/// The one that this thread is: rank(), size(), mesh() and group() speak of it. nullptr where the process is the rank.
extern thread_local ThreadRank* t_thread_rank;

/// Of a failed collective: ends every group of this process, learns what the others were doing, and returns the text.
std::string failure_of(const std::string& group, const std::vector<int>& ranks, std::string_view error);

}  // namespace strata::distributed
