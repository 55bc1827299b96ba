#pragma once
// A program's own training loop within a budget of memory. docs/guide/memory.md.

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "strata/nn/module.h"
#include "strata/optim/optimizer.h"
#include "strata/train/config.h"
#include "strata/train/tier_plan.h"

namespace strata {

/// Keeps a training loop to a budget: weights, optimizer state and saved activations are elsewhere while nobody uses
/// them, and no number changes: losses, gradients and weights are bit for bit those of the loop without it.
///
///     {
///       BudgetScope budget(net, optimizer, {.device = "20GiB", .host = "100GiB", .disk = "/scratch"});
///       for (...) {
///         optimizer.zero_grad();
///         mse_loss(net(x), y).backward();                 // one pass, or several whose gradients add up
///         budget.step([&] { optimizer.step(); });         // or step_clipped(), ...
///       }
///       std::puts(budget.describe().c_str());
///     }
///
/// The first two steps run with as much elsewhere as can be, and the second is recorded; then plan_recorded() chooses
/// what is where from what was seen, and the steps from the third on go by that. Model, loss and optimizer may be any;
/// what may be computed again are the parts of the network (items of its ModuleLists and Sequentials, else its
/// children) in the order in which forward comes to them.
///
/// All of it happens on the thread that made it, one scope at a time for each device. As long as it lives the device's
/// memory for tensors is bounded by the budget, whoever takes it: a request past it is a MemoryError, after which
/// everything is usable. At its end the bound is lifted, and weights and state return to the device where there is room
/// for them; otherwise they stay where they are, and ops read them there.
///
/// Evaluation between steps (under NoGrad) and gradient accumulation need nothing. A step of it cannot be captured in a
/// CUDA graph. Scopes of saved-tensor hooks that span steps belong around it, not within.
class BudgetScope {
 public:
  /// How much there is of each tier, and where parts of it must be: MemoryConfig's members. Throws ValueError for
  /// settings that make no sense, naming them, for a model without parameters or on several devices, and where the
  /// device has a scope already; MemoryError where what is there before the loop does not fit, with the bytes that
  /// would; IoError for a disk that takes nothing.
  BudgetScope(const nn::Module& model, optim::Optimizer& optimizer, const MemoryConfig& budget);
  /// For updates that are no Optimizer of the library's: their state stays where it is, and the weights do.
  BudgetScope(const nn::Module& model, const MemoryConfig& budget);
  /// As close(), but says nothing of what could not return.
  ~BudgetScope();
  BudgetScope(const BudgetScope&) = delete;

  /// Calls update(), which updates the parameters, at the end of each step; returns what it returns.
  template <class F>
  decltype(auto) step(F&& update) {
    before_update();
    struct Failed {
      BudgetScope* scope;
      ~Failed() {
        if (scope) scope->update_failed();
      }
    } failed{this};
    if constexpr (std::is_void_v<decltype(update())>) {
      update();
      failed.scope = nullptr;
      after_update();
    } else {
      auto result = update();
      failed.scope = nullptr;
      after_update();
      return result;
    }
  }

  /// @name The two halves of step(), for bindings
  /// @{
  void before_update();
  void after_update();
  /// In the place of after_update(): the step counts as none.
  void update_failed() noexcept;
  /// @}

  /// Whether the steps go by a plan yet.
  bool planned() const;
  /// What is where now.
  const TierPlan& plan() const;
  /// Most bytes of the device's tensors at once since the scope began.
  int64_t peak() const;
  /// The plan as lines (to_text()), and what was used and moved so far.
  std::string describe() const;
  /// After a MemoryError within the loop: what the last request that was refused would have needed, and the budget to
  /// try. Empty where none was refused.
  std::string advice() const;
  /// Ends the scope. Throws what moving weights and state back throws but MemoryError: those stay where they are.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
