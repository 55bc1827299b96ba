#pragma once
#include <memory>
#include <type_traits>

#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of LBFGS; the defaults are PyTorch's.
struct LBFGSOptions {
  double lr = 1;                   ///< size of the steps, or of the first try of a line search
  int max_iter = 20;               ///< iterations of a step()
  int max_eval = -1;               ///< calls of the closure in a step(); -1: max_iter * 5 / 4
  double tolerance_grad = 1e-7;    ///< ends where no element of the gradient is larger
  double tolerance_change = 1e-9;  ///< ends where neither parameters nor loss change by more
  int history_size = 100;          ///< steps that the inverse Hessian is made from
  bool strong_wolfe = false;  ///< searches along each direction for a step that satisfies the strong Wolfe conditions
  void validate() const;      ///< throws ValueError
};

/// L-BFGS (Nocedal, 1980; Liu & Nocedal, 1989): a quasi-Newton method over all parameters at once, for problems whose
/// gradients are exact. The state is f32, or f64 where a parameter is.
///
///     LBFGS opt(net.named_parameters(), {.strong_wolfe = true});
///     opt.step([&] {
///       net.zero_grad();
///       const Tensor loss = mse_loss(net(x), target);
///       loss.backward();
///       return loss.item();
///     });
class LBFGS {
 public:
  /// Throws DTypeError, AutogradError unless the parameters are floating leaves; ValueError where there are none.
  explicit LBFGS(NamedTensors params, const LBFGSOptions& options = {});
  ~LBFGS();
  LBFGS(const LBFGS&) = delete;

  /// Up to max_iter iterations, each of one or more calls of `closure`, which drops the gradients, computes the loss
  /// and its gradients, and returns it. The loss of the first call.
  template <class F>
  double step(F&& closure) {
    return run([](void* f) -> double { return (*static_cast<std::remove_reference_t<F>*>(f))(); }, &closure);
  }
  /// They may be changed between steps; what validate() refuses is refused at the next one.
  LBFGSOptions& options() { return options_; }
  const NamedTensors& params() const { return params_; }

  /// func_evals, n_iter, t, scale (f64 numbers), d, prev_grad, and steps.0, changes.0, steps.1, ...: vectors of all
  /// parameters one after the other; nothing before the first step.
  StateDict state_dict() const;
  /// Copies a state_dict(). Throws ValueError naming a key that is not expected or missing, ShapeError; then nothing
  /// has changed.
  void load_state_dict(const StateDict& state);
  /// Bytes of the state with a full history.
  int64_t state_bytes() const;

 private:
  struct History;
  double run(double (*closure)(void*), void* context);
  NamedTensors params_;
  LBFGSOptions options_;
  std::unique_ptr<History> history_;
};

}  // namespace strata::optim
