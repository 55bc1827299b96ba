#pragma once
// IDX, the file format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a type, the rank, a big-endian u32
// for each size, then the elements, big-endian.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::data {

/// Reads a file, plain or gzip-compressed (told by its first bytes): u8, i8, i16, i32, f32 or f64. Throws IoError
/// naming the file and the byte: not IDX, an unknown type, too many dimensions, data shorter or longer than the sizes
/// say, damaged compression. Never allocates more than the file can hold.
Tensor read_idx(const std::string& path);
/// The same for a file's bytes; `name` stands in the messages.
Tensor parse_idx(std::span<const std::byte> file, std::string_view name);

}  // namespace strata::data
