#pragma once
// A file's bytes into tensors, at the disk's speed.

#include <cstdint>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/io/hash.h"
#include "strata/io/input_file.h"

namespace strata::io {

/// The bytes of a file from `offset` on fill `tensor`, which is contiguous, in memory of any tier.
struct Filling {
  uint64_t offset = 0;
  Tensor tensor;
};

/// Reads the file once, in large pieces, on several threads, each piece copied to where it belongs while others are
/// read: to a card through page-locked memory, so that the host never holds more than a few pieces. Tensors whose bytes
/// move are near a stretch of the file at a time, so that they may be larger than the memory near. `fillings` are in
/// the order of their offsets and do not overlap. `hasher`, where given, takes every byte of the file in its order;
/// without one the stretches between the tensors are not read. The tensors hold their bytes when this returns. Throws
/// IoError as InputFile::read(), and what a Pin throws; then some tensors are filled and some are not.
void fill_tensors(const InputFile& file, const std::vector<Filling>& fillings, Hasher* hasher);

}  // namespace strata::io
