#include "strata/autograd/offload.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/autograd/offload_slot_inl.h"
#include "strata/core/recording.h"
#include "strata/core/saving.h"
#include "strata/cuda/graph.h"
#include "strata/memory/allocator.h"

namespace strata {

using offload::Depot;
using offload::Parcel;
using offload::Recipe;
using offload::Recipes;
using offload::Slot;
using offload::StepClock;
using offload::View;

namespace {

// Passes that are measured before the plan stays: the first is followed by no plan, so its waiting distorts the next.
constexpr int kMeasuredPasses = 3;
// Copies of fewer bytes cost a card more than they give.
constexpr int64_t kLeastOnCard = 64 << 10;
// Operations a byte of memory traffic up to which a call counts as cheap where nothing was measured yet.
constexpr double kCheapFlops = 32;
// What devices do in a second, about: measured passes correct both by one factor.
constexpr double kCardFlops = 500e12, kCardBytes = 3e12, kHostFlops = 100e9, kHostBytes = 20e9;
// Bytes a second of links that nothing has gone over yet.
constexpr double kCardLink = 40e9, kOtherLink = 2e9;

// What marks of a pass mean; others are the saved storage's order.
enum Mark : int32_t { kBegin = -1, kWait = -2, kGoOn = -3, kBackward = -4, kEnd = -5 };

}  // namespace

// Everything is under one lock: passes of several threads over one object take turns.
struct SavedTensorOffload::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(const OffloadOptions& o) : options(o), recipes(o.min_bytes) {}
  ~Impl() { recipes.clear(); }

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
  void mark(int32_t what);
  void see_live();
  OffloadPlan::Choice choice(int32_t at) const;

  // ---- saving ----
  std::shared_ptr<void> pack(const Tensor& t);
  bool may_move(const Tensor& t) const;
  static std::string name_here();
  void decide(const std::shared_ptr<Slot>& s);
  void stay(Slot& s, int64_t& count);
  void send(const std::shared_ptr<Slot>& s);
  void retire();
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
  bool reached_backward = false, reached_end = false;
  int passes_measured = 0;
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
  size_t node = 0;               // of those in `wanted`, which backward is at
  const Node* expected = nullptr;  // the next; only compared
  bool making = false;  // a recipe runs
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
    open.pop_back();
    if (current_phase() == Phase::forward) {
      const std::lock_guard guard(impl->lock);
      if (!impl->making && impl->forward) impl->recipes.note(call, results);
    }
    decide();
  }
  void failed(const Call&) override {
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

// ---- the pass ------------------------------------------------------------------------------------------------------

void SavedTensorOffload::Impl::begin_pass() {
  if (!cuda::capturing()) learn();
  ++stats.passes;
  seen.clear();
  recipes.begin();
  marks.clear();
  order = 0;
  forward = true;
  reached_backward = reached_end = false;
  most_live = 0;
  now = {};
  following = plan.has_value();
  measuring = options.adaptive && !fixed && !cuda::capturing() && passes_measured < kMeasuredPasses;
  if (clock) (void)clock->read();
  mark(kBegin);
}

void SavedTensorOffload::Impl::mark(int32_t what) {
  if (!measuring) return;
  if (!clock || !(clock_device == device)) {
    clock = offload::make_clock(device);
    clock_device = device;
  }
  if (marks.empty() && what != kBegin) return;
  marks.push_back(what);
  clock->mark();
}

// Makes a plan of the pass before, where that was measured whole and the device has done it.
void SavedTensorOffload::Impl::learn() {
  const bool quiet = std::all_of(depots.begin(), depots.end(), [](const auto& d) { return d.second->quiet(); });
  if (!quiet) return;
  std::vector<OffloadTransfer> copies;
  for (auto& [key, d] : depots) d->take_transfers(copies);
  if (measuring && reached_end && !marks.empty() && clock->done()) {
    measuring = false;
    read_clock();
    read_rates(copies);
    measured = now;
    ++passes_measured;
    adopt(plan_offload(measured, {.slowdown = options.slowdown,
                                  .keep_bytes = options.most_kept,
                                  .recompute = options.recompute,
                                  .away = options.away}));
    planned_bytes.clear();
    for (const SavedRecord& r : measured.saved) planned_bytes.push_back(r.bytes);
  }
  if (options.log)
    transfers.insert(transfers.end(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
}

void SavedTensorOffload::Impl::read_clock() {
  const std::vector<double> times = clock->read();
  double waited = 0, since = 0;
  for (size_t i = 0; i < marks.size(); ++i) {
    const double t = times[i] - waited;
    if (marks[i] >= 0) now.saved[static_cast<size_t>(marks[i])].seconds = t;
    if (marks[i] == kWait) since = times[i];
    if (marks[i] == kGoOn) waited += times[i] - since;
    if (marks[i] == kBackward) now.forward_seconds = t;
    if (marks[i] == kEnd) now.backward_seconds = t - now.forward_seconds;
  }
  if (device.is_cuda()) stats.seconds_waited += waited;
}

void SavedTensorOffload::Impl::read_rates(const std::vector<OffloadTransfer>& copies) {
  double bytes[2] = {}, seconds[2] = {};
  for (const OffloadTransfer& c : copies) {
    bytes[c.out] += static_cast<double>(c.bytes);
    seconds[c.out] += c.end - c.begin;
  }
  const auto rate = [&](bool out, double before) {
    if (seconds[out] > 0) return bytes[out] / seconds[out];
    return before > 0 ? before : device.is_cuda() && options.away == SavedPlace::host ? kCardLink : kOtherLink;
  };
  now.out_rate = rate(true, measured.out_rate);
  now.in_rate = rate(false, measured.in_rate);
  const bool card = !device.is_cpu();
  now.seconds_per_flop = 1 / (card ? kCardFlops : kHostFlops);
  now.seconds_per_byte = 1 / (card ? kCardBytes : kHostBytes);
  const double expected = forward_cost.flops * now.seconds_per_flop + forward_cost.bytes * now.seconds_per_byte;
  if (expected > 0 && now.forward_seconds > 0) {
    now.seconds_per_flop *= now.forward_seconds / expected;
    now.seconds_per_byte *= now.forward_seconds / expected;
  }
}

void SavedTensorOffload::Impl::adopt(OffloadPlan p) {
  last_recomputed = -1;
  for (size_t i = 0; i < p.choices.size(); ++i)
    if (p.choices[i].place == SavedPlace::recompute) last_recomputed = static_cast<int32_t>(i);
  plan = std::move(p);
}

void SavedTensorOffload::Impl::end_forward() {
  forward = false;
  reached_backward = true;
  forward_cost = recipes.total();
  recipes.clear();
  mark(kBackward);
}

// The most that is in use of the device, but for what came back early.
void SavedTensorOffload::Impl::see_live() {
  most_live = std::max(most_live, memory::stats(device).live_total - early_bytes);
}

// ---- saving --------------------------------------------------------------------------------------------------------

bool SavedTensorOffload::Impl::may_move(const Tensor& t) const {
  if (current_phase() != Phase::forward || !is_floating(t.dtype()) || t.numel() == 0) return false;
  const Storage& s = *t.storage();
  const int64_t least = t.device().is_cuda() ? std::max(options.min_bytes, kLeastOnCard) : options.min_bytes;
  if (s.release || s.tag != memory::Tag::activation || static_cast<int64_t>(s.nbytes) < least) return false;
  if (s.tier() != memory::backend(s.device).tier) return false;
  // Leaves, which others hold, and what is kept of them in low precision.
  const Tensor* original = strata::detail::tensor_being_saved();
  if (original == nullptr || !original->requires_grad()) return true;
  const Ref<Node> maker = original->grad_fn();
  return maker && !maker->passes_on();
}

std::shared_ptr<void> SavedTensorOffload::Impl::pack(const Tensor& t) {
  if (!may_move(t)) return strata::detail::keep_as_it_is();
  const std::lock_guard guard(lock);
  device = t.device();
  if (!forward) begin_pass();
  const auto token_of = [&](std::shared_ptr<Slot> slot) {
    slot->add_user();
    ++tokens;
    return std::shared_ptr<Token>(new Token{shared_from_this(), std::move(slot), View::of(t)});
  };
  const uint64_t number = strata::detail::watch_number(*t.storage());
  const uint32_t version = t.version();
  if (const auto at = seen.find(number); at != seen.end() && at->second.version == version) {
    if (at->second.kept) return strata::detail::keep_as_it_is();
    if (std::shared_ptr<Slot> slot = at->second.slot.lock()) return token_of(std::move(slot));
  }

  const auto bytes = static_cast<int64_t>(t.storage()->nbytes);
  const int32_t place = order++;
  stats.saved += bytes;
  now.saved.push_back({.bytes = bytes, .name = name_here()});
  see_live();
  mark(place);
  if (following && !fixed) {  // other tensors than those that the plan was made for
    const auto at = static_cast<size_t>(place);
    if (at >= planned_bytes.size() || planned_bytes[at] != bytes) {
      following = measuring = false;
      plan.reset();
      passes_measured = 0;
    }
  }
  // Recipes read slots, so what comes before one has a slot.
  const bool may_be_read = options.recompute && (measuring || place <= last_recomputed);
  if (following && choice(place).place == SavedPlace::keep && !may_be_read) {
    seen[number] = {version, true, {}};
    stats.kept += bytes;
    retire();
    return strata::detail::keep_as_it_is();
  }
  const std::shared_ptr<Slot> slot(new Slot(*t.storage(), place), [this](Slot* s) { slot_ends(s); });
  slot->source = t.storage();
  slot->name = now.saved.back().name;
  seen[number] = {version, false, slot};
  std::shared_ptr<Token> token = token_of(slot);
  if (Watcher* w = Watcher::current(); w && w->impl.get() == this && !w->open.empty()) {
    w->undecided.push_back(slot);
  } else {
    decide(slot);
  }
  retire();
  return token;
}

std::string SavedTensorOffload::Impl::name_here() {
  const Watcher* w = Watcher::current();
  const std::string_view op = w && !w->open.empty() ? w->open.back()->op.name() : std::string_view();
  const std::string* module = memory::detail::t_caller.module;
  if (!module) return std::string(op);
  return op.empty() ? *module : cat(op, " in ", *module);
}

OffloadPlan::Choice SavedTensorOffload::Impl::choice(int32_t at) const {
  return static_cast<size_t>(at) < plan->choices.size() ? plan->choices[static_cast<size_t>(at)]
                                                        : OffloadPlan::Choice();
}

Recipes::FindSlot SavedTensorOffload::Impl::find_saved() {
  return [this](uint64_t number, uint32_t version) -> std::shared_ptr<Slot> {
    const auto at = seen.find(number);
    return at == seen.end() || at->second.version != version ? nullptr : at->second.slot.lock();
  };
}

void SavedTensorOffload::Impl::decide(const std::shared_ptr<Slot>& s) {
  std::shared_ptr<Recipe> recipe;
  int result = 0;
  if (options.recompute) {
    Cost cost;
    recipe = recipes.find(*s, find_saved(), result, cost);
    if (recipe) {
      SavedRecord& r = now.saved[static_cast<size_t>(s->order)];
      r.call = recipe->number;
      r.cost = cost;
      if (!following && cost.flops > kCheapFlops * cost.bytes) recipe = nullptr;
    }
  }
  OffloadPlan::Choice chosen{recipe ? SavedPlace::recompute : options.away};
  if (following) chosen = choice(s->order);
  if (chosen.place == SavedPlace::recompute && !recipe) chosen.place = SavedPlace::keep;
  s->place = now.saved[static_cast<size_t>(s->order)].place = chosen.place;
  s->release_at = chosen.release_at;
  if (chosen.place == SavedPlace::keep) {
    stay(*s, stats.kept);
  } else if (chosen.place == SavedPlace::recompute) {
    recipes.bind(*recipe, find_saved());
    const auto at = static_cast<size_t>(result);
    if (recipe->results.size() <= at) recipe->results.resize(at + 1);
    recipe->results[at] = s;
    s->recipe = std::move(recipe);
    s->source.reset();
  } else if (following) {
    send(s);
  } else {
    s->waits = true;
    window.push_back(s);
    window_bytes += s->bytes;
    while (window_bytes > options.keep_bytes && !window.empty()) {
      const std::shared_ptr<Slot> first = window.front().lock();
      window.pop_front();
      if (!first || !first->waits) continue;
      first->waits = false;
      window_bytes -= first->bytes;
      send(first);
    }
  }
}

// It does not go; the bytes count once.
void SavedTensorOffload::Impl::stay(Slot& s, int64_t& count) {
  if (!std::exchange(s.counted, true)) count += s.bytes;
}

void SavedTensorOffload::Impl::send(const std::shared_ptr<Slot>& s) {
  if (s->watch.version() != s->version) return;  // backward will say so
  try {
    s->parcel = depot(s->device, s->place).send(s->source, s->name);
  } catch (const MemoryError& e) {
    stats.last_failure = e.what();
    return stay(*s, stats.refused);
  } catch (const IoError& e) {
    stats.last_failure = e.what();
    return stay(*s, stats.refused);
  }
  stats.sent += s->bytes;
  s->leaving = true;
  leaving.push_back(s);
  leaving_bytes += s->bytes;
}

// Gives back the memory of those whose copies are done, or are to be waited for.
void SavedTensorOffload::Impl::retire() {
  while (!leaving.empty()) {
    const std::shared_ptr<Slot> s = leaving.front().lock();
    if (s && s->leaving) {
      const bool due = s->release_at == OffloadPlan::kNever ? leaving_bytes > options.queue_bytes
                                                            : order >= s->release_at || !forward;
      if (!due && (cuda::capturing() || !s->parcel->sent())) return;
      s->leaving = false;
      leaving_bytes -= s->bytes;
      release(*s);
    }
    leaving.pop_front();
  }
}

void SavedTensorOffload::Impl::release(Slot& s) {
  mark(kWait);
  const double begin = offload::host_seconds();
  try {
    s.parcel->leave();
  } catch (const IoError& e) {  // the bytes are still here
    stats.last_failure = e.what();
    stay(s, stats.refused);
    s.parcel.reset();
    return;
  }
  if (!s.device.is_cuda()) stats.seconds_waited += offload::host_seconds() - begin;
  mark(kGoOn);
  s.source.reset();
  stats.away_bytes += s.bytes;
}

Depot& SavedTensorOffload::Impl::depot(Device d, SavedPlace place) {
  for (const auto& [key, there] : depots)
    if (key.first == d && key.second == place) return *there;
  const bool timed = options.adaptive || options.log;
  std::unique_ptr<Depot> made;
  if (d.is_meta() || (place == SavedPlace::host && d.is_cpu())) {
    made = offload::make_plain_depot();
  } else if (place == SavedPlace::host) {
    made = offload::make_pinned_depot(d, options.host_bytes, timed);
  } else {
    made = offload::make_disk_depot(d, options.disk, timed);
  }
  depots.emplace_back(std::pair(d, place), std::move(made));
  return *depots.back().second;
}

// ---- backward ------------------------------------------------------------------------------------------------------

Ref<Storage> SavedTensorOffload::Impl::bring(Slot& s, Slot::User& user) {
  s.check_version();
  if (s.source) {
    if (std::exchange(s.waits, false)) {
      window_bytes -= s.bytes;
      stay(s, stats.kept);
    }
    if (std::exchange(s.leaving, false)) {
      leaving_bytes -= s.bytes;
      stay(s, stats.forwarded);
    }
    return s.source;
  }
  if (!s.near && s.recipe) {
    struct Making {
      explicit Making(bool& f) : flag(f), before(std::exchange(f, true)) {}
      ~Making() { flag = before; }
      bool& flag;
      bool before;
    } scope(making);
    const std::vector<Ref<Storage>> made = offload::run(*s.recipe, [this](Slot& r, Slot::User& u) { return bring(r, u); });
    for (size_t i = 0; i < s.recipe->results.size(); ++i) {
      const std::shared_ptr<Slot> other = s.recipe->results[i].lock();
      if (!other || other->near || other->recipe != s.recipe) continue;
      other->near = made[i];
      stats.recomputed += other->bytes;
    }
  } else if (!s.near) {
    if (!s.fetching) fetch(s);
    mark(kWait);
    const double begin = offload::host_seconds();
    s.fetching = false;
    early_bytes -= s.bytes;
    s.near = s.parcel->take();
    if (!s.device.is_cuda()) stats.seconds_waited += offload::host_seconds() - begin;
    mark(kGoOn);
  }
  Ref<Storage> bytes = s.near;
  s.serve(user);
  s.tidy();
  return bytes;
}

void SavedTensorOffload::Impl::fetch(Slot& s) {
  s.parcel->fetch();
  s.fetching = true;
  early_bytes += s.bytes;
  stats.fetched += s.bytes;
}

void SavedTensorOffload::Impl::want(const std::shared_ptr<Slot>& s, size_t at) {
  if (s->recipe && !s->near) {
    want_sources(*s->recipe, at);
  } else if (s->parcel && !s->near && !s->fetching) {
    wanted.push_back({s, at});
  }
}
void SavedTensorOffload::Impl::want_sources(Recipe& r, size_t at) {
  r.each_source([&](Recipe::Source& s) {
    if (s.slot) want(s.slot, at);
    if (s.made) want_sources(*s.made, at);
  });
}

void SavedTensorOffload::Impl::ahead(const SavedTensorHooks* self, std::span<Node* const> next) {
  const std::lock_guard guard(lock);
  if (forward) end_forward();
  retire();
  see_live();
  if (next.front() != expected) {  // another pass than before, or another order
    wanted.clear();
    node = 0;
    std::vector<PackedTensor> packed;
    for (size_t i = 0; i < next.size(); ++i) {
      packed.clear();
      next[i]->list_packed(packed);
      for (const PackedTensor& p : packed)
        if (p.hooks.get() == self) want(static_cast<Token*>(p.value.get())->slot, i);
    }
  } else {
    ++node;
  }
  expected = next.size() > 1 ? next[1] : nullptr;
  for (; !wanted.empty(); wanted.pop_front()) {
    const std::shared_ptr<Slot> s = wanted.front().slot.lock();
    if (!s || s->source || s->near || s->fetching) continue;
    const bool soon = wanted.front().node <= node + 1;
    const int64_t live = memory::stats(s->device).live_total;
    if (!soon && live + s->bytes > most_live + options.fetch_bytes) return;
    try {
      fetch(*s);
    } catch (const MemoryError&) {  // backward asks again, with more room or this error
      return;
    }
  }
}

void SavedTensorOffload::Impl::token_ends(Token& token) {
  const std::lock_guard guard(lock);
  token.slot->remove_user(token.user);
  token.slot.reset();
  if (--tokens > 0 || forward || !reached_backward || reached_end) return;
  reached_end = true;
  try {
    mark(kEnd);
  } catch (const Error&) {  // the device has failed, and whoever asks next is told
    measuring = false;
  }
}

void SavedTensorOffload::Impl::slot_ends(Slot* s) {
  const std::unique_ptr<Slot> owned(s);
  if (s->waits) window_bytes -= s->bytes;
  if (s->leaving) leaving_bytes -= s->bytes;
  if (s->fetching) early_bytes -= s->bytes;
  if (!s->parcel) return;
  if (!s->source) {
    stats.away_bytes -= s->bytes;
    return;
  }
  try {
    s->parcel->leave();
  } catch (const Error&) {  // nobody wants the copy
  }
}

// ---- the hooks -----------------------------------------------------------------------------------------------------

std::shared_ptr<SavedTensorOffload> SavedTensorOffload::create(const OffloadOptions& o) {
  check(o.away == SavedPlace::host || o.away == SavedPlace::disk, "SavedTensorOffload",
        "tensors go to host or disk, not to ", name_of(o.away));
  check(o.away != SavedPlace::disk || o.disk, "SavedTensorOffload", "goes to disk, and has none");
  check(o.min_bytes > 0 && o.keep_bytes >= 0 && o.queue_bytes >= 0 && o.fetch_bytes >= 0 && o.host_bytes >= 0 &&
            o.most_kept >= 0,
        "SavedTensorOffload", "sizes are not negative, and min_bytes is positive");
  check(o.slowdown >= 1, "SavedTensorOffload", "slowdown is ", o.slowdown, ", wants at least 1");
  return std::shared_ptr<SavedTensorOffload>(new SavedTensorOffload(o));
}

SavedTensorOffload::SavedTensorOffload(const OffloadOptions& options) : impl_(std::make_shared<Impl>(options)) {}
SavedTensorOffload::~SavedTensorOffload() = default;

std::shared_ptr<void> SavedTensorOffload::pack(const Tensor& t) {
  return impl_->pack(t);
}

Tensor SavedTensorOffload::unpack(const std::shared_ptr<void>& packed) {
  const std::lock_guard guard(impl_->lock);
  auto& token = *static_cast<Impl::Token*>(packed.get());
  return token.view.on(impl_->bring(*token.slot, token.user));
}

void SavedTensorOffload::ahead(std::span<Node* const> next) {
  impl_->ahead(this, next);
}

void SavedTensorOffload::set_plan(const OffloadPlan& plan) {
  const OffloadOptions& o = impl_->options;
  for (size_t i = 0; i < plan.choices.size(); ++i) {
    const SavedPlace place = plan.choices[i].place;
    check(place != SavedPlace::disk || o.disk, "SavedTensorOffload", "the plan sends tensor ", i,
          " to disk, and there is none");
    check(place != SavedPlace::recompute || o.recompute, "SavedTensorOffload", "the plan computes tensor ", i,
          " again, which the options do not allow");
  }
  const std::lock_guard guard(impl_->lock);
  impl_->fixed = true;
  impl_->adopt(plan);
}

std::optional<OffloadPlan> SavedTensorOffload::plan() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->plan;
}

void SavedTensorOffload::settle() {
  const std::lock_guard guard(impl_->lock);
  if (impl_->device.is_cuda()) cuda::synchronize(impl_->device.index);
  impl_->learn();
}

OffloadMeasured SavedTensorOffload::measured() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->passes_measured > 0 ? impl_->measured : impl_->now;
}

OffloadStats SavedTensorOffload::stats() const {
  const std::lock_guard guard(impl_->lock);
  OffloadStats s = impl_->stats;
  for (const auto& [key, d] : impl_->depots) s.host_bytes += d->host_bytes();
  return s;
}

std::vector<OffloadTransfer> SavedTensorOffload::transfers() {
  const std::lock_guard guard(impl_->lock);
  if (impl_->device.is_cuda()) cuda::synchronize(impl_->device.index);
  impl_->learn();
  return std::exchange(impl_->transfers, {});
}

// ---- scopes --------------------------------------------------------------------------------------------------------

struct SavedTensorOffload::Scope::Parts {
  explicit Parts(const std::shared_ptr<SavedTensorOffload>& offload) : hooks(offload) {
    if (!offload->impl_->options.recompute) return;
    watcher.emplace(offload->impl_);
    observed.emplace(*watcher);
  }
  SavedTensorHooksScope hooks;
  // What calls made is asked for no more: it would hold what they read.
  ~Parts() {
    if (!watcher) return;
    const std::lock_guard guard(watcher->impl->lock);
    watcher->impl->recipes.clear();
  }
  // What calls made is asked for no more: it would hold what they read.
  ~Parts() {
    if (!watcher) return;
    const std::lock_guard guard(watcher->impl->lock);
    watcher->impl->recipes.clear();
  }
  SavedTensorHooksScope hooks;
  std::optional<Impl::Watcher> watcher;
  std::optional<ObserverScope> observed;
};

SavedTensorOffload::Scope::Scope(std::shared_ptr<SavedTensorOffload> offload) {
  check(offload != nullptr, "SavedTensorOffload::Scope", "there is no offload");
  {
    const std::lock_guard guard(offload->impl_->lock);
    offload->impl_->begin_pass();
  }
  parts_ = std::make_unique<Parts>(offload);
}
SavedTensorOffload::Scope::~Scope() = default;

}  // namespace strata
