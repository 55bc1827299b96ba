#include "strata/dist/rank_threads.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "strata/core/error.h"
#include "strata/dist/group_inl.h"
#include "strata/dist/local_transport_inl.h"

namespace strata::distributed {
namespace {

// The mailboxes of each group: by its name and first rank.
class Post {
 public:
  std::shared_ptr<Mailboxes> of(const std::string& group, int first) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Mailboxes>& boxes = all_[{group, first}];
    if (!boxes) boxes = std::make_shared<Mailboxes>();
    if (failed_) close(*boxes);
    return boxes;
  }
  // A rank failed: nobody waits for it. Keeps the first error.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    failed_ = true;
    for (auto& [key, boxes] : all_) close(*boxes);
  }
  std::exception_ptr error() const { return error_; }

 private:
  static void close(Mailboxes& boxes) {
    {
      const std::lock_guard lock(boxes.mutex);
      boxes.aborted = true;
    }
    boxes.changed.notify_all();
  }
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::shared_ptr<Mailboxes>> all_;
  std::exception_ptr error_;
  bool failed_ = false;
};

class Thread final : public ThreadRank {
 public:
  Thread(const Mesh& mesh, int rank, Post& post) : mesh_(mesh), rank_(rank), post_(post) {}
  int rank() const override { return rank_; }
  const Mesh& mesh() const override { return mesh_; }
  Group& group(std::string_view name) override {
    const std::string key = name.empty() ? "world" : std::string(name);
    std::unique_ptr<Group>& g = groups_[key];
    if (g) return *g;
    std::vector<int> ranks = mesh_.ranks_of(key, rank_);
    const auto mine = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    std::unique_ptr<Transport> transport;
    if (ranks.size() > 1) transport = std::make_unique<LocalTransport>(post_.of(key, ranks[0]), mine);
    g = std::make_unique<Group>(key, std::move(ranks), mine, std::move(transport));
    return *g;
  }

 private:
  const Mesh& mesh_;
  int rank_;
  Post& post_;
  std::map<std::string, std::unique_ptr<Group>> groups_;
};

}  // namespace

void run_as_ranks(const Mesh& mesh, const std::function<void(int rank)>& body) {
  Post post;
  std::vector<std::thread> threads;
  for (int r = 0; r < mesh.size(); ++r) {
    threads.emplace_back([&, r] {
      Thread self(mesh, r, post);
      t_thread_rank = &self;
      try {
        body(r);
      } catch (...) {
        post.fail(std::current_exception());
      }
      t_thread_rank = nullptr;
    });
  }
  for (std::thread& t : threads) t.join();
  if (post.error()) std::rethrow_exception(post.error());
}

}  // namespace strata::distributed
