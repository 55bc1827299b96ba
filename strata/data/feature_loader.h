#pragma once
// Batches with their features, which are gathered ahead.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "strata/data/feature_source.h"
#include "strata/data/loader.h"

namespace strata::data {

struct FeatureQueue;

/// What a FeatureLoader does with its batches.
struct FeatureLoaderOptions {
  size_t indices = 0;  ///< which tensor of a batch names the rows (i64 or i32, of any shape)
  /// Batches whose rows are begun to be read while an earlier one is used; 0: none.
  int64_t ahead = 1;
};

/// A DataLoader's batches, each with the rows that one of its tensors names as one tensor more at its end. The loader's
/// thread makes the batches (draws samples, looks up neighbours) and FeatureSource::prefetch() begins to read the rows
/// of those that come next; the rows are gathered when the batch is handed out, so that what was written to the table
/// before is in them. \code
///   FeatureLoader batches(DataLoader(nodes, {.batch_size = 512, .shuffle = true}), table);
///   while (auto batch = batches.next()) train(batch->back(), ...);
/// \endcode
/// One thread may use a loader at a time.
class FeatureLoader {
 public:
  /// Throws ValueError where there is no table or `ahead` is negative.
  FeatureLoader(DataLoader loader, std::shared_ptr<FeatureSource> features, const FeatureLoaderOptions& options = {});
  /// Of anything that has gather() and prefetch().
  template <class Table>
  FeatureLoader(DataLoader loader, std::shared_ptr<Table> table, const FeatureLoaderOptions& options = {})
      : FeatureLoader(std::move(loader), feature_source(std::move(table)), options) {}
  ~FeatureLoader();
  FeatureLoader(FeatureLoader&&) noexcept;
  FeatureLoader& operator=(FeatureLoader&&) noexcept;

  /// As DataLoader::next(). Throws what the data set or the table threw for that batch, IndexError where a batch has no
  /// such tensor.
  std::optional<Batch> next();
  /// The place after the last batch that next() returned.
  SamplerState state() const { return delivered_; }
  /// Goes on from there. Throws ValueError as Sampler::set_state.
  void set_state(const SamplerState& state);
  /// Batches of an epoch.
  int64_t batches_per_epoch() const { return loader_.batches_per_epoch(); }

 private:
  void fetch();

  DataLoader loader_;
  std::shared_ptr<FeatureSource> features_;
  FeatureLoaderOptions options_;
  SamplerState delivered_;
  std::unique_ptr<FeatureQueue> queue_;
};

}  // namespace strata::data
