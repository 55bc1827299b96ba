#pragma once
// Data sets made of others, and samplers: the orders in which indices are drawn. The loader has a resumable Sampler of
// its own; these are for loops that choose for themselves.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "strata/core/rng.h"
#include "strata/data/dataset.h"

namespace strata::data {

/// Data sets one after the other. Their batches must have alike tensors.
class ConcatDataset final : public Dataset {
 public:
  /// Throws ValueError for none, or a null one.
  explicit ConcatDataset(std::vector<std::shared_ptr<const Dataset>> datasets);
  int64_t size() const override { return ends_.back(); }
  /// One call of each data set that is asked for, its rows put into their places.
  Batch get_batch(std::span<const Sample> samples) const override;

 private:
  std::vector<std::shared_ptr<const Dataset>> datasets_;
  std::vector<int64_t> ends_;
};

/// The samples of a data set at given indices.
class Subset final : public Dataset {
 public:
  /// Throws ValueError for a null data set, IndexError for an index outside it.
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Batch get_batch(std::span<const Sample> samples) const override;
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::vector<int64_t> indices_;
};

/// Subsets of the given sizes, which must add up to the data set's, in an order that `seed` decides. Throws ValueError.
std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                  const std::vector<int64_t>& lengths, uint64_t seed = 0);

/// Draws indices, one after the other.
class IndexSampler {
 public:
  virtual ~IndexSampler() = default;
  /// Indices of an epoch.
  virtual int64_t size() const = 0;
  /// The next index; none at the end of the epoch. The call after that begins the next epoch.
  virtual std::optional<int64_t> next() = 0;
  /// All of an epoch (what is left of this one).
  std::vector<int64_t> epoch();
};

/// 0, 1, .. size - 1.
class SequentialSampler final : public IndexSampler {
 public:
  /// Throws ValueError for size < 0.
  explicit SequentialSampler(int64_t size);
  int64_t size() const override { return size_; }
  std::optional<int64_t> next() override;

 private:
  int64_t size_, position_ = 0;
};

/// Indices below `size` in an order that the seed and the epoch decide; with `replacement` each drawn by itself.
class RandomSampler final : public IndexSampler {
 public:
  /// `num_samples` an epoch, `size` where not given. Throws ValueError for a size < 1, num_samples < 0, or above size
  /// without replacement.
  explicit RandomSampler(int64_t size, uint64_t seed = 0, bool replacement = false,
                         std::optional<int64_t> num_samples = {});
  int64_t size() const override { return count_; }
  std::optional<int64_t> next() override;

 private:
  int64_t range_, count_, position_ = 0;
  uint64_t seed_, epoch_ = 0;
  bool replacement_;
  KeyedPermutation order_;
};

/// Indices drawn with probabilities proportional to `weights`; without replacement each at most once an epoch
/// (Efraimidis and Spirakis 2006).
class WeightedRandomSampler final : public IndexSampler {
 public:
  /// Throws ValueError for weights that are negative, not finite or all 0, and for num_samples < 1, or above the number
  /// of weights above 0 without replacement.
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement = true, uint64_t seed = 0);
  int64_t size() const override { return count_; }
  std::optional<int64_t> next() override;

 private:
  void begin_epoch();

  std::vector<double> weights_, sums_;
  int64_t count_, position_ = 0;
  uint64_t seed_, epoch_ = 0;
  bool replacement_;
  std::vector<int64_t> chosen_;  // of this epoch, without replacement
};

/// Indices of another sampler, `batch_size` at a time; the last batch of an epoch may be shorter, or is dropped.
class BatchSampler {
 public:
  /// Throws ValueError for a null sampler or batch_size < 1.
  BatchSampler(std::shared_ptr<IndexSampler> sampler, int64_t batch_size, bool drop_last = false);
  /// Batches of an epoch.
  int64_t size() const;
  /// The next batch; empty at the end of the epoch. The call after that begins the next epoch.
  std::vector<int64_t> next();

 private:
  std::shared_ptr<IndexSampler> sampler_;
  int64_t batch_size_;
  bool drop_last_;
  bool ended_ = false;  // the last batch was short: the epoch's end is told by the next call
};

}  // namespace strata::data
