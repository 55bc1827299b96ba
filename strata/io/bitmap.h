#pragma once
// Pruned weights: a bit for each element, and those that are not zero one after another (Joo et al. 2024, "Endor:
// Hardware-Friendly Sparse Format for Offloaded LLM Inference", arXiv 2406.11674). With half of 16-bit weights zero, 0.5625
// of the dense bytes come from the disk, and dense ones are made on the way.
//
// The bytes, little-endian: "SBITMAP1"; the dtype's name in 8 bytes, filled with zeros; rank and number of chunks, u64
// each; the sizes, i64 each; for each chunk and the end, the byte where it begins, u64. Then the chunks of kBitmapChunk elements
// (the last may have fewer), each at a multiple of 64: its bits, the lowest of a byte first, then its values, then at
// least 16 zeros. Zero is all bits zero: -0.0 and NaN are values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/memory/disk_store.h"

namespace strata::io {

/// Elements of one chunk: what one thread expands at a time.
inline constexpr int64_t kBitmapChunk = 65536;

/// What packed bytes say of themselves.
struct BitmapHeader {
  DType dtype = DType::f32;
  Shape shape;
  int64_t numel = 0;
  std::vector<uint64_t> begin;  ///< of each chunk, and the end of the last: bytes from the first of all

  int64_t chunks() const { return static_cast<int64_t>(begin.size()) - 1; }
  /// Of all that is packed, the header too.
  uint64_t nbytes() const { return begin.back(); }
};

/// A tensor's packed bytes. Any dtype and shape; it is read where it is, on the CPU. Throws DeviceError for one elsewhere.
std::vector<std::byte> pack_bitmap(const Tensor& x);

/// How many of the first bytes parse_bitmap_header needs: `first` has 32 of them at least, or all. Throws IoError where
/// they are no packed tensor's.
uint64_t bitmap_header_bytes(std::span<const std::byte> first);
/// Reads and checks a header; `bytes` begins with it. Throws IoError naming the byte. `total`: how many bytes are packed
/// in all, which the header has to agree with.
BitmapHeader parse_bitmap_header(std::span<const std::byte> bytes, uint64_t total);

/// Expands chunks [first, last) on several threads: `bytes` are those from begin[first] to begin[last], and `out` is where
/// element first * kBitmapChunk belongs. Throws IoError for a chunk whose bits do not agree with its values.
void expand_bitmap(const BitmapHeader& header, int64_t first, int64_t last, std::span<const std::byte> bytes,
                   std::byte* out);

/// The tensor that was packed, bit for bit, on the CPU. Throws IoError.
Tensor unpack_bitmap(std::span<const std::byte> bytes);

/// Expands a block whose first bytes are a packed tensor's into `out` (dense, row-major, numel elements), one part while the
/// next ones are read. Throws IoError.
void read_bitmap(memory::DiskStore& store, const memory::DiskStore::Block* block, const BitmapHeader& header,
                 std::byte* out);
/// The header of such a block.
BitmapHeader read_bitmap_header(memory::DiskStore& store, const memory::DiskStore::Block* block);

}  // namespace strata::io
