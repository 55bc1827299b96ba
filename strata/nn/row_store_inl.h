#pragma once
// Rows of one width where they live: memory that kernels read in place, or a disk. For nn::FeatureTable and those who
// update its rows.

#include <cstdint>
#include <memory>

#include "strata/core/tensor.h"
#include "strata/memory/disk_store.h"

namespace strata::nn {

/// What a disk is still writing to memory.
struct RowsOnTheirWay;

/// [rows, width] of one dtype. Rows are named by i64 tensors of one dimension on device(), in range; no call names a
/// row twice where it writes.
class RowStore {
 public:
  RowStore(int64_t rows, int64_t width, DType dtype) : rows(rows), width(width), dtype(dtype) {}
  virtual ~RowStore() = default;
  RowStore(const RowStore&) = delete;

  const int64_t rows, width;
  const DType dtype;
  int64_t row_bytes() const { return width * size_of(dtype); }

  /// Whose tensors are read and written.
  virtual Device device() const = 0;
  /// All of them as a tensor that kernels of device() read in place; undefined where there is none.
  virtual Tensor table() const { return {}; }

  /// Rows on their way to the first of [n + more, width]: there when finish() has returned. Dropping it waits until
  /// nothing writes there any more.
  struct Reading {
    Tensor rows;
    std::shared_ptr<RowsOnTheirWay> pending = nullptr;
  };
  /// `index` has n elements. Throws MemoryError.
  virtual Reading begin(const Tensor& index, int64_t more = 0) = 0;
  /// Throws IoError.
  virtual Tensor finish(const Reading& reading) = 0;
  Tensor read(const Tensor& index) { return finish(begin(index)); }
  /// values [n, width]. Returns when they may be reused; throws IoError.
  virtual void write(const Tensor& index, const Tensor& values) = 0;

  /// Rows [first, first + count), from the host and to it.
  virtual Tensor read_range(int64_t first, int64_t count) = 0;
  virtual void write_range(int64_t first, const Tensor& values) = 0;
};

/// Rows of a tensor in memory of a tier of the device.
std::unique_ptr<RowStore> make_table_rows(int64_t rows, int64_t width, DType dtype, Device device, Tier tier);
/// Rows in a block of `disk`, read to the host: to page-locked memory where `pinned`.
std::unique_ptr<RowStore> make_disk_rows(int64_t rows, int64_t width, DType dtype,
                                         std::shared_ptr<memory::DiskStore> disk, bool pinned);
/// Every row = `value`.
void fill_rows(RowStore& store, double value);

/// In an index that put_rows() is given: no row.
inline constexpr int64_t kNoRow = INT64_MIN;
/// table[index] = values, in place: a dense table [n, ...], an i64 index on its device in which no row stands twice.
void put_rows(const Tensor& table, const Tensor& index, const Tensor& values);

}  // namespace strata::nn
