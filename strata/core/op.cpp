#include "strata/core/op.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <typeinfo>

#include "strata/core/gradient_watch.h"
#include "strata/core/partial_pass.h"
#include "strata/core/placement.h"
#include "strata/core/registration.h"
#include "strata/core/saves.h"
#include "strata/core/stand_in.h"

namespace strata {

namespace {
constinit thread_local Registration* t_registration = nullptr;
constinit std::mutex g_registering;
}  // namespace

// Records are static objects in many files; the list's head needs no construction, so their order does not matter.
// Others come later, from any thread, while the list is being read: it only ever grows at its head.
struct Registry {
  static constinit inline std::atomic<OpBase*> head{nullptr}, unlisted{nullptr};
  static void add(OpBase* op) {
    if (t_registration) return t_registration->held_.push_back(op);
    link(head, op, op);
  }
  // Puts the chain first ... last before the others.
  static void link(std::atomic<OpBase*>& list, OpBase* first, OpBase* last) {
    OpBase* old = list.load(std::memory_order_relaxed);
    do last->next_ = old;
    while (!list.compare_exchange_weak(old, first, std::memory_order_release, std::memory_order_relaxed));
  }
  static void commit(std::vector<OpBase*>& ops) {
    const std::lock_guard lock(g_registering);
    for (size_t i = 0; i < ops.size(); ++i) {
      check(!OpBase::find(ops[i]->name()), ops[i]->name(), "there is an op of this name already");
      for (size_t j = 0; j < i; ++j) check(ops[j]->name() != ops[i]->name(), ops[i]->name(), "the name comes twice");
    }
    if (ops.empty()) return;
    for (size_t i = 0; i + 1 < ops.size(); ++i) ops[i]->next_ = ops[i + 1];
    link(head, ops.front(), ops.back());
    ops.clear();
  }
  static OpBase* first() { return head.load(std::memory_order_acquire); }
  static OpBase* next(const OpBase* op) { return op->next_; }
};

Registration::Registration() {
  check(!t_registration, "Registration", "one is under way on this thread");
  t_registration = this;
}
Registration::~Registration() {
  t_registration = nullptr;
}
void Registration::commit() {
  Registry::commit(held_);
}

OpBase::OpBase(std::string_view schema, std::string_view doc, std::string_view example, const char* file, bool listed)
    : name_(schema.substr(0, schema.find('('))), schema_(schema), doc_(doc), example_(example), file_(file) {
  if (listed) {
    Registry::add(this);
  } else {
    Registry::link(Registry::unlisted, this, this);
  }
}

std::vector<const OpBase*> OpBase::all() {
  std::vector<const OpBase*> ops;
  for (const OpBase* op = Registry::first(); op; op = Registry::next(op)) ops.push_back(op);
  std::sort(ops.begin(), ops.end(), [](auto* a, auto* b) { return a->name() < b->name(); });
  return ops;
}

const OpBase* OpBase::find(std::string_view name) {
  for (const OpBase* op = Registry::first(); op; op = Registry::next(op))
    if (op->name() == name) return op;
  return nullptr;
}

const OpBase* OpBase::find_unlisted(std::string_view name) {
  for (const OpBase* op = Registry::unlisted.load(std::memory_order_acquire); op; op = Registry::next(op))
    if (op->name() == name) return op;
  return nullptr;
}

std::vector<std::string_view> OpBase::aliases() const {
  std::vector<std::string_view> names;
  for (std::string_view rest = policies_.aliases; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    names.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

std::string_view OpBase::family() const {
  const size_t end = file_.rfind('/');
  if (end == std::string_view::npos || end == 0) return {};
  const size_t begin = file_.rfind('/', end - 1);
  return file_.substr(begin + 1, end - begin - 1);
}

const Schema& OpBase::schema() const {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!parsed_) parsed_ = new Schema(parse_schema(schema_));  // records live as long as the program
  return *parsed_;
}

bool Backward::takes_f32(int i) const {
  const Edge& e = edges_[static_cast<size_t>(i)];
  return e.node && e.node->takes_f32();
}

bool Backward::may_overwrite(int i) const {
  // The saved tensor and the one made from it for this rule hold its memory.
  return sole_ && y(i).storage().use_count() <= 2;
}

namespace detail {
thread_local GatheredGrads* t_gathered = nullptr;
thread_local const PartialPass* t_partial_pass = nullptr;
}  // namespace detail

Tensor* Backward::gathered(int i) const {
  if (detail::t_gathered == nullptr || grad_enabled()) return nullptr;
  // Parts of sharded sums are not written by hand.
  if ((t_mode.unusual & detail::kPlacements) && std::any_of(gy_.begin(), gy_.end(), is_placed)) [[unlikely]]
    return nullptr;
  const Edge* e = &edges_[static_cast<size_t>(i)];
  while (e->node && e->node->passes_on() && !e->node->hooks) {
    if (Tensor* sum = detail::t_gathered->at(*e)) return is_placed(*sum) ? nullptr : sum;
    e = &e->node->edges[0];
  }
  Tensor* const sum = e->node ? detail::t_gathered->at(*e) : nullptr;
  return sum && is_placed(*sum) ? nullptr : sum;
}

namespace detail {

struct Pins::Held {
  std::vector<Pin> pins;
};
void Pins::hold(const Tensor& t, Access access) {
  if (!t.defined() || !memory::detail::any_movable()) return;
  if (!held_) held_ = new Held;
  held_->pins.emplace_back(t, access);
}
void Pins::drop() {
  delete held_;
}

void rethrow_named(const OpBase& op, std::span<const Value> args) {
  const auto given = [&] {
    std::string text;
    const std::vector<SchemaArg>& names = op.schema().args;
    for (size_t i = 0; i < args.size() && i < names.size(); ++i) {
      text += cat(i ? ", " : "", names[i].name, " = ");
      std::visit(
          [&](const auto& v) {
            using T = std::remove_cvref_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::monostate>) {
              text += "None";
            } else if constexpr (std::is_same_v<T, TensorList>) {
              text += cat(v.size(), " tensors");
            } else if constexpr (std::is_same_v<T, Scalar>) {
              text += cat(v.to_double());
            } else if constexpr (std::is_same_v<T, RngKey>) {
              text += cat("key ", v.seed, ":", v.offset);
            } else {
              text += cat(v);
            }
          },
          args[i]);
    }
    return text;
  };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw MemoryError(op.name(), cat("not enough memory on the host for what its arguments ask: ", given()));
  } catch (const std::length_error&) {
    throw ValueError(op.name(), cat("its arguments ask for a longer list than memory can hold: ", given()));
  } catch (const std::bad_cast&) {
    throw ValueError(op.name(), cat("an argument is of a type that it does not take: ", given()));
  }
}

void throw_mixed_devices(std::string_view op, Device a, Device b) {
  throw DeviceError(op, cat("arguments are on ", a, " and ", b, "; move them to one device with .to(device)"));
}
void throw_launch_failure(std::string_view op, Device d, std::string_view what, const TensorList& tensors) {
  const LaunchRoom& room = *launch_room(d.type);
  std::string text = cat("a kernel failed on ", d, ", stream ", room.stream(d), ": ", what, "; tensors:");
  for (const Tensor& t : tensors) {
    if (t.defined()) text += cat(" ", t);
  }
  if (!room.blocking()) text += " (the failure may be an earlier op's: STRATA_LAUNCH_BLOCKING=1 finds which)";
  throw DeviceError(op, text);
}

void throw_no_kernel(std::string_view op, Device d) {
  throw DeviceError(op, cat("has no kernel for ", d));
}
void throw_bad_inplace(std::string_view op, const Tensor& self, const TensorMeta& wanted) {
  throw ShapeError(op, cat("cannot write a result ", wanted.shape, " ", wanted.dtype, " into a tensor ", self));
}
void throw_no_backward(std::string_view op) {
  throw AutogradError(op, "has no in-place gradient; use the form that is not in place");
}

void throw_no_results(std::string_view op) {
  throw ValueError(op, "the record says nothing of its results: it needs infer and kernels, view, dynamic or composed");
}

void check_inplace_target(std::string_view op, const Tensor& self) {
  check(self.defined(), op, "cannot write in place to an undefined tensor");
  if (!grad_enabled()) return;
  const TensorImpl* base = self.impl().view_base.get();
  check<AutogradError>(!base || !base->requires_grad || (base->autograd && base->autograd->grad_fn), op,
                       "cannot write in place to a view of a leaf that requires a gradient; use NoGrad for an update");
  check<AutogradError>(!self.requires_grad() || !self.is_leaf(), op,
                       "cannot write in place to a leaf that requires a gradient; ",
                       "use NoGrad for an update, or the form that is not in place");
}

Tensor kept_apart(const Tensor& self) {
  return grad_enabled() && self.requires_grad() && !self.is_leaf() ? self.clone() : self;
}

void Adapter::pin(const Tensor& self) {
  pinned_ = true;
  shape_ = self.shape();
  dtype_ = self.dtype();
}

void Adapter::see(const Tensor& t) {
  if (!t.defined()) return;
  const int index = seen_++;
  if (!t.impl().wrapped_number || index == 0) device_ = t.device();
  if (pinned_) {
    const Shape both = broadcast_shapes(shape_, t.shape(), op_);
    check<ShapeError>(both == shape_, op_, "cannot write in place to shape ", shape_, ": the arguments broadcast to ",
                      both);
  } else {
    shape_ = index == 0 ? t.shape() : broadcast_shapes(shape_, t.shape(), op_);
  }
  if (!promotes(index)) return;
  if (!widest_.defined()) {
    widest_ = t;
  } else {
    // Keep whichever of the two decides; a stand-in of the common dtype when neither alone does.
    const DType common = result_type(widest_, t);
    const auto rank = [](const Tensor& x) { return x.impl().wrapped_number ? 0 : x.dim() == 0 ? 1 : 2; };
    const Tensor& higher = rank(t) > rank(widest_) ? t : widest_;
    widest_ = higher.dtype() == common ? higher : stand_in(higher.shape(), common);
  }
  DType wanted = widest_.impl().wrapped_number && widest_.dtype() == DType::f64 ? default_dtype() : widest_.dtype();
  if (mode_ == Adapt::promote_float && !is_floating(wanted)) wanted = default_dtype();
  if (pinned_) {
    const auto category = [](DType d) { return d == DType::boolean ? 0 : is_floating(d) ? 2 : 1; };
    check<DTypeError>(category(wanted) <= category(dtype_), op_, "a result of ", wanted,
                      " cannot be written in place to ", dtype_);
  } else {
    dtype_ = wanted;
  }
}

Tensor Adapter::apply(const Tensor& t) {
  if (!t.defined()) return t;
  const int index = applied_++;
  Tensor r = t;
  if (promotes(index) && r.dtype() != dtype_) r = r.to(dtype_);
  if (r.impl().wrapped_number) {
    if (!(r.device() == device_)) r = r.to(device_);
    r = alias(r, shape_, Strides::filled(shape_.size(), 0), r.storage_offset());
    r.impl().wrapped_number = false;
    return r;
  }
  return r.shape() == shape_ ? r : r.expand(shape_);
}

namespace {
// Plans by record, which its schema's text stands for: OpBase has no room for what only its typed form reads.
struct Plans {
  std::mutex lock;
  std::map<const char*, SavePlan> of;
};
Plans& plans() {
  static Plans& all = *new Plans;  // records of other threads may ask until the very end
  return all;
}

SavePlan plan_of(std::string_view schema, std::string_view saves) {
  SavePlan plan;
  if (saves.empty()) return plan;
  const Schema s = parse_schema(schema);
  const auto arg_index = [&](std::string_view name) {
    for (size_t i = 0; i < s.args.size(); ++i)
      if (s.args[i].name == name) return static_cast<int>(i);
    return -1;
  };
  size_t pos = 0;
  while (pos < saves.size()) {
    const size_t end = std::min(saves.find(' ', pos), saves.size());
    const std::string_view word = saves.substr(pos, end - pos);
    pos = end + 1;
    if (word.empty()) continue;
    const size_t colon = word.find(':');
    const std::string_view name = word.substr(0, colon);
    uint64_t bit = 0;
    if (const int i = arg_index(name); i >= 0) {
      bit = uint64_t{1} << i;
      if (colon != std::string_view::npos) {
        for (size_t from = colon; from != std::string_view::npos;) {
          const size_t comma = word.find(',', from + 1);
          const int when = arg_index(word.substr(from + 1, comma == std::string_view::npos ? comma : comma - from - 1));
          check(when >= 0, s.name, "saves '", word, "', whose condition is not an argument of: ", schema);
          plan.when[i] |= uint32_t{1} << when;
          from = comma;
        }
      }
    }
    for (size_t i = 0; i < s.results.size(); ++i)
      if (s.results[i].name == name || (name == "result" && s.results.size() == 1)) bit = uint64_t{1} << (32 + i);
    check(bit != 0, s.name, "saves '", name, "', which is neither an argument nor a result of: ", schema);
    plan.mask |= bit;
  }
  return plan;
}
}  // namespace

SavePlan parse_saves(std::string_view schema, std::string_view saves) {
  const SavePlan plan = plan_of(schema, saves);
  const std::lock_guard lock(plans().lock);
  plans().of[schema.data()] = plan;
  return plan;
}

void check_boxed_count(const OpBase& op, size_t given) {
  const size_t most = op.schema().args.size();
  check(given <= most, op.name(), "takes at most ", most, " arguments, got ", given, ": ", op.schema_text());
}

Value boxed_default(const OpBase& op, size_t index) {
  const SchemaArg& a = op.schema().args[index];
  if (a.default_value) return *a.default_value;
  check(a.type.optional, op.name(), "argument '", a.name, "' is missing: ", op.schema_text());
  return std::monostate();
}

void throw_boxed_type(const OpBase& op, size_t index, std::string_view) {
  const SchemaArg& a = op.schema().args[index];
  throw ValueError(op.name(), cat("argument '", a.name, "' must be of type ", a.type.text()));
}

void check_boxed_optional(const OpBase& op, size_t index) {
  if (!op.schema().args[index].type.optional) throw_boxed_type(op, index, {});
}

}  // namespace detail

uint64_t OpBase::draws_boxed(std::span<const Value> args) const {
  int64_t most = 0;
  for (const Value& v : args) {
    if (const Tensor* t = std::get_if<Tensor>(&v); t && t->defined()) most = std::max(most, t->numel());
    if (const Dims* d = std::get_if<Dims>(&v)) most = std::max(most, d->product());
  }
  return static_cast<uint64_t>(most) + 1;
}

void draw_missing_keys(const OpBase& op, std::span<Value> args) {
  const std::vector<SchemaArg>& wanted = op.schema().args;
  for (size_t i = 0; i < args.size() && i < wanted.size(); ++i) {
    const SchemaArg& a = wanted[i];
    if (a.type != SchemaType{SchemaType::key} || a.default_value || !std::holds_alternative<std::monostate>(args[i]))
      continue;
    args[i] = RngKey();
    args[i] = default_generator().next(op.draws_boxed(args));
  }
}

bool saves_argument(const OpBase& op, size_t index, uint64_t wanting) {
  detail::Plans& all = detail::plans();
  const std::lock_guard lock(all.lock);
  const auto at = all.of.find(op.schema_text().data());
  return at == all.of.end() || at->second.keeps_arg(index, wanting);
}

}  // namespace strata
