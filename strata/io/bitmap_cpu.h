#pragma once
// Kernels of packed tensors. Private to strata/io.

#include <cstddef>
#include <cstdint>

namespace strata::io {

/// Writes `n` elements of `size` bytes (1, 2, 4 or 8) to `out`: zeros where a bit is 0, the next of the values where it is 1.
/// Up to 15 bytes behind the last value are read.
void expand_bits(const uint8_t* bits, const std::byte* values, int64_t n, int size, std::byte* out);

/// The other way: sets the bits, appends to `values` what is not zero, and returns how many that are.
int64_t pack_bits(const std::byte* dense, int64_t n, int size, uint8_t* bits, std::byte* values);

/// How many of the first `n` bits are set; the others of the last byte count as an error: -1.
int64_t count_bits(const uint8_t* bits, int64_t n);

}  // namespace strata::io
