#pragma once
// This process's part in its job: connection, heartbeats, groups, and what is said when something fails.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/cuda/job_inl.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/device_group_inl.h"
#include "strata/dist/group.h"
#include "strata/dist/group_inl.h"
#include "strata/dist/peer/peer_sums_inl.h"
#include "strata/dist/store_book_inl.h"
#include "strata/dist/stragglers_inl.h"

namespace strata::distributed {

/// For whoever uses a card whose collective was ended.
[[noreturn]] void raise_failure();

/// All of it; strata/dist/group.h says what its functions do.
class World {
  using milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  static constexpr milliseconds kBeat{1000};
  // How often it is seen what cards have begun and ended.
  static constexpr milliseconds kLook{200};
  // How long the others' last calls are waited for when some on cards differ: until they have seen it too.
  static constexpr milliseconds kLines{3000};
  // How long a card may be behind those of ranks that are at their end.
  static constexpr double kLast = 2;
  // What a rank's heartbeats say of its calls before all else once it has ended them.
  static constexpr const char* kFailed = "failed";
  // What ranks meet in at their end, when nothing runs on their cards any more.
  static constexpr const char* kLeaving = "leaving";
  // How long the ranks' places are waited for when something has failed: longer than it takes until a rank without
  // heartbeats counts as dead.
  static constexpr milliseconds kAftermath{8000};
  // Of a card's processors, at most, by a message from rank to rank: one that waits keeps them from the work beside it,
  // but of a rank one is under way at a time, and with fewer a large one takes longer than that is worth.
  static int message_blocks() {
    constexpr int kMost = 32;
    const char* const set = std::getenv("STRATA_MESSAGE_BLOCKS");
    if (set == nullptr || *set == '\0') return kMost;
    const int n = std::atoi(set);
    check(n >= 1 && n <= kMost, "STRATA_MESSAGE_BLOCKS", "is '", set, "', wanted a number from 1 to ", kMost);
    return n;
  }
  // How often it is asked whether the others have come to form the job anew.
  static constexpr milliseconds kForm{30};

 public:
  explicit World(const InitOptions& options) : options_(options) {
    const std::optional<Job> found = options.job ? options.job : current_job();
    if (found) job_ = *found;
    seat_ = job_.rank;
    one_host_ = job_.local_size == job_.size;
    for (int r = 0; r < job_.size; ++r) formed_.seats.push_back(r);
    if (job_.size == 1) {
      local_ = make_local_store();
      return;
    }
    membership_.emplace(join(job_, options.patience));
    membership_->client->beat(mine());  // from here on it is missed
    heart_ = std::thread([this] { beat(); });
    if (job_.joins < 0) return;
    try {
      formed_.number = job_.joins;
      form(options_.patience);
    } catch (...) {
      stop_beating();
      throw;
    }
  }

  ~World() {
    stop_beating();
    for (const auto& g : cards_) {
      if (failing_ && g->device().is_cuda()) cuda::fail_card(g->device().index, nullptr);
    }
    groups_.clear();
  }

  // In order: everybody is here, nothing failed.
  void leave() {
    if (!membership_) return;
    bool well = false;
    {
      const std::lock_guard lock(mutex_);
      well = failure_.empty();
    }
    if (well) {
      const auto cards = cards_now();
      for (const auto& g : cards) g->finish();
      group("world").run(kLeaving, [](Communicator& c) { c.barrier(); });
      for (const auto& g : cards) g->close();
    }
    stop_beating();
  }

  bool can_rejoin() {
    const std::lock_guard lock(mutex_);
    return membership_ && job_.replaces && (failing_ || !failure_.empty());
  }

  void rejoin(milliseconds patience) {
    check<DistributedError>(can_rejoin(), "rejoin",
                            "nothing has failed, or the launcher puts nobody in a dead rank's "
                            "place (strata launch --restarts, --min-ranks)");
    (void)failure();  // the others' places are asked for until then
    {
      const std::lock_guard forming(forming_mutex_);
      std::map<std::string, std::unique_ptr<Group>, std::less<>> groups;
      std::vector<std::shared_ptr<detail::DeviceGroup>> cards;
      {
        const std::lock_guard lock(mutex_);
        groups.swap(groups_);
        cards.swap(cards_);
        mesh_.reset();
        meshes_ = 0;
      }
      groups.clear();  // their threads have ended
      for (const auto& g : cards) {
        if (g->device().is_cuda()) cuda::fail_card(g->device().index, nullptr);
      }
      recorder().end_all("the job had failed");
    }
    form(patience);
  }

  const Job& job() const { return job_; }
  Store& store() { return local_ ? *local_ : *membership_->client; }

  void set_mesh(const Mesh& mesh) {
    check(mesh.size() == job_.size, "set_mesh", "the mesh has ", mesh.size(), " ranks, the job ", job_.size);
    const std::lock_guard lock(mutex_);
    mesh_ = mesh;
    // Groups of the old axes are of no more use under their names.
    std::erase_if(groups_, [](const auto& g) { return g.first != "world"; });
    std::erase_if(cards_, [](const auto& g) { return !is_of_all(g->key()); });
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
    const std::string mesh = mesh_key(key);
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
        transport = connect(mine, static_cast<int>(ranks.size()), book);
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

  std::shared_ptr<detail::DeviceGroup> device_group(const std::string& name, const std::vector<int>& ranks, int rank,
                                                    Device device, const detail::DeviceGroupOptions& options) {
    std::string mesh;
    {
      const std::lock_guard lock(mutex_);
      mesh = mesh_key(name);
      check<DistributedError>(failure_.empty(), "group", failure_);
    }
    StoreBook book(store(), cat("cards/", name, "/", mesh, "/", ranks[0], "/"), options_.patience, [this] {
      const std::lock_guard dead(mutex_);
      return dead_;
    });
    const detail::LaneMaker test = detail::test_lanes();
    try {
      meet_cards(book, ranks, rank, test != nullptr ? cat("test ", job_.rank) : cuda::card_uuid(device.index), device);
      // Loopback, unless hosts are named.
      if (one_host_) setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
      const detail::Nccl& nccl = detail::nccl();
      std::unique_ptr<detail::Lane> lane = test != nullptr ? test(device) : detail::make_card_lane(device);
      detail::NcclId id{};
      if (rank == 0) {
        const int result = nccl.GetUniqueId(&id);
        check<DistributedError>(result == detail::kNcclSuccess, "nccl", nccl.GetErrorString(result));
        book.set("id", std::string(id.bytes, sizeof id.bytes));
      } else {
        const std::string bytes = book.get("id");
        check<DistributedError>(bytes.size() == sizeof id.bytes, "nccl", "the id has ", bytes.size(), " bytes");
        std::copy(bytes.begin(), bytes.end(), id.bytes);
      }
      // A copy: connecting may outlive this call.
      const auto within = [test, device](const std::function<void()>& fn) {
        if (test != nullptr) return fn();
        cuda::on_card(device.index, fn);
      };
      auto calls = std::make_unique<detail::NcclCollectives>(
          id, rank, static_cast<int>(ranks.size()), options_.patience, within, options.messages ? message_blocks() : 0);
      std::string why = test == nullptr && !one_host_ ? "ranks of several hosts" : "";
      std::unique_ptr<detail::PeerSums> peers;
      if (std::string none; test == nullptr && one_host_ && !options.messages) {
        const auto size = static_cast<int>(ranks.size());
        peers = detail::connect_peer_sums(device.index, rank, size, book, options_.patience, why);
        calls->take(detail::connect_peer_copies(device.index, rank, size, book, options_.patience, none));
      }
      calls->take(std::move(peers), std::move(why));
      auto made = std::make_shared<detail::DeviceGroup>(cat(name, "/cuda"), cat(name, "/", mesh), ranks,
                                                        options.concerns, std::move(lane), std::move(calls));
      const std::lock_guard lock(mutex_);
      cards_.push_back(made);
      return made;
    } catch (const DistributedError& e) {
      const std::string text = cat("the cards of group ", name, " cannot be connected: ", e.what());
      const std::lock_guard failed(mutex_);
      if (failure_.empty()) failure_ = text;
      throw DistributedError("group", text);
    }
  }

  std::string failure_of(const std::string& group, const std::vector<int>& ranks, std::string_view error) {
    {
      std::unique_lock lock(mutex_);
      // Who comes second, while the first still asks the others, says the same.
      if (failing_) failed_.wait_for(lock, 2 * kAftermath, [&] { return !failure_.empty(); });
      if (!failure_.empty()) return cat(error, "; the job had failed before: ", failure_);
      failing_ = true;
    }
    abort_groups();
    std::string text;
    if (!membership_) {
      text = std::string(error);
    } else {
      tell_calls(group);
      const auto cards = cards_named(group);
      std::vector<RankView> views = aftermath(cards ? cards->concerns() : ranks);
      blame_calls(group, views);
      text = cat(explain(group, ranks, views), "\n  this rank saw: ", error);
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = text;
    }
    failed_.notify_all();
    return text;
  }

  void check_job(std::string_view op) {
    if (failing_) throw DistributedError(op, cat("the job had failed before: ", failure()));
  }

  // Why it failed, once that is known.
  std::string failure() {
    std::unique_lock lock(mutex_);
    failed_.wait_for(lock, 2 * kAftermath, [&] { return !failure_.empty(); });
    return failure_.empty() ? std::string("a collective was ended") : failure_;
  }

 private:
  std::string interface() const {
    // Ranks of one host meet on loopback; others at the address that the coordinator is reached from.
    if (one_host_) return "127.0.0.1";
    return host_name();
  }

  // A group of all ranks, which no mesh changes, or messages of it ("world>0>1").
  static bool is_of_all(std::string_view name) { return name.substr(0, name.find_first_of("/>")) == "world"; }
  // What tells a group's keys from those of another mesh, and of a forming before. The mutex is held.
  std::string mesh_key(std::string_view name) const {
    const int mesh = is_of_all(name) ? 0 : meshes_;
    return formed_.number == 0 ? cat(mesh) : cat(mesh, ".", formed_.number);
  }

  void form(milliseconds patience) {
    const Clock::time_point until = Clock::now() + patience;
    Formation f;
    while (true) {
      f = membership_->client->form(seat_, formed_.number);
      if (f.number > formed_.number) break;
      check<DistributedError>(Clock::now() < until, "rejoin", "rank ", job_.rank, " has waited ",
                              std::chrono::duration<double>(patience).count(),
                              " s for the others, or for who takes a dead one's place");
      std::this_thread::sleep_for(kForm);
    }
    const std::lock_guard forming(forming_mutex_);
    const std::lock_guard lock(mutex_);
    formed_ = std::move(f);
    job_.rank = static_cast<int>(std::ranges::find(formed_.seats, seat_) - formed_.seats.begin());
    job_.size = static_cast<int>(formed_.seats.size());
    failing_ = false;
    failure_.clear();
    dead_.clear();
  }

  // What the coordinator knows of this job's ranks as they are now.
  static std::vector<RankState> by_rank(std::vector<RankState> all, const Formation& formed) {
    std::vector<RankState> states;
    for (const int seat : formed.seats) states.push_back(std::move(all[static_cast<size_t>(seat)]));
    return states;
  }
  Formation formed() {
    const std::lock_guard lock(mutex_);
    return formed_;
  }

  std::unique_ptr<Transport> connect(int rank, int size, AddressBook& book) {
    std::string name = options_.transport;
    if (const char* set = std::getenv("STRATA_TRANSPORT"); name.empty() && set != nullptr) name = set;
    if (name.empty()) name = "gloo";
    // Ranks that wait for each other by two ways would do so until their patience ends.
    book.set(cat("transport/", rank), name);
    for (int r = 0; r < size; ++r) {
      const std::string theirs = book.get(cat("transport/", r));
      check<DistributedError>(theirs == name, "group", "rank ", rank, " of it has the transport ", name, ", rank ", r,
                              " the transport ", theirs, " (STRATA_TRANSPORT)");
    }
    return transport_module(name)({rank, size, interface(), options_.timeout}, book);
  }

  // Which card each rank has: no two the same.
  void meet_cards(AddressBook& book, const std::vector<int>& ranks, int rank, const std::string& uuid, Device device) {
    book.set(cat("card/", rank), uuid);
    std::map<std::string, int> owners;
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
      const std::string theirs = book.get(cat("card/", r));
      const auto [it, first] = owners.emplace(theirs, r);
      const bool here = r == rank || it->second == rank;
      check<DistributedError>(first, "nccl", "ranks ", ranks[static_cast<size_t>(it->second)], " and ",
                              ranks[static_cast<size_t>(r)], " are on one card (", here ? to_string(device) + ", " : "",
                              "GPU-", theirs,
                              "): each needs one of its own, so start no more ranks than there are cards");
    }
  }

  std::vector<std::shared_ptr<detail::DeviceGroup>> cards_now() {
    const std::lock_guard lock(mutex_);
    return cards_;
  }

  void abort_groups() {
    // What cards compute from here on is not right: nobody gets it.
    const auto cards = cards_now();
    for (const auto& g : cards) {
      g->freeze();
      if (g->device().is_cuda()) cuda::fail_card(g->device().index, raise_failure);
    }
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, g] : groups_) g->impl_->communicator.abort();
    }
    // Each waits a little for what runs, which may be many times as long for all.
    std::vector<std::thread> ends;
    for (const auto& g : cards) {
      try {
        ends.emplace_back([&g] { g->abort(); });
      } catch (const std::system_error&) {
        g->abort();
      }
    }
    for (std::thread& t : ends) t.join();
  }

  std::shared_ptr<detail::DeviceGroup> cards_named(const std::string& name) {
    for (const auto& g : cards_now()) {
      if (g->name() == name) return g;
    }
    return nullptr;
  }
  static std::string lines_key(const detail::DeviceGroup& g, int rank) { return cat("calls/", g.key(), "/", rank); }

  // To the others, who may be about to ask: this rank's last calls.
  void tell_calls(const std::string& group) {
    const auto mine = cards_named(group);
    if (!mine) return;
    try {
      store().set(lines_key(*mine, job_.rank), mine->lines());
    } catch (const Error&) {
      // Without a coordinator each speaks for itself.
    }
  }

  // Of collectives on cards, which do not stop at another call than the others': which one it was.
  void blame_calls(const std::string& group, std::vector<RankView>& views) {
    const auto mine = cards_named(group);
    if (!mine) return;
    std::vector<std::string> lines(views.size());
    const Clock::time_point until = Clock::now() + kLines;
    for (const int r : mine->ranks()) {
      const auto at = static_cast<size_t>(r);
      if (at >= views.size() || !views[at].failure.empty()) continue;
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      try {
        lines[at] = store().get(lines_key(*mine, r), std::max(left, milliseconds(0)));
      } catch (const DistributedError&) {
        // It did not come to it.
      }
    }
    const std::vector<CollectiveEntry> differ = detail::first_difference(group, lines);
    for (size_t r = 0; r < differ.size(); ++r) {
      if (!differ[r].group.empty()) views[r].last = differ[r];
    }
  }

  // What is wrong with the collectives on cards, in which no thread of the host waits.
  void watch_cards(const std::vector<RankState>& states, double waiting) {
    if (failing_) return;
    for (const auto& g : cards_now()) {
      std::string why = g->error();
      for (const int r : g->concerns()) {
        const RankState& s = states[static_cast<size_t>(r)];
        if (r == job_.rank || !why.empty()) continue;
        if (!s.failure.empty()) {
          why = cat("rank ", r, ": ", s.failure);
        } else if (s.last.calls.starts_with(kFailed)) {
          why = cat("rank ", r, " has ended its collectives");
        } else if (!g->agrees(s.last.calls)) {
          why = cat("rank ", r, " makes other calls");
        } else if (g->inside() && (s.left || (waiting > kLast && entry_of(s.last.state).what == kLeaving))) {
          why = cat("rank ", r, " has ended");
        }
      }
      const double limit = std::chrono::duration<double>(options_.timeout).count();
      if (why.empty() && g->inside() && waiting > limit) why = cat("it has not ended within ", limit, " s");
      if (why.empty()) continue;
      const std::string text = failure_of(g->name(), g->ranks(), why);
      // Whoever next uses the card is told too, but may not come to it.
      std::fprintf(stderr, "strata: a collective on cards has failed: %s\n", text.c_str());
      return;
    }
  }

  Heartbeat mine() {
    // Not every rank can see what another one has: who has failed says so.
    std::string calls = failing_ ? kFailed : "";
    for (const auto& g : cards_now()) {
      g->advance();
      calls += cat(calls.empty() ? "" : ";", g->calls());
    }
    const CollectiveEntry now = recorder().now();
    Heartbeat h{seat_, host_, getpid(), line_of(now), recorder().step()};
    if (!now.group.empty() && now.ended == 0) {
      h.waiting =
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() - now.begun;
    }
    h.calls = std::move(calls);
    h.waited = recorder().waited();
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
    std::map<size_t, RankState> failed;  // also those whose place another process has taken meanwhile
    do {
      try {
        states = by_rank(membership_->client->beat(mine()), formed());
        for (size_t r = 0; r < states.size(); ++r) {
          if (!states[r].failure.empty()) failed[r] = states[r];
        }
        for (const auto& [r, state] : failed) states[r] = state;
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
        const Formation then = formed();
        const std::vector<RankState> states =
            by_rank(membership_->client->beat(h, h.waiting > limit || !h.calls.empty()), then);
        const std::lock_guard forming(forming_mutex_);
        const bool news = formed().number == then.number;  // not of those that were there before
        std::string dead;
        for (size_t r = 0; r < states.size(); ++r) {
          const RankState& s = states[r];
          if (!s.failure.empty())
            dead += cat(dead.empty() ? "" : "; ", "rank ", r, " (", s.last.host, "): ", s.failure);
        }
        // Who waits for a dead rank hears of it by its transfer's end.
        if (!dead.empty() && news) {
          {
            const std::lock_guard mine_too(mutex_);
            dead_ = dead;
            for (const auto& [name, g] : groups_) g->impl_->communicator.abort();
          }
        }
        if (news) watch_cards(states, h.waiting);
        if (membership_->hosted) {
          const std::string text = stragglers_.take(membership_->hosted->ranks());
          if (!text.empty()) std::fprintf(stderr, "strata: %s\n", text.c_str());
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
      for (const Clock::time_point next = Clock::now() + kBeat; !ending_ && Clock::now() < next;) {
        beat_changed_.wait_for(lock, std::min<Clock::duration>(kLook, next - Clock::now()), [&] { return ending_; });
        for (const auto& g : cards_now()) g->advance();
      }
    }
  }

  std::vector<int> members_of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (const auto& g : cards_) {
      if (g->name() == name) return g->ranks();
    }
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
  int seat_ = 0;  // the rank that it was started as
  bool one_host_ = true;
  Formation formed_;
  std::mutex forming_mutex_;  // before mutex_: held while heartbeats' answers are acted upon
  detail::StragglerNews stragglers_;
  std::string host_ = host_name();
  std::unique_ptr<Store> local_;
  std::optional<Membership> membership_;
  std::mutex mutex_;  // of the mesh, the groups and the failure
  std::optional<Mesh> mesh_;
  int meshes_ = 0;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> groups_;
  std::vector<std::shared_ptr<detail::DeviceGroup>> cards_;
  std::atomic<bool> failing_{false};  // before anything is ended
  std::condition_variable failed_;    // the failure is known
  std::string failure_;
  std::string dead_;  // ranks, and why
  std::mutex beat_mutex_;
  std::condition_variable beat_changed_;
  bool ending_ = false;
  std::thread heart_;
};

}  // namespace strata::distributed
