#pragma once
// The order in which so many numbers are added: a balanced tree over their places, the same whoever holds them.

#include <cstdint>
#include <vector>

namespace strata::distributed {

/// Some places, one behind the other.
struct Places {
  int64_t begin = 0, count = 0;
  bool operator==(const Places&) const = default;
};

/// The tree over `count` places: a node is the sum of its left half, the larger one where the number is odd, and its
/// right half.
class SumTree {
 public:
  /// Throws ValueError unless `count` is positive.
  explicit SumTree(int64_t count);
  /// The largest nodes that lie wholly within some places, in order: what those who hold the places can add up alone.
  std::vector<Places> nodes_within(Places held) const;
  /// How the sums of `nodes`, which together are all places of a node (the whole tree, or one of nodes_within()),
  /// become its own: for each in order, how many times the two newest sums that are there are added once it is.
  std::vector<int64_t> additions(Places root, const std::vector<Places>& nodes) const;
  /// The same for single places.
  std::vector<int64_t> additions(Places root) const;
  /// Sums that are there at once, at the most, while places come in order and each is added to the newest sum where
  /// that is what follows.
  int64_t most_held(Places held) const;

 private:
  int64_t count_;
};

}  // namespace strata::distributed
