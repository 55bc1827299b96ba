#pragma once
// The norm of gradients that lie in parts, to the bit that of whole ones.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::optim {

/// Elements of a gradient whose squares are one number of the sum (square_parts() of kernels.h), on the host.
inline constexpr int64_t kHostSquareChunk = 16384;

/// The sum of the squares of gradients of which each rank of a group has some elements. It is added up from the same
/// numbers in the same order as that of one process that has all of them (sum_of_squares()), so it has the same bits
/// whoever has what: each rank squares the chunks that lie among its elements, the few that ranks share come together
/// first, and every rank adds all chunks' sums.
class WholeSquares {
 public:
  struct Gradient {
    Tensor of;     ///< holds the gradient of this rank's elements; undefined where it has none of them
    Tensor whole;  ///< as it lies along other axes ("tp"), whose sums are taken as of any sharded parameter
    /// Of each rank of the group where its elements begin among those of the whole, or of its part along other axes,
    /// and behind them their number.
    std::vector<int64_t> begins;
  };
  /// All ranks have the same list but for `of`; those that share elements of a gradient agree on whether there is one.
  /// Throws ValueError unless `begins` are of the group's ranks.
  WholeSquares(std::vector<Gradient> gradients, const std::string& group);

  /// Of the gradients that there are now: one number of f64 where they are. Every rank calls it. Throws
  /// DistributedError where an exchange failed.
  Tensor sum() const;

 private:
  std::vector<Gradient> gradients_;
  std::string group_;
};

}  // namespace strata::optim
