#pragma once
// A table of rows that may be larger than the card, and than memory: docs/design/tiers.md.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::optim {
class RowOptimizer;
}

namespace strata::nn {

class RowStore;

/// Where a FeatureTable's rows live and which of them it keeps nearer.
struct FeatureTableOptions {
  /// Where gathered rows are wanted.
  Device device = Device::cpu();
  /// The rows' home: Tier() is the device's own memory, memory::kUnified page-locked memory that a card reads in place,
  /// memory::kDisk files.
  Tier home = {};
  /// Which rows have a copy in the device's own memory (RAM beside a disk).
  enum class Keep : uint8_t {
    most_used,  ///< those that keep_most_used() chose, until it chooses others
    last_used,  ///< those of the last batches (second chance: a row asked for again since the hand passed stays)
  };
  Keep keep = Keep::last_used;
  int64_t cache_bytes = 0;  ///< for those copies
  /// Of memory::kDisk: the directories, one or several (memory::DiskOptions has the rest).
  std::vector<std::string> directories = {};
};

/// What a FeatureTable was asked for since it was made, or since reset_stats().
struct FeatureTableStats {
  int64_t rows = 0;        ///< asked for, each as often as it was named
  int64_t hits = 0;        ///< of them, those whose copy was there
  int64_t home_rows = 0;   ///< read from their home: as often as they were named, or once a batch where they are kept
  int64_t home_bytes = 0;  ///< the same in bytes
  int64_t prefetched = 0;  ///< batches that had been begun by prefetch()
  /// hits / rows; 0 where nothing was asked for.
  double hit_rate() const { return rows == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(rows); }
};

/// The gradient of a table for the rows that were used.
struct RowGradient {
  Tensor rows;    ///< [n] i64, ascending, each once
  Tensor values;  ///< [n, width]: f64 of an f64 table, else f32
};

/// [rows, width] of any dtype. Gathered rows are bit for bit those of the table, whatever is kept where. Any thread may
/// call anything, one call at a time goes on; the order of the calls alone says which rows are kept.
///
///     nn::FeatureTable table(features, {.device = Device::cuda(), .home = memory::kUnified, .cache_bytes = 1 << 30});
///     table.prefetch(next);            // begins
///     Tensor x = table.gather(nodes);  // [n, width], on the card
class FeatureTable final {
 public:
  /// A table whose elements are undefined until write() (of a disk: reading them throws IoError). Throws ValueError for
  /// sizes below 0 or options that do not fit, DeviceError where there is no such device or memory, MemoryError.
  FeatureTable(int64_t rows, int64_t width, DType dtype, const FeatureTableOptions& options);
  /// A copy of `values` [rows, width].
  explicit FeatureTable(const Tensor& values, const FeatureTableOptions& options = {});
  ~FeatureTable();
  FeatureTable(const FeatureTable&) = delete;

  int64_t rows() const;
  int64_t width() const;
  DType dtype() const;
  Device device() const;

  /// indices.shape() + [width], on device(): the rows that `indices` (i64 or i32, on any device) name. Where the table
  /// wants gradients and they are recorded, the result is a leaf, and what backward() brings it goes to gradient().
  /// Throws IndexError naming the index and its position (on a card that reads the rows in place, later: the host hears
  /// of it when it next waits), DTypeError, IoError. Indices on a card are waited for where the host decides what is
  /// kept or reads a disk.
  Tensor gather(const Tensor& indices);
  /// Begins to read for the gather() of the same indices that will follow, in the order in which they were begun: on a
  /// disk's threads, or on a stream beside the current one. Nothing where the rows are in reach of the processor.
  void prefetch(const Tensor& indices);

  /// The rows that `rows` (i64 [n], each once) names = values [n, width], also where they are kept or prefetched.
  /// Throws IndexError, ValueError (a row stands twice), ShapeError, DTypeError, IoError.
  void write(const Tensor& rows, const Tensor& values);
  /// Rows [first, first + values.size(0)) = values. The same errors.
  void write(int64_t first, const Tensor& values);
  /// Rows [first, first + count) as a tensor of the host.
  Tensor read(int64_t first, int64_t count) const;

  /// @name What is kept
  /// @{
  /// Rows that there is room for.
  int64_t cache_rows() const;
  /// From now on gather() counts how often each row is asked for (or no longer); the counts begin at 0.
  void count_uses(bool on);
  /// How often, i64 [rows] of the host. Throws ValueError where nothing is counted.
  Tensor uses() const;
  /// Keeps the rows with the largest counts (i64 [rows]; of equal ones the first), those of uses() where none are
  /// given. Throws ValueError unless options said most_used, ShapeError, DTypeError.
  void keep_most_used(const Tensor& counts = {});
  FeatureTableStats stats() const;
  void reset_stats();
  /// @}

  /// @name Gradients of the rows that are used; optim::RowOptimizer updates by them
  /// @{
  /// Throws DTypeError for a table that is not floating.
  void set_requires_grad(bool on);
  bool requires_grad() const;
  /// The sum of what backward() brought since zero_grad(): of rows that were asked for several times in the order of
  /// the calls of gather() and of the positions. Empty tensors where nothing came.
  RowGradient gradient() const;
  void zero_grad();
  /// @}

 private:
  friend class optim::RowOptimizer;
  RowStore& home() const;
  // The same as write() of ascending rows, which are not looked at.
  void write_rows(const Tensor& rows, const Tensor& values);
  // Rows of another dtype that live where these do, each `value`: what an optimizer keeps of each row.
  std::unique_ptr<RowStore> make_rows_beside(DType dtype, double value) const;

  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata::nn
