#include "strata/core/autocast.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "strata/core/autocast_fp8.h"
#include "strata/core/backend.h"
#include "strata/core/gradient_watch.h"
#include "strata/core/node.h"
#include "strata/core/op_call.h"
#include "strata/core/placement.h"

namespace strata {

namespace {
struct AutocastState {
  DType dtype = DType::bf16;
  bool low_gradients = false;
  std::shared_ptr<const Fp8Options> fp8;
  int depth = 0;
  // Casts of leaves that want gradients (parameters), so that a weight used twice has one entry on the tape.
  std::map<const TensorImpl*, std::pair<Tensor, Tensor>> cache;
};
thread_local AutocastState t_autocast;

struct KeptCodes {
  Tensor weight;  // held, so that its address is no other's
  uint32_t version = 0;
  detail::Fp8Codes codes;
};
struct CodesState {
  int depth = 0;
  bool captured = false;  // whether the outermost scope began inside the capture of a graph
  bool follows = false;   // fp8_follows()
  std::map<std::pair<const TensorImpl*, std::string>, KeptCodes> kept;
};
thread_local CodesState t_codes;

using Capturing = bool (*)();
constinit Capturing g_capturing = nullptr;
bool capturing() {
  return g_capturing != nullptr && g_capturing();
}

// Of a scope.
void end_codes() {
  if (--t_codes.depth > 0) return;
  t_codes.kept.clear();
  t_codes.follows = false;
}

void set_enabled(bool on) {
  t_mode.unusual = on ? t_mode.unusual | kAutocast : t_mode.unusual & ~kAutocast;
}

AutocastSettings of_fp8(const Fp8Options& fp8, bool enabled, bool low_gradients) {
  check(fp8.scaling == "tensor" || fp8.scaling == "row", "AutocastScope",
        R"(the fp8 scaling is "tensor" or "row", got ")", fp8.scaling, '"');
  return {DType::bf16, enabled, low_gradients, std::make_shared<const Fp8Options>(fp8)};
}
}  // namespace

AutocastScope::AutocastScope(DType dtype, bool enabled, bool low_gradients)
    : AutocastScope(AutocastSettings{dtype, enabled, low_gradients, nullptr}) {}
AutocastScope::AutocastScope(const Fp8Options& fp8, bool enabled, bool low_gradients)
    : AutocastScope(of_fp8(fp8, enabled, low_gradients)) {}
AutocastScope::AutocastScope(AutocastSettings settings) : previous_(autocast_settings()) {
  check<DTypeError>(is_reduced_floating(settings.dtype), "AutocastScope", "the low precision is bf16 or f16, got ",
                    settings.dtype);
  t_autocast.dtype = settings.dtype;
  t_autocast.low_gradients = settings.low_gradients;
  t_autocast.fp8 = std::move(settings.fp8);
  ++t_autocast.depth;
  if (t_codes.depth++ == 0) t_codes.captured = capturing();
  t_codes.follows = t_codes.follows || (t_autocast.fp8 && t_autocast.fp8->scaling == "tensor");
  set_enabled(settings.enabled);
}
AutocastScope::~AutocastScope() {
  t_autocast.dtype = previous_.dtype;
  t_autocast.low_gradients = previous_.low_gradients;
  t_autocast.fp8 = std::move(previous_.fp8);
  set_enabled(previous_.enabled);
  if (--t_autocast.depth == 0) t_autocast.cache.clear();
  end_codes();
}

bool autocast_enabled() {
  return (t_mode.unusual & kAutocast) != 0;
}
DType autocast_dtype() {
  return t_autocast.dtype;
}
AutocastSettings autocast_settings() {
  return {t_autocast.dtype, autocast_enabled(), t_autocast.low_gradients, t_autocast.fp8};
}

namespace {
// Whether what is computed now is computed again, from other values, by a graph: it uses no cast made outside.
bool makes_graph() {
  return detail::t_gradient_watch != nullptr || capturing();
}

// The tape's entry of a cast that several ops read. A gradient that is in the source's dtype already passes through.
struct CastNode final : Node {
  CastNode(const Tensor& source, bool keeps_low)
      : dtype(source.dtype()), keeps_low(keeps_low), in_graph(makes_graph()) {
    edges.push_back(gradient_edge(source));
  }
  std::string_view name() const override { return "to"; }
  bool takes_f32() const override { return dtype == DType::f32 && !keeps_low; }
  bool passes_on() const override { return true; }
  void apply(Grads& gy, Grads& gx) override {
    if (gy[0].defined()) gx[0] = keeps_low || gy[0].dtype() == dtype ? std::move(gy[0]) : gy[0].to(dtype);
  }
  DType dtype;
  bool keeps_low;
  bool in_graph;  // the cast is part of one
};

std::mutex g_low_copies;  // threads may share a tensor

// The cast of an f32 result that wants a gradient, kept with it while nothing writes to it: what q, k and v are
// computed from is cast once, and their gradients are summed in f32. Hooks that pack what is saved see it as any other
// tensor.
Tensor low_result(const Tensor& t, DType dtype) {
  {
    const std::lock_guard lock(g_low_copies);
    const LowCopy& low = autograd_meta(t).low;
    if (low.is_current(t, dtype)) {
      const auto* node = dynamic_cast<const CastNode*>(low.tensor.grad_fn().get());
      // Of the history that it has now, too: its elements may be another tensor's since.
      if (node != nullptr && node->in_graph == makes_graph() && node->edges[0].node.get() == t.grad_fn().get())
        return low.tensor;
    }
  }
  const uint32_t version = t.version();
  Tensor made;
  {
    NoGrad guard;
    made = t.detach().to(dtype);
  }
  set_history(made, Ref<Node>(new CastNode(t, false)), 0);
  const std::lock_guard lock(g_low_copies);
  autograd_meta(t).low = {made, version};
  return made;
}

// The cast of an f32 tensor that wants no gradient. One that comes a second time as it was (a frozen weight, an input
// of several layers) is kept from then on.
Tensor low_constant(const Tensor& t, DType dtype) {
  if (makes_graph()) return t.to(dtype);
  bool again = false;
  {
    const std::lock_guard lock(g_low_copies);
    LowCopy& low = autograd_meta(t).low;
    const uint32_t seen = t.version() + 1;  // beside no tensor
    again = low.tensor.defined() || low.version == seen;
    if (!again) low.version = seen;
  }
  return again ? detail::low_copy(t, dtype) : t.to(dtype);
}
}  // namespace

namespace detail {
Tensor low_copy(const Tensor& parameter, DType dtype) {
  const std::lock_guard lock(g_low_copies);
  LowCopy& low = autograd_meta(parameter).low;
  if (!low.is_current(parameter, dtype)) {
    NoGrad guard;
    const memory::TagScope tag(here(parameter).storage()->tag);  // it counts as what it is of
    low = {parameter.detach().to(dtype), parameter.version()};
  }
  if (t_gradient_watch) [[unlikely]]
    t_gradient_watch->cast(parameter, low.tensor);
  return low.tensor.detach();
}

Tensor autocast_tensor(const Tensor& t, Autocast policy, DType widest) {
  if (!t.defined() || !is_floating(t.dtype()) || t.dtype() == DType::f64) return t;
  const DType target = policy == Autocast::low ? t_autocast.dtype : policy == Autocast::full ? DType::f32 : widest;
  if (t.dtype() == target || policy == Autocast::keep) return t;
  const ThreadModeScope uncast({t_mode.grad_enabled, t_mode.unusual & ~kAutocast});  // the cast itself is not cast
  const bool parameter = policy == Autocast::low && t.dtype() == DType::f32 && t.requires_grad() && t.is_leaf();
  if (!parameter) {
    if (policy != Autocast::low || t.dtype() != DType::f32) return t.to(target);
    if (!t.requires_grad()) return low_constant(t, target);
    return grad_enabled() && !t.is_leaf() ? low_result(t, target) : t.to(target);
  }
  if (!grad_enabled()) return low_copy(t, target);
  auto& entry = t_autocast.cache[&t.impl()];
  if (!entry.first.defined() || entry.second.dtype() != target) {
    Tensor low = low_copy(t, target);
    set_history(low, Ref<Node>(new CastNode(t, t_autocast.low_gradients)), 0);
    entry = {t, std::move(low)};
  }
  return entry.second;
}

// ---- the fp8 policy ----

namespace {
constinit const Fp8Way* g_ways = nullptr;  // static objects made before main()
}

Fp8Way::Fp8Way(const OpBase& op, Go go) : op(op), go(go), next(std::exchange(g_ways, this)) {}

CaptureAnswer::CaptureAnswer(bool (*capturing)()) {
  g_capturing = capturing;
}

const Fp8Options* autocast_fp8() {
  return autocast_enabled() ? t_autocast.fp8.get() : nullptr;
}

bool fp8_follows() {
  return t_codes.follows;
}

namespace {
thread_local bool t_renewed = false;
}
Fp8RenewedScope::Fp8RenewedScope() : before_(std::exchange(t_renewed, true)) {}
Fp8RenewedScope::~Fp8RenewedScope() {
  t_renewed = before_;
}
bool fp8_magnitudes_renewed() {
  return t_renewed;
}

bool go_fp8(const OpBase& op, ArgsAt at, const Results& into) {
  if (!autocast_fp8()) return false;
  for (const Fp8Way* w = g_ways; w; w = w->next)
    if (&w->op == &op) return w->go(at, into);
  return false;
}

bool may_be_fp8(const Tensor& weight) {
  const Fp8Options* fp8 = autocast_fp8();
  return fp8 && std::ranges::none_of(fp8->exclude, [&](const Tensor& t) { return t.same_as(weight); });
}

Fp8Codes fp8_weight_codes(const Tensor& weight, const std::string& scaling,
                          Fp8Codes (*make)(const Tensor& weight, const std::string& scaling)) {
  // What was made outside of a graph is not made again when the graph is replayed.
  const bool keeps = t_codes.depth > 0 && weight.requires_grad() && weight.is_leaf() && t_codes.captured == capturing();
  if (!keeps) return make(weight, scaling);
  KeptCodes& kept = t_codes.kept[{&weight.impl(), scaling}];
  if (!kept.weight.defined() || kept.version != weight.version()) {
    kept = {};
    kept = {weight, weight.version(), make(weight, scaling)};
  }
  return kept.codes;
}
}  // namespace detail

Fp8WeightsScope::Fp8WeightsScope() {
  if (t_codes.depth++ == 0) t_codes.captured = capturing();
}
Fp8WeightsScope::~Fp8WeightsScope() {
  end_codes();
}

}  // namespace strata
