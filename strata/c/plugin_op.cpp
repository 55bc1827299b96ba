#include "strata/c/plugin_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "strata/c/plugin.h"
#include "strata/c/plugin_values_inl.h"
#include "strata/core/boxed_call.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/poison.h"

namespace strata::c {
namespace {

static_assert(static_cast<int>(Adapt::none) == STRATA_ADAPT_NONE &&
              static_cast<int>(Adapt::broadcast) == STRATA_ADAPT_BROADCAST &&
              static_cast<int>(Adapt::promote) == STRATA_ADAPT_PROMOTE &&
              static_cast<int>(Adapt::promote_float) == STRATA_ADAPT_PROMOTE_FLOAT &&
              static_cast<int>(Adapt::promote_but_first) == STRATA_ADAPT_PROMOTE_BUT_FIRST);
static_assert(static_cast<int>(Autocast::keep) == STRATA_AUTOCAST_KEEP &&
              static_cast<int>(Autocast::low) == STRATA_AUTOCAST_LOW &&
              static_cast<int>(Autocast::full) == STRATA_AUTOCAST_FULL &&
              static_cast<int>(Autocast::promote) == STRATA_AUTOCAST_PROMOTE);

// SavePlan has a bit for each.
constexpr size_t kMostArgs = 32, kMostResults = 16;

SchemaType supported(SchemaType type, std::string_view op) {
  const SchemaType::Kind k = type.kind;
  const bool may_be_none =
      k != SchemaType::tensors && k != SchemaType::boolean && k != SchemaType::string && k != SchemaType::key;
  if (type.optional && !may_be_none)
    throw PluginError(op, cat("an argument of type '", type.text(), "' is not supported"));
  return type;
}

}  // namespace

// ---- the record

PluginOp::PluginOp(const strata_op_record& record, std::string from)
    : RecordTexts{record.schema, record.doc, std::move(from), record.tolerance_reason ? record.tolerance_reason : ""},
      OpBase(RecordTexts::schema, RecordTexts::doc, {}, RecordTexts::file.c_str()),
      r_(record) {
  check_schema();
  saves_ = detail::parse_saves(schema_, record.saves ? record.saves : "");
  check<PluginError>(record.adapt >= STRATA_ADAPT_NONE && record.adapt <= STRATA_ADAPT_PROMOTE_BUT_FIRST, name_,
                     "there is no strata_adapt ", record.adapt);
  check<PluginError>(record.autocast >= STRATA_AUTOCAST_KEEP && record.autocast <= STRATA_AUTOCAST_PROMOTE, name_,
                     "there is no strata_autocast ", record.autocast);
  check<PluginError>(record.dtypes != 0 && record.dtypes >> kNumDTypes == 0, name_,
                     "dtypes must name some of the strata_dtypes (STRATA_FLOATS), got ", record.dtypes);
  check<PluginError>(std::isfinite(record.tolerance) && record.tolerance >= 0, name_,
                     "tolerance must be a number of at least 0");
  check<PluginError>(record.tolerance <= 1 || !RecordTexts::tolerance_reason.empty(), name_,
                     "a tolerance above 1 needs a tolerance_reason");
  check<PluginError>(record.infer != nullptr, name_, "the record has no infer");
  check<PluginError>(record.cpu != nullptr || record.cuda != nullptr, name_, "the record has no kernel");
  policies_.adapt = static_cast<Adapt>(record.adapt);
  policies_.autocast = static_cast<Autocast>(record.autocast);
  policies_.dtypes = static_cast<DTypeSet>(record.dtypes);
  policies_.tolerance = record.tolerance;
  policies_.tolerance_reason = RecordTexts::tolerance_reason;
}

void PluginOp::check_schema() {
  const Schema s = parse_schema(schema_);  // a copy: what a refused record had parsed would stay
  check<PluginError>(s.name == name_, name_, "the schema must begin with the name and '(': ", schema_);
  check<PluginError>(s.args.size() <= kMostArgs, name_, "at most ", kMostArgs, " arguments are supported, got ",
                     s.args.size());
  check<PluginError>(s.results.size() <= kMostResults, name_, "at most ", kMostResults, " results are supported, got ",
                     s.results.size());
  for (const SchemaArg& result : s.results)
    check<PluginError>(result.type == SchemaType{SchemaType::tensor}, name_, "every result must be a Tensor, not ",
                       result.type.text());
  num_results_ = s.results.size();
  bool defaults = false;
  for (size_t i = 0; i < s.args.size(); ++i) {
    const SchemaArg& a = s.args[i];
    check<PluginError>(!a.name.empty(), name_, "argument ", i, " has no name: ", schema_);
    for (size_t j = 0; j < i; ++j)
      check<PluginError>(s.args[j].name != a.name, name_, "two arguments are called '", a.name, "': ", schema_);
    types_.push_back(supported(a.type, name_));
    // What stands after an argument that may be left out may be left out as well.
    check<PluginError>(!defaults || a.default_value || types_.back().optional, name_, "argument '", a.name,
                       "' needs a default, like the one before it: ", schema_);
    defaults = defaults || a.default_value.has_value();
    check<PluginError>(!a.default_value || fit(types_.back(), *a.default_value), name_, "the default of argument '",
                       a.name, "' is not of type ", a.type.text(), ": ", schema_);
    check<PluginError>(types_.back().kind != SchemaType::tensors || !r_.backward, name_,
                       "a record with a backward cannot take Tensor[] (argument '", a.name,
                       "'): write the op with Tensor arguments");
  }
  if (r_.inplace)
    check<PluginError>(
        num_results_ == 1 && !types_.empty() && types_[0].kind == SchemaType::tensor && !types_[0].optional, name_,
        "inplace needs a first argument of type Tensor and one result: ", schema_);
}

Value PluginOp::normalised(size_t i, const Value& v) const {
  std::optional<Value> fitted = fit(types_[i], v);
  if (!fitted) detail::throw_boxed_type(*this, i, {});
  return std::move(*fitted);
}

std::vector<Value> PluginOp::normalised(std::span<const Value> given) const {
  detail::check_boxed_count(*this, given.size());
  std::vector<Value> all;
  all.reserve(types_.size());
  for (size_t i = 0; i < types_.size(); ++i)
    all.push_back(normalised(i, i < given.size() ? given[i] : detail::boxed_default(*this, i)));
  return all;
}

// ---- calling the plugin

template <class F>
void PluginOp::ask(const char* function, F&& f) const {
  Failure& failure = last_failure();
  const uint64_t failures = failure.count;
  strata_status status;
  struct Inside {
    Failure& failure;
    explicit Inside(Failure& f) : failure(f) { ++failure.plugin_calls; }
    ~Inside() {
      if (--failure.plugin_calls == 0) failure.exception = nullptr;
    }
  } inside(failure);
  try {
    status = f();
  } catch (const std::exception& e) {
    throw PluginError(name_,
                      cat("the plugin's ", function, " threw a C++ exception, it must return a status: ", e.what()));
  } catch (...) {
    throw PluginError(name_, cat("the plugin's ", function, " threw a C++ exception, it must return a status"));
  }
  if (status == STRATA_OK) return;
  if (failure.count == failures)
    throw_status(status, name_, cat("the plugin's ", function, " failed and gave no reason"));
  // An exception of another kind came through a call of the plugin's: a language's own, out of a hook.
  if (failure.exception && failure.status == STRATA_OTHER_ERROR && status == STRATA_OTHER_ERROR)
    std::rethrow_exception(failure.exception);
  throw_status(status, name_, failure.text);
}

std::vector<TensorMeta> PluginOp::infer(std::span<const Value> args) const {
  const std::optional<Device> device = device_of(args, name_);
  const Borrowed c(args);
  strata_meta unset;
  std::memset(&unset, 0xff, sizeof unset);
  std::vector<strata_meta> said(num_results_, unset);
  ask("infer", [&] { return r_.infer(r_.data, c.data(), c.size(), said.data()); });
  std::vector<TensorMeta> metas;
  for (size_t i = 0; i < num_results_; ++i) {
    const strata_meta& m = said[i];
    const auto refuse = [&](const auto&... parts) {
      throw PluginError(name_, cat("the plugin's infer says that result ", i, " ", parts...));
    };
    if (m.ndim < 0 || m.ndim > kMaxDims) refuse("has ", m.ndim, " dimensions, 0 to ", kMaxDims, " are possible");
    if (m.dtype < 0 || m.dtype >= kNumDTypes) refuse("has the strata_dtype ", m.dtype, ", which does not exist");
    const Shape shape(std::span<const int64_t>(m.shape, static_cast<size_t>(m.ndim)));
    int64_t bytes = size_of(static_cast<DType>(m.dtype));
    bool fits = true;
    for (const int64_t n : shape) {
      if (n < 0) refuse("has the shape ", shape, ", with a negative size");
      fits = fits && !__builtin_mul_overflow(bytes, std::max<int64_t>(n, 1), &bytes);
    }
    if (!fits) refuse("has the shape ", shape, ", which does not fit in 64 bits");
    if (m.device.type < 0 || m.device.type >= kNumDeviceTypes || m.device.index < 0 || m.device.index > 127)
      refuse("is on a device that does not exist (type ", m.device.type, ", index ", m.device.index, ")");
    const Device on{static_cast<DeviceType>(m.device.type), static_cast<int8_t>(m.device.index)};
    if (device && !(on == *device)) refuse("is on ", on, ", but the arguments are on ", *device);
    if (!metas.empty() && !(on == metas[0].device)) refuse("is on ", on, ", but another is on ", metas[0].device);
    metas.push_back({shape, static_cast<DType>(m.dtype), on, std::nullopt});
  }
  return metas;
}

void PluginOp::run_kernel(Device device, const std::vector<Tensor>& results, std::span<const Value> args) const {
  std::vector<strata_tensor*> handles;
  handles.reserve(results.size());
  for (const Tensor& t : results) handles.push_back(handle_of(t));
  const Borrowed c(args);
  const auto kernel = device.is_cuda() ? r_.cuda : r_.cpu;
  const auto launch = [&] {
    ask(device.is_cuda() ? "cuda kernel" : "cpu kernel",
        [&] { return kernel(r_.data, handles.data(), c.data(), c.size()); });
  };
  if (!device.is_cuda()) return launch();
  const cuda::LaunchScope scope(name_, device);
  launch();
  if (const char* failure = scope.failure()) {
    TensorList seen = results;
    visit(args, [&](const Tensor& t) { seen.push_back(t); });
    detail::throw_launch_failure(name_, device, failure, seen);
  }
}

void PluginOp::run(Device device, std::vector<Tensor>& results, std::span<const Value> args, bool fresh) const {
  if (device.is_meta()) return;
  if (!has_kernel(device.type)) detail::throw_no_kernel(name_, device);
  // As in Op: what a kernel takes for itself is workspace; within it nothing is recorded, cast or observed.
  const memory::detail::KernelScope own;
  detail::Pins pins;
  for (const Tensor& t : results) pins.hold(t, Access::write);
  visit(args, [&](const Tensor& t) { pins.hold(t, Access::read); });
  const detail::ThreadModeScope plain({false, 0});
  if (memory::guards_wanted() && device.is_cpu()) return run_guarded(results, args, fresh);
  run_kernel(device, results, args);
}

// The verification has a plugin's kernel write between two guards: memory next to a result would be the engine's.
void PluginOp::run_guarded(std::vector<Tensor>& results, std::span<const Value> args, bool fresh) const {
  constexpr int64_t kGuard = 4096;
  constexpr int kByte = 0x5c;
  std::vector<Tensor> fenced, inner;
  for (const Tensor& t : results) {
    const int64_t bytes = t.nbytes(), elements = size_of(t.dtype());
    Tensor all = empty({Shape{bytes + 2 * kGuard}, DType::u8, Device::cpu(), std::nullopt});
    std::memset(all.raw_data(), kByte, static_cast<size_t>(all.nbytes()));
    // What was in memory: poison, or in place the argument.
    if (bytes > 0) std::memcpy(all.data<uint8_t>() + kGuard, t.raw_data(), static_cast<size_t>(bytes));
    Ref<TensorImpl> view = make_ref<TensorImpl>();
    view->storage = all.storage();
    view->shape = t.shape();
    view->strides = t.strides();
    view->offset = kGuard / elements;
    view->numel = t.numel();
    view->dtype = t.dtype();
    fenced.push_back(all);
    inner.emplace_back(std::move(view));
  }
  std::vector<Value> all_args(args.begin(), args.end());
  if (!fresh) all_args[0] = inner[0];
  run_kernel(Device::cpu(), inner, all_args);
  for (size_t i = 0; i < results.size(); ++i) {
    const uint8_t* p = fenced[i].data<uint8_t>();
    const int64_t bytes = results[i].nbytes();
    for (int64_t k = 0; k < kGuard; ++k) {
      check<PluginError>(p[kGuard - 1 - k] == kByte, name_, "the plugin's cpu kernel wrote ", k + 1,
                         " bytes before result ", i);
      check<PluginError>(p[kGuard + bytes + k] == kByte, name_, "the plugin's cpu kernel wrote ", k + 1,
                         " bytes past the end of result ", i);
    }
    if (bytes > 0) std::memcpy(results[i].raw_data(), p + kGuard, static_cast<size_t>(bytes));
  }
}

std::vector<Tensor> PluginOp::compute(std::span<const Value> args) const {
  const std::vector<TensorMeta> metas = infer(args);
  const memory::OpScope holder(name_);
  std::vector<Tensor> results;
  results.reserve(metas.size());
  for (const TensorMeta& m : metas) results.push_back(empty(m));
  run(metas[0].device, results, args, /*fresh=*/true);
  return results;
}

// ---- the tape

class PluginOp::PluginNode final : public Node {
 public:
  PluginNode(const PluginOp& op, uint64_t wanting, std::span<const Value> args) : op_(op) {
    for (size_t i = 0; i < args.size(); ++i) {
      const Tensor* t = std::get_if<Tensor>(&args[i]);
      plain_.push_back(t ? Value(Tensor()) : args[i]);
      saved_.emplace_back(t ? SavedTensor(*t, op.saves_.keeps_arg(i, wanting)) : SavedTensor());
    }
  }
  std::string_view name() const override { return op_.name(); }
  const OpBase* op() const override { return &op_; }
  NodeValues values() const override {
    NodeValues v;
    for (size_t i = 0; i < plain_.size(); ++i)
      v.args.push_back(std::holds_alternative<Tensor>(plain_[i]) ? detail::to_value(saved_[i].peek()) : plain_[i]);
    for (const SavedTensor& s : results_) v.results.push_back(s.peek());
    return v;
  }
  void list_packed(std::vector<PackedTensor>& all) const override {
    for (const SavedTensor& s : saved_) s.list_packed(all);
    for (const SavedTensor& s : results_) s.list_packed(all);
  }
  void keep_results(const std::vector<Tensor>& results) {
    for (size_t i = 0; i < results.size(); ++i)
      results_.push_back(SavedTensor::result(results[i], op_.saves_.keeps_result(static_cast<int>(i))));
    num_results = static_cast<uint32_t>(results.size());
  }
  void written_in_place(const Tensor& self) {
    saved_[0].overwritten_by(op_.name());
    results_.push_back(SavedTensor::result(self, op_.saves_.keeps_result(0)));
  }
  void release() override {
    for (SavedTensor& s : saved_) s.reset();
    for (SavedTensor& s : results_) s.reset();
  }
  void apply(Grads& gy, Grads& gx) override;

 private:
  const PluginOp& op_;
  std::vector<Value> plain_;        // the arguments that are no tensors
  std::vector<SavedTensor> saved_;  // those that are, by the same index
  std::vector<SavedTensor> results_;
};

void PluginOp::PluginNode::apply(Grads& gy, Grads& gx) {
  const Ref<Node> self(this);
  const size_t n = plain_.size();
  std::vector<Value> args = plain_;
  std::vector<Tensor> ys;
  for (size_t i = 0; i < n; ++i)
    if (Tensor* t = std::get_if<Tensor>(&args[i])) *t = saved_[i].get(self, op_.name());
  for (const SavedTensor& s : results_) ys.push_back(s.get(self, op_.name()));
  // Edges are counted over the tensor arguments.
  std::vector<int> edge_of(n, -1);
  auto wanted = std::make_unique<bool[]>(n);
  int edge = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::holds_alternative<Tensor>(args[i])) continue;
    edge_of[i] = edge;
    wanted[i] = static_cast<bool>(edges[static_cast<size_t>(edge++)].node);
  }
  std::vector<strata_tensor*> results, result_grads, arg_grads(n, nullptr);
  for (const Tensor& y : ys) results.push_back(handle_of(y));
  for (const Tensor& g : gy) result_grads.push_back(handle_of(g));
  const Borrowed c(args);
  strata_gradient_call call = {};
  call.args = c.data();
  call.num_args = n;
  call.results = results.data();
  call.result_grads = result_grads.data();
  call.num_results = results.size();
  call.wanted = wanted.get();
  call.arg_grads = arg_grads.data();
  op_.ask("backward", [&] { return op_.r_.backward(op_.r_.data, &call); });
  std::vector<Tensor> given;
  given.reserve(n);
  for (strata_tensor* g : arg_grads) given.push_back(adopt(g));
  for (size_t i = 0; i < n; ++i) {
    if (!wanted[i] || !given[i].defined()) continue;
    const Tensor& x = std::get<Tensor>(args[i]);
    // Not x's device: one that is kept without elements is on the meta device.
    bool same_device = false;
    for (const Tensor& g : gy) same_device = same_device || (g.defined() && g.device() == given[i].device());
    check<PluginError>(given[i].shape() == x.shape() && given[i].dtype() == x.dtype() && same_device, op_.name(),
                       "the plugin's backward gives a gradient ", given[i], " of argument '",
                       op_.OpBase::schema().args[i].name, "', which is ", x.shape(), " ", x.dtype());
    gx[static_cast<size_t>(edge_of[i])] = std::move(given[i]);
  }
}

Ref<Node> PluginOp::make_node(std::span<const Value> args) const {
  uint64_t wanting = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const Tensor* t = std::get_if<Tensor>(&args[i]);
    if (t && t->defined() && t->requires_grad()) wanting |= uint64_t{1} << i;
  }
  Ref<Node> node(new PluginNode(*this, wanting, args));
  visit(args,
        [&](const Tensor& t) { node->edges.push_back(t.defined() && t.requires_grad() ? gradient_edge(t) : Edge()); });
  return node;
}

// ---- calls, as Op<> makes them

std::vector<Tensor> PluginOp::call(std::span<const Value> args) const {
  const bool record = wants_grad(args) && r_.backward;
  std::vector<Tensor> results = compute(args);
  bool any_floating = false;
  for (const Tensor& t : results) any_floating = any_floating || is_floating(t.dtype());
  if (!record || !any_floating) return results;
  const Ref<Node> node = make_node(args);
  for (size_t i = 0; i < results.size(); ++i)
    if (is_floating(results[i].dtype())) set_history(results[i], node, static_cast<uint32_t>(i));
  static_cast<PluginNode*>(node.get())->keep_results(results);
  return results;
}

std::vector<Tensor> PluginOp::call_adapted(std::vector<Value> args) const {
  if (policies_.adapt != Adapt::none && !is_alike(policies_.adapt, args)) {
    detail::Adapter adapter(name_, policies_.adapt);
    adapt_all(adapter, args);
  }
  if (!(t_mode.unusual & kObserved)) return call(args);
  const detail::BoxedArgs given(args);
  const Call shown(*this, Form::fresh, false, {}, detail::kBoxedReader, &given);
  detail::ObservedCall seen(shown);
  std::vector<Tensor> results = call(args);
  seen.done(results);
  return results;
}

std::vector<Value> PluginOp::call_boxed(std::span<const Value> given) const {
  std::vector<Value> args = normalised(given);
  const uint32_t mode = t_mode.unusual;
  if (mode & detail::kPlacements) gather_all(args);
  if ((mode & kAutocast) && policies_.autocast != Autocast::keep) autocast_all(policies_.autocast, args);
  const std::vector<Tensor> results = call_adapted(std::move(args));
  return {results.begin(), results.end()};
}

void PluginOp::inplace_call(Tensor& self, std::span<const Value> args) const {
  detail::check_inplace_target(name_, self);
  const bool record = wants_grad(args);
  const std::vector<TensorMeta> metas = infer(args);
  if (self.shape() != metas[0].shape || self.dtype() != metas[0].dtype)
    detail::throw_bad_inplace(name_, self, metas[0]);
  if (record && !r_.backward) detail::throw_no_backward(name_);
  Ref<Node> node;
  if (record) node = make_node(args);
  if (self.is_contiguous()) {
    std::vector<Tensor> results{self};
    run(self.device(), results, args, /*fresh=*/false);
    bump_version(self, name_);
  } else {  // kernels may rely on row-major results
    NoGrad guard;
    self.copy_(compute(args)[0]);
  }
  if (record) {
    rebase_history(self, node);
    static_cast<PluginNode*>(node.get())->written_in_place(self);
  }
}

std::vector<Value> PluginOp::inplace_boxed(std::span<const Value> given) const {
  if (!r_.inplace) throw ValueError(name_, "has no in-place form");
  std::vector<Value> args = normalised(given);
  Tensor self = std::get<Tensor>(args[0]);
  if (is_placed(self)) {
    self.copy_(std::get<Tensor>(call_boxed(given)[0]));
    return {self};
  }
  if (t_mode.unusual & detail::kPlacements) gather_all(args);
  if (policies_.adapt != Adapt::none && !is_alike(policies_.adapt, args)) {
    detail::Adapter adapter(name_, policies_.adapt);
    adapter.pin(self);
    adapt_all(adapter, args);
  }
  if (!(t_mode.unusual & kObserved)) {
    inplace_call(self, args);
    return {self};
  }
  const detail::BoxedArgs boxes(args);
  const Call shown(*this, Form::inplace, false, {&self, 1}, detail::kBoxedReader, &boxes);
  detail::ObservedCall seen(shown);
  inplace_call(self, args);
  seen.done({&self, 1});
  return {self};
}

std::vector<Value> PluginOp::reference_boxed(std::span<const Value> given) const {
  if (!r_.reference) throw ValueError(name_, "the record has neither a reference nor a composed form");
  const std::vector<Value> args = normalised(given);
  const Borrowed c(args);
  std::vector<strata_value> results(num_results_, strata_value{});
  std::vector<Value> values;
  ask("reference", [&] { return r_.reference(r_.data, c.data(), c.size(), results.data()); });
  for (strata_value& v : results) {
    values.push_back(v.kind == STRATA_TENSOR ? value_of(v, name_) : Value(Tensor()));
    clear(v);
  }
  for (const Value& v : values)
    check<PluginError>(std::get<Tensor>(v).defined(), name_, "the plugin's reference gives a result that is no tensor");
  return values;
}

Cost PluginOp::cost_boxed(std::span<const Value> given) const {
  if (!r_.cost) return {};
  const std::vector<Value> args = normalised(given);
  const Borrowed c(args);
  Cost cost;
  ask("cost", [&] {
    r_.cost(r_.data, c.data(), c.size(), &cost.flops, &cost.bytes);
    return STRATA_OK;
  });
  return cost;
}

void PluginOp::samples(Samples& s) const {
  if (!r_.samples) return;
  strata_samples handle{&s, this, {}};
  ask("samples", [&] {
    r_.samples(r_.data, &handle);
    return STRATA_OK;
  });
  if (!handle.failure.empty()) throw PluginError(name_, cat("the plugin's samples: ", handle.failure));
}

}  // namespace strata::c
