#pragma once
// Data parallelism: every rank has the whole model and a part of the batch; gradients are averaged while backward runs.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// How gradients travel.
struct DataParallelOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  ///< gradients that travel together
};

/// Averages the gradients of `parameters` over a group. Gradients lie in buckets, whose memory is what travels: as soon
/// as all gradients of a bucket are there its reduction begins, beside the rest of backward. Buckets follow the order in
/// which the first pass's gradients came. Each element is summed in the order of the ranks, so every rank has the same
/// bits, whatever the buckets (Li et al., arXiv:2006.15704, has the scheme).
///
///     distributed::DataParallel ddp(model.named_parameters(), distributed::group("dp"));
///     for (const Batch& part : parts) {             // gradients of several passes add up ...
///       ddp.reduce_next(&part == &parts.back());    // ... and travel once
///       loss(part).backward();
///     }
///     ddp.finish();                                  // parameters' gradients are the averages
///     optimizer.step();
///
/// Every rank must have the same parameters in the same order. A parameter that got no gradient on any rank keeps none;
/// one that got it on some counts as zero on the others. The group's other calls may come between finish() and the next
/// backward only.
class DataParallel {
 public:
  /// Names and tensors, as nn::Module::named_parameters() gives them.
  using Parameters = std::vector<std::pair<std::string, Tensor>>;
  /// Makes the parameters of every rank those of the group's first, and takes their gradients from now on. Parameters
  /// that require no gradient are left alone. Throws DistributedError where the ranks' lists differ, naming the first
  /// parameter that does.
  DataParallel(const Parameters& parameters, Group& group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;

  /// Whether the next backward's gradients are the last of this step, and travel. True from the start.
  void reduce_next(bool yes);
  /// Waits until every gradient is the ranks' average. Throws DistributedError where a reduction failed.
  void finish();
  /// Buckets that there are now: one until the first step has shown the order, fewer bytes each after.
  int64_t buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::distributed
