#pragma once
// The state of a SavedTensorOffload.

#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/autograd/offload.h"
#include "strata/autograd/offload_depot_inl.h"
#include "strata/autograd/offload_slot_inl.h"
#include "strata/memory/pressure.h"

namespace strata {

using offload::Depot;
using offload::Recipe;
using offload::Recipes;
using offload::Slot;
using offload::StepClock;
using offload::View;

// What marks of a pass mean; others are the saved storage's order.
enum OffloadMark : int32_t { kBegin = -1, kWait = -2, kGoOn = -3, kBackward = -4, kEnd = -5 };

// Everything is under one lock: passes of several threads over one object take turns.
struct SavedTensorOffload::Impl final : memory::Reliever, std::enable_shared_from_this<Impl> {
  explicit Impl(const OffloadOptions& o) : options(o), recipes(o.min_bytes) {}
  ~Impl() override { recipes.clear(); }

  struct Token;
  struct Watcher;
  // What is known of a storage that the pass has saved.
  struct Seen {
    uint32_t version = 0;
    bool kept = false;  // as if there were no hooks
    std::weak_ptr<Slot> slot;
  };
  struct Wanted {
    std::weak_ptr<Slot> slot;
    size_t node;
  };
  using Queue = std::deque<std::weak_ptr<Slot>>;

  // ---- the pass ----
  void begin_pass();
  void end_forward();
  void learn();
  void read_clock();
  void read_rates(const std::vector<OffloadTransfer>& copies);
  void adopt(OffloadPlan p);
  void plan_for(const OffloadMeasured& m);
  void shorten(double pass_seconds);
  void mark(int32_t what);
  void see_live();
  int64_t host_bytes() const;
  bool settled() const;
  OffloadPlan::Choice choice(int32_t at) const;

  // ---- saving ----
  std::shared_ptr<void> pack(const Tensor& t);
  bool may_move(const Tensor& t) const;
  static std::string name_here();
  void decide(const std::shared_ptr<Slot>& s);
  void stay(Slot& s, int64_t& count);
  void send(const std::shared_ptr<Slot>& s);
  void retire();
  bool relieve(Device wanted_of, int64_t bytes) noexcept override;
  int64_t let_go(int64_t bytes);
  bool send_one_staying();
  void release(Slot& s);
  Recipes::FindSlot find_saved();

  // ---- backward ----
  Ref<Storage> bring(Slot& s, Slot::User& user);
  void fetch(Slot& s);
  void ahead(const SavedTensorHooks* self, std::span<Node* const> next);
  void want(const std::shared_ptr<Slot>& s, size_t at);
  void want_sources(Recipe& r, size_t at);
  void slot_ends(Slot* s);
  void token_ends(Token& token);

  Depot& depot(Device d, SavedPlace place);

  std::recursive_mutex lock;
  const OffloadOptions options;
  OffloadStats stats;
  std::vector<std::pair<std::pair<Device, SavedPlace>, std::unique_ptr<Depot>>> depots;
  std::vector<OffloadTransfer> transfers;

  bool fixed = false;  // by set_plan()
  std::optional<OffloadPlan> plan;
  std::vector<int64_t> planned_bytes;  // of what the plan was made for
  int32_t last_recomputed = -1;        // of the plan

  bool forward = false;  // between the first save and the first node of backward
  bool following = false;
  bool measuring = false;
  bool logging = false;  // of this pass: as asked for, or because somebody looks at what moves
  bool reached_backward = false, reached_end = false;
  int passes_measured = 0, cold_passes = 0;
  int64_t host_before = 0;  // page-locked bytes when the pass began
  OffloadMeasured now, measured;
  std::unique_ptr<StepClock> clock;
  Device clock_device;
  std::vector<int32_t> marks;
  int32_t order = 0;
  std::unordered_map<uint64_t, Seen> seen;
  Recipes recipes;
  Cost forward_cost;
  Queue window, leaving;
  int64_t window_bytes = 0, leaving_bytes = 0;
  int64_t tokens = 0;
  Device device;  // of what was saved last
  int64_t most_live = 0, early_bytes = 0;
  std::deque<Wanted> wanted;
  std::deque<Wanted> early;  // fetched, and not yet asked for; the farthest last
  Queue staying;             // by the plan, in the order of saving
  Queue brought;             // those that came back or were made again in this pass's backward
  // Bytes in use above which nothing is fetched early: what a request that found no room has taught.
  int64_t ceiling = std::numeric_limits<int64_t>::max();
  size_t node = 0;  // of those in `wanted`, which backward is at
  // By node, about what it takes for itself while it runs: what it has made again, and gradients of what it saved.
  std::vector<int64_t> takes;
  const Node* expected = nullptr;  // the next; only compared
  bool making = false;             // a recipe runs
  // ahead() fetches: what backward wants sooner, and has, does not make room for it.
  bool looking_ahead = false;
};

// What stands for a saved tensor.
struct SavedTensorOffload::Impl::Token {
  std::shared_ptr<Impl> owner;
  std::shared_ptr<Slot> slot;
  View view;
  Slot::User user = {};
  ~Token() { owner->token_ends(*this); }
};

// Sees the calls of a forward pass: which made what is saved, and which saves.
struct SavedTensorOffload::Impl::Watcher final : CallObserver {
  explicit Watcher(std::shared_ptr<Impl> i) : impl(std::move(i)), previous(std::exchange(current(), this)) {}
  ~Watcher() override { current() = previous; }

  void before(const Call& call) override { open.push_back(&call); }
  void after(const Call& call, std::span<const Tensor> results) override {
    if (open.empty()) return;  // it began before this did
    open.pop_back();
    if (current_phase() == Phase::forward) {
      const std::lock_guard guard(impl->lock);
      if (!impl->making && impl->forward) impl->recipes.note(call, results);
    }
    decide();
  }
  void failed(const Call&) override {
    if (open.empty()) return;
    open.pop_back();
    decide();
  }
  // What was saved by the call that has ended: only now is known what made its results.
  void decide() {
    const std::lock_guard guard(impl->lock);
    for (const auto& weak : std::exchange(undecided, {}))
      if (const auto slot = weak.lock()) impl->decide(slot);
  }

  // This thread's.
  static Watcher*& current() {
    static thread_local Watcher* watcher = nullptr;
    return watcher;
  }

  std::shared_ptr<Impl> impl;
  Watcher* previous;
  std::vector<const Call*> open;
  std::vector<std::weak_ptr<Slot>> undecided;
};

}  // namespace strata
