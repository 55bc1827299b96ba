#include "strata/nn/fully_sharded.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/rebind.h"
#include "strata/cuda/graph.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/part_gather_inl.h"
#include "strata/dist/parts_inl.h"
#include "strata/dist/rank_memory_inl.h"
#include "strata/dist/sharded_gradients_inl.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/nn/table_lookup_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "FullySharded";

using namespace distributed;
using strata::detail::here;  // of a parameter that tensor parallelism has cut its part

// The parts of the parameters of all that live, by the storage that calls read, and how the optimizer has them.
struct Lying {
  Tensor part;
  LayoutRef layout;  // nullptr on an axis of one rank
  std::shared_ptr<detail::TableLookup> lookup = nullptr;
};
std::mutex g_parts_mutex;
std::map<const Storage*, Lying> g_parts;

Tensor lying(const Tensor& part, const Shape& whole, const LayoutRef& layout) {
  if (!layout) return part.detach();
  TensorMeta meta = part.meta();
  meta.shape = whole;
  meta.strides = std::nullopt;
  return strata::detail::place(part.contiguous().detach(), meta, layout);
}

bool is_cut_along(const Tensor& t, const std::string& axis, const std::string& replicas) {
  return std::ranges::any_of(layout_of(t)->mesh->axes,
                             [&](const MeshPlace::Axis& a) { return a.name == axis || a.name == replicas; });
}

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
  // Ranks that share some of the parameters, and what travels between them.
  struct Sharers {
    Sharers(const std::string& axis, const std::string& replicas)
        : axis(axis),
          replicas(replicas),
          group(distributed::group(axis)),
          gathers(distributed::group(axis + "+" + axis)),
          all(distributed::group(replicas.empty() ? axis : replicas + "+" + axis)) {}
    std::string axis, replicas;
    Group& group;
    Group& gathers;              // the same ranks: what travels there waits for no gradient
    Group& all;                  // replicas included
    Group* near = nullptr;       // of 3: where blocks lie between forward and backward, of some neighbours
    std::deque<RankUnit> units;  // outlive the slots
    // Parameters whose gradients travel by themselves.
    struct Stage {
      NamedTensors averaged;
      std::vector<size_t> reduced;                  // slots, as `gradients` has them
      std::unique_ptr<ShardedGradients> gradients;  // of 2 and 3
    };
    std::vector<Stage> stages;
    std::unique_ptr<DataParallel> whole_gradients;  // of 1
  };

  struct Slot {
    std::string name;
    Sharers* with = nullptr;
    Tensor whole;    // the module's
    Cut cut;         // of what is here(); none: of no dimension, or no element
    LayoutRef lies;  // how the optimizer has it
    // Not cut, or nothing of it is here: its gradient travels by itself.
    bool is_small() const { return cut.begins.empty() || here(whole).numel() == 0; }
    Tensor part;     // this rank's, a view of `whole` or the memory that stays
    Tensor updated;  // what the optimizer has: of the part, or `whole` itself
    bool moved = false;
    RankUnit* unit = nullptr;                     // of what was moved: it comes with its block
    Tensor low;                                   // autocast's copy as it lies in parts, which then comes in its place
    Tensor low_part;                              // this rank's
    std::optional<uint32_t> low_version;          // of the part, whose values that has
    std::shared_ptr<detail::TableLookup> lookup;  // of a table that is read by its rows
    // What the optimizer knows of it: the copy that it writes beside the part, on a card.
    LowCopy& beside() const { return autograd_meta(here(updated)).low; }
    bool is_renewed() const {
      return whole.requires_grad() && low_part.defined() && beside().tensor.defined() &&
             beside().tensor.storage() == low_part.storage() && beside().is_current(here(updated), low_part.dtype());
    }
  };

  State(const Module& module, const FullyShardedOptions& o);
  ~State();
  void add(const std::string& name, const Tensor& whole, bool alone, Sharers& with);
  void make_streamed(const Module& module, const std::map<const Storage*, int>& on);
  void make_units();
  void make_lookups(const Module& module);
  std::optional<detail::TableLookup::Gradient> lookup_of(const Slot& s) const;
  void renew_low();
  size_t stage_of(const std::string& name) const;
  void make_gradients();
  // Whether the gradients of every pass travel.
  bool every_pass() const { return options.zero == 3 && options.reduce_every_pass; }
  void average_small();
  LayoutRef layout_for(const Slot& s) const;

  FullyShardedOptions options;
  std::deque<Sharers> sharers;  // those of the axis, and those of the parameters that are apart
  std::vector<Slot> slots;
  std::unique_ptr<Streamed> streamed;  // of 3
};

FullySharded::State::State(const Module& module, const FullyShardedOptions& o) : options(o) {
  Sharers& first = sharers.emplace_back(o.axis, o.replicas);
  Group &group = first.group, &all = first.all;
  check(o.zero >= 1 && o.zero <= 3, kOp, "zero is 1, 2 or 3, got ", o.zero);
  check(o.whole_below >= 0, kOp, "whole_below is not negative, got ", o.whole_below);
  check(o.zero == 1 || o.average, kOp, "zero is ", o.zero, ", and gradients that others average are for 1");
  check(o.zero > 1 || (o.stages.empty() && o.joined.empty()), kOp, "zero is 1, and stages are for 2 and 3");
  check(o.micro_batches == 0 || (o.stages.empty() && o.joined.empty()), kOp, "micro_batches is ", o.micro_batches,
        ", which is not for stages");
  check(o.micro_batches == 0 || (o.zero > 1 && o.replicas.empty() && o.apart.empty()), kOp, "micro_batches is ",
        o.micro_batches, ", which is for zero 2 and 3 without replicas, and zero is ", o.zero);
  check(all.size() == group.size() * (o.replicas.empty() ? 1 : distributed::group(o.replicas).size()), kOp,
        "the axes '", o.axis, "' and '", o.replicas, "' have one in common");
  check(o.reshard_to >= 0 && (o.reshard_to == 0 || group.size() % o.reshard_to == 0), kOp, "reshard_to is ",
        o.reshard_to, ", which does not divide the ", group.size(), " ranks of '", o.axis, "'");
  if (!o.apart.empty()) sharers.emplace_back(o.apart_axis, "");
  for (Sharers& s : sharers)
    if (o.zero == 3 && o.reshard_to > 1 && o.reshard_to < s.group.size() && s.group.size() % o.reshard_to == 0)
      s.near = &distributed::group(cat(s.gathers.name(), ':', o.reshard_to));
  const auto sharers_of = [&](const std::string& name) -> Sharers& {
    return std::ranges::find(o.apart, name) == o.apart.end() ? sharers.front() : sharers.back();
  };
  std::vector<NamedTensors> ours(sharers.size());
  std::map<const Storage*, int> on;  // several on one storage, or a part of one: moving them would part them
  for (const auto& [name, t] : module.named_parameters()) {
    if (std::ranges::find(o.leave_out, name) != o.leave_out.end()) continue;
    ++on[here(t).storage().get()];
    if (t.requires_grad()) stage_of(name);  // said before anything moves
    if (t.requires_grad() || (o.zero == 3 && is_floating(t.dtype()) && t.is_contiguous()))
      ours[&sharers_of(name) == &sharers.front() ? 0 : 1].emplace_back(name, t);
  }
  const Tensor* one = nullptr;
  for (size_t i = 0; i < sharers.size(); ++i) {
    Sharers& with = sharers[i];
    if (i > 0 && ours[i].empty()) continue;
    for (const auto& [name, t] : ours[i]) {
      if (detail::is_late(t)) continue;
      if (!one) one = &t;
      check<DeviceError>(t.device() == one->device(), kOp, name, " is on ", t.device(), ", others on ", one->device(),
                         ": all parameters of a rank must be on one device");
      check(!is_placed(t) || !is_cut_along(t, with.axis, with.replicas), kOp, name, " lies in parts along '", with.axis,
            "' already");
      check(here(t).is_contiguous(), kOp, name, " is not row-major");
    }
    check_same_parameters(kOp, ours[i], with.all);
    for (const auto& [name, t] : ours[i]) {
      const bool alone = on[here(t).storage().get()] == 1;
      detail::come(t);
      broadcast_parameters({{name, t}}, with.all);
      add(name, t, alone && here(t).nbytes() == static_cast<int64_t>(here(t).storage()->nbytes), with);
    }
  }

  if (o.zero == 3) {
    make_streamed(module, on);
    make_units();
    make_lookups(module);
  }
  make_gradients();
}

// `on`: how many parameters there are on a storage.
void FullySharded::State::make_streamed(const Module& module, const std::map<const Storage*, int>& on) {
  const FullyShardedOptions& o = options;
  StreamOptions stream{.tier = kRanks, .gradients = false, .recompute = false, .whole_parts = true};
  if (o.reshard_to == 1) stream.near_bytes = INT64_MAX / 4;
  stream.leave_out = o.leave_out;
  for (const auto& [name, t] : module.named_parameters()) {
    if (std::ranges::find(o.leave_out, name) != o.leave_out.end()) continue;
    const auto found = on.find(here(t).storage().get());
    if (here(t).tier() != kRanks && (found == on.end() || found->second <= 1)) stream.in_place.push_back(name);
  }
  streamed = std::make_unique<Streamed>(module, stream);
}

size_t FullySharded::State::stage_of(const std::string& name) const {
  if (options.stages.empty()) return 0;
  std::vector<size_t> in;
  for (size_t s = 0; s < options.stages.size(); ++s)
    if (std::ranges::find(options.stages[s], name) != options.stages[s].end()) in.push_back(s);
  check(in.size() == 1, kOp, name, " is in ", in.size(), " of the ", options.stages.size(), " stages, wanted one");
  return in[0];
}

// What averages gradients: of 2 and 3 each stage's by themselves.
void FullySharded::State::make_gradients() {
  const FullyShardedOptions& o = options;
  for (Sharers& s : sharers) s.stages.resize(std::max<size_t>(o.stages.size(), 1));
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    if (!s.whole.requires_grad()) continue;
    Sharers::Stage& stage = s.with->stages[stage_of(s.name)];
    if (o.zero > 1 && o.micro_batches == 0 && s.is_small()) continue;
    stage.averaged.emplace_back(s.name, s.whole);
    stage.reduced.push_back(i);
  }
  for (Sharers& s : sharers) {
    for (Sharers::Stage& stage : s.stages) {
      if (stage.averaged.empty() && (&s != &sharers.front() || !o.stages.empty())) continue;
      if (o.zero > 1) {
        Group* const replicas = s.replicas.empty() ? nullptr : &distributed::group(s.replicas);
        std::map<std::string, std::shared_ptr<RowGradients>> by_rows;
        for (const size_t i : stage.reduced)
          if (slots[i].lookup && slots[i].lookup->gives_rows()) by_rows[slots[i].name] = slots[i].lookup;
        stage.gradients = std::make_unique<ShardedGradients>(stage.averaged, s.group,
                                                             ShardedGradients::Options{.bucket_bytes = o.bucket_bytes,
                                                                                       .every_pass = every_pass(),
                                                                                       .replicas = replicas,
                                                                                       .micro_batches = o.micro_batches,
                                                                                       .joined = o.joined,
                                                                                       .by_rows = by_rows});
      } else if (o.average) {
        s.whole_gradients =
            std::make_unique<DataParallel>(stage.averaged, s.all, DataParallelOptions{.bucket_bytes = o.bucket_bytes});
      }
    }
  }
}

FullySharded::State::~State() {
  const std::lock_guard lock(g_parts_mutex);
  for (const Slot& s : slots)
    if (s.moved) g_parts.erase(here(s.whole).storage().get());
}

void FullySharded::State::add(const std::string& name, const Tensor& whole, bool alone, Sharers& with) {
  NoGrad guard;
  Group &group = with.group, &gathers = with.gathers;
  Slot& s = slots.emplace_back();
  s.name = name;
  s.with = &with;
  s.whole = whole;
  s.updated = whole;
  const Tensor own = here(whole);
  if (whole.dim() == 0 || whole.numel() == 0) return;
  s.cut = Cut(own.shape(), group.size());
  s.lies = layout_for(s);
  s.moved = options.zero == 3 && alone && own.numel() > 0 && own.numel() >= options.whole_below &&
            (&with == &sharers.front() || group.size() > 1);
  if (s.moved) {
    const memory::TagScope tag(memory::Tag::parameter);
    s.part = s.cut.part(own.detach(), group.rank()).clone();
    s.unit = &with.units.emplace_back();
    const Tensor lies = tensor_of_parts(s.part, own.shape(), name, gathers, *s.unit);
    lies.storage()->version.store(own.version(), std::memory_order_relaxed);
    Tensor(whole).set_grad(Tensor());
    autograd_meta(whole).low = {};
    rebind(own, lies);
    const std::lock_guard lock(g_parts_mutex);
    g_parts[own.storage().get()] = {s.part, s.lies};
  } else {
    s.part = s.cut.part(own.detach(), group.rank());
  }
  if (!whole.requires_grad()) return;
  s.updated = lying(s.part, whole.shape(), s.lies);
  s.updated.set_requires_grad();
}

// Rows of what is here: of a parameter that other axes have cut, of its part as it lies.
LayoutRef FullySharded::State::layout_for(const Slot& s) const {
  const Group& group = s.with->group;
  if (group.size() == 1) return is_placed(s.whole) ? layout_of(s.whole) : nullptr;
  MeshPlace mesh;
  std::vector<Placement> placements;
  if (is_placed(s.whole)) {
    mesh = *layout_of(s.whole)->mesh;
    placements = layout_of(s.whole)->placements;
  }
  Placement rows = Placement::sharded(0);
  for (const Placement& p : placements) rows.part = rows.part || (p.is_shard() && p.dim == 0);
  mesh.axes.push_back({s.with->axis, group.size(), group.rank()});  // "dp+cp" is one axis here
  placements.push_back(rows);
  return std::make_shared<const Layout>(
      Layout{std::make_shared<const MeshPlace>(std::move(mesh)), std::move(placements)});
}

// What a block has comes as a whole: ranks that do not use all of it gather it with the others.
void FullySharded::State::make_units() {
  std::map<std::pair<std::string, Sharers*>, RankUnit*> of;  // by the part's name
  for (Slot& s : slots) {
    if (!s.moved) continue;
    for (const StreamedPart& p : streamed->parts()) {
      const std::string list = ", " + p.name + ", ";
      if (!s.name.starts_with(p.name + ".") && list.find(", " + s.name + ", ") == std::string::npos) continue;
      RankUnit*& first = of[{p.name, s.with}];
      if (first)
        first->join(*s.unit);
      else
        first = s.unit;
      s.unit = first;
      break;
    }
  }
}

// How a table's gradient goes back, if it is looked up by its rows: where it comes by itself, and all of it need not
// come for others.
std::optional<detail::TableLookup::Gradient> FullySharded::State::lookup_of(const Slot& s) const {
  using Gradient = detail::TableLookup::Gradient;
  const FullyShardedOptions& o = options;
  const bool alone = std::ranges::find(o.looked_up, s.name) != o.looked_up.end();
  if (!s.moved || s.with != &sharers.front() || s.with->group.size() == 1 || is_placed(s.whole) || !o.stages.empty() ||
      here(s.whole).nbytes() < o.rows_from || (o.reshard_to == 1 && !alone))
    return std::nullopt;
  if (std::ranges::any_of(slots, [&](const Slot& other) { return &other != &s && other.unit == s.unit; }))
    return std::nullopt;
  if (!s.whole.requires_grad()) return Gradient::none;
  if (every_pass() && o.micro_batches == 0) return Gradient::rows;
  return alone ? std::optional(Gradient::whole) : std::nullopt;
}

void FullySharded::State::make_lookups(const Module& module) {
  for (const std::string& name : options.looked_up)
    check(std::ranges::any_of(module.named_parameters(), [&](const auto& p) { return p.first == name; }), kOp,
          "looked_up names no parameter: '", name, "'");
  for (const auto& [name, part] : module.named_modules()) {
    if (part.kind() != "Embedding") continue;
    const std::string own = name.empty() ? "weight" : name + ".weight";
    const auto s = std::ranges::find(slots, own, &Slot::name);
    if (s == slots.end()) continue;
    const auto gradient = lookup_of(*s);
    if (!gradient) continue;
    Sharers& with = *s->with;
    // Where gradients travel calls come in the order in which a rank's are ready: rows go with what is gathered.
    TableRows rows(s->name, s->part, s->whole.size(0), with.gathers, with.replicas.empty() ? with.gathers : with.all,
                   with.axis, with.replicas);
    if (!rows.may_pay()) continue;
    s->lookup = std::make_shared<detail::TableLookup>(s->name, std::move(rows), *gradient);
    const std::lock_guard lock(g_parts_mutex);
    g_parts[here(s->whole).storage().get()].lookup = s->lookup;
  }
}

// Autocast's copies are of the parts as they are now. Where the optimizer wrote them nothing is to be done.
void FullySharded::State::renew_low() {
  NoGrad guard;
  for (Slot& s : slots) {
    if (!s.moved) continue;
    const AutogradMeta* const known = s.whole.impl().autograd.get();
    if (!known || !known->low.tensor.defined()) continue;
    if (!s.low.defined() || s.low.storage() != here(known->low.tensor).storage()) {
      const DType dtype = known->low.tensor.dtype();
      const memory::TagScope tag(memory::Tag::parameter);
      s.low_part = empty(TensorMeta{s.part.shape(), dtype, s.part.device(), std::nullopt}, Tier());
      if (!s.low.defined()) {
        RankUnit& alone = s.with->units.emplace_back();
        alone.only_when_wanted();
        s.unit->give(s.part, alone);
      }
      s.low = tensor_of_parts(s.low_part, here(s.whole).shape(), cat(s.name, " in ", dtype), s.with->gathers, *s.unit);
      s.low_version.reset();
    }
    if (!s.is_renewed() && s.low_version != s.part.version()) {
      copy_elements(s.low_part, s.part);
      bump_version(s.low_part, kOp);
      if (s.whole.requires_grad()) s.beside() = {s.low_part, s.part.version()};
    }
    s.low_version = s.part.version();
    Tensor low = s.low;
    if (is_placed(s.whole))
      low = strata::detail::place(s.low, {s.whole.shape(), s.low.dtype(), s.low.device(), std::nullopt},
                                  layout_of(s.whole));
    autograd_meta(s.whole).low = {low, s.whole.version()};
  }
}

// Gradients that are not cut, or of which there is nothing here: few, and small.
void FullySharded::State::average_small() {
  for (Slot& s : slots) {
    if (!s.whole.requires_grad() || !s.is_small()) continue;
    Group& all = s.with->all;
    const Tensor had = here(s.whole.grad()), own = here(s.whole);
    uint8_t used = had.defined() ? 1 : 0;
    const Tensor g = used ? had.contiguous() : zeros(own.shape(), own.dtype()).to(own.device());
    if (g.numel() > 0)
      all.run(g.device(), cat("gradient of ", s.name),
              [&](Collectives& c) { c.all_reduce(g.raw_data(), g.numel(), g.dtype(), Reduction::avg); });
    if (!cuda::capturing())
      all.run("used", [&](Communicator& c) { c.all_reduce(&used, 1, DType::u8, Reduction::max); });
    if (!used) continue;
    if (s.cut.begins.empty()) {
      s.whole.set_grad(g);
    } else {
      s.whole.set_grad(Tensor());
      s.updated.set_grad(lying(s.cut.part(g, s.with->group.rank()), s.whole.shape(), s.lies));
    }
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
  for (State::Sharers& s : state_->sharers) {
    if (s.whole_gradients) s.whole_gradients->reduce_next(yes);
    for (State::Sharers::Stage& stage : s.stages)
      if (stage.gradients) stage.gradients->reduce_next(yes);
  }
}

void FullySharded::reduce_next(size_t stage, bool last, bool rest) {
  const FullyShardedOptions& o = state_->options;
  check(stage < o.stages.size(), kOp, "stage ", stage, " of ", o.stages.size());
  for (State::Sharers& s : state_->sharers) {
    // Two buckets are all that there is at a time, of all stages.
    for (State::Sharers::Stage& other : s.stages)
      if (other.gradients && &other != &s.stages[stage]) other.gradients->settle();
    ShardedGradients* const gradients = s.stages[stage].gradients.get();
    if (gradients == nullptr) continue;
    state_->every_pass() && !rest ? gradients->add_next() : gradients->reduce_next(last);
  }
}

void FullySharded::finish() {
  NoGrad guard;
  State& all = *state_;
  for (State::Sharers& with : all.sharers) {
    if (all.options.zero == 1) {
      if (with.whole_gradients) with.whole_gradients->finish();
      for (const size_t i : with.stages[0].reduced) {
        State::Slot& s = all.slots[i];
        const Tensor g = s.whole.grad();
        if (s.cut.begins.empty() || !g.defined()) continue;
        if (all.options.average) s.whole.set_grad(Tensor());
        give_gradient(s.updated, lying(s.cut.part(here(g), with.group.rank()), s.whole.shape(), s.lies));
      }
      continue;
    }
    for (State::Sharers::Stage& stage : with.stages) {
      if (!stage.gradients) continue;
      const std::vector<Tensor> parts = stage.gradients->finish();
      for (size_t i = 0; i < parts.size(); ++i) {
        State::Slot& s = all.slots[stage.reduced[i]];
        if (!parts[i].defined()) continue;
        give_gradient(s.updated, s.cut.begins.empty() ? parts[i] : lying(parts[i], s.whole.shape(), s.lies));
      }
    }
  }
  if (all.options.zero > 1 && all.options.micro_batches == 0) all.average_small();
}

void FullySharded::gather_updated() {
  NoGrad guard;
  std::vector<State::Slot*> whole;
  std::map<State::Sharers*, std::vector<PartGather::Item>> items;
  for (State::Slot& s : state_->slots) {
    if (!s.whole.requires_grad() || s.cut.begins.empty()) continue;
    if (!state_->options.average) s.whole.set_grad(Tensor());
    if (here(s.whole).numel() == 0) continue;
    if (s.moved) {
      // What was gathered and not used is old now; not the copy, where the optimizer wrote it with this update.
      const bool renewed = s.is_renewed() && s.low_version != s.part.version();
      bump_version(s.part, kOp);
      if (renewed) s.beside().version = s.part.version();
      continue;
    }
    whole.push_back(&s);
    const Tensor own = here(s.whole).detach();
    items[s.with].push_back({s.name, own.view({own.numel()}), s.cut});
  }
  for (State::Sharers& with : state_->sharers)
    if (items.contains(&with)) PartGather(with.gathers, std::move(items[&with])).finish();
  for (const State::Slot* s : whole) bump_version(s->whole, kOp);
}

bool lies_in_parts(const Tensor& parameter) {
  return here(parameter).tier() == kRanks;
}

std::shared_ptr<detail::TableLookup> detail::lookup_of(const Tensor& weight) {
  if (is_placed(weight) || weight.tier() != kRanks) return nullptr;
  const std::lock_guard lock(g_parts_mutex);
  const auto found = g_parts.find(weight.storage().get());
  return found == g_parts.end() ? nullptr : found->second.lookup;
}

Tensor as_it_lies(const Tensor& parameter) {
  if (!lies_in_parts(parameter)) return parameter;
  const std::lock_guard lock(g_parts_mutex);
  const auto found = g_parts.find(here(parameter).storage().get());
  check(found != g_parts.end(), kOp, "a parameter of shape ", parameter.shape(),
        " lies in parts of which nobody knows");
  bump_version(found->second.part, kOp);  // who writes to it changes what is gathered
  return lying(found->second.part, parameter.shape(), found->second.layout);
}

std::vector<Group*> FullySharded::groups() const {
  std::vector<Group*> all;
  for (const State::Sharers& s : state_->sharers) {
    all.insert(all.end(), {&s.group, &s.gathers});
    if (s.near) all.push_back(s.near);
    if (!s.replicas.empty()) all.push_back(&distributed::group(s.replicas));
  }
  return all;
}

std::vector<StreamedPart> FullySharded::blocks() const {
  return state_->streamed ? state_->streamed->parts() : std::vector<StreamedPart>();
}
StreamStats FullySharded::stats() const {
  return state_->streamed ? state_->streamed->stats() : StreamStats();
}

struct FullySharded::Pass::State {
  explicit State(FullySharded::State& s) : of(s), cut(s.sharers.front().gathers), scope(std::in_place, *s.streamed) {
    for (const FullySharded::State::Slot& slot : of.slots)
      if (slot.lookup) slot.lookup->begin_pass();
    if (!grad_enabled()) return;
    for (Sharers& with : of.sharers)
      if (with.near)
        for (RankUnit& u : with.units) u.keep_among(with.near);
  }
  ~State() {
    for (const FullySharded::State::Slot& slot : of.slots)
      if (slot.lookup) slot.lookup->end_pass();
    scope.reset();
    for (Sharers& with : of.sharers)
      for (RankUnit& u : with.units) {
        u.drop();  // what had been expected and was not used
        u.keep_among(nullptr);
      }
  }
  using Sharers = FullySharded::State::Sharers;
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
