#include "strata/core/node.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "strata/core/computed_node.h"
#include "strata/core/gradient_watch.h"
#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/saving.h"
#include "strata/core/stand_in.h"

namespace strata {
namespace detail {
constinit thread_local GradientWatch* t_gradient_watch = nullptr;
}
namespace {
std::atomic<uint64_t> g_sequence{0};
thread_local std::shared_ptr<SavedTensorHooks> t_hooks;
// The innermost last.
struct OpenScope {
  const SavedTensorHooksScope* by;
  std::shared_ptr<SavedTensorHooks> around;
};
thread_local std::vector<OpenScope> t_scopes;
thread_local bool t_packing = false;
thread_local const Tensor* t_being_saved = nullptr;

}  // namespace

const std::shared_ptr<void>& detail::keep_as_it_is() {
  static const auto& mark = *new std::shared_ptr<void>(std::make_shared<char>());
  return mark;
}
const Tensor* detail::tensor_being_saved() {
  return t_being_saved;
}
bool detail::saving_is_hooked() {
  return t_hooks != nullptr && !t_packing;
}
const std::shared_ptr<SavedTensorHooks>& detail::innermost_hooks() {
  return t_hooks;
}
PackedTensor detail::pack_with(const std::shared_ptr<SavedTensorHooks>& hooks, const Tensor& t) {
  if (!hooks) return {};
  struct Packing {
    bool packing;
    const Tensor* saved;
    ~Packing() {
      t_packing = packing;
      t_being_saved = saved;
    }
  } before{std::exchange(t_packing, true), std::exchange(t_being_saved, &t)};
  NoGrad guard;
  std::shared_ptr<void> value = hooks->pack(t.detach());
  if (value == keep_as_it_is()) return {};
  return {hooks, std::move(value)};
}

namespace {
// A tensor's gradient, which threads may ask for while others add to it.
struct GradSlot {
  std::mutex lock;
  Tensor grad;
  Tensor get() {
    const std::lock_guard guard(lock);
    return grad;
  }
  void set(Tensor g) {  // what was there goes with `g`, when the lock is free
    const std::lock_guard guard(lock);
    std::swap(grad, g);
  }
};
}  // namespace

// What a tensor keeps of its gradient, and the end of the tape at a leaf: adds what arrives to the leaf's grad. It is a
// part of its tensor, made once and as old as that. The references that it counts are those of graphs; while there are
// any, they hold the tensor together. So a thread that begins a graph never meets a node that another one is
// destroying.
class Accumulator final : public Node {
 public:
  explicit Accumulator(TensorImpl* leaf) : leaf_(leaf) {
    sequence = UINT64_MAX;
    packs = false;  // it saves nothing
  }

  /// A graph's reference.
  Ref<Node> ref() {
    if (refs.fetch_add(1, std::memory_order_relaxed) == 0) (void)Ref<TensorImpl>(leaf_).release();
    return Ref<Node>::adopt(this);
  }
  // The last graph let go.
  void destroy() override { Ref<TensorImpl>::adopt(leaf_).reset(); }

  std::string_view name() const override { return "accumulate_grad"; }
  const TensorHooks* leaf_hooks() const override { return &hooks_; }
  void apply(Grads& gy, Grads&) override {
    Tensor g = std::move(gy[0]);
    if (g.defined()) accumulate(Tensor(Ref<TensorImpl>(leaf_)), std::move(g));
  }

  const std::shared_ptr<GradSlot>& slot() const { return slot_; }
  TensorHooks& own_hooks() { return hooks_; }
  TensorHooks& post_hooks() { return post_hooks_; }
  // Whether a non-leaf's gradient is to be retained from now on, and was not before.
  bool retain() { return !retains_.exchange(true); }

 private:
  void accumulate(const Tensor& leaf, Tensor g) {
    if (is_placed(leaf) || is_placed(g)) [[unlikely]]
      g = detail::as_leaf_lies(g, leaf);
    check<ShapeError>(g.shape() == leaf.shape(), "backward", "the gradient ", g,
                      " does not have the shape of its leaf ", leaf);
    // Not one dtype: with AutocastScope(..., low_gradients) a leaf of f32 keeps gradients of 16 bits.
    check<DTypeError>(is_floating(g.dtype()), "backward", "the gradient ", g, " of the leaf ", leaf,
                      " is not floating");
    check<DeviceError>(g.device() == leaf.device(), "backward", "the gradient ", g,
                       " is not on the device of its leaf ", leaf);
    if (detail::t_gradient_watch) [[unlikely]]
      detail::t_gradient_watch->touched(leaf, true);
    add(std::move(g));
    if (post_hooks_.empty()) return;
    for (const auto& entry : post_hooks_.list())
      if (!entry.hook->removed) (*entry.hook)(leaf);
  }

  // One pass of backward at a time.
  void add(Tensor g) {
    memory::TagScope tag(memory::Tag::gradient);
    Tensor& grad = slot_->grad;
    const std::lock_guard lock(slot_->lock);
    if (grad.defined()) {
      if (grad_enabled()) {
        grad = grad.add(g);
      } else {
        grad.add_(g.detach());
      }
      return;
    }
    // Take the buffer over when nobody else can see it; a view of something larger would keep all of it alive.
    const auto unseen = [](const Tensor& t) { return t.ref().use_count() == 1 && t.storage().use_count() == 1; };
    const Tensor& mine = detail::here(g);
    const bool sole = unseen(g) && unseen(mine) && mine.is_contiguous() && !mine.storage()->release;
    if (sole && !grad_enabled()) mine.storage()->retag(memory::Tag::gradient);
    grad = grad_enabled() ? g : sole ? g.detach() : g.is_contiguous() ? g.detach().clone() : g.detach().contiguous();
  }

  TensorImpl* leaf_;
  const std::shared_ptr<GradSlot> slot_ = std::make_shared<GradSlot>();
  std::atomic<bool> retains_{false};
  TensorHooks hooks_;       // on the gradient
  TensorHooks post_hooks_;  // run after it was accumulated
};

namespace {
Accumulator& accumulator_of(const Tensor& t) {
  AutogradMeta& m = autograd_meta(t);
  if (Accumulator* there = m.accumulator.get()) return *there;
  return *m.accumulator.set(new Accumulator(&t.impl()));
}
}  // namespace

AutogradMeta::~AutogradMeta() {
  delete accumulator.get();
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "update"};
  return names[static_cast<int>(phase)];
}

Node::Node() : sequence(g_sequence.fetch_add(1, std::memory_order_relaxed)), packs(t_hooks && !t_packing) {}
Node::~Node() {
  delete hooks.get();
}
NodeValues Node::values() const {
  return {};
}

// A node's edges own older nodes. Collecting them in a list instead of recursing keeps the stack flat.
void ref_dispose(Node* n) {
  static thread_local std::vector<Node*>* pending = nullptr;
  if (pending) {
    pending->push_back(n);
    return;
  }
  std::vector<Node*> list{n};
  pending = &list;
  while (!list.empty()) {
    Node* dead = list.back();
    list.pop_back();
    dead->destroy();
  }
  pending = nullptr;
}

AutogradMeta& autograd_meta(const Tensor& t) {
  TensorImpl& impl = t.impl();
  if (AutogradMeta* there = impl.autograd.get()) return *there;
  return *impl.autograd.set(new AutogradMeta());
}

Ref<Node> Tensor::grad_fn() const {
  const AutogradMeta* m = get().autograd.get();
  if (get().view_base && (!m || m->view_version.load(std::memory_order_acquire) != version()) && base_has_history()) {
    detail::refresh_view(*this);
    m = get().autograd.get();
  }
  return m ? m->grad_fn : Ref<Node>();
}

bool Tensor::base_has_history() const {
  const TensorImpl& base = *get().view_base;
  return base.requires_grad && base.autograd && base.autograd->grad_fn;
}

bool Tensor::is_leaf() const {
  return !grad_fn();
}

Tensor& Tensor::set_requires_grad(bool value) {
  if (value)
    check<DTypeError>(is_floating(dtype()), "set_requires_grad", "only floating tensors have gradients, got ", *this);
  check<AutogradError>(is_leaf() || value, "set_requires_grad", "this tensor is the result of ",
                       is_leaf() ? std::string_view() : grad_fn()->name(), "; use detach() to leave the tape");
  impl().requires_grad = value || !is_leaf();
  return *this;
}

Tensor Tensor::grad() const {
  if (detail::t_gradient_watch) [[unlikely]]
    detail::t_gradient_watch->touched(*this, true);
  const AutogradMeta* m = get().autograd.get();
  const Accumulator* a = m ? m->accumulator.get() : nullptr;
  return a ? a->slot()->get() : Tensor();
}

void Tensor::set_grad(const Tensor& g) {
  if (g.defined()) {
    check<ShapeError>(g.shape() == shape(), "set_grad", "the gradient is ", g, ", the tensor ", *this);
    check<DTypeError>(is_floating(g.dtype()), "set_grad", "a gradient is floating, got ", g, " for the tensor ", *this);
    check<DeviceError>(g.device() == device(), "set_grad", "the gradient is ", g, ", the tensor ", *this);
  } else if (!get().autograd) {
    return;
  }
  if (detail::t_gradient_watch) [[unlikely]]
    detail::t_gradient_watch->touched(*this, false);
  accumulator_of(*this).slot()->set(g);
}

namespace {
// It is in the tensor's node, which the tensor owns: so it holds the place of the gradient, not the tensor.
struct RetainHook final : TensorHook {
  explicit RetainHook(std::shared_ptr<GradSlot> s) : slot(std::move(s)) {}
  Tensor operator()(const Tensor& g) override {
    slot->set(grad_enabled() ? g : g.detach());
    return {};
  }
  std::shared_ptr<GradSlot> slot;
};
}  // namespace

void Tensor::retain_grad() const {
  check<AutogradError>(requires_grad(), "retain_grad", "the tensor does not require a gradient");
  if (is_leaf()) return;
  Accumulator& a = accumulator_of(*this);
  if (a.retain()) add_tensor_hook(*this, std::make_shared<RetainHook>(a.slot()));
}

void TensorHooks::add(uint32_t index, std::shared_ptr<TensorHook> hook) {
  std::vector<Entry> gone;  // their ends may do anything, so not under the lock
  const std::lock_guard lock(lock_);
  const auto removed =
      std::stable_partition(entries_.begin(), entries_.end(), [](const Entry& e) { return !e.hook->removed.load(); });
  gone.assign(std::make_move_iterator(removed), std::make_move_iterator(entries_.end()));
  entries_.erase(removed, entries_.end());
  entries_.push_back({index, std::move(hook)});
  count_.store(static_cast<uint32_t>(entries_.size()), std::memory_order_release);
}

std::vector<TensorHooks::Entry> TensorHooks::list() const {
  const std::lock_guard lock(lock_);
  return entries_;
}

void add_tensor_hook(const Tensor& t, std::shared_ptr<TensorHook> hook) {
  check<AutogradError>(t.requires_grad(), "register_hook", "the tensor does not require a gradient");
  if (Ref<Node> fn = t.grad_fn()) {
    TensorHooks* hooks = fn->hooks.get();
    if (!hooks) hooks = fn->hooks.set(new TensorHooks());
    hooks->add(autograd_meta(t).result_index, std::move(hook));
  } else {
    accumulator_of(t).own_hooks().add(0, std::move(hook));
  }
}

void add_post_accumulate_hook(const Tensor& t, std::shared_ptr<TensorHook> hook) {
  check<AutogradError>(t.requires_grad() && t.is_leaf(), "register_post_accumulate_grad_hook",
                       "needs a leaf that requires a gradient, got ", t);
  accumulator_of(t).post_hooks().add(0, std::move(hook));
}

Tensor Tensor::detach() const {
  return alias(*this, shape(), strides(), storage_offset());
}

Edge gradient_edge(const Tensor& t) {
  if (!t.requires_grad()) return {};
  if (Ref<Node> fn = t.grad_fn()) return {std::move(fn), autograd_meta(t).result_index};
  return {accumulator_of(t).ref(), 0};
}

void set_history(const Tensor& t, const Ref<Node>& node, uint32_t index) {
  AutogradMeta& m = autograd_meta(t);
  m.grad_fn = node;
  m.result_index = index;
  t.impl().requires_grad = true;
}

void bump_version(const Tensor& t, std::string_view op) {
  Storage& s = *t.storage();
  s.version.fetch_add(1, std::memory_order_relaxed);
  s.writer.store(op.data(), std::memory_order_relaxed);
}

// ---- saved tensors ----

SavedTensorHooksScope::SavedTensorHooksScope(std::shared_ptr<SavedTensorHooks> hooks) {
  t_scopes.push_back({this, std::exchange(t_hooks, std::move(hooks))});
}
// Not always the innermost: one that a call's observer begins inside of a checkpointed function outlives the
// function's.
SavedTensorHooksScope::~SavedTensorHooksScope() {
  // The last of its address: one that another thread ended has left its entry.
  const auto found =
      std::find_if(t_scopes.rbegin(), t_scopes.rend(), [this](const OpenScope& s) { return s.by == this; });
  if (found == t_scopes.rend()) return;  // of another thread
  const auto within = found.base(), at = within - 1;
  (within == t_scopes.end() ? t_hooks : within->around) = std::move(at->around);
  t_scopes.erase(at);
}

namespace {
// What is kept of an input: of one that is computed anew before each use, what it is now.
Tensor input_to_keep(const Tensor& t) {
  const AutogradMeta* m = t.impl().autograd.get();
  if (!m || !m->grad_fn || !m->grad_fn->passes_on() || !dynamic_cast<const ComputedNode*>(m->grad_fn.get())) return t;
  const Tensor now = t.detach();
  if (t.requires_grad()) set_history(now, m->grad_fn, m->result_index);
  return now;
}
}  // namespace

void SavedTensor::hold(const Tensor& t, bool keep, bool is_result) {
  if (!t.defined()) return;
  defined_ = true;
  shape_ = t.shape();
  dtype_ = t.dtype();
  device_ = t.device();
  is_result_ = is_result;
  if (!keep) return;
  kept_ = true;
  requires_grad_ = t.requires_grad();
  version_ = t.version();
  if (is_result && requires_grad_) result_index_ = t.impl().autograd->result_index;
  if (t_hooks && !t_packing) [[unlikely]] {
    if (PackedTensor p = detail::pack_with(t_hooks, t); p.hooks) {
      packed_ = std::make_unique<Packed>();
      packed_->hooks = std::move(p.hooks);
      packed_->value = std::move(p.value);
      if (!is_result && requires_grad_) packed_->edge = gradient_edge(t);
      return;
    }
  }
  tensor_ = is_result ? t.detach() : input_to_keep(t);
}

SavedTensor::SavedTensor(const Tensor& t, bool keep) {
  hold(t, keep, false);
}

SavedTensor SavedTensor::result(const Tensor& t, bool keep) {
  SavedTensor s;
  s.hold(t, keep, true);
  return s;
}

Tensor SavedTensor::get(const Ref<Node>& owner, std::string_view op) const {
  if (!defined_) return {};
  if (!kept_) return stand_in(shape_, dtype_);
  check<AutogradError>(!overwritten_, op, "backward reads an argument (", shape_, ") that ", op,
                       " itself overwrote; use the form that is not in place");
  Tensor t;
  if (packed_) {
    NoGrad guard;
    t = packed_->hooks->unpack(packed_->value);
    check<AutogradError>(t.defined() && t.shape() == shape_ && t.dtype() == dtype_ && t.device() == device_, op,
                         "unpack of a saved tensor returned ", t, " instead of ", shape_, " ", dtype_, " on ", device_);
    t = t.detach();
    if (!is_result_ && requires_grad_ && packed_->edge.node) set_history(t, packed_->edge.node, packed_->edge.index);
  } else {
    check<AutogradError>(tensor_.defined(), op,
                         "its saved tensors were already released; pass retain_graph = true to the first backward");
    check<AutogradError>(tensor_.version() == version_, op, "a tensor needed for its gradient (", shape_, " ", dtype_,
                         ") was overwritten by ", tensor_.storage()->last_writer(), " (version ", tensor_.version(),
                         ", saved at version ", version_, "); clone it first, or use the form that is not in place");
    t = is_result_ ? tensor_.detach() : tensor_;
  }
  if (is_result_ && requires_grad_) set_history(t, owner, result_index_);
  return t;
}

Tensor SavedTensor::peek() const {
  if (!defined_) return {};
  if (tensor_.defined()) return tensor_.detach();
  return stand_in(shape_, dtype_);
}

void SavedTensor::reset() {
  tensor_ = Tensor();
  packed_.reset();  // get() then says that it was released
}

void SavedTensor::overwritten_by(std::string_view) {
  if (!kept_) return;
  overwritten_ = true;
  tensor_ = Tensor();
  packed_.reset();
}

}  // namespace strata
