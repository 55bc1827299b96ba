#pragma once
// The op record: everything the engine knows about an operation, and the call path from a typed function to a kernel.
// docs/design/op_record.md explains it with a complete example.

#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/op_call.h"

namespace strata {

template <class Signature>
class Op;

/// One operation of C++ signature R(A...), R being Tensor, a tuple of Tensors or a TensorList: a static object, made
/// from a Record, that registers itself and is called like a function.
template <class R, class... A>
class Op<R(A...)> final : public OpBase {
 public:
  /// What `infer` returns: a TensorMeta for each result.
  using Metas = typename detail::ResultTraits<R>::Metas;
  /// A function of the results, to be written into, and the arguments.
  using Kernel = typename detail::KernelType<R, A...>::type;

  /// A kernel for each device; it writes into results that are already allocated. It never allocates a result.
  using Kernels = ByDevice<Kernel>;

  /// What a record says. One of `infer`+`kernels`, `view`, `dynamic` or `composed` says how results come about.
  struct Record {
    std::string_view schema;        ///< "softmax(Tensor x, int dim) -> Tensor"
    std::string_view aliases = {};  ///< other names of the function, separated by blanks: "arccos"
    int shown = 0;                  ///< results that callers get, the first ones; the others are for `backward`. 0: all
    bool internal = false;          ///< called by other ops and gradient rules only: no language offers it
    bool inplace_by_copy = false;   ///< for languages: an in-place form that computes elsewhere, then copies
    std::string_view doc;           ///< one paragraph: meaning, shapes, errors, source of the formula
    std::string_view example = {};  ///< C++ statements, compiled and run by the tests
    Metas (*infer)(A...) = nullptr;  ///< checks the arguments, says what the results are
    Kernels kernels = {};
    R (*view)(A...) = nullptr;      ///< returns a tensor that shares the first argument's storage
    ByDevice<R (*)(A...)> dynamic;  ///< for results whose size depends on values
    R (*composed)(A...) = nullptr;  ///< the same function written with other ops
    /// Arguments and results whose elements `backward` reads: "x result". "a:b,c" keeps a only when b or c
    /// wants a gradient.
    std::string_view saves = {};
    void (*backward)(Backward&, A...) = nullptr;
    bool inplace = false;  ///< the kernel may write over its first argument
    /// Blocks of random numbers that a call with these arguments uses up: how far a generator moves for its RngKey.
    uint64_t (*draws)(A...) = nullptr;
    Adapt adapt = Adapt::none;
    Autocast autocast = Autocast::keep;
    DTypeSet dtypes = kFloats;  ///< what the samples are tried with
    Cost (*cost)(A...) = nullptr;
    void (*samples)(Samples&) = nullptr;
    R (*reference)(A...) = nullptr;  ///< slow and obviously right, called with f64 tensors
    double tolerance = 0;            ///< widens the verification's bound by this factor; 0 and 1 mean no widening
    std::string_view tolerance_reason = {};
  };

  Op(const Record& r, const char* file = __builtin_FILE())
      : OpBase(r.schema, r.doc, r.example, file), r_(r), saves_(detail::parse_saves(r.schema, r.saves)) {
    aliases_ = r.aliases;
    shown_ = r.shown;
    internal_ = r.internal;
    inplace_by_copy_ = r.inplace_by_copy;
    autocast_ = r.autocast;
    adapt_ = r.adapt;
    dtypes_ = r.dtypes;
    tolerance_ = r.tolerance;
    tolerance_reason_ = r.tolerance_reason;
  }

  /// The call path: infer, allocate, kernel, record.
  R operator()(A... args) const {
    if (t_mode.unusual) [[unlikely]]
      return call_unusual(args...);
    if (r_.adapt != Adapt::none && !alike(args...)) return call_adapted(args...);
    return call(args...);
  }

  /// Runs the kernel into `result`, which must be what infer says. Not recorded: an error while a gradient is wanted.
  void out(Tensor& result, A... args) const requires std::is_same_v<R, Tensor> {
    if (t_mode.unusual & kObserved) [[unlikely]] {
      const Given given(args...);
      const Call call(*this, Form::out, false, {&result, 1}, kReader, &given);
      detail::ObservedCall observed(call);
      out_impl(result, args...);
      return observed.done({&result, 1});
    }
    out_impl(result, args...);
  }

  /// Writes the result over the first argument, records it, and returns it.
  template <class... Rest>
  Tensor& inplace(Tensor& self, Rest&&... rest) const requires std::is_same_v<R, Tensor> {
    if (r_.adapt != Adapt::none && !alike(self, rest...)) {
      return inplace_adapted(self, self, std::forward<Rest>(rest)...);
    } else {
      return inplace_call(self, self, std::forward<Rest>(rest)...);
    }
  }

  /// The call with the next numbers of `g` for its RngKey, whatever stands in that place.
  R drawn(Generator& g, A... args) const {
    const RngKey key = g.next(r_.draws(args...));
    return (*this)(with_key(key, args)...);
  }

  const Record& record() const { return r_; }

  bool is_view() const override { return r_.view != nullptr; }
  bool is_dynamic() const override { return static_cast<bool>(r_.dynamic); }
  bool is_composed() const override { return r_.composed && !r_.infer; }
  bool has_kernel(DeviceType d) const override { return r_.kernels.has(d) || r_.dynamic.has(d); }
  bool has_backward() const override { return r_.backward != nullptr || r_.composed != nullptr; }
  bool has_reference() const override { return r_.reference != nullptr; }
  bool has_composed() const override { return r_.composed != nullptr; }
  bool can_inplace() const override { return r_.inplace; }
  bool has_samples() const override { return r_.samples != nullptr; }
  void samples(Samples& s) const override {
    if (r_.samples) r_.samples(s);
  }
  std::vector<Value> call_boxed(std::span<const Value> args) const override {
    try {
      return boxed([this](A... a) -> R { return (*this)(a...); }, args);
    } catch (...) {
      detail::rethrow_named(*this, args);
    }
  }
  std::vector<Value> inplace_boxed(std::span<const Value> args) const override {
    if constexpr (std::is_same_v<R(A...), Tensor(A...)> && detail::first_is_tensor<A...>) {
      if (has_inplace()) {
        try {
          return unboxed(
              [this](Tensor self, const auto&... rest) {
                if (r_.inplace) {
                  inplace(self, rest...);
                } else {
                  // A gradient may read what is written over: it gets a copy.
                  self.copy_((*this)(wants_grad(self, rest...) ? self.clone() : self, rest...));
                }
                return std::vector<Value>{self};
              },
              args);
        } catch (...) {
          detail::rethrow_named(*this, args);
        }
      }
    }
    throw ValueError(name_, "has no in-place form");
  }
  uint64_t draws_boxed(std::span<const Value> args) const override {
    if (!r_.draws) return OpBase::draws_boxed(args);
    return unboxed(r_.draws, args);
  }
  std::vector<Value> reference_boxed(std::span<const Value> args) const override {
    R (*f)(A...) = r_.reference ? r_.reference : r_.composed;
    if (!f) throw ValueError(name_, "the record has neither a reference nor a composed form");
    return boxed(f, args);
  }
  Cost cost_boxed(std::span<const Value> args) const override {
    if (!r_.cost) return {};
    return unboxed(r_.cost, args);
  }

 private:
  class OpNode final : public Node {
   public:
    OpNode(const Op& op, uint64_t wanting, const std::remove_cvref_t<A>&... args)
        : op_(op), args_(make_args(op, wanting, std::index_sequence_for<A...>(), args...)) {}
    std::string_view name() const override { return op_.name(); }
    const OpBase* op() const override { return &op_; }
    NodeValues values() const override {
      NodeValues v;
      std::apply([&](const auto&... a) { (v.args.push_back(a.peek()), ...); }, args_);
      for (const SavedTensor& s : results_) v.results.push_back(s.peek());
      return v;
    }
    void list_packed(std::vector<PackedTensor>& all) const override {
      std::apply([&](const auto&... a) { (a.list_packed(all), ...); }, args_);
      for (const SavedTensor& s : results_) s.list_packed(all);
    }
    void keep_results(const R& r) {
      int i = 0;
      detail::visit_tensors(r, [&](const Tensor& t) {
        results_.push_back(SavedTensor::result(t, op_.saves_.keeps_result(i)));
        ++i;
      });
      num_results = static_cast<uint32_t>(i);
    }
    void written_in_place(const Tensor& self) {
      if constexpr (detail::is_tensor_arg<std::tuple_element_t<0, std::tuple<A...>>>)
        std::get<0>(args_).saved.overwritten_by(op_.name());
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
      Backward b(gy, gx, edges, ys, sole);
      std::apply([&](const auto&... a) { op_.r_.backward(b, a.get(self, op_.name())...); }, args_);
    }
    void release() override {
      std::apply([](auto&... a) { (a.reset(), ...); }, args_);
      for (SavedTensor& s : results_) s.reset();
    }

   private:
    using Args = std::tuple<detail::SavedArg<std::remove_cvref_t<A>>...>;
    template <size_t... I>
    static Args make_args(const Op& op, uint64_t wanting, std::index_sequence<I...>,
                          const std::remove_cvref_t<A>&... args) {
      return Args(detail::SavedArg<std::remove_cvref_t<A>>(args, op.saves_.keeps_arg(I, wanting))...);
    }
    const Op& op_;
    Args args_;
    std::vector<SavedTensor> results_;
  };

  // The arguments of a call that is observed.
  using Given = std::tuple<const std::remove_cvref_t<A>&...>;
  static void read_args(const void* given, std::vector<Value>& into) {
    std::apply([&](const auto&... a) { (into.push_back(detail::to_value(a)), ...); },
               *static_cast<const Given*>(given));
  }
  static Cost read_cost(const OpBase& op, const void* given) {
    const auto cost = static_cast<const Op&>(op).r_.cost;
    return cost ? std::apply(cost, *static_cast<const Given*>(given)) : Cost();
  }
  static constexpr Call::Reader kReader{read_args, read_cost};

  void out_impl(Tensor& result, A... args) const requires std::is_same_v<R, Tensor> {
    const TensorMeta m = r_.infer(args...);
    if (result.shape() != m.shape || result.dtype() != m.dtype) detail::throw_bad_inplace(name_, result, m);
    if (wants_grad(args...) || (grad_enabled() && result.requires_grad()))
      throw AutogradError(name_, "the out= form is not differentiable; use the plain form, or NoGrad");
    run(m.device, result, args...);
    bump_version(result, name_);
  }

  template <class T>
  static const auto& with_key(const RngKey& key, const T& arg) {
    if constexpr (std::is_same_v<T, RngKey>) {
      return key;
    } else {
      return arg;
    }
  }

  bool alike(A... args) const {
    detail::AlreadyAlike check{r_.adapt};
    (detail::visit_tensors(args, [&](const Tensor& t) { check.see(t); }), ...);
    return check.ok;
  }
  template <class T>
  static decltype(auto) adapted(detail::Adapter& adapter, const T& arg) {
    if constexpr (detail::is_tensor_arg<T>) {
      return adapter.apply(arg);
    } else {
      return (arg);
    }
  }
  R call_adapted(A... args) const {
    detail::Adapter adapter(name_, r_.adapt);
    (detail::visit_tensors(args, [&](const Tensor& t) { adapter.see(t); }), ...);
    std::tuple<std::conditional_t<detail::is_tensor_arg<A>, Tensor, const std::remove_cvref_t<A>&>...> all{
        adapted(adapter, args)...};  // braces: from left to right
    return std::apply(
        [this](const auto&... a) -> R { return t_mode.unusual & kObserved ? observed(a...) : call(a...); }, all);
  }
  Tensor& inplace_adapted(Tensor& self, A... args) const {
    detail::Adapter adapter(name_, r_.adapt);
    adapter.pin(self);
    (detail::visit_tensors(args, [&](const Tensor& t) { adapter.see(t); }), ...);
    std::tuple<std::conditional_t<detail::is_tensor_arg<A>, Tensor, const std::remove_cvref_t<A>&>...> all{
        adapted(adapter, args)...};
    return std::apply([&](const auto&, const auto&... a) -> Tensor& { return inplace_call(self, self, a...); }, all);
  }

  static bool wants_grad(A... args) {
    if (!grad_enabled()) return false;
    bool any = false;
    (detail::visit_tensors(args, [&](const Tensor& t) { any = any || (t.defined() && t.requires_grad()); }), ...);
    return any;
  }

  bool is_composed_call(bool record) const { return r_.composed && (!r_.infer || (record && !r_.backward)); }

  R call(A... args) const {
    const bool record = wants_grad(args...);
    if (is_composed_call(record)) {
      if (r_.infer) {  // a composed form relies on what infer checks
        check_devices(args...);
        r_.infer(args...);
      }
      return r_.composed(args...);
    }
    R result = compute(args...);
    if (record) this->record_node(result, args...);
    if (r_.view && grad_enabled()) note_views(result, args...);
    return result;
  }

  R compute(A... args) const {
    if (r_.view) return r_.view(args...);
    if (r_.dynamic) {
      const auto dynamic = r_.dynamic.on(device_of(args...));
      if (!dynamic) detail::throw_no_kernel(name_, {device_of(args...), 0});
      NoGrad guard;
      // It makes its results itself and reads their elements: in memory that does not move.
      const memory::detail::KernelScope plain(memory::current_tag());
      detail::Pins pins;
      if (memory::detail::any_movable()) [[unlikely]]
        (detail::visit_tensors(args, [&](const Tensor& t) { pins.hold(t, Access::read); }), ...);
      return dynamic(args...);
    }
    if (!r_.infer) [[unlikely]]
      detail::throw_no_results(name_);
    check_devices(args...);
    const Metas metas = r_.infer(args...);
    const memory::OpScope holder(name_);
    if constexpr (std::is_same_v<R, Tensor>) {
      Tensor result = empty(metas);
      run(metas.device, result, args...);
      return result;
    } else if constexpr (std::is_same_v<R, TensorList>) {
      TensorList results;
      results.reserve(metas.size());
      for (const TensorMeta& m : metas) results.push_back(empty(m));
      if (!metas.empty()) run(metas[0].device, results, args...);
      return results;
    } else {
      return [&]<size_t... I>(std::index_sequence<I...>) {
        R results{empty(metas[I])...};
        run(metas[0].device, std::get<I>(results)..., args...);
        return results;
      }
      (std::make_index_sequence<std::tuple_size_v<R>>());
    }
  }

  template <class... Results>
  void run(Device device, Results&... all) const {
    if (device.is_meta()) return;
    // What a kernel takes for itself is not for the caller.
    const memory::detail::KernelScope own;
    detail::Pins pins;
    if (memory::detail::any_movable()) [[unlikely]]
      pin_all(pins, all...);
    // Inside a kernel nothing is recorded, cast or observed.
    const detail::ThreadModeScope plain({false, 0});
    if (const Kernel k = r_.kernels.on(device.type)) [[likely]] {
      if (!device.is_cpu()) return launch(k, device, all...);
      k(all...);
    } else {
      run_composed(device, all...);
    }
  }

  // Results, then arguments.
  template <class... All>
  static void pin_all(detail::Pins& pins, const All&... all) {
    size_t i = 0;
    (
        [&](const auto& each) {
          const Access access = i++ < sizeof...(All) - sizeof...(A) ? Access::write : Access::read;
          detail::visit_tensors(each, [&](const Tensor& t) { pins.hold(t, access); });
        }(all),
        ...);
  }

  template <class... All>
  void launch(Kernel k, Device device, All&... all) const {
    const auto call = [&] { k(all...); };
    const auto launch = [](const void* c) { (*static_cast<const decltype(call)*>(c))(); };
    const LaunchRoom* room = launch_room(device.type);
    if (!room) detail::throw_no_kernel(name_, device);
    if (const char* failure = room->run(name_, device, launch, &call)) [[unlikely]] {
      TensorList seen;
      (detail::visit_tensors(all, [&](const Tensor& t) { seen.push_back(t); }), ...);
      detail::throw_launch_failure(name_, device, failure, seen);
    }
  }

  // A device without a kernel runs the composed form and copies its results into place.
  template <class... All>
  void run_composed(Device device, All&... all) const {
    if (!r_.composed) detail::throw_no_kernel(name_, device);
    auto refs = std::tie(all...);
    constexpr size_t n = sizeof...(All) - sizeof...(A);
    [&]<size_t... I>(std::index_sequence<I...>) {
      R got = r_.composed(std::get<n + I>(refs)...);
      if constexpr (std::is_same_v<R, Tensor>) {
        std::get<0>(refs).copy_(got);
      } else if constexpr (std::is_same_v<R, TensorList>) {
        for (size_t i = 0; i < got.size(); ++i) std::get<0>(refs)[i].copy_(got[i]);
      } else {
        [&]<size_t... J>(std::index_sequence<J...>) {
          (std::get<J>(refs).copy_(std::get<J>(got)), ...);
        }
        (std::make_index_sequence<n>());
      }
    }
    (std::index_sequence_for<A...>());
  }

  // Where a call lies whose record does not infer it. Meta tensors go to the CPU's, which says that they have no
  // elements.
  static DeviceType device_of(A... args) {
    DeviceType d = DeviceType::meta;
    (detail::visit_tensors(args,
                           [&](const Tensor& t) {
                             if (d == DeviceType::meta && t.defined() && !t.impl().wrapped_number) d = t.device().type;
                           }),
     ...);
    return d == DeviceType::meta ? DeviceType::cpu : d;
  }
  void check_devices(A... args) const {
    const Tensor* first = nullptr;
    (detail::visit_tensors(args,
                           [&](const Tensor& t) {
                             if (!t.defined() || t.impl().wrapped_number) return;
                             if (!first) {
                               first = &t;
                             } else if (!(t.device() == first->device())) [[unlikely]] {
                               detail::throw_mixed_devices(name_, first->device(), t.device());
                             }
                           }),
     ...);
  }

  Ref<Node> make_node(A... args) const {
    size_t inputs = 0, position = 0;
    uint64_t wanting = 0;
    (
        [&](const auto& arg) {
          detail::visit_tensors(arg, [&](const Tensor& t) {
            ++inputs;
            if (t.defined() && t.requires_grad()) wanting |= uint64_t{1} << position;
          });
          ++position;
        }(args),
        ...);
    Ref<Node> node(new OpNode(*this, wanting, args...));
    node->edges.reserve(inputs);
    (detail::visit_tensors(
         args,
         [&](const Tensor& t) { node->edges.push_back(t.defined() && t.requires_grad() ? gradient_edge(t) : Edge()); }),
     ...);
    return node;
  }

  void record_node(R& result, A... args) const {
    bool any_floating = false;
    detail::visit_tensors(result, [&](const Tensor& t) { any_floating = any_floating || is_floating(t.dtype()); });
    if (!any_floating || !r_.backward) return;
    Ref<Node> node = make_node(args...);
    uint32_t i = 0;
    detail::visit_tensors(result, [&](const Tensor& t) {
      if (is_floating(t.dtype())) set_history(t, node, i);
      ++i;
    });
    static_cast<OpNode*>(node.get())->keep_results(result);
  }

  // A view remembers its base, so that writing through it reaches the base's history (or gives it one).
  static void note_views(R& result, A... args) {
    const Tensor* base = nullptr;
    (detail::visit_tensors(args,
                           [&](const Tensor& t) {
                             if (!base) base = &t;
                           }),
     ...);
    detail::visit_tensors(result, [&](const Tensor& t) {
      // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a view has a tensor argument
      if (t.same_as(*base) || !is_floating(t.dtype())) return;
      TensorImpl& v = t.impl();
      v.view_base = base->impl().view_base ? base->impl().view_base : base->ref();
      if (v.autograd) v.autograd->view_version.store(t.version(), std::memory_order_relaxed);
    });
  }

  Tensor& inplace_call(Tensor& self, A... args) const {
    if (!(t_mode.unusual & kObserved)) [[likely]]
      return inplace_impl(self, args...);
    const Given given(args...);
    const Call call(*this, Form::inplace, false, {&self, 1}, kReader, &given);
    detail::ObservedCall observed(call);
    inplace_impl(self, args...);
    observed.done({&self, 1});
    return self;
  }
  Tensor& inplace_impl(Tensor& self, A... args) const {
    detail::check_inplace_target(name_, self);
    const bool record = wants_grad(args...);
    const TensorMeta m = r_.infer(args...);
    if (self.shape() != m.shape || self.dtype() != m.dtype) detail::throw_bad_inplace(name_, self, m);
    if (record && !r_.backward) detail::throw_no_backward(name_);
    Ref<Node> node;
    if (record) node = make_node(args...);
    check_devices(args...);
    run(self.device(), self, args...);
    bump_version(self, name_);
    if (record) {
      rebase_history(self, node);
      static_cast<OpNode*>(node.get())->written_in_place(self);
    }
    return self;
  }

  R call_unusual(A... args) const {
    const uint32_t mode = t_mode.unusual;
    if ((mode & kAutocast) && r_.autocast != Autocast::keep) {
      DType widest = DType::boolean;
      (detail::visit_tensors(args,
                             [&](const Tensor& t) {
                               if (t.defined() && is_floating(t.dtype())) widest = promote_types(widest, t.dtype());
                             }),
       ...);
      return call_cast(cast(args, widest)...);
    }
    return call_cast(args...);
  }
  template <class T>
  decltype(auto) cast(const T& arg, DType widest) const {
    if constexpr (detail::is_tensor_arg<T>) {
      return detail::autocast_tensor(arg, r_.autocast, widest);
    } else if constexpr (detail::is_list_arg<T>) {
      TensorList l;
      for (const Tensor& t : arg) l.push_back(detail::autocast_tensor(t, r_.autocast, widest));
      return l;
    } else {
      return (arg);
    }
  }
  R call_cast(A... args) const {
    if (r_.adapt != Adapt::none && !alike(args...)) return call_adapted(args...);
    return t_mode.unusual & kObserved ? observed(args...) : call(args...);
  }
  R observed(A... args) const {
    const Given given(args...);
    const Call shown(*this, Form::fresh, is_composed_call(wants_grad(args...)), {}, kReader, &given);
    detail::ObservedCall seen(shown);
    R result = call(args...);
    if constexpr (std::is_same_v<R, Tensor>) {
      seen.done({&result, 1});
    } else {
      TensorList results;
      detail::visit_tensors(result, [&](const Tensor& t) { results.push_back(t); });
      seen.done(results);
    }
    return result;
  }

  template <class F>
  auto unboxed(F&& f, std::span<const Value> given) const {
    detail::check_boxed_count(*this, given.size());
    std::vector<Value> all(given.begin(), given.end());
    for (size_t i = all.size(); i < sizeof...(A); ++i) all.push_back(detail::boxed_default(*this, i));
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return f(detail::Unbox<std::remove_cvref_t<A>>::get(*this, I, all[I])...);
    }
    (std::index_sequence_for<A...>());
  }
  template <class F>
  std::vector<Value> boxed(F&& f, std::span<const Value> given) const {
    R result = unboxed(f, given);
    std::vector<Value> values;
    if constexpr (std::is_same_v<R, TensorList>) {
      values.emplace_back(std::move(result));
    } else {
      detail::visit_tensors(result, [&](const Tensor& t) { values.emplace_back(t); });
    }
    return values;
  }

  Record r_;
  detail::SavePlan saves_;
};

}  // namespace strata
