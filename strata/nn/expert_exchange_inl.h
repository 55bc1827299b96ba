#pragma once
// Rows on their way to experts of other ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::nn {

/// Which rows go to which rank of `axis`, each of which has as many of `count` experts as the others, and which come.
/// The host waits for their numbers. Gradients go the other way.
class ExpertExchange {
 public:
  /// `offsets` i64 [count + 1]: where each expert's rows begin. Every rank of the axis calls it.
  ExpertExchange(const Tensor& offsets, const std::string& axis, int64_t ranks);
  /// Rows [N, D], by expert, to those that this rank's experts get, by expert, and for each by rank.
  Tensor there(const Tensor& rows) const;
  /// And those back, [N, D].
  Tensor back(const Tensor& rows) const;
  /// Where the rows of each of this rank's experts begin, i64 [count / ranks + 1].
  const Tensor& offsets() const { return offsets_; }

 private:
  std::string axis_;
  std::vector<int64_t> gives_, gets_;  // rows for and of each rank
  Tensor place_;                       // [rows, 1]: of what comes by rank its place by expert
  Tensor offsets_;
};

}  // namespace strata::nn
