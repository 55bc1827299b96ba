#pragma once
// Where a loader gets rows of features: what nn::FeatureTable is to it.

#include "strata/core/tensor.h"

namespace strata::data {

/// Rows by number. docs/design/tiers.md.
class FeatureSource {
 public:
  virtual ~FeatureSource() = default;
  /// The rows that `indices` (i64 or i32, of any shape) name: indices.shape() + [width].
  virtual Tensor gather(const Tensor& indices) = 0;
  /// Begins what gather() of the same indices will then finish.
  virtual void prefetch(const Tensor& indices) = 0;
};

}  // namespace strata::data
