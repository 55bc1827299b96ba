#pragma once
// Where a loader gets rows of features.

#include <concepts>
#include <memory>
#include <utility>

#include "strata/core/tensor.h"

namespace strata::data {

/// Rows by number: what an nn::FeatureTable is to a loader.
class FeatureSource {
 public:
  virtual ~FeatureSource() = default;
  /// The rows that `indices` (i64 or i32, of any shape) name: indices.shape() + [width].
  virtual Tensor gather(const Tensor& indices) = 0;
  /// Begins what gather() of the same indices will then finish.
  virtual void prefetch(const Tensor& indices) = 0;
};

/// Anything that has these two functions, as a FeatureSource; nullptr of nullptr.
template <class Table>
std::shared_ptr<FeatureSource> feature_source(std::shared_ptr<Table> table) {
  if constexpr (std::derived_from<Table, FeatureSource>) {
    return table;
  } else {
    struct Source final : FeatureSource {
      explicit Source(std::shared_ptr<Table> t) : table(std::move(t)) {}
      Tensor gather(const Tensor& indices) override { return table->gather(indices); }
      void prefetch(const Tensor& indices) override { table->prefetch(indices); }
      std::shared_ptr<Table> table;
    };
    return table ? std::make_shared<Source>(std::move(table)) : nullptr;
  }
}

}  // namespace strata::data
