#pragma once
// Positions by distance: numbers added to the scores of attention.

#include <memory>
#include <vector>

#include "strata/nn/module.h"

namespace strata::nn {

/// Learned numbers for buckets of distances, a column for each head (T5; Raffel et al., arXiv:1910.10683). Near
/// distances have a bucket each; from half of the buckets on they grow with the logarithm, and from `distance` on all
/// share the last. Parameter: weight [buckets, heads], drawn from N(0, 1).
///
///     const RelativePositions positions(32, 128, 8, /*both_ways=*/true);
///     const Tensor bias = positions.between(x.size(1), x.size(1));       // [1, 8, T, T]
class RelativePositions : public Module {
 public:
  /// `both_ways`: half of the buckets are of keys behind the query, else these share the bucket of distance 0. Throws
  /// ValueError for less than four buckets, an odd number of them, or a distance that is not above half of it.
  RelativePositions(int64_t buckets, int64_t distance, int64_t heads, bool both_ways);

  /// What is added to the scores of `queries` and `keys` that both begin at position 0: [1, heads, queries, keys].
  Tensor between(int64_t queries, int64_t keys) const;
  /// The same of queries at `positions` i64 [B, T] and keys at 0, 1, ..: [B, heads, T, keys], minus infinity for keys
  /// behind the query.
  Tensor before(const Tensor& positions, int64_t keys) const;
  /// The same of distances, key's place minus query's, i64 [..]: [.., heads].
  Tensor forward(const Tensor& distances) const;
  Tensor operator()(const Tensor& distances) const { return called(*this, distances); }

  Tensor weight;

 private:
  struct Table;
  int64_t distance_;
  std::shared_ptr<Table> table_;
};

/// The bucket of each distance, key's place minus query's, from -distance to distance.
std::vector<int64_t> relative_buckets(int64_t buckets, int64_t distance, bool both_ways);

}  // namespace strata::nn
