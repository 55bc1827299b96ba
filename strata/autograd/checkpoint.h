#pragma once
// Trading time for memory: what a function saves for backward is dropped and computed again when backward needs it.

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "strata/core/autocast.h"
#include "strata/core/device.h"
#include "strata/core/dtype.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/core/row_share.h"

namespace strata {
namespace detail {

/// One call of checkpoint(): stands in for the tensors saved in it, and fills them by running the function again.
class CheckpointFrame : public SavedTensorHooks, public std::enable_shared_from_this<CheckpointFrame> {
 public:
  CheckpointFrame();
  std::shared_ptr<void> pack(const Tensor& t) final;
  Tensor unpack(const std::shared_ptr<void>& packed) final;
  void list_within(const std::shared_ptr<void>& packed, std::vector<PackedTensor>& all) const final;

 protected:
  /// Calls the function on its kept inputs and drops the result.
  virtual void run_again() = 0;
  /// Appends what other hooks keep of the inputs.
  virtual void list_inputs(std::vector<PackedTensor>& all) const {}

 private:
  struct Slot {
    Tensor tensor;
    uint32_t version = 0;
    bool wanted = true;  ///< its node is still there and not released
  };
  struct Token;
  struct Refill;
  void recompute();

  std::vector<Slot> slots_;
  RngKey random_;
  RowShare rows_;
  Device device_;
  AutocastSettings autocast_;
};

/// An input of a checkpointed function. Tensors are kept like any saved tensor: an enclosing checkpoint recomputes them
/// too.
template <class T>
struct CheckpointInput {
  T value;
  explicit CheckpointInput(const T& v) : value(v) {}
  const T& get() const { return value; }
  void list_packed(std::vector<PackedTensor>&) const {}
};
template <>
struct CheckpointInput<Tensor> {
  SavedTensor saved;
  explicit CheckpointInput(const Tensor& t) : saved(t, true) {}
  Tensor get() const { return saved.get({}, "checkpoint"); }
  void list_packed(std::vector<PackedTensor>& all) const { saved.list_packed(all); }
};
template <>
struct CheckpointInput<TensorList> {
  std::vector<SavedTensor> saved;
  explicit CheckpointInput(const TensorList& l) {
    saved.reserve(l.size());
    for (const Tensor& t : l) saved.emplace_back(t, true);
  }
  TensorList get() const {
    TensorList r;
    r.reserve(saved.size());
    for (const SavedTensor& s : saved) r.push_back(s.get({}, "checkpoint"));
    return r;
  }
  void list_packed(std::vector<PackedTensor>& all) const {
    for (const SavedTensor& s : saved) s.list_packed(all);
  }
};

template <class F, class... A>
class CheckpointCall final : public CheckpointFrame {
 public:
  CheckpointCall(F fn, const A&... inputs) : fn_(std::move(fn)), inputs_(CheckpointInput<A>(inputs)...) {}
  auto run(const A&... inputs) {
    SavedTensorHooksScope scope(shared_from_this());
    return fn_(inputs...);
  }

 protected:
  void run_again() override {
    std::apply([this](const auto&... in) { (void)fn_(in.get()...); }, inputs_);
  }
  void list_inputs(std::vector<PackedTensor>& all) const override {
    std::apply([&](const auto&... in) { (in.list_packed(all), ...); }, inputs_);
  }

 private:
  F fn_;
  std::tuple<CheckpointInput<A>...> inputs_;
};

}  // namespace detail

/// fn(inputs...), with the same gradients, but keeping only the inputs: what `fn` saves for backward is thrown away and
/// computed again, once, when backward first needs it. Random numbers (default_generator()) and autocast are as they
/// were in the forward pass. Works with parameters that `fn` captures, with retain_graph, create_graph, grad(), and
/// inside another checkpoint. `fn` must do the same ops each time, and what it captures must still be there and not
/// overwritten at backward: else an AutogradError. Inputs may be of any type.
///
///     Tensor y = checkpoint([&](const Tensor& x) { return block(x); }, x);
template <class F, class... A>
auto checkpoint(F fn, const A&... inputs) {
  if (!grad_enabled()) return fn(inputs...);
  return std::make_shared<detail::CheckpointCall<F, A...>>(std::move(fn), inputs...)->run(inputs...);
}

}  // namespace strata
