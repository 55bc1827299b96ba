// This process's part in its job: connection, heartbeats, groups, and what is said when something fails.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "strata/core/error.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/group.h"
#include "strata/dist/group_inl.h"

namespace strata::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBeat{1000};
// How long the ranks' places are waited for when something has failed: longer than it takes until a rank without
// heartbeats counts as dead.
constexpr milliseconds kAftermath{8000};

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

class StoreBook final : public AddressBook {
 public:
  // `trouble` says which ranks are dead; empty while none is.
  StoreBook(Store& store, std::string prefix, milliseconds patience, std::function<std::string()> trouble)
      : store_(store), prefix_(std::move(prefix)), patience_(patience), trouble_(std::move(trouble)) {}
  void set(const std::string& key, const std::string& value) override { store_.set(prefix_ + key, value); }
  std::string get(const std::string& key) override {
    const Clock::time_point until = Clock::now() + patience_;
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      try {
        return store_.get(prefix_ + key, std::clamp(left, milliseconds(0), milliseconds(500)));
      } catch (const DistributedError&) {
        // Who is dead will not come.
        if (const std::string dead = trouble_(); !dead.empty()) throw DistributedError("group", dead);
        if (left <= milliseconds(500)) throw;
      }
    }
  }

 private:
  Store& store_;
  std::string prefix_;
  milliseconds patience_;
  std::function<std::string()> trouble_;
};

}  // namespace

class World {
 public:
  explicit World(const InitOptions& options) : options_(options) {
    const std::optional<Job> found = options.job ? options.job : current_job();
    if (found) job_ = *found;
    if (job_.size == 1) {
      local_ = make_local_store();
      return;
    }
    membership_.emplace(join(job_, options.patience));
    membership_->client->beat(mine());  // from here on it is missed
    heart_ = std::thread([this] { beat(); });
  }

  ~World() {
    stop_beating();
    groups_.clear();
  }

  // In order: everybody is here, nothing failed.
  void leave() {
    if (job_.size == 1) return;
    bool well = false;
    {
      const std::lock_guard lock(mutex_);
      well = failure_.empty();
    }
    if (well) group("world").barrier();
    stop_beating();
  }

  const Job& job() const { return job_; }
  Store& store() { return local_ ? *local_ : *membership_->client; }

  void set_mesh(const Mesh& mesh) {
    check(mesh.size() == job_.size, "set_mesh", "the mesh has ", mesh.size(), " ranks, the job ", job_.size);
    const std::lock_guard lock(mutex_);
    mesh_ = mesh;
    // Groups of the old axes are of no more use under their names.
    std::erase_if(groups_, [](const auto& g) { return g.first != "world"; });
    ++meshes_;
  }

  Mesh mesh() {
    const std::lock_guard lock(mutex_);
    check(mesh_.has_value(), "mesh", "there is none before set_mesh()");
    return *mesh_;
  }

  Group& group(std::string_view name) {
    const std::string key = name.empty() ? "world" : std::string(name);
    std::unique_lock lock(mutex_);
    if (const auto it = groups_.find(key); it != groups_.end()) return *it->second;
    std::vector<int> ranks;
    if (key == "world") {
      for (int r = 0; r < job_.size; ++r) ranks.push_back(r);
    } else {
      check(mesh_.has_value(), "group", "there is no group '", key, "': set_mesh() names the axes that groups are of");
      ranks = mesh_->ranks_of(key, job_.rank);
    }
    const auto mine = static_cast<int>(std::find(ranks.begin(), ranks.end(), job_.rank) - ranks.begin());
    const int mesh = key == "world" ? 0 : meshes_;
    std::unique_ptr<Transport> transport;
    if (ranks.size() > 1) {
      check<DistributedError>(failure_.empty(), "group", failure_);
      // Others may be slow to come: heartbeats go on meanwhile, and a failure of a peer is in the error's text.
      lock.unlock();
      StoreBook book(store(), cat("group/", key, "/", mesh, "/", ranks[0], "/"), options_.patience, [this] {
        const std::lock_guard dead(mutex_);
        return dead_;
      });
      try {
        transport = transport_module("gloo")({mine, static_cast<int>(ranks.size()), interface(), options_.timeout},
                                             book);
      } catch (const std::exception& e) {
        const std::string text = cat("group ", key, " cannot be connected: ", e.what());
        const std::lock_guard failed(mutex_);
        if (failure_.empty()) failure_ = text;
        throw DistributedError("group", text);
      }
      lock.lock();
    }
    auto made = std::make_unique<Group>(key, std::move(ranks), mine, std::move(transport));
    return *groups_.emplace(key, std::move(made)).first->second;
  }

  std::string failure_of(const std::string& group, const std::vector<int>& ranks, std::string_view error) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return cat(error, "; the job had failed before: ", failure_);
    }
    abort_groups();
    std::string text;
    if (!membership_) {
      text = std::string(error);
    } else {
      text = cat(explain(group, ranks, aftermath(ranks)), "\n  this rank saw: ", error);
    }
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
    return text;
  }

 private:
  std::string interface() const {
    // Ranks of one host meet on loopback; others at the address that the coordinator is reached from.
    if (job_.local_size == job_.size) return "127.0.0.1";
    return host_name();
  }

  void abort_groups() {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, g] : groups_) g->impl_->communicator.abort();
  }

  Heartbeat mine() {
    const CollectiveEntry now = recorder().now();
    Heartbeat h{job_.rank, host_, getpid(), line_of(now), recorder().step()};
    if (!now.group.empty() && now.ended == 0) {
      h.waiting = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() - now.begun;
    }
    return h;
  }

  static std::vector<RankView> views_of(const std::vector<RankState>& states) {
    std::vector<RankView> views;
    for (size_t r = 0; r < states.size(); ++r) {
      const RankState& s = states[r];
      views.push_back({static_cast<int>(r), s.last.host.empty() ? "?" : s.last.host, s.last.pid, s.failure, s.left,
                       entry_of(s.last.state), s.last.waiting});
    }
    return views;
  }

  // The ranks' places after something failed: waited for until each has said where it is, or counts as dead.
  std::vector<RankView> aftermath(const std::vector<int>& ranks) {
    const Clock::time_point since = Clock::now();
    std::vector<RankState> states;
    do {
      try {
        states = membership_->client->beat(mine());
      } catch (const Error& e) {
        // Without a coordinator each rank speaks for itself.
        RankView own{job_.rank, host_, getpid(), {}, false, recorder().now(), 0};
        return {own};
      }
      const double passed = std::chrono::duration<double>(Clock::now() - since).count();
      const bool known = std::all_of(ranks.begin(), ranks.end(), [&](int r) {
        const RankState& s = states[static_cast<size_t>(r)];
        return !s.failure.empty() || s.left || (s.age >= 0 && s.age + 0.2 < passed);
      });
      if (known) break;
      std::this_thread::sleep_for(milliseconds(200));
    } while (Clock::now() - since < kAftermath);
    return views_of(states);
  }

  void beat() {
    bool complained = false;
    std::unique_lock lock(beat_mutex_);
    while (!ending_) {
      lock.unlock();
      try {
        const Heartbeat h = mine();
        const double limit = std::chrono::duration<double>(options_.complain).count();
        const std::vector<RankState> states = membership_->client->beat(h, h.waiting > limit);
        std::string dead;
        for (size_t r = 0; r < states.size(); ++r) {
          const RankState& s = states[r];
          if (!s.failure.empty()) dead += cat(dead.empty() ? "" : "; ", "rank ", r, " (", s.last.host, "): ", s.failure);
        }
        // Who waits for a dead rank hears of it by its transfer's end.
        if (!dead.empty()) {
          abort_groups();
          const std::lock_guard mine_too(mutex_);
          dead_ = dead;
        }
        if (h.waiting > limit && !complained && dead.empty()) {
          complained = true;
          const CollectiveEntry now = recorder().now();
          const std::string text = explain(now.group, members_of(now.group), views_of(states));
          std::fprintf(stderr, "strata: %s has taken %.0f s: %s\n", now.what.c_str(), h.waiting, text.c_str());
        }
        if (h.waiting < limit) complained = false;
      } catch (const Error&) {
        // The coordinator is gone or slow: collectives go on without it.
      }
      lock.lock();
      beat_changed_.wait_for(lock, kBeat, [&] { return ending_; });
    }
  }

  std::vector<int> members_of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto it = groups_.find(name);
    return it != groups_.end() ? it->second->ranks() : std::vector<int>{};
  }

  void stop_beating() {
    if (!heart_.joinable()) return;
    {
      const std::lock_guard lock(beat_mutex_);
      ending_ = true;
    }
    beat_changed_.notify_all();
    heart_.join();
  }

  InitOptions options_;
  Job job_;
  std::string host_ = host_name();
  std::unique_ptr<Store> local_;
  std::optional<Membership> membership_;
  std::mutex mutex_;  // of the mesh, the groups and the failure
  std::optional<Mesh> mesh_;
  int meshes_ = 0;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> groups_;
  std::string failure_;
  std::string dead_;  // ranks, and why
  std::mutex beat_mutex_;
  std::condition_variable beat_changed_;
  bool ending_ = false;
  std::thread heart_;
};

namespace {
std::mutex g_mutex;
std::unique_ptr<World> g_world;
// Before init() a process is a job of one, with groups of one.
World& world() {
  const std::lock_guard lock(g_mutex);
  static World alone{InitOptions{.job = Job{}}};
  return g_world ? *g_world : alone;
}
}  // namespace

void init(const InitOptions& options) {
  const std::lock_guard lock(g_mutex);
  check(g_world == nullptr, "init", "this process has joined its job already");
  g_world = std::make_unique<World>(options);
}
bool initialized() {
  const std::lock_guard lock(g_mutex);
  return g_world != nullptr;
}
constinit thread_local ThreadRank* t_thread_rank = nullptr;

int rank() {
  return t_thread_rank ? t_thread_rank->rank() : world().job().rank;
}
int size() {
  return t_thread_rank ? t_thread_rank->mesh().size() : world().job().size;
}
const Job& job() {
  return world().job();
}
void set_mesh(const Mesh& mesh) {
  world().set_mesh(mesh);
}
Mesh mesh() {
  return t_thread_rank ? t_thread_rank->mesh() : world().mesh();
}
Group& group(std::string_view name) {
  if (t_thread_rank) return t_thread_rank->group(name);
  return world().group(name);
}
Store& store() {
  check<DistributedError>(initialized(), "store", "there is none before distributed::init()");
  return world().store();
}
FlightRecorder& recorder() {
  // Heartbeats go on until the process ends, after what is destroyed then.
  static FlightRecorder* const recorder = new FlightRecorder;
  return *recorder;
}
void shutdown() {
  std::unique_ptr<World> ending;
  {
    const std::lock_guard lock(g_mutex);
    if (!g_world) return;
  }
  world().leave();
  const std::lock_guard lock(g_mutex);
  ending = std::move(g_world);
}

std::string failure_of(const std::string& group, const std::vector<int>& ranks, std::string_view error) {
  return world().failure_of(group, ranks, error);
}

}  // namespace strata::distributed
