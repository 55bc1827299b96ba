// Calls with sharded arguments: what the rule allows, what it costs to bring the arguments there, the kernel on this
// rank's parts, and the handles of the results.

#include "strata/core/call_placed_inl.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "strata/core/sharding.h"
#include "strata/core/stand_in.h"

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

// The part of `whole` that lies here, as a tensor of its own.
Tensor part_of(const Tensor& whole, const Layout& layout) {
  return placement_room().relay(whole, whole.shape(),
                                Layout{layout.mesh, std::vector<Placement>(layout.mesh->axes.size())}, layout);
}

// `t` with its dimensions in memory in the order in which `wanted`'s are: views of a handle are made of its part, too.
Tensor laid_as(const Tensor& t, const TensorMeta& wanted) {
  if (!wanted.strides) return t;
  Dims order, back;
  for (int d = 0; d < t.dim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return (*wanted.strides)[a] > (*wanted.strides)[b]; });
  back = order;
  for (int d = 0; d < t.dim(); ++d) back[static_cast<int>(order[d])] = d;
  return t.permute(order).contiguous().permute(back);
}

// What of dimension 0 is here.
Stretch rows_of(const Layout& layout, const Shape& whole) {
  return whole.empty() ? Stretch{0, 1} : layout.stretches(0, whole[0], layout.places())[0];
}

}  // namespace

CallPath::Placed::Placed(const CallPath& op, ArgsAt at) : op_(op), at_(at), rule_(rule_of(op)) {
  check(!rule_.empty(), op.name_, "has sharded arguments, but its record has no shard rule: .shard = \"whole\" is one");
  op.each_tensor(at, [&](const Tensor& t, int) {
    if (!is_placed(t)) return;
    if (!mesh_) mesh_ = layout_of(t)->mesh;
    check(*layout_of(t)->mesh == *mesh_, op.name_,
          "its arguments lie on different axes of the mesh: ", axes_text(*mesh_), " and ",
          axes_text(*layout_of(t)->mesh));
  });
}

std::string CallPath::Placed::axes_text(const MeshPlace& m) {
  std::string s;
  for (const MeshPlace::Axis& a : m.axes) s += cat(s.empty() ? "" : " ", a.name, "=", a.size);
  return s;
}

bool CallPath::Placed::any(const CallPath& op, ArgsAt at) {
  bool found = false;
  op.each_tensor(at, [&](const Tensor& t, int) { found = found || is_placed(t); });
  return found;
}

bool CallPath::Placed::call(const Seen& seen, const Results& into) {
  if (rule_.text == "itself") return false;
  if (op_.composes(seen.wants_grad)) {
    if (op_.facts_.infer) op_.infer(at_);
    if (rule_.text != "whole" || op_.facts_.infer)
      op_.facts_.calls->form(op_.facts_.composed, at_, into);
    else
      composed_whole(into);
    return true;
  }
  compute(into);
  if (seen.wants_grad) op_.record(into, at_);
  if (op_.facts_.view && grad_enabled()) {
    bool shows = true;
    op_.each_tensor(at_, [&](const Tensor& t, int) {
      for (size_t i = 0; i < into.size(); ++i) shows = shows && into[i].storage() == t.storage();
    });
    if (shows) op_.note_views(into, at_);
  }
  return true;
}

// What composes with elements in its hands gets plain tensors, and its results are whole.
void CallPath::Placed::composed_whole(const Results& into) {
  Substitutes plain(op_, at_);
  for (int i = 0; i < op_.facts_.args; ++i) {
    if (op_.lists_ >> i & 1) {
      TensorList list;
      for (const Tensor& t : arg_at<TensorList>(at_[i])) list.push_back(is_placed(t) ? placement_room().whole(t) : t);
      plain.list(i, std::move(list));
    } else if (op_.tensors_ >> i & 1) {
      const Tensor& t = arg_at<Tensor>(at_[i]);
      if (is_placed(t)) plain.tensor(i, placement_room().whole(t));
    }
  }
  op_.facts_.calls->form(op_.facts_.composed, plain.at(), into);
  const auto all = std::make_shared<const Layout>(Layout{mesh_, std::vector<Placement>(mesh_->axes.size())});
  for (size_t i = 0; i < into.size(); ++i)
    if (into[i].defined()) into[i] = placement_room().redistribute(into[i], all);
}

// What the results are, before anything is computed; nothing of ops whose results depend on values.
void CallPath::Placed::find_metas() {
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

void CallPath::Placed::choose() {
  for (int i = 0; i < op_.facts_.args; ++i) values_.push_back(op_.facts_.types[i]->box(at_[i]));
  op_.each_tensor(at_, [&](const Tensor& t, int i) {
    tensors_.push_back(t);
    arg_of_.push_back(i);
  });
  const size_t axes = mesh_->axes.size();
  for (const Tensor& t : tensors_)
    from_.push_back(is_placed(t) ? *layout_of(t) : Layout{mesh_, std::vector<Placement>(axes)});
  to_.assign(tensors_.size(), Layout{mesh_, std::vector<Placement>(axes)});
  of_results_.assign(metas_.size(), Layout{mesh_, std::vector<Placement>(axes)});
  // A function says itself what random numbers ask for.
  const bool random = has_key(values_) && !rule_.function && !rule_.text.starts_with("elementwise random");
  if (op_.facts_.dynamic || random) return;
  for (size_t a = 0; a < axes; ++a) choose_axis(a);
}

// Of one axis: the possibility that moves the fewest bytes, then the fewest tensors, then computes the fewest results.
void CallPath::Placed::choose_axis(size_t axis) {
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
  whole_size_ = whole_size_ || best->of_whole_size;
  if (!best->before && !best->after) return;
  before_ = best->before;
  after_ = best->after;
  changing_.push_back(mesh_->axes[axis].name);
}

// Whether the tensors can be cut so beside what the axes before have chosen, leaving no rank without elements where the
// op may mind.
bool CallPath::Placed::fits(const Possibility& p, size_t axis) const {
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
bool CallPath::Placed::even(const Layout& chosen, size_t axis, const Shape& shape) {
  const Placement& p = chosen.placements[axis];
  int64_t ranks = p.unit;
  for (size_t a = 0; a <= axis; ++a)
    if (chosen.placements[a].is_shard() && chosen.placements[a].dim == p.dim) ranks *= chosen.mesh->axes[a].size;
  if (p.segments.empty()) return shape[p.dim] % ranks == 0;
  return std::all_of(p.segments.begin(), p.segments.end(), [&](int64_t n) { return n % ranks == 0; });
}

// This rank's part of tensor i, as the chosen layout has it.
Tensor CallPath::Placed::local(size_t i) const {
  const Tensor& t = tensors_[i];
  if (!t.defined() || t.impl().wrapped_number) return t;
  if (t.is_meta()) return stand_in(to_[i].local_shape(t.shape()), t.dtype());
  return placement_room().relay(is_placed(t) ? local_part(t) : t, t.shape(), from_[i], to_[i]);
}

// The call on the whole's size: elements elsewhere are zeros, and are dropped from the results.
void CallPath::Placed::spread(std::vector<Tensor>& locals) const {
  for (size_t i = 0; i < locals.size(); ++i) {
    if (!locals[i].defined() || locals[i].shape() == tensors_[i].shape()) continue;
    Tensor all = empty(TensorMeta{tensors_[i].shape(), locals[i].dtype(), locals[i].device(), std::nullopt}).zero_();
    // Where this rank's elements stand, dimension by dimension.
    place_elements(all, locals[i], to_[i]);
    locals[i] = all;
  }
}

void CallPath::Placed::place_elements(const Tensor& all, const Tensor& part, const Layout& layout) {
  std::vector<std::vector<Stretch>> each;
  const std::vector<int> places = layout.places();
  for (int d = 0; d < all.dim(); ++d) each.push_back(layout.stretches(d, all.size(d), places));
  const auto place = [&](const auto& self, int d, const Tensor& into, const Tensor& from) -> void {
    if (d == all.dim()) {
      Tensor target = into;
      target.copy_(from);
      return;
    }
    int64_t at = 0;
    for (const Stretch& s : each[static_cast<size_t>(d)]) {
      self(self, d + 1, into.narrow(d, s.begin, s.length), from.narrow(d, at, s.length));
      at += s.length;
    }
  };
  place(place, 0, all, part);
}

void CallPath::Placed::compute(const Results& into) {
  find_metas();
  choose();
  TensorList results;
  std::vector<Tensor> locals;
  {
    const ThreadModeScope plain({false, 0});
    for (size_t i = 0; i < tensors_.size(); ++i) locals.push_back(local(i));
    if (whole_size_) spread(locals);
    std::vector<Value> args = values_;
    for (size_t i = 0; i < locals.size();) {
      const int a = arg_of_[i];
      Value& v = args[static_cast<size_t>(a)];
      if (op_.lists_ >> a & 1) {
        TensorList& list = std::get<TensorList>(v);
        for (Tensor& t : list) t = locals[i++];
      } else {
        v = to_value(locals[i++]);
      }
    }
    LocalCall c{op_, args, {}, {}, {}, {}, {}, to_};
    if (!metas_.empty()) {
      c.local_result = of_results_[0].local_shape(metas_[0].shape);
      c.rows = rows_of(of_results_[0], metas_[0].shape);
    }
    for (size_t i = 0; i < tensors_.size(); ++i)
      c.arg_rows.push_back(tensors_[i].defined() ? rows_of(to_[i], tensors_[i].shape()) : Stretch());
    c.axes = changing_;
    if (before_) before_(c);
    for (const Value& v : op_.call_boxed(args)) {
      if (const TensorList* list = std::get_if<TensorList>(&v))
        c.results.insert(c.results.end(), list->begin(), list->end());
      else
        c.results.push_back(std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : Tensor());
    }
    if (after_) after_(c);
    results = std::move(c.results);
    if (whole_size_)
      for (size_t r = 0; r < results.size(); ++r) results[r] = laid_as(part_of(results[r], of_results_[r]), metas_[r]);
  }
  if (metas_.empty()) {  // of values: whole everywhere, so every rank has the same
    for (const Tensor& t : results) {
      metas_.push_back(t.defined() ? t.meta() : TensorMeta());
      if (t.defined()) metas_.back().strides = t.strides();
    }
    of_results_.assign(results.size(), Layout{mesh_, std::vector<Placement>(mesh_->axes.size())});
  }
  check(results.size() == metas_.size(), op_.name_, "gives ", results.size(), " results on a rank's parts, ",
        metas_.size(), " on the whole");
  if (into.list) into.list->resize(results.size());
  for (size_t r = 0; r < results.size(); ++r) {
    if (!results[r].defined()) continue;
    const Shape wanted = of_results_[r].local_shape(metas_[r].shape);
    check<ShapeError>(results[r].shape() == wanted && results[r].dtype() == metas_[r].dtype, op_.name_,
                      "its shard rule is wrong: result ", r, " of this rank's parts is ", results[r], ", not ", wanted,
                      " ", metas_[r].dtype, ", its part of ", metas_[r].shape, " as ",
                      text_of(of_results_[r].placements));
    // A view of a part that was not moved is a view of its handle.
    Ref<Storage> storage;
    if (op_.facts_.view && is_placed(tensors_[0]) && results[r].storage() == local_part(tensors_[0]).storage())
      storage = tensors_[0].storage();
    into[r] = place(results[r], metas_[r], std::make_shared<const Layout>(of_results_[r]), storage);
  }
}

void CallPath::Placed::inplace(Tensor& self) {
  Tensor result;
  Tensor* const slot = &result;
  compute({&slot, 1, nullptr});
  const ThreadModeScope plain({false, 0});
  // A plain tensor is the same in every rank.
  const Layout all{mesh_, std::vector<Placement>(mesh_->axes.size())};
  Tensor target = is_placed(self) ? local_part(self) : self;
  target.copy_(placement_room().relay(local_part(result), result.shape(), *layout_of(result),
                                      is_placed(self) ? *layout_of(self) : all));
}

}  // namespace strata::detail
