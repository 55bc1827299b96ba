#pragma once
// The tape: nodes, edges, saved tensors, and the thread's mode word. The engine that walks it is in strata/autograd/.

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

// ---- the thread's mode -------------------------------------------------------------------------------------------

/// Unusual conditions of a thread; while none is set, a call goes straight from its function to its kernel.
enum Unusual : uint32_t {
  kAutocast = 1,  ///< cast arguments by the record's policy
  kObserved = 2,  ///< a CallObserver wants to see calls (profiler, anomaly mode, recording)
  kModules = 4,   ///< somebody wants to know which module's forward runs: nn::ModuleCall
};

/// Whether calls are recorded, and which unusual conditions hold.
struct ThreadMode {
  bool grad_enabled = true;
  uint32_t unusual = 0;
};
/// The one thread-local word that the call path looks at.
inline constinit thread_local ThreadMode t_mode;

namespace detail {
/// Sets it for a scope: within a kernel, for example, nothing is recorded, cast or observed.
class ThreadModeScope {
 public:
  explicit ThreadModeScope(ThreadMode mode) : previous_(t_mode) { t_mode = mode; }
  ~ThreadModeScope() { t_mode = previous_; }
  ThreadModeScope(const ThreadModeScope&) = delete;

 private:
  ThreadMode previous_;
};
}  // namespace detail

namespace detail {
/// While one lives, this thread's modules say whose forward runs (kModules).
class ModulesWatched {
 public:
  ModulesWatched() : before_(t_mode.unusual & kModules) { t_mode.unusual |= kModules; }
  ~ModulesWatched() { t_mode.unusual = (t_mode.unusual & ~kModules) | before_; }
  ModulesWatched(const ModulesWatched&) = delete;

 private:
  uint32_t before_;
};
}  // namespace detail

/// Which part of a training step a thread is at: set by the engine and by optimizers, read by recorders.
enum class Phase : uint8_t { forward, backward, update };
/// "forward", "backward", "update".
std::string_view name_of(Phase phase);
namespace detail {
inline constinit thread_local Phase t_phase = Phase::forward;
/// Sets it for a scope.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase) : previous_(std::exchange(t_phase, phase)) {}
  ~PhaseScope() { t_phase = previous_; }
  PhaseScope(const PhaseScope&) = delete;

 private:
  Phase previous_;
};
}  // namespace detail
/// The part that this thread is at.
inline Phase current_phase() {
  return detail::t_phase;
}

/// Nothing is recorded while one lives.
class NoGrad {
 public:
  NoGrad() : previous_(t_mode.grad_enabled) { t_mode.grad_enabled = false; }
  ~NoGrad() { t_mode.grad_enabled = previous_; }
  NoGrad(const NoGrad&) = delete;

 private:
  bool previous_;
};
/// Recording is on (or off) while one lives.
class GradMode {
 public:
  explicit GradMode(bool enabled) : previous_(t_mode.grad_enabled) { t_mode.grad_enabled = enabled; }
  ~GradMode() { t_mode.grad_enabled = previous_; }
  GradMode(const GradMode&) = delete;

 private:
  bool previous_;
};
inline bool grad_enabled() {
  return t_mode.grad_enabled;
}

// ---- nodes -------------------------------------------------------------------------------------------------------

/// Where a gradient goes: input `index` of `node`, that is the gradient of the node's result `index`.
struct Edge {
  Ref<Node> node;
  uint32_t index = 0;
};

/// Gradients of a node's results on the way in, of its inputs on the way out; undefined stands for zero.
using Grads = std::vector<Tensor>;

/// A function called with a gradient that may return another in its place (undefined: keep it). As a leaf's
/// post-accumulate hook it is called with the leaf. strata/autograd/hooks.h makes one from any callable.
struct TensorHook {
  virtual ~TensorHook() = default;
  virtual Tensor operator()(const Tensor& grad) = 0;
  std::atomic<bool> removed{false};  ///< it is not called any more, and dropped when the next hook is added
};

/// Hooks of one tensor, in order of registration. Non-leaves keep theirs in their node, by result index. Threads may
/// add while others run them.
class TensorHooks {
 public:
  /// A hook and the result of the node whose gradient it wants.
  struct Entry {
    uint32_t index;
    std::shared_ptr<TensorHook> hook;
  };
  /// Appends a hook and forgets removed ones.
  void add(uint32_t index, std::shared_ptr<TensorHook> hook);
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  size_t size() const { return count_.load(std::memory_order_acquire); }
  /// Those of now: a hook may add others.
  std::vector<Entry> list() const;

 private:
  mutable std::mutex lock_;
  std::vector<Entry> entries_;
  std::atomic<uint32_t> count_{0};
};

class OpBase;
struct NodeValues;
struct SavedTensorHooks;

/// What hooks packed in a saved tensor's place.
struct PackedTensor {
  std::shared_ptr<SavedTensorHooks> hooks;
  std::shared_ptr<void> value;
};

/// One recorded operation. Freed graphs are released iteratively, so depth is no danger.
class Node : public RefCounted {
 public:
  Node();
  virtual ~Node();
  /// The forward op's name, for error texts: "softmax".
  virtual std::string_view name() const = 0;
  /// Gradients of the inputs from those of the results; one entry for each edge.
  virtual void apply(Grads& result_grads, Grads& input_grads) = 0;
  /// The hooks on the leaf's gradient, when this is a leaf's accumulator.
  virtual const TensorHooks* leaf_hooks() const { return nullptr; }
  /// Whether a gradient of a bf16 or f16 result may arrive in f32: a parameter's cast, whose own gradient is f32.
  virtual bool takes_f32() const { return false; }
  /// Whether this only hands a gradient on to its one edge, whatever its dtype: a parameter's cast.
  virtual bool passes_on() const { return false; }
  /// Drops saved tensors; a second backward is then an error.
  virtual void release() {}
  /// The record of the op that was called, where it was one.
  virtual const OpBase* op() const { return nullptr; }
  /// Its arguments and results, as far as they are kept: strata/core/op_base.h.
  virtual NodeValues values() const;
  /// Appends what saved-tensor hooks keep for it.
  virtual void list_packed(std::vector<PackedTensor>&) const {}
  /// What the last Ref does: deletes it.
  virtual void destroy() { delete this; }

  std::vector<Edge> edges;  ///< one for each tensor input; node is nullptr where no gradient is wanted
  uint64_t sequence;        ///< creation order: the engine runs the newest first
  uint32_t num_results = 1;
  bool runs_last = false;  ///< set by the engine before apply(): what is saved is released right after it
  bool packs;              ///< made while saved-tensor hooks were on
  /// Passes of backward that run it now; -1 for one that releases it and so must be alone.
  std::atomic<int16_t> passes{0};
  /// The module whose forward recorded it: who takes the memory that its backward takes.
  const std::string* module = memory::detail::t_caller.module;
  OncePtr<TensorHooks> hooks;  ///< owned; hooks on the gradients of the results, made when needed
};
void ref_dispose(Node* n);

/// A parameter's copy in autocast's low precision. It is kept from step to step: an optimizer that writes it beside the
/// parameter saves the next step the cast.
struct LowCopy {
  Tensor tensor;
  uint32_t version = 0;  ///< of the parameter, whose values it holds
  /// Whether it holds what `parameter` holds now.
  bool is_current(const Tensor& parameter, DType dtype) const {
    return tensor.defined() && tensor.dtype() == dtype && version == parameter.version() &&
           tensor.device() == parameter.device() && tensor.shape() == parameter.shape();
  }
};

class Accumulator;

/// A tensor's part in the tape.
struct AutogradMeta {
  AutogradMeta() = default;
  ~AutogradMeta();
  AutogradMeta(const AutogradMeta&) = delete;

  Ref<Node> grad_fn;                      ///< nullptr for a leaf
  uint32_t result_index = 0;              ///< which of grad_fn's results this is
  std::atomic<uint32_t> view_version{0};  ///< for a view: the storage's version that grad_fn speaks of
  OncePtr<Accumulator> accumulator;       ///< owned: the gradient, and the tape's end at a leaf
  LowCopy low;                            ///< a parameter's, once autocast wanted it
};
/// Adds a hook on the gradient of `t`. Throws AutogradError when `t` wants no gradient.
void add_tensor_hook(const Tensor& t, std::shared_ptr<TensorHook> hook);
/// Adds a hook that runs after a gradient was added to the leaf `t`. Throws AutogradError when `t` is no such leaf.
void add_post_accumulate_hook(const Tensor& t, std::shared_ptr<TensorHook> hook);
/// The tensor's AutogradMeta, made when it has none.
AutogradMeta& autograd_meta(const Tensor& t);
/// Where the gradient of `t` goes: its grad_fn, or a leaf's accumulator. Empty when no gradient is wanted.
Edge gradient_edge(const Tensor& t);
/// Says that `t` is result `index` of `node`.
void set_history(const Tensor& t, const Ref<Node>& node, uint32_t index);
/// The same for a result that was written in place: views and their base learn of it.
void rebase_history(Tensor& t, const Ref<Node>& node);
namespace detail {
/// Gradients on their way in a pass of backward.
struct GatheredGrads {
  virtual ~GatheredGrads() = default;
  /// What has come to `edge`, if it may be written in place.
  virtual Tensor* at(const Edge& edge) = 0;
};
/// That of the pass that runs on this thread.
extern thread_local GatheredGrads* t_gathered;
/// The copy of a parameter that autocast keeps with it, made anew where the parameter was written since.
Tensor low_copy(const Tensor& parameter, DType dtype);
/// Gives a view whose base was written in place since a grad_fn that starts at the base's new history.
void refresh_view(const Tensor& view);
}  // namespace detail
/// Counts a write to `t`'s storage by `op`.
void bump_version(const Tensor& t, std::string_view op);

// ---- saved tensors -----------------------------------------------------------------------------------------------

/// Packs a saved tensor into something else (host memory, disk, less precision) and back. The innermost hooks of the
/// thread at forward time are used for both.
struct SavedTensorHooks {
  virtual ~SavedTensorHooks() = default;
  /// What stands for `t` until backward; its destructor frees it.
  virtual std::shared_ptr<void> pack(const Tensor& t) = 0;
  /// The tensor again: of the same shape, dtype and device.
  virtual Tensor unpack(const std::shared_ptr<void>& packed) = 0;
  /// Backward is about to run next[0]; the others follow it, in this order as far as it is known now. They are all the
  /// nodes left that were made under saved-tensor hooks, whose Node::list_packed() says what they will unpack: the
  /// place to fetch ahead. Nodes may be looked at during the call only. Called where looks_ahead() says so.
  virtual void ahead(std::span<Node* const> next) {}
  /// Hooks that move what they keep, and want ahead(). What comes into a Recompute's stretches is theirs too.
  virtual bool looks_ahead() const { return false; }
  /// Appends what other hooks keep from which `packed` is made again.
  virtual void list_within(const std::shared_ptr<void>& packed, std::vector<PackedTensor>& all) const {}
};
/// Uses `hooks` for tensors saved on this thread while one lives: those of the scope that began last of the ones that
/// have not ended, in whatever order they end.
class SavedTensorHooksScope {
 public:
  explicit SavedTensorHooksScope(std::shared_ptr<SavedTensorHooks> hooks);
  ~SavedTensorHooksScope();
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
};

/// A tensor kept for backward, or only its shape and dtype where the rule does not read its elements.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// An input. With `keep` false, get() returns a meta tensor: a rule that reads elements it did not ask for fails.
  SavedTensor(const Tensor& t, bool keep);
  /// A result of `owner`: held without its history, so that the node does not own itself.
  static SavedTensor result(const Tensor& t, bool keep);
  /// The tensor as it was. Throws AutogradError when it was overwritten since or already released.
  Tensor get(const Ref<Node>& owner, std::string_view arg) const;
  void reset();
  /// Whether a hook packed it.
  bool packed() const { return packed_ != nullptr; }
  void list_packed(std::vector<PackedTensor>& all) const {
    if (!packed_) return;
    all.push_back({packed_->hooks, packed_->value});
    packed_->hooks->list_within(packed_->value, all);
  }
  /// As get(), for looking at: a meta tensor where it is not kept, was overwritten or released, or a hook packed it.
  Tensor peek() const;
  /// The op itself wrote over its argument: whatever was kept is gone, and get() says so.
  void overwritten_by(std::string_view op);

 private:
  struct Packed {  // only when saved-tensor hooks were on
    std::shared_ptr<SavedTensorHooks> hooks;
    std::shared_ptr<void> value;
    Edge edge;  // where the saved input's own gradient goes
  };
  void hold(const Tensor& t, bool keep, bool is_result);

  Tensor tensor_;
  std::unique_ptr<Packed> packed_;
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
  bool defined_ = false;
  bool kept_ = false;
  bool is_result_ = false;
  bool requires_grad_ = false;
  bool overwritten_ = false;
  uint32_t version_ = 0;
  uint32_t result_index_ = 0;
};

}  // namespace strata
