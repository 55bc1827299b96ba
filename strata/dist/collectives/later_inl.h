#pragma once
// Sums that are begun and waited for later, by who called for them: what ladder residuals compute beside.

#include <memory>
#include <string>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed::detail {

/// While one lives, the sum at the end of a branch that this thread calls is begun and not waited for: what the branch
/// returns is on its way, and nobody may look at it before take()'s Work was waited for.
class LaterScope {
 public:
  LaterScope();
  ~LaterScope();
  LaterScope(const LaterScope&) = delete;
  LaterScope& operator=(const LaterScope&) = delete;
  /// The innermost of this thread, or null.
  static LaterScope* current();
  /// What was begun; null where nothing was.
  std::shared_ptr<Work> take() { return std::move(work_); }
  /// Of redistribute_later(), once a scope.
  void begun(Work work) { work_ = std::make_shared<Work>(std::move(work)); }
  bool free() const { return work_ == nullptr; }

 private:
  std::shared_ptr<Work> work_;
  LaterScope* outer_;
};

/// redistribute(x, placements, gradient), begun for the current LaterScope where x is a sum along the mesh's single
/// axis that is wanted whole or in even parts of one dimension; else done. The ranks' exchanges go over a communicator
/// of their own ("tp+tp"), so that those of the next branch need not wait for them.
Tensor redistribute_later(const Tensor& x, const std::string& placements, const std::string& gradient);

}  // namespace strata::distributed::detail
