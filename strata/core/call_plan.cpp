// How a call with sharded arguments goes: what its rule allows, and which of that costs least.

#include <algorithm>
#include <limits>
#include <tuple>

#include "strata/core/call_plan_inl.h"

namespace strata::detail {
namespace {

using Possibility = Sharding::Possibility;

// Bytes that a rank of n sends for a tensor of so many bytes, to have it lie otherwise. Padding parts with zeros is no
// communication, but what comes of it has to be reduced at full size later.
double bytes_between(const Placement& from, const Placement& to, double bytes, int ranks) {
  if (from == to) return 0;
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (from.is_replicate()) return 0;
  if (from.is_shard()) return to.is_shard() ? bytes * others / ranks : to.is_replicate() ? bytes * others : 2 * bytes;
  return to.is_shard() ? bytes * others : 2 * bytes * others;
}

bool has_key(std::span<const Value> values) {
  return std::any_of(values.begin(), values.end(), [](const Value& v) { return std::holds_alternative<RngKey>(v); });
}

}  // namespace

CallPath::Placed::Planner::Planner(const CallPath& op, ArgsAt at, const std::shared_ptr<const MeshPlace>& mesh)
    : op_(op),
      at_(at),
      rule_(rule_of(op)),
      mesh_(mesh),
      plan_(std::make_shared<PlacedPlan>()),
      metas_(plan_->metas),
      to_(plan_->to) {}

// What the results are, before anything is computed; nothing of ops whose results depend on values.
void CallPath::Placed::Planner::find_metas() {
  if (op_.facts_.view) {
    Substitutes dry(op_, at_);
    Device device;
    op_.each_tensor(at_, [&](const Tensor& t, int i) {
      if (!t.defined() || (op_.lists_ >> i & 1)) return;
      TensorMeta m = t.meta();
      device = m.device;
      m.device = Device::meta();
      m.strides = t.strides();
      dry.tensor(i, empty(m));
    });
    Slots shown(op_);
    op_.facts_.calls->form(op_.facts_.view, dry.at(), shown.results());
    for (size_t i = 0; i < shown.results().size(); ++i) {
      const Tensor& t = shown.results()[i];
      TensorMeta m = t.meta();
      m.device = device;
      m.strides = t.strides();
      metas_.push_back(m);
    }
    return;
  }
  if (op_.facts_.dynamic) return;
  if (!op_.facts_.infer) throw_no_results(op_.name_);
  if (op_.facts_.results < 0) {
    op_.facts_.calls->infer(op_.facts_.infer, at_, {nullptr, &metas_});
    return;
  }
  union Room {
    TensorMeta each[kMostResults];
    Room() {}
  } room;
  op_.facts_.calls->infer(op_.facts_.infer, at_, {room.each, nullptr});
  metas_.assign(room.each, room.each + op_.facts_.results);
}

std::shared_ptr<PlacedPlan> CallPath::Placed::Planner::plan() {
  find_metas();
  choose();
  for (size_t i = 0; i < to_.size(); ++i) plan_->moves.push_back(!(from_[i] == to_[i]));
  for (size_t r = 0; r < metas_.size(); ++r) {
    plan_->local_shapes.push_back(of_results_[r].local_shape(metas_[r].shape));
    plan_->results.push_back(std::make_shared<const Layout>(std::move(of_results_[r])));
  }
  return plan_;
}

void CallPath::Placed::Planner::choose() {
  for (int i = 0; i < op_.facts_.args; ++i) values_.push_back(op_.facts_.types[i]->box(at_[i]));
  op_.each_tensor(at_, [&](const Tensor& t, int i) {
    tensors_.push_back(t);
    arg_of_.push_back(i);
  });
  const size_t axes = mesh_->axes.size();
  plan_->whole = {mesh_, std::vector<Placement>(axes)};
  for (const Tensor& t : tensors_) from_.push_back(is_placed(t) ? *layout_of(t) : plan_->whole);
  to_.assign(tensors_.size(), plan_->whole);
  of_results_.assign(metas_.size(), plan_->whole);
  // A function says itself what random numbers ask for.
  const bool random = has_key(values_) && !rule_.function && !rule_.text.starts_with("elementwise random");
  if (op_.facts_.dynamic || random) return;
  for (size_t a = 0; a < axes; ++a) choose_axis(a);
}

// Of one axis: the possibility that moves the fewest bytes, then the fewest tensors, then computes the fewest results.
void CallPath::Placed::Planner::choose_axis(size_t axis) {
  int all_ranks = 1;
  for (const MeshPlace::Axis& a : mesh_->axes) all_ranks *= a.size;
  Sharding s(op_, values_, mesh_->axes[axis].size, all_ranks);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Sharding::Arg arg;
    arg.arg = arg_of_[i];
    if (tensors_[i].defined()) {
      arg.shape = tensors_[i].shape();
      arg.dtype = tensors_[i].dtype();
      arg.defined = true;
      arg.now = from_[i].placements[axis];
    }
    s.args.push_back(std::move(arg));
  }
  for (const TensorMeta& m : metas_) s.results.push_back(m.shape);
  s.add(s.whole());
  apply_rule(rule_, s);

  const Possibility* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  int fewest = 0, most_cut = 0;
  for (const Possibility& p : s.possible) {
    if (!fits(p, axis)) continue;
    double bytes = 0;
    int changed = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].defined() || tensors_[i].is_meta()) continue;
      const Placement& now = from_[i].placements[axis];
      bytes += bytes_between(now, p.args[i], static_cast<double>(tensors_[i].nbytes()), s.ranks);
      changed += !(now == p.args[i]);
    }
    const auto cut = static_cast<int>(
        std::count_if(p.results.begin(), p.results.end(), [](const Placement& r) { return r.is_shard(); }));
    if (best && std::tuple(bytes, changed, -cut) >= std::tuple(least, fewest, -most_cut)) continue;
    best = &p;
    least = bytes;
    fewest = changed;
    most_cut = cut;
  }
  for (size_t i = 0; i < tensors_.size(); ++i) to_[i].placements[axis] = best->args[i];
  for (size_t r = 0; r < metas_.size(); ++r) of_results_[r].placements[axis] = best->results[r];
  plan_->whole_size = plan_->whole_size || best->of_whole_size;
  if (!best->before && !best->after) return;
  plan_->before = best->before;
  plan_->after = best->after;
  plan_->repeats = plan_->repeats && best->repeats;
  plan_->changing.push_back(mesh_->axes[axis].name);
}

// Whether the tensors can be cut so beside what the axes before have chosen, leaving no rank without elements where the
// op may mind.
bool CallPath::Placed::Planner::fits(const Possibility& p, size_t axis) const {
  const auto one = [&](const Layout& chosen, const Placement& next, const Shape& shape) {
    if (!next.is_shard()) return true;
    Layout l = chosen;
    for (size_t a = 0; a < axis; ++a)
      if (l.placements[a].is_shard() && l.placements[a].dim == next.dim && !l.placements[a].cuts_like(next))
        return false;
    l.placements[axis] = next;
    if (p.evenly && !even(l, axis, shape)) return false;
    if (p.may_be_empty || shape[next.dim] == 0) return true;
    std::vector<int> last;
    for (const MeshPlace::Axis& a : mesh_->axes) last.push_back(a.size - 1);
    return l.local_shape(shape, last)[next.dim] > 0;
  };
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].defined() && !one(to_[i], p.args[i], tensors_[i].shape())) return false;
  for (size_t r = 0; r < metas_.size(); ++r)
    if (!one(of_results_[r], p.results[r], metas_[r].shape)) return false;
  return true;
}

// Whether all ranks get as much of what the last of the axes chosen so far cuts.
bool CallPath::Placed::Planner::even(const Layout& chosen, size_t axis, const Shape& shape) {
  const Placement& p = chosen.placements[axis];
  int64_t ranks = p.unit;
  for (size_t a = 0; a <= axis; ++a)
    if (chosen.placements[a].is_shard() && chosen.placements[a].dim == p.dim) ranks *= chosen.mesh->axes[a].size;
  if (p.segments.empty()) return shape[p.dim] % ranks == 0;
  return std::all_of(p.segments.begin(), p.segments.end(), [&](int64_t n) { return n % ranks == 0; });
}

}  // namespace strata::detail
