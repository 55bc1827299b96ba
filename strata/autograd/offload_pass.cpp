// The forward half: what is saved, where it goes, and what a pass tells the next.

#include <algorithm>

#include "strata/autograd/offload_impl_inl.h"
#include "strata/core/saving.h"
#include "strata/cuda/graph.h"
#include "strata/memory/allocator.h"
#include "strata/memory/transfers.h"

namespace strata {
namespace {

// Passes that are measured before the plan stays: the first is followed by no plan, so its waiting distorts the next.
constexpr int kMeasuredPasses = 3;
// Passes that make page-locked memory stand still meanwhile: so many of them are not measured.
constexpr int kColdPasses = 3;
// Transfers that a log keeps.
constexpr size_t kMostLogged = 100'000;
// Copies of fewer bytes cost a card more than they give.
constexpr int64_t kLeastOnCard = 64 << 10;
// Operations a byte of memory traffic up to which a call counts as cheap where nothing was measured yet.
constexpr double kCheapFlops = 32;
// What devices do in a second, about: measured passes correct both by one factor.
constexpr double kCardFlops = 500e12, kCardBytes = 3e12, kHostFlops = 100e9, kHostBytes = 20e9;
// Bytes a second of links that nothing has gone over yet.
constexpr double kCardLink = 40e9, kOtherLink = 2e9;
// A bound on what stays comes before time.
constexpr double kAnyCost = 100;

}  // namespace

// ---- the pass ------------------------------------------------------------------------------------------------------

void SavedTensorOffload::Impl::begin_pass() {
  if (!cuda::capturing()) learn();
  ++stats.passes;
  seen.clear();
  brought.clear();
  staying.clear();
  recipes.begin();
  marks.clear();
  order = 0;
  forward = true;
  reached_backward = reached_end = false;
  most_live = 0;
  now = {};
  following = plan.has_value();
  measuring = !settled() && !cuda::capturing();
  clock.reset();
  host_before = host_bytes();
  logging = options.log || memory::transfers_wanted();
  if (!logging) transfers = {};  // of a tracer's time, and nobody has taken them
  for (auto& [key, d] : depots) d->set_timing(measuring || logging);
  mark(kBegin);
}

void SavedTensorOffload::Impl::mark(int32_t what) {
  if (!measuring) return;
  if (!clock || !(clock_device == device)) {
    marks.clear();
    clock = offload::make_clock(device);
    clock_device = device;
    if (what != kBegin) {  // the first pass begins when it is known where
      marks.push_back(kBegin);
      clock->mark();
    }
  }
  marks.push_back(what);
  clock->mark();
}

// Makes a plan of the pass before, where that was measured whole. Waits for it then: a few passes are.
void SavedTensorOffload::Impl::learn() {
  const bool whole = measuring && reached_end && !marks.empty();
  std::vector<OffloadTransfer> copies;
  for (auto& [key, d] : depots) d->take_transfers(copies, whole);
  std::sort(copies.begin(), copies.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  if (whole && host_bytes() > host_before && cold_passes < kColdPasses) {
    measuring = false;
    ++cold_passes;
  } else if (whole) {
    measuring = false;
    read_clock();
    read_rates(copies);
    now.backward_seconds = std::max(now.backward_seconds - seconds_again(now), 0.0);
    // What stayed because others hold it was not looked at again.
    for (size_t i = 0; following && i < std::min(now.saved.size(), measured.saved.size()); ++i)
      now.saved[i].held |= measured.saved[i].held && now.saved[i].place == SavedPlace::keep;
    measured = now;
    ++passes_measured;
    plan_for(measured);
    planned_bytes.clear();
    for (const SavedRecord& r : measured.saved) planned_bytes.push_back(r.bytes);
  }
  if (!logging) return;
  transfers.insert(transfers.end(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
  if (transfers.size() > 2 * kMostLogged) transfers.erase(transfers.begin(), transfers.end() - kMostLogged);
}

void SavedTensorOffload::Impl::plan_for(const OffloadMeasured& m) {
  adopt(plan_offload(m, {.slowdown = options.most_kept > 0 ? kAnyCost : options.slowdown,
                         .keep_bytes = options.most_kept,
                         .recompute = options.recompute,
                         .away = options.away}));
}

// The plan again, of a pass that takes less than the measured one did.
void SavedTensorOffload::Impl::shorten(double pass_seconds) {
  const double measured_seconds = measured.forward_seconds + measured.backward_seconds;
  if (fixed || passes_measured == 0 || measured_seconds <= pass_seconds) return;
  const double part = pass_seconds / measured_seconds;
  OffloadMeasured m = measured;
  for (SavedRecord& s : m.saved) s.seconds *= part;
  m.forward_seconds *= part, m.backward_seconds *= part;
  m.seconds_per_flop *= part, m.seconds_per_byte *= part;
  plan_for(m);
}

bool SavedTensorOffload::Impl::settled() const {
  return fixed || !options.adaptive || passes_measured >= kMeasuredPasses;
}

int64_t SavedTensorOffload::Impl::host_bytes() const {
  int64_t all = 0;
  for (const auto& [key, d] : depots) all += d->host_bytes();
  return all;
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
  double bytes[2] = {}, seconds[2] = {}, until[2] = {};
  for (const OffloadTransfer& c : copies) {  // by their beginnings; several may be under way at once
    bytes[c.out] += static_cast<double>(c.bytes);
    seconds[c.out] += std::max(c.end - std::max(c.begin, until[c.out]), 0.0);
    until[c.out] = std::max(until[c.out], c.end);
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
  return original == nullptr || !original->requires_grad() || !offload::stays(*original);
}

std::shared_ptr<void> SavedTensorOffload::Impl::pack(const Tensor& t) {
  if (!may_move(t)) return strata::detail::keep_as_it_is();
  const std::lock_guard guard(lock);
  device = t.device();
  if (!forward) begin_pass();
  if (device.is_meta()) measuring = false;
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
      passes_measured = cold_passes = 0;
    }
  }
  // Recipes read slots, so what comes before one has a slot; and a pass that is measured ends with its last slot. What
  // stays leaves where a request finds no room, but for a graph, whose memory is what it was captured with.
  const bool may_be_read = measuring || (options.recompute && place <= last_recomputed);
  const bool may_leave = options.away != SavedPlace::keep && !cuda::capturing();
  if (following && choice(place).place == SavedPlace::keep && !may_be_read && !may_leave) {
    seen[number] = {version, true, {}};
    stats.kept += bytes;
    retire();
    return strata::detail::keep_as_it_is();
  }
  const std::shared_ptr<Slot> slot(new Slot(*t.storage(), stats.passes, place), [this](Slot* s) { slot_ends(s); });
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
  if (s->pass != stats.passes) return stay(*s, stats.kept);  // another thread has begun one meanwhile
  Recipes::Way way;
  if (options.recompute) {
    way = recipes.find(*s, find_saved());
    if (way.recipe) {
      SavedRecord& r = now.saved[static_cast<size_t>(s->order)];
      r.call = way.recipe->number;
      r.cost = way.cost;
      r.beside = way.beside;
      for (const auto& read : way.reads) r.reads.push_back(read->order);
      // Before anything is measured: cheap calls, from what is there.
      const bool cheap = way.cost.flops <= kCheapFlops * way.cost.bytes &&
                         std::none_of(way.reads.begin(), way.reads.end(), [](const auto& x) { return x->recipe; });
      if (!following && !cheap) way.recipe = nullptr;
    }
  }
  OffloadPlan::Choice chosen{way.recipe ? SavedPlace::recompute : options.away};
  if (following) chosen = choice(s->order);
  if (chosen.place == SavedPlace::recompute && !way.recipe) chosen.place = SavedPlace::keep;
  s->place = now.saved[static_cast<size_t>(s->order)].place = chosen.place;
  s->release_at = chosen.release_at;
  if (chosen.place == SavedPlace::keep) {
    stay(*s, stats.kept);
    if (options.away != SavedPlace::keep) staying.push_back(s);
  } else if (chosen.place == SavedPlace::recompute) {
    recipes.bind(*way.recipe, find_saved());
    const auto at = static_cast<size_t>(way.result);
    if (way.recipe->results.size() <= at) way.recipe->results.resize(at + 1);
    way.recipe->results[at] = s;
    s->recipe = std::move(way.recipe);
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
  for (auto& [key, d] : depots) d->poll();
  while (!leaving.empty()) {
    const std::shared_ptr<Slot> s = leaving.front().lock();
    if (s && s->leaving) {
      // Backward uses the last of them where they are.
      const bool planned = s->release_at != OffloadPlan::kNever;
      const bool due = planned ? order >= s->release_at || !forward : forward && leaving_bytes > options.queue_bytes;
      if (!due && (cuda::capturing() || !(planned || forward) || !s->parcel->sent())) return;
      s->leaving = false;
      leaving_bytes -= s->bytes;
      leaving.pop_front();  // before: whoever finds no memory meanwhile goes through the queue too
      release(*s);
      continue;
    }
    leaving.pop_front();
  }
}

// Of what backward has brought or made and nobody uses now, what it wants last: it is brought or made once more then.
int64_t SavedTensorOffload::Impl::let_go(int64_t bytes) {
  std::vector<std::shared_ptr<Slot>> idle;
  for (const auto& weak : brought)
    if (std::shared_ptr<Slot> s = weak.lock(); s && s->near && s->near.use_count() == 1) idle.push_back(std::move(s));
  std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a->order < b->order; });
  int64_t given = 0;
  for (const auto& s : idle) {
    if (given >= bytes) break;
    if (!s->near) continue;
    s->near.reset();
    given += s->bytes;
  }
  return given;
}

// Of what was to stay and nobody uses now, the next that goes after all: what was saved first, which backward wants last.
bool SavedTensorOffload::Impl::send_one_staying() {
  while (!staying.empty()) {
    const std::shared_ptr<Slot> s = staying.front().lock();
    staying.pop_front();
    if (!s || !s->source || s->parcel || s->source.use_count() > 1) continue;
    s->place = options.away;
    send(s);
    if (s->leaving) return true;
  }
  return false;
}

// Room is wanted now: those on their way out are waited for, first sent first, of those that were to stay for a while the
// oldest follow, and at last of those that were to stay.
bool SavedTensorOffload::Impl::relieve(Device wanted_of, int64_t bytes) noexcept {
  const std::unique_lock guard(lock, std::try_to_lock);
  if (!guard || cuda::capturing() || !(wanted_of == device)) return false;
  int64_t given = 0;
  try {
    while (given < bytes) {
      if (!leaving.empty()) {
        const std::shared_ptr<Slot> s = leaving.front().lock();
        leaving.pop_front();
        if (!s || !s->leaving) continue;
        s->leaving = false;
        leaving_bytes -= s->bytes;
        release(*s);
        if (!s->source) given += s->bytes;
      } else if (forward && !window.empty()) {
        const std::shared_ptr<Slot> first = window.front().lock();
        window.pop_front();
        if (!first || !first->waits) continue;
        first->waits = false;
        window_bytes -= first->bytes;
        send(first);
      } else if (!forward && !early.empty() && !looking_ahead) {
        // What came back first of all that is not wanted yet: it will come once more.
        ceiling = std::min(ceiling, memory::stats(device).live_total - bytes);
        const Wanted last = early.back();
        early.pop_back();
        const std::shared_ptr<Slot> s = last.slot.lock();
        if (!s || !std::exchange(s->fetching, false)) continue;
        early_bytes -= s->bytes;
        (void)s->parcel->take();
        wanted.push_front(last);
        given += s->bytes;
      } else {
        if (!forward && !looking_ahead) given += let_go(bytes - given);
        if (given >= bytes || looking_ahead || !send_one_staying()) break;
      }
    }
  } catch (const Error& e) {  // what it holds stays held
    stats.last_failure = e.what();
  }
  return given > 0;
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
  std::unique_ptr<Depot> made;
  if (d.is_meta() || (place == SavedPlace::host && d.is_cpu())) {
    made = offload::make_plain_depot();
  } else if (place == SavedPlace::host) {
    made = offload::make_pinned_depot(d, options.host_bytes);
  } else if (d.is_cpu()) {
    made = offload::make_disk_depot(options.disk);
  } else {
    made = offload::make_card_disk_depot(d, options.disk, options.host_bytes);
  }
  made->set_timing(measuring || logging);
  depots.emplace_back(std::pair(d, place), std::move(made));
  return *depots.back().second;
}

}  // namespace strata
