#pragma once
// Tensor maps for copy_in() and copy_out(), made by the host.

#include "strata/cuda/tile/shared_tile.cuh"

#ifndef STRATA_TILE_EMULATION
#include <cuda.h>
#endif

namespace strata::cuda::tile {

/// [batches][rows][columns] in global memory: columns lie one after the other, rows and batches whole multiples of 16
/// bytes apart, the first at a multiple of 16 bytes.
struct Matrices {
  const void* data = nullptr;
  int element_bytes = 2;  ///< 1, 2 or 4
  int64_t columns = 0, rows = 0, batches = 1, row_bytes = 0, batch_bytes = 0;
};

/// Whether the copy engine can copy boxes of it.
inline bool fits_copies(const Matrices& m) {
  const auto fits = [](int64_t size, int64_t bytes) {
    return size == 1 || (bytes > 0 && bytes % 16 == 0 && bytes < (int64_t{1} << 40));
  };
  return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.columns < INT32_MAX && m.rows < INT32_MAX &&
         m.batches < INT32_MAX && fits(m.rows, m.row_bytes) && fits(m.batches, m.batch_bytes);
}
#ifndef STRATA_TILE_EMULATION
/// A map of three dims (column, row, batch) for boxes of 128 bytes of columns by `rows` rows (256 at most), swizzled.
CUtensorMap tensor_map(const Matrices& m, int rows);
/// Whether kernels of tiles run on the current device: capability 9.0, code for it, and a driver that makes maps.
bool has_tiles();
#else
// Of this file's program alone: the library has one of this name for the card.
static inline CUtensorMap tensor_map(const Matrices& m, int rows) {
  CUtensorMap map;
  map.data = static_cast<uint8_t*>(const_cast<void*>(m.data)), map.element_bytes = m.element_bytes;
  const int64_t sizes[] = {m.columns, m.rows, m.batches}, steps[] = {m.element_bytes, m.row_bytes, m.batch_bytes};
  for (int i = 0; i < 3; ++i) map.sizes[i] = sizes[i], map.steps[i] = steps[i];
  map.box[0] = kRowBytes / m.element_bytes, map.box[1] = rows;
  return map;
}
#endif

}  // namespace strata::cuda::tile
