#pragma once
// The loader: batches of a data set, made ready by a background thread.

#include <cstdint>
#include <memory>
#include <optional>

#include "strata/data/dataset.h"
#include "strata/data/sampler.h"

namespace strata::data {

/// Which batches a DataLoader makes, in which order.
struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  /// Decides the order; the same seed gives the same batches.
  uint64_t seed = 0;
  /// Leaves out the last batch of an epoch where it would be smaller. Without meaning where `repeat` is on.
  bool drop_last = false;
  /// Never ends: an epoch follows the other without a gap, and every batch is full, even of a small data set.
  bool repeat = false;
  /// Batches held ready, at most; 0 makes each when it is asked for, without a thread.
  int64_t prefetch = 2;
  /// Batches are in page-locked memory, from which a CUDA device copies on its own: new tensors that the data set makes
  /// are made there (memory::TierScope), others are copied. Throws DeviceError from next() where there is no device.
  bool pin_memory = false;
  /// Of each batch, cut into `parts` runs of samples as even as can be, the one to make: a rank's, where several share
  /// a batch. batch_size and the state count the whole.
  int64_t part = 0, parts = 1;
  /// Samples that each part has of a batch, in order; empty: as even as can be.
  std::vector<int64_t> part_sizes;
};

/// Draws batches from a data set.
/// \code
///   DataLoader loader(dataset, {.batch_size = 32, .shuffle = true});
///   for (int epoch = 0; epoch < 3; ++epoch)
///     while (auto batch = loader.next()) train((*batch)[0], (*batch)[1]);
/// \endcode
/// One thread may use a loader at a time.
class DataLoader {
 public:
  /// Throws ValueError for a batch size below 1, an empty data set, a drop_last that leaves no batch, or parts that a
  /// batch has not.
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// The next batch; nothing once at the end of each epoch (never, with `repeat`): the call after that starts the next
  /// one. Rethrows what the data set threw for that batch.
  std::optional<Batch> next();
  /// The place after the last batch that next() returned, whatever the thread has made ready since.
  SamplerState state() const;
  /// Goes on from there: the same batches follow as followed then. Throws ValueError as Sampler::set_state.
  void set_state(const SamplerState& state);
  /// Batches of an epoch. With `repeat`, full ones' worth, rounded up.
  int64_t batches_per_epoch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::data
