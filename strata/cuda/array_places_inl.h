#pragma once
// Several arrays in one block of memory.

#include <cstdint>

namespace strata::cuda {

/// Offsets of arrays in one block of memory, each at a multiple of 256 bytes.
class ArrayPlaces {
 public:
  /// Where an array of so many bytes lies.
  int64_t take(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  /// Of all of them.
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace strata::cuda
