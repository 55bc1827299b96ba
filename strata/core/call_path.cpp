#include "strata/core/autocast_fp8.h"
#include "strata/core/call_placed_inl.h"
#include "strata/core/mixed_way.h"
#include "strata/core/partial_pass.h"

#include <memory>
#include <type_traits>
#include <utility>

namespace strata::detail {

namespace {

// Room for what `infer` gives.
struct Inferred {
  union {
    TensorMeta each[kMostResults];  // made by infer; they need no end
  };
  static_assert(std::is_trivially_destructible_v<TensorMeta>);
  Inferred() {}
};

}  // namespace

// A recorded call. Behind it, in the same block of memory, lie its arguments: tensors as SavedTensor, lists as vectors
// of those, others as they are.
class CallPath::RecordedNode final : public Node {
 public:
  static void* operator new(size_t size, const CallPath& op) { return ::operator new(size + op.node_bytes_); }
  static void operator delete(void* p) { ::operator delete(p); }
  static void operator delete(void* p, const CallPath&) { ::operator delete(p); }

  // By the other constructor, so that what is kept is destroyed where a later one throws: saved-tensor hooks may.
  RecordedNode(const CallPath& op, uint64_t wanting, ArgsAt at) : RecordedNode(op) {
    for (; kept_ < op.facts_.args; ++kept_) {
      const int i = kept_;
      const bool keep = op.saves_.keeps_arg(static_cast<size_t>(i), wanting);
      switch (op.facts_.types[i]->kind) {
        case ArgType::tensor:
          new (room(i)) SavedTensor(arg_at<Tensor>(at[i]), keep);
          break;
        case ArgType::tensors: {
          std::vector<SavedTensor> all;
          const TensorList& list = arg_at<TensorList>(at[i]);
          all.reserve(list.size());
          for (const Tensor& t : list) all.emplace_back(t, keep);
          new (room(i)) std::vector<SavedTensor>(std::move(all));
          break;
        }
        default:
          op.facts_.types[i]->copy(room(i), at[i]);
      }
    }
  }
  ~RecordedNode() override {
    while (kept_-- > 0) {
      switch (op_.facts_.types[kept_]->kind) {
        case ArgType::tensor:
          std::destroy_at(&tensor(kept_));
          break;
        case ArgType::tensors:
          std::destroy_at(&tensors(kept_));
          break;
        default:
          op_.facts_.types[kept_]->destroy(room(kept_));
      }
    }
  }

  std::string_view name() const override { return op_.name(); }
  const OpBase* op() const override { return &op_; }
  NodeValues values() const override {
    NodeValues v;
    for (int i = 0; i < kept_; ++i) {
      switch (op_.facts_.types[i]->kind) {
        case ArgType::tensor:
          v.args.push_back(to_value(tensor(i).peek()));
          break;
        case ArgType::tensors: {
          TensorList list;
          for (const SavedTensor& s : tensors(i)) list.push_back(s.peek());
          v.args.emplace_back(std::move(list));
          break;
        }
        default:
          v.args.push_back(op_.facts_.types[i]->box(room(i)));
      }
    }
    for (const SavedTensor& s : results_) v.results.push_back(s.peek());
    return v;
  }
  void list_packed(std::vector<PackedTensor>& all) const override {
    each_saved([&](const SavedTensor& s) { s.list_packed(all); });
    for (const SavedTensor& s : results_) s.list_packed(all);
  }
  void keep_results(const Results& r) {
    results_.reserve(r.size());
    for (size_t i = 0; i < r.size(); ++i)
      results_.push_back(SavedTensor::result(r[i], op_.saves_.keeps_result(static_cast<int>(i))));
    num_results = static_cast<uint32_t>(r.size());
  }
  void written_in_place(const Tensor& self) {
    if (op_.facts_.types[0]->kind == ArgType::tensor) tensor(0).overwritten_by(op_.name());
    results_.push_back(SavedTensor::result(self, op_.saves_.keeps_result(0)));
  }
  void apply(Grads& gy, Grads& gx) override {
    const Ref<Node> self(this);
    std::vector<Tensor> ys;
    ys.reserve(results_.size());
    bool sole = runs_last;
    for (const SavedTensor& s : results_) {
      ys.push_back(s.get(self, op_.name()));
      sole = sole && !s.packed();
    }
    // In a pass to some inputs, a rule that asks what is needed computes nothing for the others.
    std::vector<Edge> some;
    if (t_partial_pass != nullptr) [[unlikely]] {
      some = edges;
      for (Edge& e : some)
        if (e.node && !t_partial_pass->needs(e)) e.node = {};
    }
    Backward b(gy, gx, t_partial_pass != nullptr ? some : edges, ys, sole);
    HeldTensors held(static_cast<size_t>(std::popcount(op_.tensors_ & ~op_.lists_)));
    std::vector<TensorList> lists;
    lists.reserve(static_cast<size_t>(std::popcount(op_.lists_)));
    const void* at[kMostArgs];
    for (int i = 0; i < kept_; ++i) {
      switch (op_.facts_.types[i]->kind) {
        case ArgType::tensor:
          at[i] = held.hold(tensor(i).get(self, op_.name()));
          break;
        case ArgType::tensors: {
          TensorList& list = lists.emplace_back();
          for (const SavedTensor& s : tensors(i)) list.push_back(s.get(self, op_.name()));
          at[i] = &list;
          break;
        }
        default:
          at[i] = room(i);
      }
    }
    op_.facts_.calls->backward(op_.facts_.backward, b, at);
  }
  void release() override {
    each_saved([](SavedTensor& s) { s.reset(); });
    for (SavedTensor& s : results_) s.reset();
  }

 private:
  explicit RecordedNode(const CallPath& op) : op_(op) {}
  void* room(int i) { return reinterpret_cast<std::byte*>(this + 1) + op_.node_offsets_[i]; }
  const void* room(int i) const { return reinterpret_cast<const std::byte*>(this + 1) + op_.node_offsets_[i]; }
  SavedTensor& tensor(int i) { return *static_cast<SavedTensor*>(room(i)); }
  const SavedTensor& tensor(int i) const { return *static_cast<const SavedTensor*>(room(i)); }
  std::vector<SavedTensor>& tensors(int i) { return *static_cast<std::vector<SavedTensor>*>(room(i)); }
  const std::vector<SavedTensor>& tensors(int i) const {
    return *static_cast<const std::vector<SavedTensor>*>(room(i));
  }
  template <class F>
  void each_saved(F&& f) {
    for (uint32_t left = op_.tensors_; left; left &= left - 1) {
      const int i = std::countr_zero(left);
      if (op_.lists_ >> i & 1) {
        for (SavedTensor& s : tensors(i)) f(s);
      } else {
        f(tensor(i));
      }
    }
  }
  template <class F>
  void each_saved(F&& f) const {
    const_cast<RecordedNode*>(this)->each_saved([&](const SavedTensor& s) { f(s); });
  }

  const CallPath& op_;
  int kept_ = 0;
  std::vector<SavedTensor> results_;
};

CallPath::CallPath(std::string_view schema, std::string_view doc, std::string_view example, const char* file,
                   std::string_view saves, const Policies& policies, const RecordFacts& facts)
    : OpBase(schema, doc, example, file), facts_(facts), saves_(parse_saves(schema, saves)) {
  policies_ = policies;
  for (int i = 0; i < facts.args; ++i) {
    const ArgType& type = *facts.types[i];
    uint32_t size = type.size, align = type.align;
    if (type.kind == ArgType::tensor || type.kind == ArgType::tensors) {
      tensors_ |= uint32_t{1} << i;
      size = sizeof(SavedTensor);
      align = alignof(SavedTensor);
    }
    if (type.kind == ArgType::tensors) {
      lists_ |= uint32_t{1} << i;
      size = sizeof(std::vector<SavedTensor>);
      align = alignof(std::vector<SavedTensor>);
    }
    static_assert(alignof(RecordedNode) >= alignof(SavedTensor) && sizeof(RecordedNode) % 8 == 0);
    node_bytes_ = (node_bytes_ + align - 1) / align * align;
    node_offsets_[i] = node_bytes_;
    node_bytes_ += size;
  }
}

// ---- calls -------------------------------------------------------------------------------------------------------

void CallPath::call(ArgsAt at, const Results& into) const {
  if (t_mode.unusual) [[unlikely]]
    return call_unusual(at, into);
  const Seen seen = see(at);
  if (!seen.alike()) return call_adapted(at, into);
  call_plain(seen, at, into);
}

void CallPath::call_plain(const Seen& seen, ArgsAt at, const Results& into) const {
  if (t_mode.unusual & kPlacements) [[unlikely]]
    if (Placed::any(*this, at) && Placed(*this, at).call(seen, into)) return;
  if (composes(seen.wants_grad)) {
    if (facts_.infer) {  // a composed form relies on what infer checks
      if (!seen.one_device) check_devices(at);
      infer(at);
    }
    return facts_.calls->form(facts_.composed, at, into);
  }
  compute(seen, at, into);
  if (seen.wants_grad) record(into, at);
  if (facts_.view && grad_enabled()) note_views(into, at);
}

void CallPath::infer(ArgsAt at) const {
  Inferred metas;
  std::vector<TensorMeta> list;
  facts_.calls->infer(facts_.infer, at, {metas.each, &list});
}

[[gnu::always_inline]] inline void CallPath::compute(const Seen& seen, ArgsAt at, const Results& into) const {
  if (facts_.view) return facts_.calls->form(facts_.view, at, into);
  if (facts_.dynamic) {
    const DeviceType device = device_of(at);
    const AnyFunction dynamic = facts_.dynamic.on(device);
    if (!dynamic) throw_no_kernel(name_, {device, 0});
    NoGrad guard;
    // It makes its results itself and reads their elements: in memory that does not move.
    const memory::detail::KernelScope plain(memory::current_tag());
    Pins pins;
    if (memory::detail::any_movable()) [[unlikely]]
      each_tensor(at, [&](const Tensor& t, int) { pins.hold(t, Access::read); });
    return facts_.calls->form(dynamic, at, into);
  }
  if (!facts_.infer) [[unlikely]]
    throw_no_results(name_);
  if (!seen.one_device) [[unlikely]]
    check_devices(at);
  if (facts_.results < 0) {
    std::vector<TensorMeta> metas;
    facts_.calls->infer(facts_.infer, at, {nullptr, &metas});
    const memory::OpScope holder(name_);
    into.list->reserve(metas.size());
    for (const TensorMeta& m : metas) into.list->push_back(empty(m));
    if (!metas.empty()) run(metas[0].device, into, at);
    return;
  }
  Inferred metas;
  facts_.calls->infer(facts_.infer, at, {metas.each, nullptr});
  const memory::OpScope holder(name_);
  for (size_t i = 0; i < into.count; ++i) *into.each[i] = empty(metas.each[i]);
  run(metas.each[0].device, into, at);
}

[[gnu::always_inline]] inline void CallPath::run(Device device, const Results& into, ArgsAt at) const {
  if (device.is_meta()) return;
  // What a kernel takes for itself is not for the caller.
  const memory::detail::KernelScope own;
  Pins pins;
  if (memory::detail::any_movable()) [[unlikely]] {
    for (size_t i = 0; i < into.size(); ++i) pins.hold(into[i], Access::write);
    each_tensor(at, [&](const Tensor& t, int) { pins.hold(t, Access::read); });
  }
  // Inside a kernel nothing is recorded, cast or observed.
  const ThreadModeScope plain({false, 0});
  if (const AnyFunction k = facts_.kernels.on(device.type)) [[likely]] {
    if (!device.is_cpu()) return launch(k, device, into, at);
    facts_.calls->kernel(k, into, at);
  } else {
    run_composed(device, into, at);
  }
}

void CallPath::launch(AnyFunction k, Device device, const Results& into, ArgsAt at) const {
  const auto call = [&] { facts_.calls->kernel(k, into, at); };
  const auto launch = [](const void* c) { (*static_cast<const decltype(call)*>(c))(); };
  const LaunchRoom* room = launch_room(device.type);
  if (!room) throw_no_kernel(name_, device);
  if (const char* failure = room->run(name_, device, launch, &call)) [[unlikely]] {
    TensorList seen;
    for (size_t i = 0; i < into.size(); ++i) seen.push_back(into[i]);
    each_tensor(at, [&](const Tensor& t, int) { seen.push_back(t); });
    throw_launch_failure(name_, device, failure, seen);
  }
}

// A device without a kernel runs the composed form and copies its results into place.
void CallPath::run_composed(Device device, const Results& into, ArgsAt at) const {
  if (!facts_.composed) throw_no_kernel(name_, device);
  Slots got(*this);
  facts_.calls->form(facts_.composed, at, got.results());
  for (size_t i = 0; i < got.results().size(); ++i) into[i].copy_(got.results()[i]);
}

// Where a call lies whose record does not infer it. Meta tensors go to the CPU's, which says that they have no
// elements.
DeviceType CallPath::device_of(ArgsAt at) const {
  DeviceType d = DeviceType::meta;
  each_tensor(at, [&](const Tensor& t, int) {
    if (d == DeviceType::meta && t.defined() && !t.impl().wrapped_number) d = t.device().type;
  });
  return d == DeviceType::meta ? DeviceType::cpu : d;
}

void CallPath::check_devices(ArgsAt at) const {
  const Tensor* first = nullptr;
  each_tensor(at, [&](const Tensor& t, int) {
    if (!t.defined() || t.impl().wrapped_number) return;
    if (!first) {
      first = &t;
    } else if (!(t.device() == first->device())) {
      throw_mixed_devices(name_, first->device(), t.device());
    }
  });
}

void CallPath::call_drawn(Generator& g, ArgsAt at, const Results& into) const {
  const RngKey next = g.next(facts_.calls->draws(facts_.draws, at));
  const std::optional<RngKey> given = next;
  Substitutes with_key(*this, at);
  for (int i = 0; i < facts_.args; ++i) {
    const ArgType::Kind kind = facts_.types[i]->kind;
    if (kind == ArgType::key) with_key.address(i, &next);
    if (kind == ArgType::optional_key) with_key.address(i, &given);
  }
  call(with_key.at(), into);
}

// ---- the unusual: casts, adapted arguments, observers ------------------------------------------------------------

void CallPath::call_unusual(ArgsAt at, const Results& into) const {
  if (!(t_mode.unusual & kAutocast) || policies_.autocast == Autocast::keep) return call_cast(at, into);
  if (go_fp8(*this, at, into)) return;
  DType widest = DType::boolean;
  each_tensor(at, [&](const Tensor& t, int) {
    if (t.defined() && is_floating(t.dtype())) widest = promote_types(widest, t.dtype());
  });
  Substitutes casts(*this, at);
  // From the last to the first: where one tensor is several arguments, the order of its casts on the tape is the order
  // in which its gradients are added.
  for (int i = facts_.args; i-- > 0;) {
    if (facts_.types[i]->kind == ArgType::tensor) {
      casts.tensor(i, autocast_tensor(arg_at<Tensor>(at[i]), policies_.autocast, widest));
    } else if (facts_.types[i]->kind == ArgType::tensors) {
      TensorList list;
      for (const Tensor& t : arg_at<TensorList>(at[i])) list.push_back(autocast_tensor(t, policies_.autocast, widest));
      casts.list(i, std::move(list));
    }
  }
  call_cast(casts.at(), into);
}

void CallPath::call_cast(ArgsAt at, const Results& into) const {
  const Seen seen = see(at);
  if (!seen.alike()) return call_adapted(at, into);
  if (t_mode.unusual & kObserved) return call_observed(at, into);
  call_plain(seen, at, into);
}

void CallPath::call_adapted(ArgsAt at, const Results& into) const {
  if (go_mixed(*this, at, into)) return;
  Adapter adapter(name_, policies_.adapt);
  const Substitutes all(*this, at, adapter);
  if (t_mode.unusual & kObserved) return call_observed(all.at(), into);
  call_plain(see(all.at()), all.at(), into);
}

// The arguments of a call that is observed.
struct CallPath::Given {
  const CallPath& op;
  ArgsAt at;
};
const Call::Reader CallPath::kReader{[](const void* data, std::vector<Value>& into) {
                                       const Given& given = *static_cast<const Given*>(data);
                                       for (int i = 0; i < given.op.facts_.args; ++i)
                                         into.push_back(given.op.facts_.types[i]->box(given.at[i]));
                                     },
                                     [](const OpBase&, const void* data) {
                                       const Given& given = *static_cast<const Given*>(data);
                                       const RecordFacts& f = given.op.facts_;
                                       return f.cost ? f.calls->cost(f.cost, given.at) : Cost();
                                     }};

void CallPath::call_observed(ArgsAt at, const Results& into) const {
  const Given given{*this, at};
  const Seen seen = see(at);
  const Call shown(*this, Form::fresh, composes(seen.wants_grad), {}, kReader, &given);
  ObservedCall observed(shown);
  call_plain(seen, at, into);
  if (into.list) return observed.done(*into.list);
  if (into.count == 1) return observed.done({&into[0], 1});
  TensorList results;
  for (size_t i = 0; i < into.count; ++i) results.push_back(into[i]);
  observed.done(results);
}

// ---- the tape ----------------------------------------------------------------------------------------------------

Ref<CallPath::RecordedNode> CallPath::make_node(ArgsAt at) const {
  size_t inputs = 0;
  uint64_t wanting = 0;
  each_tensor(at, [&](const Tensor& t, int i) {
    ++inputs;
    if (t.defined() && t.requires_grad()) wanting |= uint64_t{1} << i;
  });
  Ref<RecordedNode> node(new (*this) RecordedNode(*this, wanting, at));
  node->edges.reserve(inputs);
  each_tensor(at, [&](const Tensor& t, int) {
    node->edges.push_back(t.defined() && t.requires_grad() ? gradient_edge(t) : Edge());
  });
  return node;
}

void CallPath::record(const Results& result, ArgsAt at) const {
  if (!facts_.backward) return;
  bool any_floating = false;
  for (size_t i = 0; i < result.size(); ++i) any_floating = any_floating || is_floating(result[i].dtype());
  if (!any_floating) return;
  const Ref<RecordedNode> node = make_node(at);
  for (size_t i = 0; i < result.size(); ++i)
    if (is_floating(result[i].dtype())) set_history(result[i], node, static_cast<uint32_t>(i));
  node->keep_results(result);
}

// A view remembers its base, so that writing through it reaches the base's history (or gives it one).
void CallPath::note_views(const Results& result, ArgsAt at) const {
  const Tensor* base = nullptr;
  each_tensor(at, [&](const Tensor& t, int) {
    if (!base) base = &t;
  });
  for (size_t i = 0; i < result.size(); ++i) {
    const Tensor& t = result[i];
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a view has a tensor argument
    if (t.same_as(*base) || !is_floating(t.dtype())) continue;
    TensorImpl& v = t.impl();
    v.view_base = base->impl().view_base ? base->impl().view_base : base->ref();
    if (v.autograd) v.autograd->view_version.store(t.version(), std::memory_order_relaxed);
  }
}

// ---- into tensors that there are ---------------------------------------------------------------------------------

void CallPath::call_out(Tensor& result, ArgsAt at) const {
  if (!(t_mode.unusual & kObserved)) [[likely]]
    return out_plain(result, at);
  const Given given{*this, at};
  const Call call(*this, Form::out, false, {&result, 1}, kReader, &given);
  ObservedCall observed(call);
  out_plain(result, at);
  observed.done({&result, 1});
}
void CallPath::out_plain(Tensor& result, ArgsAt at) const {
  Inferred metas;
  facts_.calls->infer(facts_.infer, at, {metas.each, nullptr});
  const TensorMeta& m = metas.each[0];
  if (result.shape() != m.shape || result.dtype() != m.dtype) throw_bad_inplace(name_, result, m);
  if (see(at).wants_grad || (grad_enabled() && result.requires_grad()))
    throw AutogradError(name_, "the out= form is not differentiable; use the plain form, or NoGrad");
  Tensor* const slot = &result;
  run(m.device, {&slot, 1, nullptr}, at);
  bump_version(result, name_);
}

void CallPath::call_inplace(Tensor& self, ArgsAt at) const {
  // Apart, so that its tensors are not in the way of the usual call.
  const auto adapted = [&]() __attribute__((noinline)) {
    if (go_mixed_inplace(*this, self, at)) return;
    Adapter adapter(name_, policies_.adapt);
    adapter.pin(self);
    Substitutes all(*this, at, adapter);
    all.address(0, &self);
    inplace_observed(see(all.at()), self, all.at());
  };
  const Seen seen = see(at);
  if (!seen.alike()) return adapted();
  if (t_mode.unusual & kObserved) [[unlikely]]
    return inplace_observed(seen, self, at);
  inplace_plain(seen, self, at);
}
void CallPath::inplace_observed(const Seen& seen, Tensor& self, ArgsAt at) const {
  if (!(t_mode.unusual & kObserved)) return inplace_plain(seen, self, at);
  const Given given{*this, at};
  const Call call(*this, Form::inplace, false, {&self, 1}, kReader, &given);
  ObservedCall observed(call);
  inplace_plain(seen, self, at);
  observed.done({&self, 1});
}
[[gnu::always_inline]] inline void CallPath::inplace_plain(const Seen& seen, Tensor& self, ArgsAt at) const {
  check_inplace_target(name_, self);
  Inferred metas;
  facts_.calls->infer(facts_.infer, at, {metas.each, nullptr});
  const TensorMeta& m = metas.each[0];
  if (self.shape() != m.shape || self.dtype() != m.dtype) throw_bad_inplace(name_, self, m);
  if (seen.wants_grad && !facts_.backward) throw_no_backward(name_);
  Ref<RecordedNode> node;
  if (seen.wants_grad) node = make_node(at);
  if (!seen.one_device) [[unlikely]]
    check_devices(at);
  Tensor* const slot = &self;
  if ((t_mode.unusual & kPlacements) && Placed::any(*this, at)) [[unlikely]]
    Placed(*this, at).inplace(self);
  else
    run(self.device(), {&slot, 1, nullptr}, at);
  bump_version(self, name_);
  if (seen.wants_grad) {
    rebase_history(self, node);
    node->written_in_place(self);
  }
}

}  // namespace strata::detail
