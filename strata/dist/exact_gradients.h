#pragma once
// Data parallelism whose bits do not depend on the number of ranks: gradients of micro-batches are added in a fixed
// tree.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// How gradients travel.
struct ExactGradientsOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  ///< of the sums that travel together
};

/// Adds the gradients of a step's micro-batches, which the ranks of a group share out: rank r of n has those from
/// r m / n on, of m. They are added in f32 (f64 where the parameter is f64) in a balanced tree over the micro-batches'
/// numbers, and rounded to the parameter's dtype once, so the sums have the same bits for every number of ranks that
/// divides m, one included. Each rank adds up what of the tree it has alone, the parts of a stretch of the elements go
/// to one rank (all_to_all), which adds up the rest, and every rank gets its sums (all_gather): as many bytes as an
/// all_reduce in f32 where n is a power of two. What is added must not depend on the ranks either: the micro-batches'
/// losses are to be divided by m, and random numbers to be the micro-batch's.
///
///     distributed::ExactGradients exact(model.named_parameters(), &distributed::group("dp"), 8);
///     for (const Batch& micro : own_micro_batches) {
///       if (&micro == &own_micro_batches.back()) exact.reduce_next();
///       (loss(micro) / 8).backward();
///       exact.add();                 // takes the parameters' gradients
///     }
///     exact.finish();                // gives them the sums
///     optimizer.step();
///
/// Every rank must have the same parameters in the same order. A parameter that got no gradient from any micro-batch
/// keeps none; one that got it from some counts as zero in the others. A rank keeps the logarithm of its micro-batches'
/// number of f32 gradients at the most while it adds: sums_held().
class ExactGradients {
 public:
  /// Names and tensors, as nn::Module::named_parameters() gives them.
  using Parameters = std::vector<std::pair<std::string, Tensor>>;
  /// Makes the parameters of every rank those of the group's first. Those that require no gradient are left alone.
  /// `group` is nullptr for a process alone. Of sharded parameters, which lie along other axes, the group's ranks have the
  /// same parts: these are added. Throws ValueError for micro-batches that the ranks do not share evenly,
  /// DistributedError where the ranks' lists differ.
  ExactGradients(const Parameters& parameters, Group* group, int64_t micro_batches,
                 const ExactGradientsOptions& options = {});
  ~ExactGradients();
  ExactGradients(const ExactGradients&) = delete;

  /// The numbers of this rank's micro-batches: from first() on, count() of them.
  int64_t first() const;
  int64_t count() const;
  /// Forgets what was added since finish(): a step begins anew.
  void begin();
  /// Before the backward pass of this rank's last micro-batch, which one pass gives the gradients of: they travel as they
  /// come, stretch by stretch, while it runs. Without it they do so in finish(); the bits are the same.
  void reduce_next();
  /// Takes the parameters' gradients, those of this rank's next micro-batch, away from them. Throws ValueError where
  /// all have come.
  void add();
  /// Makes the parameters' gradients the sums of all ranks' micro-batches. Throws ValueError where some have not come,
  /// DistributedError where an exchange failed.
  void finish();
  /// f32 gradients that a rank of `ranks` keeps at once while it adds its share of so many micro-batches.
  static int64_t sums_held(int64_t micro_batches, int64_t ranks = 1);
  /// The same of sums over all of the ranks' micro-batches, as many at once as there are ranks, between these
  /// (nn::FullyShardedOptions::micro_batches): 0 where that is all of them.
  static int64_t sums_kept(int64_t micro_batches, int64_t ranks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::distributed
