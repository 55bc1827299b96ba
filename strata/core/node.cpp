#include "strata/core/node.h"

#include <atomic>

#include "strata/core/op.h"
#include "strata/memory/retag.h"

namespace strata {
namespace {
std::atomic<uint64_t> g_sequence{0};
thread_local std::shared_ptr<SavedTensorHooks> t_hooks;
thread_local bool t_packing = false;

// The end of the tape at a leaf: adds what arrives to the leaf's grad.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf) : leaf_(leaf) { sequence = UINT64_MAX; }
  ~AccumulateGrad() override { leaf_.impl().autograd->accumulator = nullptr; }
  std::string_view name() const override { return "accumulate_grad"; }
  const TensorHooks* leaf_hooks() const override { return &leaf_.impl().autograd->hooks; }
  void apply(Grads& gy, Grads&) override {
    Tensor g = std::move(gy[0]);
    accumulate(leaf_, std::move(g));
  }

  static void accumulate(const Tensor& leaf, Tensor g) {
    if (!g.defined()) return;
    check<ShapeError>(g.shape() == leaf.shape(), "backward", "the gradient ", g,
                      " does not have the shape of its leaf ", leaf);
    AutogradMeta& m = autograd_meta(leaf);
    memory::TagScope tag(memory::Tag::gradient);
    if (!m.grad.defined()) {
      // Take the buffer over when nobody else can see it; a view of something larger would keep all of it alive.
      const bool sole =
          g.ref().use_count() == 1 && g.storage().use_count() == 1 && g.is_contiguous() && !g.storage()->release;
      if (sole && !grad_enabled()) {
        Storage& storage = *g.storage();
        memory::retag(storage.device, storage.owner, storage.nbytes, storage.tag, memory::Tag::gradient);
        storage.tag = memory::Tag::gradient;
      }
      m.grad = grad_enabled() ? g : sole ? g.detach() : g.detach().clone();
    } else if (grad_enabled()) {
      m.grad = detail::add_tensors(m.grad, g);
    } else {
      m.grad.add_(g.detach());
    }
    if (m.post_hooks.entries.empty()) return;
    const TensorHooks hooks = m.post_hooks;  // a hook may add others
    for (const auto& entry : hooks.entries)
      if (!entry.hook->removed) (*entry.hook)(leaf);
  }

 private:
  Tensor leaf_;
};
}  // namespace

Node::Node() : sequence(g_sequence.fetch_add(1, std::memory_order_relaxed)) {}
Node::~Node() {
  delete hooks;
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
    delete dead;
  }
  pending = nullptr;
}

AutogradMeta& autograd_meta(const Tensor& t) {
  TensorImpl& impl = t.impl();
  if (!impl.autograd) impl.autograd = new AutogradMeta();
  return *impl.autograd;
}

Ref<Node> Tensor::grad_fn() const {
  const AutogradMeta* m = get().autograd;
  if (get().view_base && (!m || m->view_version != version()) && base_has_history()) {
    detail::refresh_view(*this);
    m = get().autograd;
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
  const AutogradMeta* m = get().autograd;
  if (!m) return {};
  return m->retained ? *m->retained : m->grad;
}

void Tensor::set_grad(const Tensor& g) {
  if (g.defined()) check<ShapeError>(g.shape() == shape(), "set_grad", "the gradient is ", g, ", the tensor ", *this);
  autograd_meta(*this).grad = g;
}

namespace {
struct RetainHook final : TensorHook {
  explicit RetainHook(std::shared_ptr<Tensor> s) : slot(std::move(s)) {}
  Tensor operator()(const Tensor& g) override {
    *slot = grad_enabled() ? g : g.detach();
    return {};
  }
  std::shared_ptr<Tensor> slot;
};
}  // namespace

void Tensor::retain_grad() const {
  check<AutogradError>(requires_grad(), "retain_grad", "the tensor does not require a gradient");
  AutogradMeta& m = autograd_meta(*this);
  if (is_leaf() || m.retained) return;
  m.retained = std::make_shared<Tensor>();
  add_tensor_hook(*this, std::make_shared<RetainHook>(m.retained));
}

void TensorHooks::add(uint32_t index, std::shared_ptr<TensorHook> hook) {
  std::erase_if(entries, [](const Entry& e) { return e.hook->removed; });
  entries.push_back({index, std::move(hook)});
}

void add_tensor_hook(const Tensor& t, std::shared_ptr<TensorHook> hook) {
  check<AutogradError>(t.requires_grad(), "register_hook", "the tensor does not require a gradient");
  AutogradMeta& m = autograd_meta(t);
  if (Ref<Node> fn = t.grad_fn()) {
    if (!fn->hooks) fn->hooks = new TensorHooks();
    fn->hooks->add(m.result_index, std::move(hook));
  } else {
    m.hooks.add(0, std::move(hook));
  }
}

void add_post_accumulate_hook(const Tensor& t, std::shared_ptr<TensorHook> hook) {
  check<AutogradError>(t.requires_grad() && t.is_leaf(), "register_post_accumulate_grad_hook",
                       "needs a leaf that requires a gradient, got ", t);
  autograd_meta(t).post_hooks.add(0, std::move(hook));
}

Tensor Tensor::detach() const {
  return alias(*this, shape(), strides(), storage_offset());
}

Edge gradient_edge(const Tensor& t) {
  if (!t.requires_grad()) return {};
  AutogradMeta& m = autograd_meta(t);
  if (Ref<Node> fn = t.grad_fn()) return {fn, m.result_index};
  if (m.accumulator) return {Ref<Node>(m.accumulator), 0};
  Ref<Node> node(new AccumulateGrad(t));
  m.accumulator = node.get();
  return {node, 0};
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
  s.last_writer = op;
}

// ---- saved tensors ----

SavedTensorHooksScope::SavedTensorHooksScope(std::shared_ptr<SavedTensorHooks> hooks) : previous_(std::move(t_hooks)) {
  t_hooks = std::move(hooks);
}
SavedTensorHooksScope::~SavedTensorHooksScope() {
  t_hooks = std::move(previous_);
}

void SavedTensor::hold(const Tensor& t, bool keep, bool is_result) {
  if (!t.defined()) return;
  defined_ = true;
  shape_ = t.shape();
  dtype_ = t.dtype();
  is_result_ = is_result;
  if (!keep) return;
  kept_ = true;
  requires_grad_ = t.requires_grad();
  version_ = t.version();
  if (is_result && requires_grad_) result_index_ = t.impl().autograd->result_index;
  if (t_hooks && !t_packing) [[unlikely]] {
    t_packing = true;
    struct Done {
      ~Done() { t_packing = false; }
    } done;
    NoGrad guard;
    packed_ = std::make_unique<Packed>();
    packed_->hooks = t_hooks;
    packed_->value = t_hooks->pack(t.detach());
    if (!is_result && requires_grad_) packed_->edge = gradient_edge(t);
    return;
  }
  tensor_ = is_result ? t.detach() : t;
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
  if (!kept_) return empty({shape_, dtype_, Device::meta(), std::nullopt});
  check<AutogradError>(!overwritten_, op, "backward reads an argument (", shape_, ") that ", op,
                       " itself overwrote; use the form that is not in place");
  Tensor t;
  if (packed_) {
    NoGrad guard;
    t = packed_->hooks->unpack(packed_->value);
    check<AutogradError>(t.defined() && t.shape() == shape_ && t.dtype() == dtype_, op,
                         "unpack of a saved tensor returned ", t, " instead of ", shape_, " ", dtype_);
    t = t.detach();
    if (!is_result_ && requires_grad_ && packed_->edge.node) set_history(t, packed_->edge.node, packed_->edge.index);
  } else {
    check<AutogradError>(tensor_.defined(), op,
                         "its saved tensors were already released; pass retain_graph = true to the first backward");
    check<AutogradError>(tensor_.version() == version_, op, "a tensor needed for its gradient (", shape_, " ", dtype_,
                         ") was overwritten by ", tensor_.storage()->last_writer, " (version ", tensor_.version(),
                         ", saved at version ", version_, "); clone it first, or use the form that is not in place");
    t = is_result_ ? tensor_.detach() : tensor_;
  }
  if (is_result_ && requires_grad_) set_history(t, owner, result_index_);
  return t;
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
