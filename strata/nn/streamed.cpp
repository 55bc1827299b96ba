#include "strata/nn/streamed.h"

#include <algorithm>
#include <map>

#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/rebind.h"
#include "strata/core/recording_marks.h"
#include "strata/core/storage_watch.h"
#include "strata/memory/transfers.h"
#include "strata/nn/streamed_inl.h"

namespace strata::nn {
namespace {

using strata::detail::here;

bool is_container(const Module& m) {
  return m.kind() == "ModuleList" || m.kind() == "Sequential";
}
bool has_container(const Module& m) {
  return std::ranges::any_of(m.named_modules(), [](const auto& entry) { return is_container(entry.second); });
}
std::string below(const std::string& at, const std::string& name) {
  return at.empty() ? name : at + "." + name;
}

// Its elements, counted as written as often as before, so that what was made of them (an optimizer's weights in f32) is
// still known to be of them.
void move_home(const Tensor& t, Tier tier) {
  NoGrad guard;
  const Tensor grad = t.grad();
  {
    const memory::TagScope tag(memory::Tag::parameter);
    const Tensor there = t.detach().to(tier);
    there.storage()->version.store(t.version(), std::memory_order_relaxed);
    autograd_meta(t).low = {};
    rebind(t, there);
  }
  if (!grad.defined() || grad.tier() == tier) return;
  const memory::TagScope tag(memory::Tag::gradient);
  Tensor(t).set_grad(grad.to(tier));
}

}  // namespace

Streamed::State::State(const Module& module, const StreamOptions& o) : options(o), near_bytes(o.near_bytes) {
  check(o.near_bytes >= 0 && o.parts_near >= 1, "Streamed",
        "near_bytes is not negative and parts_near at least 1, got ", o.near_bytes, " and ", o.parts_near);
  const NamedTensors all = module.named_parameters();
  for (const std::string& name : o.in_place)
    check(std::ranges::any_of(all, [&](const auto& p) { return p.first == name; }), "Streamed",
          "in_place names no parameter: '", name, "'");
  for (const std::string& name : o.leave_out)
    check(std::ranges::any_of(all, [&](const auto& p) { return p.first == name; }), "Streamed",
          "leave_out names no parameter: '", name, "'");
  find_parts(module);
  int64_t largest = 0;
  for (const Part& p : parts) largest = std::max(largest, p.shown.bytes);
  if (near_bytes == 0) near_bytes = o.parts_near * largest;
  for (const Part& p : parts)
    check(p.shown.bytes <= near_bytes, "Streamed", "'", p.shown.name, "' has ", p.shown.bytes,
          " bytes of parameters, which are wanted at once; near_bytes is ", near_bytes);
}

Streamed::State::~State() {
  for (Slot& s : slots) s.hook.remove();
}

void Streamed::State::add_part(const std::string& name, const NamedTensors& parameters) {
  if (parameters.empty()) return;
  Part& part = parts.emplace_back();
  part.shown.name = name;
  for (const auto& [full, t] : parameters) {
    part.slots.push_back(slots.size());
    const bool in_place = is_in_place(full);
    slots.push_back({.name = full, .parameter = t, .part = parts.size() - 1, .in_place = in_place});
    if (!in_place) part.shown.bytes += here(t).nbytes();
  }
}

bool Streamed::State::is_in_place(const std::string& name) const {
  return std::ranges::find(options.in_place, name) != options.in_place.end();
}

// `inside`: of a container's item.
void Streamed::State::descend(const Module& module, const std::string& at, bool inside,
                              std::vector<const TensorImpl*>& seen) {
  NamedTensors all, own;
  int64_t bytes = 0;
  for (const auto& [name, t] : module.named_parameters()) {
    if (std::ranges::find(seen, &t.impl()) != seen.end()) continue;
    all.emplace_back(below(at, name), t);
    if (!is_in_place(all.back().first)) bytes += here(t).nbytes();
    if (name.find('.') == std::string::npos) own.push_back(all.back());
  }
  const auto children = module.named_children();
  const int64_t most = near_bytes > 0 ? near_bytes / options.parts_near : INT64_MAX;
  const bool divides = at.empty() || is_container(module) || (!inside && has_container(module)) || bytes > most;
  const NamedTensors& here = divides && !children.empty() ? own : all;
  for (const auto& [name, t] : here) seen.push_back(&t.impl());
  std::string name = at;
  if ((&here == &own || at.empty()) && !here.empty()) {
    name = here[0].first;
    for (size_t i = 1; i < here.size(); ++i) name += ", " + here[i].first;
  }
  add_part(name, here);
  if (&here == &all) return;
  for (const auto& [child_name, child] : children)
    descend(child, below(at, child_name), inside || is_container(module), seen);
}

void Streamed::State::find_parts(const Module& module) {
  std::vector<const TensorImpl*> seen;
  for (const auto& [name, t] : module.named_parameters())
    if (std::ranges::find(options.leave_out, name) != options.leave_out.end()) seen.push_back(&t.impl());
  // Several on one storage, or a part of one: moving them would part them.
  std::map<const Storage*, std::vector<std::string>> on;
  for (const auto& [name, t] : module.named_parameters())
    if (std::ranges::find(seen, &t.impl()) == seen.end()) on[here(t).storage().get()].push_back(name);
  for (const auto& [name, t] : module.named_parameters()) {
    if (std::ranges::find(seen, &t.impl()) != seen.end()) continue;
    const auto& names = on[here(t).storage().get()];
    const bool alone = names.size() == 1;
    // What lies in parts goes to no other tier; who made it for this one has it there.
    const bool stays = is_placed(t) && !is_in_place(name) && here(t).tier() != options.tier;
    if (alone && !stays && here(t).nbytes() == static_cast<int64_t>(here(t).storage()->nbytes)) continue;
    seen.push_back(&t.impl());
    parts.push_back({.shown = {.name = name, .bytes = 0}});
    parts.back().shown.note =
        stays   ? "is a sharded tensor: stays where it is"
        : alone ? "is a part of a larger tensor: stays where it is"
                : cat("shares its bytes with '", name == names[0] ? names[1] : names[0], "': stays where it is");
  }
  descend(module, "", false, seen);
}

void Streamed::State::refresh() {
  for (size_t i = 0; i < slots.size(); ++i) {
    Slot& s = slots[i];
    const Tensor& t = s.parameter;
    if (s.home != here(t).storage()) {
      const Tier tier = s.in_place ? options.in_place_tier : options.tier;
      const memory::Backend& backend = memory::backend(t.device(), tier);
      check(backend.bytes == memory::Bytes::movable || s.in_place, "Streamed", "memory of tier '", backend.tier.name(),
            "' of ", t.device(), " does not move: what lives there is read in place");
      check(backend.bytes == memory::Bytes::fixed || !s.in_place, "Streamed", "'", s.name,
            "' is to be read in place, but bytes of tier '", backend.tier.name(), "' of ", t.device(), " move");
      if (here(t).tier() != backend.tier) move_home(t, backend.tier);
      if (s.home) keys.erase(s.home.get());
      s.home = here(t).storage();
      keys[s.home.get()] = 2 * i;
    }
    settle_low(s);
    if (options.gradients && !s.hooked && t.requires_grad() && t.is_leaf()) {
      s.hooked = true;
      s.hook = register_post_accumulate_grad_hook(t, [this, name = s.name](const Tensor& leaf) {
        if (!holds_gradients) send_gradient(leaf, name);
      });
    }
  }
}

void Streamed::State::send_gradient(const Tensor& leaf, const std::string& name) const {
  const Tensor g = leaf.grad();
  if (!g.defined() || g.requires_grad() || g.tier() == memory::backend(g.device(), options.tier).tier) return;
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::gradient);
  const memory::MovedName moved([&] { return "gradient of " + name; });
  const Tensor there = g.to(options.tier);
  strata::detail::storage_returns(*there.storage(), strata::detail::watch_number(*g.storage()));
  Tensor(leaf).set_grad(there);
}

// Autocast's copy, which it made where it was, goes to the tier.
void Streamed::State::settle_low(Slot& s) {
  const auto slot = static_cast<size_t>(&s - slots.data());
  const AutogradMeta* known = s.parameter.impl().autograd.get();
  const Tensor low = known ? known->low.tensor : Tensor();
  if (low.defined() && here(low).tier() != memory::backend(low.device(), options.tier).tier) {
    const strata::detail::ThreadModeScope plain({false, 0});
    const memory::TierScope own{Tier()};
    Tensor there = here(low).to(options.tier);
    if (is_placed(low)) there = strata::detail::place(there, low.meta(), layout_of(low));
    autograd_meta(s.parameter).low.tensor = there;
    set_low(slot, there);
  } else {
    set_low(slot, low);
  }
}

void Streamed::State::set_low(size_t slot, const Tensor& low) {
  Slot& s = slots[slot];
  if (s.low.defined()) keys.erase(here(s.low).storage().get());
  s.low = low;
  if (low.defined()) keys[here(low).storage().get()] = 2 * slot + 1;
}

// nullptr for what is read in place, and for a copy that is not of the parameter's values any more.
Storage* Streamed::State::storage_of(Key key) const {
  const Slot& s = slots[key / 2];
  if (key % 2 == 0) return s.in_place ? nullptr : s.home.get();
  if (!s.low.defined() || !autograd_meta(s.parameter).low.is_current(s.parameter, s.low.dtype())) return nullptr;
  return here(s.low).storage().get();
}

void move_parameters(const Module& module, Tier tier) {
  std::map<const Storage*, int> on;
  for (const Tensor& t : module.parameters()) ++on[t.storage().get()];
  for (const Tensor& t : module.parameters()) {
    const bool alone = on[t.storage().get()] == 1 && t.nbytes() == static_cast<int64_t>(t.storage()->nbytes);
    const Tier there = memory::backend(t.device(), tier).tier;
    if (alone && t.nbytes() > 0 && t.tier() != there) move_home(t, there);
    if (const Tensor g = t.grad(); g.defined() && g.tier() != there) {
      const NoGrad guard;
      const memory::TagScope tag(memory::Tag::gradient);
      Tensor(t).set_grad(g.to(there));
    }
  }
}

Streamed::Streamed(const Module& module, const StreamOptions& options)
    : state_(std::make_unique<State>(module, options)) {
  state_->refresh();
}
Streamed::~Streamed() = default;

void Streamed::hold_gradients(bool yes) {
  state_->holds_gradients = yes;
}
void Streamed::send_gradients() {
  if (!state_->options.gradients) return;
  for (const State::Slot& s : state_->slots)
    if (s.hooked) state_->send_gradient(s.parameter, s.name);
}

std::vector<StreamedPart> Streamed::State::shown_parts() const {
  std::vector<StreamedPart> all;
  for (const Part& p : parts) {
    StreamedPart shown = p.shown;
    if (shown.note.empty() && p.unforeseen) shown.note = "came out of turn: steps are not alike";
    if (shown.note.empty() && shown.reads > 1) shown.note = cat("its turn comes ", shown.reads, " times in a forward");
    all.push_back(std::move(shown));
  }
  return all;
}

std::vector<StreamedPart> Streamed::parts() const {
  return state_->shown_parts();
}

std::vector<StreamedPart> parts_of(const Module& module, const StreamOptions& options) {
  return Streamed::State(module, options).shown_parts();
}

int64_t Streamed::near_bytes() const {
  return state_->near_bytes;
}

StreamStats Streamed::stats() const {
  return state_->stats;
}

std::string Streamed::report() const {
  std::string text;
  for (const StreamedPart& p : parts())
    text += cat(p.name, ": ", p.bytes, " bytes", p.note.empty() ? "" : "; ", p.note, "\n");
  const StreamStats s = stats();
  return text + cat(s.bytes_ahead, " bytes came ahead, ", s.bytes_late, " late, in ", s.visits, " turns, ",
                    s.unforeseen, " of them unforeseen; ", s.seconds_waited, " s waited\n");
}

}  // namespace strata::nn
