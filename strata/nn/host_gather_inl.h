#pragma once
// Rows that the processor gathers for a card, piece by piece, while the piece before is copied.

#include <array>
#include <cstdint>
#include <memory>

#include "strata/core/tensor.h"
#include "strata/cuda/runtime.h"

namespace strata::nn {

/// Where a table is in the reach of both, a card asks for each row by itself: it translates the address of one in 16
/// ns, whatever the row's size (measured on an H200), so that the bus stands idle for rows of less than 1 KiB. Cores
/// that read them into page-locked pieces fill it.
class HostGather {
 public:
  /// For one table. Pieces of so many bytes in page-locked memory; for a device that is the host in its own.
  explicit HostGather(Device device, int64_t piece_bytes = int64_t{4} << 20) : device_(device), bytes_(piece_bytes) {}

  /// The rows of a dense table [rows, width] that `index` (i64 [n] of the host, in range) names, on the device. The
  /// processor reads the table now. Throws MemoryError.
  Tensor gather(const Tensor& table, const Tensor& index);
  /// Whether that is faster than what a card does by itself, for rows of so many bytes.
  static bool is_faster(int64_t row_bytes);

 private:
  static constexpr size_t kPieces = 3;
  struct Piece {
    Tensor rows;
    std::unique_ptr<cuda::Event> copied;
  };
  Device device_;
  int64_t bytes_;
  std::array<Piece, kPieces> pieces_;
  size_t next_ = 0;
};

}  // namespace strata::nn
