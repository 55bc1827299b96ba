// The backward half, and what programs call.

#include "strata/autograd/offload.h"

#include <algorithm>
#include <unordered_set>

#include "strata/autograd/offload_impl_inl.h"
#include "strata/core/recording_marks.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"

namespace strata {

namespace {
// A flag that is set while one lives.
struct Set {
  explicit Set(bool& f) : flag(f), before(std::exchange(f, true)) {}
  ~Set() { flag = before; }
  Set(const Set&) = delete;
  bool& flag;
  bool before;
};
}  // namespace

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
    const Set scope(making);
    const std::vector<Ref<Storage>> made =
        offload::run(*s.recipe, [this](Slot& r, Slot::User& u) { return bring(r, u); });
    for (size_t i = 0; i < s.recipe->results.size(); ++i) {
      const std::shared_ptr<Slot> other = s.recipe->results[i].lock();
      if (!other || other->near || other->recipe != s.recipe) continue;
      other->near = made[i];  // for a recorder a storage of its own: what it is made again for was freed
      brought.push_back(other);
      stats.recomputed += other->bytes;
    }
  } else if (!s.near) {
    const auto at = static_cast<size_t>(s.order);
    if (s.pass == stats.passes && at < now.saved.size() && s.watch.alive()) now.saved[at].held = true;
    if (!s.fetching) fetch(s);
    mark(kWait);
    const double begin = offload::host_seconds();
    s.fetching = false;
    early_bytes -= s.bytes;
    s.near = s.parcel->take();
    brought.push_back(s.weak_from_this());
    strata::detail::storage_returns(*s.near, s.watch.number());
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
    takes.assign(next.size(), 0);
    std::vector<PackedTensor> packed;
    std::unordered_set<const void*> listed;  // what several nodes make theirs of again: the first takes it
    for (size_t i = 0; i < next.size(); ++i) {
      packed.clear();
      next[i]->list_packed(packed);
      for (const PackedTensor& p : packed) {
        if (p.hooks.get() != self || !listed.insert(p.value.get()).second) continue;
        const std::shared_ptr<Slot>& slot = static_cast<Token*>(p.value.get())->slot;
        takes[i] += slot->recipe ? 2 * slot->bytes : slot->bytes;
        want(slot, i);
      }
    }
  } else {
    ++node;
  }
  expected = next.size() > 1 ? next[1] : nullptr;
  while (!early.empty()) {  // had by now
    const std::shared_ptr<Slot> s = early.front().slot.lock();
    if (s && s->fetching) break;
    early.pop_front();
  }
  int64_t taken = 0;
  size_t looked = node;
  while (!wanted.empty()) {
    // Taken out before it is fetched: whoever finds no memory meanwhile puts others back in front.
    const Wanted next = wanted.front();
    const std::shared_ptr<Slot> s = next.slot.lock();
    if (!s || s->source || s->near || s->fetching) {
      wanted.pop_front();
      continue;
    }
    const bool soon = next.node <= node + 1;
    // Until it is used it stands beside what is taken meanwhile.
    for (; looked < next.node; ++looked) taken = std::max(taken, takes[looked]);
    const int64_t live = memory::stats(s->device).live_total + taken;
    if (!soon && live + s->bytes > std::min(most_live + options.fetch_bytes, ceiling)) return;
    wanted.pop_front();
    const Set fetching(looking_ahead);
    try {
      fetch(*s);
      early.push_back(next);
    } catch (const MemoryError&) {  // backward asks again, with more room or this error
      wanted.push_front(next);
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
  check(o.away != SavedPlace::recompute, "SavedTensorOffload", "tensors go to host or disk, or stay, not to ",
        name_of(o.away));
  check(o.away != SavedPlace::keep || o.recompute, "SavedTensorOffload",
        "nothing leaves, and nothing is computed again: there is nothing to do");
  check(o.away != SavedPlace::disk || o.disk, "SavedTensorOffload", "goes to disk, and has none");
  check(o.min_bytes > 0 && o.keep_bytes >= 0 && o.queue_bytes >= 0 && o.fetch_bytes >= 0 && o.host_bytes >= 0 &&
            o.most_kept >= 0,
        "SavedTensorOffload", "sizes are not negative, and min_bytes is positive");
  check(o.slowdown >= 1, "SavedTensorOffload", "slowdown is ", o.slowdown, ", wants at least 1");
  return std::shared_ptr<SavedTensorOffload>(new SavedTensorOffload(o));
}

SavedTensorOffload::SavedTensorOffload(const OffloadOptions& options) : impl_(std::make_shared<Impl>(options)) {
  memory::add_reliever(impl_);
}
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
    check(place != SavedPlace::host || o.away != SavedPlace::keep, "SavedTensorOffload", "the plan sends tensor ", i,
          " to the host, and by the options none leaves");
    check(place != SavedPlace::recompute || o.recompute, "SavedTensorOffload", "the plan computes tensor ", i,
          " again, which the options do not allow");
  }
  const std::lock_guard guard(impl_->lock);
  impl_->fixed = true;
  impl_->measuring = false;
  impl_->adopt(plan);
}

std::optional<OffloadPlan> SavedTensorOffload::plan() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->plan;
}

void SavedTensorOffload::settle(double pass_seconds) {
  check(pass_seconds >= 0, "SavedTensorOffload", "a pass does not take ", pass_seconds, " seconds");
  const std::lock_guard guard(impl_->lock);
  if (impl_->device.is_cuda()) cuda::synchronize(impl_->device.index);
  impl_->learn();
  if (pass_seconds > 0) impl_->shorten(pass_seconds);
  for (auto& [key, d] : impl_->depots) d->rest();
}

bool SavedTensorOffload::settled() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->settled();
}

OffloadMeasured SavedTensorOffload::measured() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->passes_measured > 0 ? impl_->measured : impl_->now;
}

OffloadStats SavedTensorOffload::stats() const {
  const std::lock_guard guard(impl_->lock);
  OffloadStats s = impl_->stats;
  s.host_bytes = impl_->host_bytes();
  s.device_peak = memory::stats(impl_->device).peak_total;
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
