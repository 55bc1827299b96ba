#pragma once
// Gradients of which each rank keeps a part: averaged bucket by bucket while backward runs.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// Gradients of some rows of a parameter, which travel by themselves when a pass ends.
class RowGradients {
 public:
  virtual ~RowGradients() = default;
  /// Whether there may be some: the same in every rank.
  virtual bool may_have() const = 0;
  /// Of this pass.
  struct Settled {
    Tensor part;         ///< this rank's rows of the ranks' average; undefined where no rank has any
    bool whole = false;  ///< whether a rank has a gradient of all of the parameter
  };
  /// Every rank calls it, behind all gradients that do not wait for it. `whole`: of this rank.
  virtual Settled settle(bool whole) = 0;
};

/// As DataParallel has them, but a bucket is reduce_scattered: a rank gets its rows (Cut) of the averages alone, and
/// the gradients themselves go as soon as they are in their bucket. Each element is summed in the order of the ranks,
/// so a part has the bits that DataParallel's gradient has there.
///
/// With `micro_batches` they are sums of a step's micro-batches instead, with the bits of ExactGradients: each one's
/// gradients travel in f32 (f64 where the parameter is f64), by all_to_all, and are added in the tree over the
/// micro-batches' numbers by the rank whose rows they are. Pass i of rank r of n is number i n + r, so that what comes
/// at once lies side by side in the tree, and a rank keeps the logarithm of `micro_batches` of sums of its rows alone.
class ShardedGradients {
 public:
  struct Options {
    int64_t bucket_bytes = int64_t{25} << 20;  ///< gradients that travel together
    /// Whether every pass's gradients travel, and parts add up, or only the last one's, with what was added to them.
    bool every_pass = false;
    Group* replicas = nullptr;  ///< the parts are averaged over these ranks, too
    /// Of a step, which the ranks share evenly; 0: averages. reduce_next() then comes before each of this rank's.
    int64_t micro_batches = 0;
    /// Names of parameters whose gradients are not whole when they come: they are taken when a pass ends.
    std::vector<std::string> joined;
    /// Parameters of which gradients of rows come besides, by name.
    std::map<std::string, std::shared_ptr<RowGradients>> by_rows;
  };
  /// Leaves that want gradients, of one device, with at least one dimension and element; with `micro_batches` any: of
  /// what has no dimension every rank gets the whole. Throws ValueError for micro-batches that the ranks do not share.
  ShardedGradients(const std::vector<std::pair<std::string, Tensor>>& parameters, Group& group, const Options& options);
  ~ShardedGradients();
  ShardedGradients(const ShardedGradients&) = delete;

  /// As DataParallel::reduce_next(); to be called before every pass where there are several.
  void reduce_next(bool yes);
  /// Of every pass: gradients that come until the next reduce_next() add up where they are, and travel with those that
  /// come behind it: of a pass whose weights' gradients come later.
  void add_next();
  /// Waits for what is under way: its memory is free for others.
  void settle();
  /// Waits for the averages: this rank's part of each parameter's, undefined where no rank had one. They are the
  /// caller's. Throws ValueError where not all of this rank's micro-batches have come.
  std::vector<Tensor> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::distributed
