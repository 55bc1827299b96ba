// Saved tensors that a call makes again.

#include <algorithm>
#include <functional>

#include "strata/autograd/offload_slot_inl.h"
#include "strata/core/recording.h"

namespace strata::offload {

// ---- slots ---------------------------------------------------------------------------------------------------------

void Slot::check_version() const {
  const uint32_t now = watch.version();
  check<AutogradError>(now == version, "backward", "a saved tensor's storage (", bytes, " bytes",
                       name.empty() ? "" : ", of ", name, ") was overwritten by ", watch.last_writer(), " (version ",
                       now, ", saved at version ", version, "); clone it first, or use the form that is not in place");
}

void Slot::serve(User& u) {
  if (u.served_in == round) return;
  u.served_in = round;
  ++served;
}
void Slot::remove_user(const User& u) {
  --users;
  if (u.served_in == round) --served;
  tidy();
}
void Slot::tidy() {
  if (!near || served < users) return;
  near.reset();
  ++round;
  served = 0;
}

View View::of(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  return {impl.shape, impl.strides, impl.offset, impl.dtype, impl.wrapped_number};
}
Tensor View::on(const Ref<Storage>& storage) const {
  Tensor t = alias(strata::detail::storage_bytes(storage), shape, strides, offset);
  t.impl().dtype = dtype;
  t.impl().wrapped_number = number;
  return t;
}

// ---- recipes -------------------------------------------------------------------------------------------------------

// Autocast's cast of a result is an activation like any other.
bool stays(const Tensor& t) {
  const Ref<Node> maker = t.grad_fn();
  if (!maker || !maker->passes_on()) return !maker;
  return maker->name() != "to" || !maker->edges[0].node || maker->edges[0].node->edges.empty();
}

namespace {

// Calls deep, through what is not saved.
constexpr int kMostDepth = 3;

// Results of a call that a smaller one makes as well, with the same kernel.
struct Part {
  std::string_view op;
  size_t result;
  std::string_view by;  ///< takes the op's first `args` arguments
  size_t args;
  int result_of_by;
};
constexpr Part kParts[] = {
    {"gelu_mlp", 1, "linear_gelu", 3, 1},
    {"gelu_mlp", 2, "linear_gelu", 3, 0},
};

Recipe::Source source_of(const Tensor& t, int64_t small) {
  Recipe::Source s;
  if (!t.defined()) return s;
  Storage& storage = *t.storage();
  s.view = View::of(t);
  s.storage = strata::detail::watch_number(storage);
  s.version = t.version();
  const bool is_small = static_cast<int64_t>(storage.nbytes) < small;
  if (is_small || storage.tag != memory::Tag::activation || (t.requires_grad() && stays(t))) s.held = t.detach();
  return s;
}

}  // namespace

Recipe::~Recipe() {
  each_source([](Source& s) {
    if (s.slot) s.slot->remove_user(s.user);
  });
}

void Recipes::note(const Call& call, std::span<const Tensor> results) {
  if (call.composed || call.op.is_view()) return;
  const Cost cost = call.cost();
  total_.flops += cost.flops;
  total_.bytes += cost.bytes;
  if (call.form != Form::fresh || call.op.is_dynamic()) return;
  const auto large = [&](const Tensor& t) {
    return t.defined() && static_cast<int64_t>(t.storage()->nbytes) >= small_ && !t.storage()->release;
  };
  if (std::none_of(results.begin(), results.end(), large)) return;

  std::vector<Value> values = call.args();
  const auto recipe_of = [&](const OpBase& op, size_t args, Cost c) {
    auto r = std::make_shared<Recipe>();
    r->op = &op;
    r->number = next_++;
    r->cost = c;
    r->args.reserve(args);
    for (size_t i = 0; i < args; ++i) {
      if (const auto* t = std::get_if<Tensor>(&values[i])) {
        r->args.emplace_back(source_of(*t, small_));
      } else if (const auto* list = std::get_if<TensorList>(&values[i])) {
        std::vector<Recipe::Source> all;
        for (const Tensor& one : *list) all.push_back(source_of(one, small_));
        r->args.emplace_back(std::move(all));
      } else {
        r->args.emplace_back(values[i]);
      }
    }
    return r;
  };
  const auto shares_an_argument = [&](const Tensor& t) {
    const auto same = [&](const Tensor& a) { return a.defined() && a.storage() == t.storage(); };
    return std::any_of(values.begin(), values.end(), [&](const Value& v) {
      if (const auto* one = std::get_if<Tensor>(&v)) return same(*one);
      const auto* list = std::get_if<TensorList>(&v);
      return list && std::any_of(list->begin(), list->end(), same);
    });
  };

  std::shared_ptr<Recipe> whole, part;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    if (!large(t) || shares_an_argument(t)) continue;
    Made made{nullptr, static_cast<int>(i), t.version(), static_cast<int64_t>(t.storage()->nbytes)};
    const auto* p = std::find_if(std::begin(kParts), std::end(kParts),
                                 [&](const Part& x) { return x.op == call.op.name() && x.result == i; });
    if (p != std::end(kParts)) {
      if (!part) {
        const OpBase& by = *OpBase::find(p->by);
        part = recipe_of(by, p->args, by.cost_boxed(std::span(values).first(p->args)));
      }
      made.recipe = part;
      made.result = p->result_of_by;
    } else {
      if (!whole) whole = recipe_of(call.op, values.size(), cost);
      made.recipe = whole;
    }
    made_[strata::detail::watch_number(*t.storage())] = std::move(made);
  }
}

void Recipes::begin() {
  clear();
  next_ = 0;
  total_ = {};
}

const Recipes::Made* Recipes::made(uint64_t storage, uint32_t version) const {
  const auto at = made_.find(storage);
  return at == made_.end() || at->second.version != version ? nullptr : &at->second;
}

bool Recipes::resolve(const Recipe& r, const FindSlot& saved, uint64_t not_this, int depth, Way& way) const {
  if (depth > kMostDepth) return false;
  way.cost.flops += r.cost.flops;
  way.cost.bytes += r.cost.bytes;
  bool ok = true;
  const_cast<Recipe&>(r).each_source([&](const Recipe::Source& s) {
    if (!ok || s.storage == 0) return;
    if (s.held.defined()) {
      ok = s.held.version() == s.version;
      return;
    }
    if (std::shared_ptr<Slot> slot = s.storage == not_this ? nullptr : saved(s.storage, s.version)) {
      way.reads.push_back(std::move(slot));
      return;
    }
    const Made* m = made(s.storage, s.version);
    ok = m && resolve(*m->recipe, saved, not_this, depth + 1, way);
    if (ok) way.beside += m->bytes;
  });
  return ok;
}

Recipes::Way Recipes::find(const Slot& slot, const FindSlot& saved) const {
  const uint64_t number = slot.watch.number();
  const Made* m = made(number, slot.version);
  Way way;
  if (!m || !resolve(*m->recipe, saved, number, 1, way)) return {};
  way.recipe = m->recipe;
  way.result = m->result;
  return way;
}

void Recipes::bind(Recipe& recipe, const FindSlot& saved) const {
  if (recipe.bound) return;
  recipe.bound = true;
  recipe.each_source([&](Recipe::Source& s) {
    if (s.storage == 0 || s.held.defined()) return;
    s.slot = saved(s.storage, s.version);
    if (s.slot) {
      s.slot->add_user();
      return;
    }
    const Made* m = made(s.storage, s.version);
    s.made = m->recipe;
    s.result = m->result;
    bind(*s.made, saved);
  });
}

std::vector<Ref<Storage>> run(Recipe& recipe, const std::function<Ref<Storage>(Slot&, Slot::User&)>& bring) {
  const auto tensor_of = [&](Recipe::Source& s) -> Tensor {
    if (s.storage == 0) return {};
    if (s.held.defined()) {
      check<AutogradError>(s.held.version() == s.version, recipe.op->name(),
                           "it is computed again for backward, and a tensor that it reads (", s.held,
                           ") was overwritten since");
      return s.held;
    }
    if (s.slot) return s.view.on(bring(*s.slot, s.user));
    return s.view.on(run(*s.made, bring)[static_cast<size_t>(s.result)]);
  };
  std::vector<Value> args;
  args.reserve(recipe.args.size());
  for (Recipe::Arg& a : recipe.args) {
    if (auto* one = std::get_if<Recipe::Source>(&a)) {
      const Tensor t = tensor_of(*one);
      args.push_back(t.defined() ? Value(t) : Value());
    } else if (auto* many = std::get_if<std::vector<Recipe::Source>>(&a)) {
      TensorList list;
      for (Recipe::Source& s : *many) list.push_back(tensor_of(s));
      args.emplace_back(std::move(list));
    } else {
      args.push_back(std::get<Value>(a));
    }
  }
  // What was cast is cast already; recorders see the call.
  const strata::detail::ThreadModeScope mode({false, t_mode.unusual & kObserved});
  const memory::TagScope tag(memory::Tag::activation);
  const memory::TierScope tier{Tier()};
  std::vector<Ref<Storage>> storages;
  const auto add = [&](const Tensor& t) { storages.push_back(t.defined() ? t.storage() : Ref<Storage>()); };
  for (const Value& v : recipe.op->call_boxed(args)) {
    if (const auto* list = std::get_if<TensorList>(&v)) {
      for (const Tensor& t : *list) add(t);
    } else {
      add(std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : Tensor());
    }
  }
  return storages;
}

}  // namespace strata::offload
