#pragma once
// What call paths are made of, that of records and that of plugins: errors, what a node saves, adapting, observing.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strata/core/op_base.h"

namespace strata::detail {

[[noreturn]] void throw_mixed_devices(std::string_view op, Device a, Device b);
[[noreturn]] void throw_no_kernel(std::string_view op, Device d);
/// A kernel of `op` on `tensors` (results, then arguments) could not be launched, or failed.
[[noreturn]] void throw_launch_failure(std::string_view op, Device d, std::string_view what, const TensorList& tensors);
[[noreturn]] void throw_bad_inplace(std::string_view op, const Tensor& self, const TensorMeta& wanted);
[[noreturn]] void throw_no_backward(std::string_view op);
[[noreturn]] void throw_no_results(std::string_view op);
void check_inplace_target(std::string_view op, const Tensor& self);
void check_boxed_count(const OpBase& op, size_t given);
Value boxed_default(const OpBase& op, size_t index);
[[noreturn]] void throw_boxed_type(const OpBase& op, size_t index, std::string_view wanted);
/// Throws ValueError unless the schema lets argument `index` be None.
void check_boxed_optional(const OpBase& op, size_t index);
/// What a node keeps. Bit i of `mask`: the i-th argument; bit 32+i: the i-th result. `when[i]` is the argument that
/// must want a gradient for argument i to be kept, or -1.
struct SavePlan {
  uint64_t mask = 0;
  uint32_t when[32] = {};  ///< by argument: kept only where one of these wants a gradient; 0 for always
  bool keeps_arg(size_t i, uint64_t wanting) const {
    return (mask >> i & 1) && (when[i] == 0 || (wanting & when[i]) != 0);
  }
  bool keeps_result(int i) const { return mask >> (32 + (i < 31 ? i : 31)) & 1; }
};
/// Parses a record's `saves`. Throws ValueError for a name not in the schema.
SavePlan parse_saves(std::string_view schema, std::string_view saves);
/// Casts a floating tensor for autocast; parameters' casts are cached for the scope.
Tensor autocast_tensor(const Tensor& t, Autocast policy, DType widest);
/// Holds the storages of a call while its kernel runs. Empty, and no more than a null pointer, while no storage moves.
class Pins {
 public:
  Pins() = default;
  Pins(const Pins&) = delete;
  ~Pins() {
    if (held_) [[unlikely]]
      drop();
  }
  /// Does nothing for an undefined tensor, or one whose bytes do not move.
  void hold(const Tensor& t, Access access);

 private:
  struct Held;
  void drop();
  Held* held_ = nullptr;
};

/// Tells the thread's observers of one call: that it begins, and how it ends.
class ObservedCall {
 public:
  explicit ObservedCall(const Call& call);
  /// It gave `results`. An observer may throw.
  void done(std::span<const Tensor> results);
  ~ObservedCall();
  ObservedCall(const ObservedCall&) = delete;

 private:
  const Call& call_;
  bool ended_ = false;
};

/// Called where a boxed call threw: throws that again, but what the standard library says without a name
/// ("vector::reserve", "std::bad_alloc") as a ValueError or MemoryError of the op that lists its arguments.
[[noreturn]] void rethrow_named(const OpBase& op, std::span<const Value> args);

/// An argument in a box.
inline Value to_value(const Tensor& t) {
  return t.defined() ? Value(t) : Value();
}
template <class T>
Value to_value(const T& v) {
  return v;
}
template <class T>
Value to_value(const std::optional<T>& v) {
  return v ? to_value(*v) : Value();
}

/// Works out the common shape and dtype of the tensor arguments of one call.
class Adapter {
 public:
  Adapter(std::string_view op, Adapt mode) : op_(op), mode_(mode) {}
  /// Fixes the target to an in-place call's first argument.
  void pin(const Tensor& self);
  void see(const Tensor& t);
  Tensor apply(const Tensor& t);

 private:
  bool promotes(int index) const {
    return mode_ >= Adapt::promote && !(mode_ == Adapt::promote_but_first && index == 0);
  }
  std::string_view op_;
  Adapt mode_;
  int seen_ = 0, applied_ = 0;
  Shape shape_;
  Tensor widest_;  // a tensor that stands for the promotion of those seen so far
  DType dtype_ = DType::boolean;
  Device device_;
  bool pinned_ = false;
};
/// Whether the arguments need no adapting: the fast check of every call of an elementwise op.
struct AlreadyAlike {
  Adapt mode;
  const Tensor* first = nullptr;
  const Tensor* typed = nullptr;
  int index = 0;
  bool ok = true;
  void see(const Tensor& t) {
    if (!t.defined()) return;
    if (!first) {
      first = &t;
    } else {
      ok = ok && t.shape() == first->shape();
    }
    if (mode >= Adapt::promote && !(mode == Adapt::promote_but_first && index == 0)) {
      if (!typed) {
        typed = &t;
        ok = ok && !t.impl().wrapped_number && !(mode == Adapt::promote_float && !is_floating(t.dtype()));
      } else {
        ok = ok && t.dtype() == typed->dtype() && !t.impl().wrapped_number;
      }
    }
    ++index;
  }
};

}  // namespace strata::detail
