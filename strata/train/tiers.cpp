#include "strata/train/tiers.h"

#include <algorithm>

#include <fmt/format.h>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/core/error.h"
#include "strata/dist/group.h"
#include "strata/memory/bounds.h"
#include "strata/memory/disk.h"
#include "strata/memory/room_costs_inl.h"
#include "strata/memory/tiers.h"
#include "strata/memory/transfers.h"
#include "strata/optim/home.h"

namespace strata {
namespace {

Tier tier_of(Place place, Device device) {
  if (place == Place::device) return {};
  if (place == Place::disk) return memory::kDisk;
  return device.is_cuda() ? Tier(Tier::pinned) : Tier();
}

optim::StateHome home_of(const TierPlan& plan, Device device) {
  using Who = optim::StateHome::Who;
  optim::StateHome home{.where = plan.state == Place::disk ? memory::kDisk : Tier(Tier::host)};
  home.who = plan.update == Updater::cpu ? Who::cpu : plan.update == Updater::split ? Who::split : Who::device;
  // What is all in the host's memory is updated there while the next forward begins.
  home.ahead = device.is_cuda() && plan.state == Place::host && plan.parameters == Place::host && !plan.delayed;
  home.gradients_leave = home.who != Who::device && !home.ahead;
  home.delayed = plan.delayed;
  if (plan.group > 0) home.group_bytes = plan.group;
  return home;
}

// Where saved tensors go that by the plan stay, when a step finds no room within its budget after all; keep: nowhere.
SavedPlace last_place(const TierPlan& plan, Device device) {
  if (plan.budget.device == 0 || plan.layers_at_once > 0) return SavedPlace::keep;
  if (!device.is_cpu()) return SavedPlace::host;
  return plan.budget.disk.empty() ? SavedPlace::keep : SavedPlace::disk;
}

}  // namespace

Tier Tiers::weights_tier(const TierPlan& plan, Device device) {
  return tier_of(plan.parameters, device);
}

bool Tiers::uses_disk(const TierPlan& plan, Device device) {
  if (plan.budget.disk.empty()) return false;
  return plan.activations == Place::disk || plan.state == Place::disk || plan.parameters == Place::disk ||
         last_place(plan, device) == SavedPlace::disk;
}
void Tiers::use_disk(const TierPlan& plan, Device device) {
  if (uses_disk(plan, device)) memory::use_disk({.directories = plan.budget.disk});
}

Tiers::Tiers(const TierPlan& plan, const nn::Module& model, optim::Optimizer* optimizer, Device device, bool limits)
    : plan_(plan), optimizer_(optimizer), device_(device), limits_(limits) {
  const optim::StateHome home = home_of(plan, device);
  if (plan.parameters != Place::device) {
    nn::StreamOptions o{.tier = tier_of(plan.parameters, device),
                        .near_bytes = device.is_cuda() ? plan.weights_near : 0,
                        .parts_near = device.is_cuda() && plan.weights_near > 0
                                          ? 1
                                          : static_cast<int>(1 + std::max<int64_t>(plan.layers_at_once, 1)),
                        .gradients = !home.gradients_leave || home.who == optim::StateHome::Who::split,
                        .recompute = false,
                        .in_place = plan.in_place};
    if (!plan.in_place.empty()) o.in_place_tier = memory::kUnified;
    streamed_ = std::make_unique<nn::Streamed>(model, o);
  }
  if (plan.state != Place::device) optimizer->set_home(home);
  set_near(plan.near);
  const auto offload_to = [&](SavedPlace away, OffloadOptions o) {
    o.away = away;
    if (away == SavedPlace::disk) o.disk = memory::disk();
    if (away == SavedPlace::host) o.host_bytes = plan.budget.host;
    offload_ = SavedTensorOffload::create(o);
  };
  const SavedPlace last = last_place(plan, device);
  if (!plan.calls.choices.empty()) {
    offload_to(last, {.recompute = true});
    offload_->set_plan(plan.calls);
  } else if (plan.activations != Place::device && plan.layers_at_once == 0) {
    offload_to(plan.activations == Place::disk ? SavedPlace::disk : SavedPlace::host,
               {.recompute = plan.cheap_again,
                .min_bytes = plan.least,
                .keep_bytes = plan.kept,
                .fetch_bytes = std::max<int64_t>(plan.window, int64_t{1} << 20),
                .most_kept = std::max<int64_t>(plan.kept, 1)});
  } else if (last != SavedPlace::keep) {
    offload_to(last, {.min_bytes = plan.least});
    offload_->set_plan({});
  }
  if (limits && plan.budget.device > 0) limit_before_ = memory::backend(device).set_limit(device, plan.budget.device);
}

// Those of the device whose bytes are near only while they are used.
std::vector<Tier> Tiers::movable_tiers() const {
  std::vector<Tier> tiers;
  const Place inputs = plan_.layers_at_once > 0 ? plan_.activations : Place::device;  // of its groups
  for (const Place place : {plan_.parameters, plan_.state, inputs})
    if (const Tier t = tier_of(place, device_); t != Tier() && std::find(tiers.begin(), tiers.end(), t) == tiers.end())
      tiers.push_back(t);
  return tiers;
}

void Tiers::set_near(int64_t bytes) const {
  for (const Tier tier : movable_tiers()) memory::set_near_limit(bytes, device_, tier);
}

Tiers::~Tiers() {
  if (limits_ && plan_.budget.device > 0) memory::backend(device_).set_limit(device_, limit_before_);
  set_near(0);
}

Tiers::Forward::Forward(const Tiers* tiers) {
  if (tiers && tiers->offload_) saved_.emplace(tiers->offload_);
}
Tiers::Pass::Pass(const Tiers* tiers) {
  if (tiers && tiers->streamed_) streamed_.emplace(*tiers->streamed_);
}

Tiers::HeldGradients::HeldGradients(const Tiers* tiers) : streamed_(tiers ? tiers->streamed_.get() : nullptr) {
  if (streamed_) streamed_->hold_gradients(true);
}
Tiers::HeldGradients::~HeldGradients() {
  if (streamed_) streamed_->hold_gradients(false);
}
void Tiers::send_gradients() const {
  if (streamed_) streamed_->send_gradients();
}
LayeredOptions Tiers::layered() const {
  return {.blocks = plan_.layers_at_once,
          .inputs = tier_of(plan_.activations, device_),
          .leaving = plan_.leaving,
          .least = plan_.least,
          .draws = plan_.draws};
}

std::string Tiers::refuses_capture() const {
  if (plan_.layers_at_once > 0) return "the micro-batches of a step go through its layers together";
  if (plan_.parameters != Place::device) return "weights come and go with the layers";
  if (plan_.state != Place::device) return "the optimizer's state has a home from which each step fetches it";
  if (plan_.activations == Place::disk) return "activations go to a disk";
  return {};
}

void Tiers::before_capture() const {
  if (offload_) offload_->settle(plan_.pass_seconds);
}

void Tiers::add_activations(lab::Trace& trace, double begun) const {
  if (!offload_) return;
  // The store has told when it read and wrote what; who moves saved tensors does not say their names.
  for (lab::TraceTrack& t : trace.tracks)
    for (lab::TraceSpan& s : t.spans)
      if (t.kind == lab::TrackKind::disk && s.name.empty()) s.name = "activations";
  const double shift = begun - (memory::host_seconds() - offload::host_seconds());
  for (const OffloadTransfer& t : offload_->transfers()) {
    if (t.begin < shift || t.place == SavedPlace::disk) continue;
    trace.track(t.out ? "activations to host" : "activations from host")
        .spans.push_back({t.name, t.begin - shift, t.end - shift, t.bytes, t.out ? Phase::forward : Phase::backward});
  }
}

std::string Tiers::summary() const {
  using memory::bytes_text;
  std::string s;
  const auto add = [&](const std::string& text) { s += (s.empty() ? "" : "; ") + text; };
  if (offload_) {
    const OffloadStats o = offload_->stats();
    // One for the case that a step finds no room has nothing to tell where all did.
    const bool planned = !plan_.calls.choices.empty() || plan_.activations != Place::device;
    if (planned || o.sent > 0)
      add(fmt::format("activations: {} sent, {} fetched, {} computed again, {} kept, {:.3g} s waited",
                      bytes_text(o.sent), bytes_text(o.fetched), bytes_text(o.recomputed),
                      bytes_text(o.kept + o.forwarded), o.seconds_waited));
    if (o.refused > 0) add(fmt::format("{} found no room elsewhere ({})", bytes_text(o.refused), o.last_failure));
  }
  if (streamed_) {
    const nn::StreamStats w = streamed_->stats();
    add(fmt::format("weights: {} came ahead, {} late, {:.3g} s waited", bytes_text(w.bytes_ahead),
                    bytes_text(w.bytes_late), w.seconds_waited));
  }
  if (plan_.state != Place::device) {
    const optim::StateHome home = optimizer_->home();
    if (const auto times = optimizer_->ahead_times())
      add(fmt::format("update: {:.3g} s under the next forward, {:.3g} s after its step was queued", times->seconds,
                      times->until_known));
    if (home.who == optim::StateHome::Who::split && home.cpu_share >= 0)
      add(fmt::format("state: the host's processor updates {:.0f}% of it", 100 * home.cpu_share));
  }
  // On a card: what it took to get room, which no plan counts.
  const memory::RoomCosts room = memory::room_costs();
  if (room.map_seconds + room.lock_seconds >= 0.01)
    add(
        fmt::format("room: {} of the device mapped, {} unmapped in {:.3g} s; {} of the host's pages locked, {} "
                    "unlocked in {:.3g} s",
                    bytes_text(room.mapped_bytes), bytes_text(room.unmapped_bytes), room.map_seconds,
                    bytes_text(room.locked_bytes), bytes_text(room.unlocked_bytes), room.lock_seconds));
  return s;
}

void throw_advised(const TrainConfig& config, const MemoryError& e) {
  std::string advice;
  if (!config.memory.any() && distributed::size() == 1)
    advice = budget_advice(config, memory::tightest_bound(parse_device(config.device)).free() / 4 * 3);
  if (advice.empty()) throw e;
  throw MemoryError("", cat(e.what(), "\nIt would fit with ", advice));
}

}  // namespace strata
