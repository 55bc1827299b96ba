#pragma once
// An optimizer's loops as calls of an op, for those who watch calls (recorders, profiles).

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strata/core/op_call.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

/// Shows one run of a rule to the thread's observers as a call of
///     optimizer_update(str rule, Tensor[] params, Tensor[] grads, Tensor[] states, Tensor[] low, Tensor[] counts,
///                      Tensor[] rates, Tensor? constants, Tensor? settings, Tensor? verdict, Tensor[] scales)
///         -> Tensor[]
/// which writes params, states, low, rates and scales in place (rules on gradients: grads), kMostStates states and
/// scales (of states in 8 bits) and one of each other for every parameter, undefined where there is none. `constants`
/// is f64 [n, kConstants], `settings` i64 [n, 4]: t, stochastic, seed, whether the count on the device is advanced.
/// From these it can be run again.
class ObservedUpdate {
 public:
  /// Nothing where nobody watches, or where a slab does not know its tensors.
  ObservedUpdate(Rule rule, std::span<const Slab> slabs, const Tensor& verdict);
  /// An update by other means than a rule's loop, or by none (on the meta device): no constants, so it cannot be run
  /// again where there are bytes.
  ObservedUpdate(std::string_view name, const TensorList& params, const TensorList& grads, const TensorList& states);
  ~ObservedUpdate();
  ObservedUpdate(const ObservedUpdate&) = delete;
  bool seen() const { return call_.has_value(); }
  void done();

 private:
  void begin(std::string_view rule, bool on_grads);
  std::vector<Value> args_;
  TensorList params_, grads_, states_, low_, counts_, rates_, scales_, targets_;
  Tensor constants_, settings_, verdict_;
  std::span<const Value> given_;
  std::optional<Call> call_;
  std::optional<detail::ObservedCall> observed_;
};

}  // namespace strata::optim
