// Calls with sharded arguments: the kernel on this rank's parts, and the handles of the results. What has to be decided
// before that is in call_plan.cpp.

#include <algorithm>

#include "strata/core/call_plan_inl.h"
#include "strata/core/sharding.h"
#include "strata/core/stand_in.h"

namespace strata::detail {
namespace {

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

// Where this rank's elements stand, dimension by dimension.
void place_elements(const Tensor& all, const Tensor& part, const Layout& layout) {
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

std::string axes_text(const MeshPlace& m) {
  std::string s;
  for (const MeshPlace::Axis& a : m.axes) s += cat(s.empty() ? "" : " ", a.name, "=", a.size);
  return s;
}

// Whether `v` may stand as it is where the op's function wants an argument of this type.
bool stands_for(const ArgType& type, const Value& v) {
  constexpr size_t kRoom = 80;
  alignas(16) std::byte room[kRoom];
  const void* const held = type.size <= kRoom ? type.unbox(v, room) : nullptr;
  if (held == room) type.destroy(room);
  return held != nullptr && held != room;
}

bool same_tensors(const Value& a, const Value& b) {
  if (a.index() != b.index()) return false;
  if (const Tensor* t = std::get_if<Tensor>(&a)) return t->same_as(std::get<Tensor>(b));
  const TensorList* list = std::get_if<TensorList>(&a);
  if (!list) return true;
  const TensorList& other = std::get<TensorList>(b);
  return std::equal(list->begin(), list->end(), other.begin(), other.end(),
                    [](const Tensor& x, const Tensor& y) { return x.same_as(y); });
}

}  // namespace

bool CallPath::Placed::any(const CallPath& op, ArgsAt at) {
  bool found = false;
  op.each_tensor(at, [&](const Tensor& t, int) { found = found || is_placed(t); });
  return found;
}

// False for a call whose plan no other can have: its results depend on values, or on what meta tensors stand for.
bool CallPath::Placed::write_key(Key& key) const {
  if (op_.facts_.dynamic) return false;
  key.clear();
  key.push_back(reinterpret_cast<uintptr_t>(&op_));
  key.push_back(static_cast<uint64_t>(default_dtype()));
  const MeshPlace* mesh = nullptr;
  bool meta = false;
  const auto add = [&](const Tensor& t) {
    meta = meta || (t.defined() && t.is_meta());
    append_words(key, t, mesh);
  };
  for (int i = 0; i < op_.facts_.args; ++i) {
    if (op_.lists_ >> i & 1) {
      const TensorList& list = arg_at<TensorList>(at_[i]);
      key.push_back(list.size());
      for (const Tensor& t : list) add(t);
    } else if (op_.tensors_ >> i & 1) {
      add(arg_at<Tensor>(at_[i]));
    } else {
      append_words(key, op_.facts_.types[i]->box(at_[i]));
    }
  }
  return !meta;
}

void CallPath::Placed::find_plan() {
  PlacedPlans& plans = PlacedPlans::mine();
  if (plans.off || !write_key(plans.words)) return;
  plan_ = plans.find(plans.words);
  if (!plan_) key_ = plans.words;
}

void CallPath::Placed::check_arguments() {
  check(!rule_of(op_).empty(), op_.name_,
        "has sharded arguments, but its record has no shard rule: .shard = \"whole\" is one");
  op_.each_tensor(at_, [&](const Tensor& t, int) {
    if (!is_placed(t)) return;
    if (!mesh_) mesh_ = layout_of(t)->mesh;
    check(*layout_of(t)->mesh == *mesh_, op_.name_,
          "its arguments lie on different axes of the mesh: ", axes_text(*mesh_), " and ",
          axes_text(*layout_of(t)->mesh));
  });
}

bool CallPath::Placed::call(const Seen& seen, const Results& into) {
  const bool composes = op_.composes(seen.wants_grad);
  if (!composes) find_plan();
  if (!plan_) {
    check_arguments();
    const std::string_view rule = rule_of(op_).text;
    if (rule == "itself") return false;
    if (composes) {
      if (op_.facts_.infer) op_.infer(at_);
      if (rule != "whole" || op_.facts_.infer)
        op_.facts_.calls->form(op_.facts_.composed, at_, into);
      else
        composed_whole(into);
      return true;
    }
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

// This rank's part of tensor i, as the plan has it.
Tensor CallPath::Placed::local(size_t i, const Tensor& t) const {
  if (!t.defined() || t.impl().wrapped_number) return t;
  if (t.is_meta()) return stand_in(plan_->to[i].local_shape(t.shape()), t.dtype());
  if (!plan_->moves[i]) return is_placed(t) ? local_part(t) : t;
  return is_placed(t) ? placement_room().relay(local_part(t), t.shape(), *layout_of(t), plan_->to[i])
                      : placement_room().relay(t, t.shape(), plan_->whole, plan_->to[i]);
}

// The call on the whole's size: elements elsewhere are zeros, and are dropped from the results.
void CallPath::Placed::spread(const std::vector<Tensor>& wholes, std::vector<Tensor>& locals) const {
  for (size_t i = 0; i < locals.size(); ++i) {
    if (!locals[i].defined() || locals[i].shape() == wholes[i].shape()) continue;
    Tensor all = empty(TensorMeta{wholes[i].shape(), locals[i].dtype(), locals[i].device(), std::nullopt}).zero_();
    place_elements(all, locals[i], plan_->to[i]);
    locals[i] = all;
  }
}

void CallPath::Placed::compute(const Results& into) {
  if (plan_ && plan_->simple()) return run(into);
  if (plan_) return static_cast<void>(run_boxed(into, nullptr));
  const std::shared_ptr<PlacedPlan> plan = Planner(op_, at_, mesh_).plan();
  plan_ = plan;
  if (plan->simple()) {
    run(into);
  } else {
    std::vector<std::pair<int, Value>> set;
    const bool sets_all = run_boxed(into, &set);
    if (sets_all && plan->repeats && !plan->after && !plan->whole_size && !plan->metas.empty()) {
      plan->set = std::move(set);
      plan->before = nullptr;
    }
  }
  if (!key_.empty() && plan->repeats) PlacedPlans::mine().keep(std::move(key_), plan);
}

// The op on the parts, by their addresses.
void CallPath::Placed::run(const Results& into) const {
  {
    const ThreadModeScope plain({false, 0});
    Substitutes parts(op_, at_);
    size_t i = 0;
    for (uint32_t left = op_.tensors_; left; left &= left - 1) {
      const int a = std::countr_zero(left);
      if (op_.lists_ >> a & 1) {
        TensorList list;
        for (const Tensor& t : arg_at<TensorList>(at_[a])) list.push_back(local(i++, t));
        parts.list(a, std::move(list));
      } else {
        const Tensor& t = arg_at<Tensor>(at_[a]);
        if (!plan_->moves[i] && is_placed(t) && !t.is_meta())
          parts.address(a, &local_part(t));
        else
          parts.tensor(a, local(i, t));
        ++i;
      }
    }
    for (const auto& [a, v] : plan_->set) parts.address(a, op_.facts_.types[a]->unbox(v, nullptr));
    op_.call(parts.at(), into);
  }
  finish(into);
}

// By the boxed path, for what has to change in the call or its results. Whether `before` set nothing but arguments
// that are no tensors, which go to `set`.
bool CallPath::Placed::run_boxed(const Results& into, std::vector<std::pair<int, Value>>* set) const {
  const PlacedPlan& plan = *plan_;
  bool sets_all = true;
  {
    const ThreadModeScope plain({false, 0});
    std::vector<Tensor> wholes, locals;
    std::vector<int> arg_of;
    op_.each_tensor(at_, [&](const Tensor& t, int a) {
      locals.push_back(local(wholes.size(), t));
      wholes.push_back(t);
      arg_of.push_back(a);
    });
    if (plan.whole_size) spread(wholes, locals);
    std::vector<Value> args;
    for (int a = 0; a < op_.facts_.args; ++a) args.push_back(op_.facts_.types[a]->box(at_[a]));
    for (size_t i = 0; i < locals.size();) {
      const int a = arg_of[i];
      Value& v = args[static_cast<size_t>(a)];
      if (op_.lists_ >> a & 1) {
        TensorList& list = std::get<TensorList>(v);
        for (Tensor& t : list) t = locals[i++];
      } else {
        v = to_value(locals[i++]);
      }
    }
    LocalCall c{op_, args, {}, {}, {}, {}, {}, plan.to};
    if (!plan.metas.empty()) {
      c.local_result = plan.local_shapes[0];
      c.rows = rows_of(*plan.results[0], plan.metas[0].shape);
    }
    for (size_t i = 0; i < wholes.size(); ++i)
      c.arg_rows.push_back(wholes[i].defined() ? rows_of(plan.to[i], wholes[i].shape()) : Stretch());
    c.axes = plan.changing;
    if (plan.before) {
      const std::vector<Value> given = args;
      plan.before(c);
      for (int a = 0; a < op_.facts_.args && set; ++a) {
        const Value &was = given[static_cast<size_t>(a)], &now = args[static_cast<size_t>(a)];
        if (op_.tensors_ >> a & 1) {
          sets_all = sets_all && same_tensors(was, now);
          continue;
        }
        std::vector<uint64_t> one, other;
        append_words(one, was);
        append_words(other, now);
        if (const RngKey* key = std::get_if<RngKey>(&was); one == other && (!key || *key == std::get<RngKey>(now)))
          continue;
        sets_all = sets_all && stands_for(*op_.facts_.types[a], now);
        set->emplace_back(a, now);
      }
    }
    TensorList results;
    for (const Value& v : op_.call_boxed(args)) {
      if (const TensorList* list = std::get_if<TensorList>(&v))
        c.results.insert(c.results.end(), list->begin(), list->end());
      else
        c.results.push_back(std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : Tensor());
    }
    if (plan.after) plan.after(c);
    results = std::move(c.results);
    if (plan.whole_size)
      for (size_t r = 0; r < results.size(); ++r)
        results[r] = laid_as(part_of(results[r], *plan.results[r]), plan.metas[r]);
    if (into.list)
      *into.list = std::move(results);
    else
      for (size_t r = 0; r < into.count; ++r) *into.each[r] = r < results.size() ? std::move(results[r]) : Tensor();
  }
  finish(into);
  return sets_all;
}

// This rank's results become handles of the whole ones.
void CallPath::Placed::finish(const Results& into) const {
  const PlacedPlan& plan = *plan_;
  if (plan.metas.empty()) {  // of values: whole everywhere, so every rank has the same
    const auto whole = std::make_shared<const Layout>(plan.whole);
    for (size_t r = 0; r < into.size(); ++r) {
      if (!into[r].defined()) continue;
      TensorMeta m = into[r].meta();
      m.strides = into[r].strides();
      into[r] = place(into[r], m, whole);
    }
    return;
  }
  check(into.size() == plan.metas.size(), op_.name_, "gives ", into.size(), " results on a rank's parts, ",
        plan.metas.size(), " on the whole");
  const Tensor* first = nullptr;
  if (op_.facts_.view)
    op_.each_tensor(at_, [&](const Tensor& t, int) {
      if (!first) first = &t;
    });
  for (size_t r = 0; r < into.size(); ++r) {
    if (!into[r].defined()) continue;
    const Tensor part = std::move(into[r]);
    const TensorMeta& m = plan.metas[r];
    check<ShapeError>(part.shape() == plan.local_shapes[r] && part.dtype() == m.dtype, op_.name_,
                      "its shard rule is wrong: result ", r, " of this rank's parts is ", part, ", not ",
                      plan.local_shapes[r], " ", m.dtype, ", its part of ", m.shape, " as ",
                      text_of(plan.results[r]->placements));
    // A view of a part that was not moved is a view of its handle.
    const bool shows = first && is_placed(*first) && part.storage() == local_part(*first).storage();
    into[r] = place(part, m, plan.results[r], shows ? first->storage() : Ref<Storage>());
  }
}

void CallPath::Placed::inplace(Tensor& self) {
  find_plan();
  if (!plan_) check_arguments();
  Tensor result;
  Tensor* const slot = &result;
  compute({&slot, 1, nullptr});
  const ThreadModeScope plain({false, 0});
  // A plain tensor is the same in every rank.
  Tensor target = is_placed(self) ? local_part(self) : self;
  target.copy_(placement_room().relay(local_part(result), result.shape(), *layout_of(result),
                                      is_placed(self) ? *layout_of(self) : plan_->whole));
}

}  // namespace strata::detail
