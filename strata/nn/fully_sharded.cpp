#include "strata/nn/fully_sharded.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "strata/core/node.h"
#include "strata/core/rebind.h"
#include "strata/cuda/graph.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/part_gather_inl.h"
#include "strata/dist/parts_inl.h"
#include "strata/dist/rank_memory_inl.h"
#include "strata/dist/sharded_gradients_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "FullySharded";

using namespace distributed;

// The parts of the parameters of all that live, by the parameter's storage, and along which axis they lie.
std::mutex g_parts_mutex;
std::map<const Storage*, std::pair<Tensor, std::string>> g_parts;

// A gradient that the optimizer reads, or its sum with the one that is there.
void give_gradient(Tensor& to, const Tensor& gradient) {
  if (const Tensor had = to.grad(); had.defined()) {
    Tensor(local(had)).add_(local(gradient));
    return;
  }
  to.set_grad(gradient);
}

}  // namespace

struct FullySharded::State {
  struct Slot {
    std::string name;
    Tensor whole;    // the module's
    Cut cut;         // none: of no dimension, or no element
    Tensor part;     // this rank's, a view of `whole` or the memory that stays
    Tensor updated;  // what the optimizer has: of the part, or `whole` itself
    bool moved = false;
    RankUnit* unit = nullptr;  // of what was moved: it comes with its block
    Tensor low;                // autocast's copy as it lies in parts, which then comes in its place
    Tensor low_part;           // this rank's
  };

  State(const Module& module, const FullyShardedOptions& o);
  ~State();
  void add(const std::string& name, const Tensor& whole, bool alone);
  void make_units();
  void renew_low();
  void average_small();
  Tensor as_whole_is(const Slot& s, const Tensor& part) const;

  FullyShardedOptions options;
  Group& group;
  Group& gathers;              // the same ranks: what travels there waits for no gradient
  Group& all;                  // replicas included
  Group* near = nullptr;       // of 3: where blocks lie between forward and backward, of some neighbours
  std::deque<RankUnit> units;  // outlive the slots
  std::vector<Slot> slots;
  std::vector<size_t> reduced;                    // slots, as `gradients` has them
  std::unique_ptr<DataParallel> whole_gradients;  // of 1
  std::unique_ptr<ShardedGradients> gradients;    // of 2 and 3
  std::unique_ptr<Streamed> streamed;             // of 3
};

FullySharded::State::State(const Module& module, const FullyShardedOptions& o)
    : options(o),
      group(distributed::group(o.axis)),
      gathers(distributed::group(o.axis + "+" + o.axis)),
      all(distributed::group(o.replicas.empty() ? o.axis : o.replicas + "+" + o.axis)) {
  check(o.zero >= 1 && o.zero <= 3, kOp, "zero is 1, 2 or 3, got ", o.zero);
  check(o.whole_below >= 0, kOp, "whole_below is not negative, got ", o.whole_below);
  check(all.size() == group.size() * (o.replicas.empty() ? 1 : distributed::group(o.replicas).size()), kOp,
        "the axes '", o.axis, "' and '", o.replicas, "' have one in common");
  check(o.reshard_to >= 0 && (o.reshard_to == 0 || group.size() % o.reshard_to == 0), kOp, "reshard_to is ",
        o.reshard_to, ", which does not divide the ", group.size(), " ranks of '", o.axis, "'");
  if (o.zero == 3 && o.reshard_to > 1 && o.reshard_to < group.size())
    near = &distributed::group(cat(gathers.name(), ':', o.reshard_to));
  NamedTensors ours;
  std::map<const Storage*, int> on;  // several on one storage, or a part of one: moving them would part them
  for (const auto& [name, t] : module.named_parameters()) {
    ++on[t.storage().get()];
    if (t.requires_grad() || (o.zero == 3 && is_floating(t.dtype()) && t.is_contiguous())) ours.emplace_back(name, t);
  }
  for (const auto& [name, t] : ours) {
    check<DeviceError>(t.device() == ours[0].second.device(), kOp, name, " is on ", t.device(), ", ", ours[0].first,
                       " on ", ours[0].second.device(), ": all parameters of a rank must be on one device");
    check(!is_placed(t), kOp, name, " is a sharded tensor already");
    check(t.is_contiguous(), kOp, name, " is not row-major");
  }
  check_same_parameters(kOp, ours, all);
  broadcast_parameters(ours, all);
  for (const auto& [name, t] : ours)
    add(name, t, on[t.storage().get()] == 1 && t.nbytes() == static_cast<int64_t>(t.storage()->nbytes));

  Group* const replicas = o.replicas.empty() ? nullptr : &distributed::group(o.replicas);
  NamedTensors averaged;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].whole.requires_grad() || (o.zero > 1 && slots[i].cut.begins.empty())) continue;
    averaged.emplace_back(slots[i].name, slots[i].whole);
    reduced.push_back(i);
  }
  if (o.zero == 1) {
    whole_gradients =
        std::make_unique<DataParallel>(averaged, all, DataParallelOptions{.bucket_bytes = o.bucket_bytes});
    return;
  }
  gradients = std::make_unique<ShardedGradients>(
      averaged, group,
      ShardedGradients::Options{
          .bucket_bytes = o.bucket_bytes, .every_pass = o.zero == 3 && o.reduce_every_pass, .replicas = replicas});
  if (o.zero == 2) return;
  StreamOptions stream{.tier = kRanks, .gradients = false, .recompute = false, .whole_parts = true};
  if (o.reshard_to == 1) stream.near_bytes = INT64_MAX / 4;
  for (const auto& [name, t] : module.named_parameters())
    if (t.tier() != kRanks && on[t.storage().get()] <= 1) stream.in_place.push_back(name);
  streamed = std::make_unique<Streamed>(module, stream);
  make_units();
}

FullySharded::State::~State() {
  const std::lock_guard lock(g_parts_mutex);
  for (const Slot& s : slots)
    if (s.moved) g_parts.erase(s.whole.storage().get());
}

void FullySharded::State::add(const std::string& name, const Tensor& whole, bool alone) {
  NoGrad guard;
  Slot& s = slots.emplace_back();
  s.name = name;
  s.whole = whole;
  s.updated = whole;
  if (whole.dim() == 0 || whole.numel() == 0) return;
  s.cut = Cut(whole.shape(), group.size());
  s.moved = options.zero == 3 && alone && whole.numel() >= options.whole_below;
  if (s.moved) {
    const memory::TagScope tag(memory::Tag::parameter);
    s.part = s.cut.part(whole.detach(), group.rank()).clone();
    s.unit = &units.emplace_back();
    const Tensor lies = tensor_of_parts(s.part, whole.shape(), name, gathers, *s.unit);
    lies.storage()->version.store(whole.version(), std::memory_order_relaxed);
    Tensor(whole).set_grad(Tensor());
    autograd_meta(whole).low = {};
    rebind(whole, lies);
    const std::lock_guard lock(g_parts_mutex);
    g_parts[whole.storage().get()] = {s.part, options.axis};
  } else {
    s.part = s.cut.part(whole.detach(), group.rank());
  }
  if (!whole.requires_grad()) return;
  s.updated = as_whole_is(s, s.part);
  s.updated.set_requires_grad();
}

// A part as a sharded tensor.
Tensor FullySharded::State::as_whole_is(const Slot& s, const Tensor& part) const {
  return from_local(part, "S(0)", s.whole.shape(), options.axis);
}

// What a block has comes as a whole: ranks that do not use all of it gather it with the others.
void FullySharded::State::make_units() {
  std::map<std::string, RankUnit*> of;  // by the part's name
  for (Slot& s : slots) {
    if (!s.moved) continue;
    for (const StreamedPart& p : streamed->parts()) {
      const std::string list = ", " + p.name + ", ";
      if (!s.name.starts_with(p.name + ".") && list.find(", " + s.name + ", ") == std::string::npos) continue;
      RankUnit*& first = of[p.name];
      if (first)
        first->join(*s.unit);
      else
        first = s.unit;
      s.unit = first;
      break;
    }
  }
}

// Autocast's copies are of the parts as they are now.
void FullySharded::State::renew_low() {
  NoGrad guard;
  for (Slot& s : slots) {
    if (!s.moved) continue;
    const AutogradMeta* const known = s.whole.impl().autograd.get();
    if (!known || !known->low.tensor.defined()) continue;
    if (!s.low.defined() || s.low.storage() != known->low.tensor.storage()) {
      const DType dtype = known->low.tensor.dtype();
      const memory::TagScope tag(memory::Tag::parameter);
      s.low_part = empty(TensorMeta{s.part.shape(), dtype, s.part.device(), std::nullopt}, Tier());
      if (!s.low.defined()) {
        RankUnit& alone = units.emplace_back();
        alone.only_when_wanted();
        s.unit->give(s.part, alone);
      }
      s.low = tensor_of_parts(s.low_part, s.whole.shape(), cat(s.name, " in ", dtype), gathers, *s.unit);
    }
    copy_elements(s.low_part, s.part);
    bump_version(s.low_part, kOp);
    autograd_meta(s.whole).low = {s.low, s.whole.version()};
  }
}

// Gradients that are not cut: few, and small.
void FullySharded::State::average_small() {
  for (Slot& s : slots) {
    if (!s.whole.requires_grad() || !s.cut.begins.empty()) continue;
    const Tensor had = s.whole.grad();
    uint8_t used = had.defined() ? 1 : 0;
    const Tensor g = used ? had.contiguous() : zeros(s.whole.shape(), s.whole.dtype()).to(s.whole.device());
    all.run(g.device(), cat("gradient of ", s.name),
            [&](Collectives& c) { c.all_reduce(g.raw_data(), g.numel(), g.dtype(), Reduction::avg); });
    if (!cuda::capturing())
      all.run("used", [&](Communicator& c) { c.all_reduce(&used, 1, DType::u8, Reduction::max); });
    if (used) s.whole.set_grad(g);
  }
}

FullySharded::FullySharded(const Module& module, const FullyShardedOptions& options)
    : state_(std::make_unique<State>(module, options)) {}
FullySharded::~FullySharded() = default;

NamedTensors FullySharded::parameters() const {
  NamedTensors named;
  for (const State::Slot& s : state_->slots)
    if (s.whole.requires_grad()) named.emplace_back(s.name, s.updated);
  return named;
}

void FullySharded::reduce_next(bool yes) {
  if (state_->whole_gradients) state_->whole_gradients->reduce_next(yes);
  if (state_->gradients) state_->gradients->reduce_next(yes);
}

void FullySharded::finish() {
  NoGrad guard;
  State& all = *state_;
  if (all.whole_gradients) {
    all.whole_gradients->finish();
    for (const size_t i : all.reduced) {
      State::Slot& s = all.slots[i];
      const Tensor g = s.whole.grad();
      if (s.cut.begins.empty() || !g.defined()) continue;
      s.whole.set_grad(Tensor());
      give_gradient(s.updated, all.as_whole_is(s, s.cut.part(g, all.group.rank())));
    }
    return;
  }
  const std::vector<Tensor> parts = all.gradients->finish();
  for (size_t i = 0; i < parts.size(); ++i) {
    State::Slot& s = all.slots[all.reduced[i]];
    if (parts[i].defined()) give_gradient(s.updated, all.as_whole_is(s, parts[i]));
  }
  all.average_small();
}

void FullySharded::gather_updated() {
  NoGrad guard;
  std::vector<State::Slot*> whole;
  std::vector<PartGather::Item> items;
  for (State::Slot& s : state_->slots) {
    if (!s.whole.requires_grad() || s.cut.begins.empty()) continue;
    if (s.moved) {
      bump_version(s.part, kOp);  // what was gathered and not used is old now
      continue;
    }
    whole.push_back(&s);
    items.push_back({s.name, s.whole.detach().view({s.whole.numel()}), s.cut});
  }
  if (whole.empty()) return;
  PartGather(state_->gathers, std::move(items)).finish();
  for (const State::Slot* s : whole) bump_version(s->whole, kOp);
}

bool lies_in_parts(const Tensor& parameter) {
  return !is_placed(parameter) && parameter.tier() == kRanks;
}

Tensor as_it_lies(const Tensor& parameter) {
  if (!lies_in_parts(parameter)) return parameter;
  const std::lock_guard lock(g_parts_mutex);
  const auto found = g_parts.find(parameter.storage().get());
  check(found != g_parts.end(), kOp, "a parameter of shape ", parameter.shape(),
        " lies in parts of which nobody knows");
  bump_version(found->second.first, kOp);  // who writes to it changes what is gathered
  return from_local(found->second.first, "S(0)", parameter.shape(), found->second.second);
}

std::vector<StreamedPart> FullySharded::blocks() const {
  return state_->streamed ? state_->streamed->parts() : std::vector<StreamedPart>();
}
StreamStats FullySharded::stats() const {
  return state_->streamed ? state_->streamed->stats() : StreamStats();
}

struct FullySharded::Pass::State {
  explicit State(FullySharded::State& s) : of(s), cut(s.gathers), scope(std::in_place, *s.streamed) {
    if (!of.near || !grad_enabled()) return;
    for (RankUnit& u : of.units) u.keep_among(of.near);
  }
  ~State() {
    scope.reset();
    for (RankUnit& u : of.units) {
      u.drop();  // what had been expected and was not used
      u.keep_among(nullptr);
    }
  }
  FullySharded::State& of;
  CutBetween cut;
  std::optional<StreamScope> scope;
};

FullySharded::Pass::Pass(FullySharded* sharded) {
  if (!sharded || !sharded->state_->streamed) return;
  sharded->state_->renew_low();
  state_ = std::make_unique<State>(*sharded->state_);
}
FullySharded::Pass::~Pass() = default;

}  // namespace strata::nn
