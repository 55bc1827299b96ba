#pragma once
// Trading a pass over memory for the memory: a tensor that backward needs, and that others make which are kept anyhow,
// is not kept.

#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "strata/autograd/checkpoint.h"

namespace strata {

/// While one lives, `result` is not kept for backward by what this thread's calls save: fn(inputs...) makes it again
/// there, each time it is asked for. The inputs are kept instead, so this pays where something keeps them anyhow:
///
///     const Tensor h = swiglu(gate_up);                   // whose gradient wants gate_up
///     const MadeAgain again(h, [](const Tensor& x) { return swiglu(x); }, gate_up);
///     return linear(h, down);                             // whose gradient wants h
///
/// fn must be what made `result`, of no random numbers, so that it gives the same bits; it runs under the autocast of
/// now. An input that was overwritten since is an AutogradError from backward. Tensors in parts (sharded tensors) are
/// made as any. Where other saved-tensor hooks are in force (checkpoint(), Recompute, SavedTensorOffload, another one
/// of these) nothing happens: they decide what is kept.
class MadeAgain {
 public:
  template <class F, class... A>
  MadeAgain(const Tensor& result, F fn, const A&... inputs) {
    if (!wanted(result)) return;
    auto kept = std::make_shared<std::tuple<detail::CheckpointInput<A>...>>(inputs...);
    begin(result, [fn = std::move(fn), kept = std::move(kept)]() -> Tensor {
      return std::apply([&](const auto&... in) { return fn(in.get()...); }, *kept);
    });
  }
  ~MadeAgain();
  MadeAgain(const MadeAgain&) = delete;

 private:
  struct Hooks;
  static bool wanted(const Tensor& result);
  void begin(const Tensor& result, std::function<Tensor()> make);

  std::unique_ptr<SavedTensorHooksScope> scope_;
};

}  // namespace strata
