#pragma once
// The op record without its types: what every op says of itself, policies, what a gradient rule sees, and the registry.

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/by_device.h"
#include "strata/core/node.h"
#include "strata/core/tensor.h"
#include "strata/core/value.h"

namespace strata {

class OpBase;
class Samples;

/// Which precision an op runs in under autocast.
enum class Autocast : uint8_t {
  keep,     ///< arguments as they come
  low,      ///< floating arguments cast to the autocast dtype: matrix products, convolutions, attention
  full,     ///< cast to f32: losses, powers, large sums
  promote,  ///< cast to the widest floating type among the arguments
};

/// What happens to tensor arguments before `infer`, by ordinary ops with gradients of their own (`to`, `expand`), so
/// that neither kernels nor gradient rules see differing shapes or dtypes. Undefined tensors are left alone.
enum class Adapt : uint8_t {
  none,
  broadcast,          ///< all broadcast to one shape; dtypes as they come
  promote,            ///< broadcast, and cast to the common dtype (PyTorch's promotion)
  promote_float,      ///< the same, integers becoming the default floating dtype
  promote_but_first,  ///< broadcast all, promote all but the first: where(condition, a, b)
};

/// Sets of dtypes, for a record's `dtypes` field.
using DTypeSet = uint16_t;
constexpr DTypeSet dtype_bit(DType t) {
  return static_cast<DTypeSet>(1u << static_cast<int>(t));
}
inline constexpr DTypeSet kFloats =
    dtype_bit(DType::f16) | dtype_bit(DType::bf16) | dtype_bit(DType::f32) | dtype_bit(DType::f64);
inline constexpr DTypeSet kInts =
    dtype_bit(DType::u8) | dtype_bit(DType::i8) | dtype_bit(DType::i16) | dtype_bit(DType::i32) | dtype_bit(DType::i64);
inline constexpr DTypeSet kBool = dtype_bit(DType::boolean);
inline constexpr DTypeSet kAllTypes = kFloats | kInts | kBool;

/// What a record says of itself beside its texts and its functions; Op's Record explains each.
struct Policies {
  std::string_view aliases = {};
  int shown = 0;
  bool internal = false, inplace_by_copy = false;
  Autocast autocast = Autocast::keep;
  Adapt adapt = Adapt::none;
  DTypeSet dtypes = kFloats;
  double tolerance = 0;
  std::string_view tolerance_reason = {};
};

/// A rule's view of one recorded call: the gradients of its results, its saved results, and where to put the
/// gradients of its inputs. Inputs are counted over the tensor arguments, lists flattened.
class Backward {
 public:
  Backward(Grads& gy, Grads& gx, const std::vector<Edge>& edges, std::span<const Tensor> results, bool sole)
      : gy_(gy), gx_(gx), edges_(edges), results_(results), sole_(sole) {}
  /// Gradient of result `i`; undefined when nothing flowed into it.
  const Tensor& gy(int i = 0) const { return gy_[static_cast<size_t>(i)]; }
  bool has_gy(int i = 0) const { return gy_[static_cast<size_t>(i)].defined(); }
  /// Result `i` of the forward call. Its elements may be read only when the record saves it.
  const Tensor& y(int i = 0) const { return results_[static_cast<size_t>(i)]; }
  /// Whether input `i` wants a gradient: skip the work when not.
  bool needs(int i) const { return static_cast<bool>(edges_[static_cast<size_t>(i)].node); }
  /// Whether the gradient of a bf16 or f16 input `i` may be set in f32, unrounded: see Node::takes_f32().
  bool takes_f32(int i) const;
  /// What other ops already gave input `i` as its gradient, or where that is autocast's copy of a parameter, gave the
  /// parameter (in its own dtype): for a rule that adds to a few of its elements in place and then sets nothing.
  /// nullptr where nothing came, others hold it too, gradients are recorded, or a hook watches that of the copy.
  Tensor* gathered(int i) const;
  int num_inputs() const { return static_cast<int>(edges_.size()); }
  /// Whether nothing but this rule can read the memory of saved result `i` again: it may be written over.
  bool may_overwrite(int i) const;
  void set(int i, Tensor grad) { gx_[static_cast<size_t>(i)] = std::move(grad); }

 private:
  Grads& gy_;
  Grads& gx_;
  const std::vector<Edge>& edges_;
  std::span<const Tensor> results_;
  bool sole_;  // nothing asks for the saved results again, and no hook keeps them
};

/// What the tape keeps of a recorded call: its arguments and results in the schema's order. A tensor that is not kept,
/// or that hooks packed, stands as a meta tensor of its shape and dtype.
struct NodeValues {
  std::vector<Value> args;
  TensorList results;
};

/// Where a call's results go.
enum class Form : uint8_t {
  fresh,    ///< into tensors of their own
  inplace,  ///< over arguments
  out,      ///< into tensors that the caller gave
};

/// A call as observers see it, while it runs. Arguments are those that the kernel gets: cast by autocast, broadcast and
/// promoted (by calls of their own, which came before).
class Call {
 public:
  /// Reads the arguments, which lie on the call path's stack in their own types.
  struct Reader {
    void (*args)(const void* data, std::vector<Value>& into);
    Cost (*cost)(const OpBase& op, const void* data);
  };
  Call(const OpBase& op, Form form, bool composed, std::span<const Tensor> targets, const Reader& reader,
       const void* data)
      : op(op), form(form), composed(composed), targets(targets), reader_(reader), data_(data) {}

  const OpBase& op;
  const Form form;
  /// Whether other ops do all of it: their calls follow, and stand for it.
  const bool composed;
  /// The tensors that are written, unless form is fresh.
  const std::span<const Tensor> targets;
  /// Appends the arguments in the schema's order.
  void args(std::vector<Value>& into) const { reader_.args(data_, into); }
  std::vector<Value> args() const {
    std::vector<Value> all;
    args(all);
    return all;
  }
  /// Operations and bytes, from the record.
  Cost cost() const { return reader_.cost(op, data_); }

 private:
  const Reader& reader_;
  const void* data_;
};

/// Sees calls on the thread that installed it: profilers, anomaly mode, recorders. Calls nest: a composed op's and a
/// gradient rule's ops come between its own beginning and end.
struct CallObserver {
  virtual ~CallObserver() = default;
  /// Called on the calling thread, before the op infers anything.
  virtual void before(const Call& call) {}
  /// Called with the tensor results (of a call in place: what it wrote), when all of it is done.
  virtual void after(const Call& call, std::span<const Tensor> results) {}
  /// Called in the place of after() when the call threw.
  virtual void failed(const Call& call) {}
};
/// Installs `observer` on this thread while one lives; the caller keeps it alive. Scopes nest.
class ObserverScope {
 public:
  explicit ObserverScope(CallObserver& observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
};

/// The part of a record that does not depend on the op's signature; the registry holds these.
class OpBase {
 public:
  OpBase(const OpBase&) = delete;
  virtual ~OpBase() = default;

  std::string_view name() const { return name_; }
  std::string_view schema_text() const { return schema_; }
  const Schema& schema() const;  ///< parsed on first use
  std::string_view doc() const { return doc_; }
  std::string_view example() const { return example_; }
  /// Other names of the same function: "arccos" of acos.
  std::vector<std::string_view> aliases() const;
  /// How many results callers get; those after them are for the gradient rule.
  size_t shown() const { return policies_.shown ? static_cast<size_t>(policies_.shown) : schema().results.size(); }
  /// Whether only other ops and gradient rules call it: no function of a language's interface.
  bool internal() const { return policies_.internal; }
  /// The family folder, from the record's file: "softmax".
  std::string_view family() const;
  std::string_view file() const { return file_; }
  Autocast autocast() const { return policies_.autocast; }
  Adapt adapt() const { return policies_.adapt; }
  DTypeSet dtypes() const { return policies_.dtypes; }
  double tolerance() const { return policies_.tolerance; }
  std::string_view tolerance_reason() const { return policies_.tolerance_reason; }

  virtual bool is_view() const = 0;
  virtual bool is_dynamic() const = 0;   ///< the result's size depends on values
  virtual bool is_composed() const = 0;  ///< only a composition of other ops, no kernel of its own
  virtual bool has_kernel(DeviceType device) const = 0;
  virtual bool has_backward() const = 0;  ///< a rule or a composed form
  virtual bool has_reference() const = 0;
  virtual bool has_composed() const = 0;
  virtual bool can_inplace() const = 0;  ///< the kernel may write over the first argument
  /// Whether inplace_boxed() works: by such a kernel, or by copying.
  bool has_inplace() const { return can_inplace() || policies_.inplace_by_copy; }

  /// Calls the op like its C++ function: same checks, kernel and gradient. Missing trailing arguments take the
  /// schema's defaults. Throws ValueError naming op and argument when a value has the wrong type.
  virtual std::vector<Value> call_boxed(std::span<const Value> args) const = 0;
  /// Calls the in-place form: the result overwrites the first argument and is returned. Throws ValueError when the
  /// record has no such form.
  virtual std::vector<Value> inplace_boxed(std::span<const Value> args) const = 0;
  /// The record's slow double-precision version, else the composed form. Throws ValueError when it has neither.
  virtual std::vector<Value> reference_boxed(std::span<const Value> args) const = 0;
  virtual Cost cost_boxed(std::span<const Value> args) const = 0;
  /// Blocks of random numbers that a call uses up, from the record; args[i] is any RngKey where one is wanted. Where
  /// the record does not say (a plugin's): as many as the largest tensor or shape has elements.
  virtual uint64_t draws_boxed(std::span<const Value> args) const;
  /// Fills `s` with the record's valid and invalid inputs.
  virtual void samples(Samples& s) const = 0;
  virtual bool has_samples() const = 0;

  /// Every record linked into the program, in order of name.
  static std::vector<const OpBase*> all();
  /// nullptr when there is none of that name.
  static const OpBase* find(std::string_view name);
  /// The same among those that are calls for observers but no functions for callers, such as an optimizer's update:
  /// all() does not list them.
  static const OpBase* find_unlisted(std::string_view name);

 protected:
  OpBase(std::string_view schema, std::string_view doc, std::string_view example, const char* file, bool listed = true);
  std::string_view name_, schema_, doc_, example_, file_;
  Policies policies_;

 private:
  friend struct Registry;
  OpBase* next_ = nullptr;
  mutable const Schema* parsed_ = nullptr;
};

/// Counter blocks that so many 32-bit random numbers use up: for a record's `draws`.
constexpr uint64_t random_blocks(int64_t numbers) {
  return numbers > 0 ? (static_cast<uint64_t>(numbers) + 3) / 4 : 0;
}
/// Puts the next numbers of default_generator() where an RngKey is missing (None where the schema wants one), as the
/// C++ functions without a key do. `args` has all other arguments that are needed.
void draw_missing_keys(const OpBase& op, std::span<Value> args);

}  // namespace strata
