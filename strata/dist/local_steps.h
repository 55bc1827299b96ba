#pragma once
// Ranks that train apart for some steps and then come together: a fraction of data parallelism's bytes.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// How ranks come together. The defaults are local SGD: the mean of what the ranks have.
struct LocalStepsOptions {
  int64_t every = 16;   ///< steps of each rank between two meetings
  double lr = 1;        ///< of a meeting's step from where the last one ended towards the mean
  double momentum = 0;  ///< Nesterov's, over meetings
};

/// Every rank updates parameters by its own gradients; each `every` steps they meet, and all have the same again: local
/// SGD (Stich, arXiv:1805.09767), or, with an optimizer of meetings, DiLoCo (Douillard et al., arXiv:2311.08105: AdamW
/// within,
/// {.every = 500, .lr = 0.7, .momentum = 0.9} over them). With d the mean over the ranks of what their steps have taken
/// from the parameters x since the last meeting: v = momentum v + d, x = x - lr (d + momentum v), in f32 (f64 for f64).
///
///     distributed::LocalSteps apart(model.named_parameters(), distributed::group("dp"), {.every = 64});
///     for (const Batch& batch : rows_of_this_rank) {
///       loss(batch).backward();
///       optimizer.step();                             // of this rank alone
///       apart.stepped();
///     }
///     apart.meet();                                   // before parameters are saved or tried out
///
/// Sums are taken in the order of the ranks, so all have the same bits after a meeting. What an optimizer keeps stays
/// each rank's own. In memory: a copy of the parameters, and one more with momentum, in f32. Refused: parameters in
/// parts (tensor parallelism, experts of other ranks, ZeRO 3), whose ranks must go in step.
class LocalSteps {
 public:
  /// Names and tensors, as nn::Module::named_parameters() gives them.
  using Parameters = std::vector<std::pair<std::string, Tensor>>;
  /// Makes the parameters of every rank those of the group's first. Those that require no gradient are left alone.
  /// Throws ValueError for options that make no sense and for parameters in parts, naming one; DistributedError where
  /// the ranks' lists differ.
  LocalSteps(const Parameters& parameters, Group& group, const LocalStepsOptions& options = {});
  ~LocalSteps();
  LocalSteps(const LocalSteps&) = delete;

  /// Behind each update: every `every`-th call is a meeting, which all ranks of the group must come to. Whether it was.
  bool stepped();
  /// A meeting now, where there were steps since the last; the count of steps begins anew.
  void meet();

  /// Whether there were steps since the last meeting, so that ranks have other parameters.
  bool apart() const;
  /// What a run goes on with after a meeting: "NAME.velocity" of each parameter; empty without momentum. With `between`
  /// also what it goes on with between two: "NAME.last", where the last one ended, and "steps" since, i64 [1]; beside
  /// each rank's own parameters. Tensors share this object's storage.
  std::map<std::string, Tensor> state_dict(bool between = false) const;
  /// Takes it back; of one without "steps" with the parameters as they are now for those of the last meeting. Throws
  /// ValueError naming what is missing, ShapeError.
  void load_state_dict(const std::map<std::string, Tensor>& state);

  /// Bytes of a reduction that this rank's meetings took, of 2 (n-1)/n times as many that it sends; and what gradients
  /// of the same dtypes would have taken in every step beside that.
  int64_t reduced_bytes() const;
  int64_t saved_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::distributed
