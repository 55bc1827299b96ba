#pragma once
// Who looks at what tensors have beside their elements: gradients, and autocast's copies.

#include "strata/core/tensor.h"

namespace strata::detail {

/// Hears of each tensor whose `grad` the thread is about to read, to set or to add to.
struct GradientWatch {
  virtual ~GradientWatch() = default;
  /// `looks`: what happens may depend on what is there.
  virtual void touched(const Tensor& t, bool looks) = 0;
  /// Hears of each parameter whose copy in low precision is about to be read, made now or earlier.
  virtual void cast(const Tensor& parameter, const Tensor& low) = 0;
};
/// This thread's, or nullptr.
extern constinit thread_local GradientWatch* t_gradient_watch;

/// Installs `watch` (nullptr: none) on this thread while one lives.
class GradientWatchScope {
 public:
  explicit GradientWatchScope(GradientWatch* watch) : previous_(t_gradient_watch) { t_gradient_watch = watch; }
  ~GradientWatchScope() { t_gradient_watch = previous_; }
  GradientWatchScope(const GradientWatchScope&) = delete;

 private:
  GradientWatch* previous_;
};

}  // namespace strata::detail
