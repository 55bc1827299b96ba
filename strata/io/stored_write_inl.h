#pragma once
// A tensor's bytes as a file is to have them.

#include <cstddef>
#include <span>

#include "strata/core/tensor.h"
#include "strata/io/files.h"
#include "strata/io/stored_type.h"

namespace strata::io {

/// Appends `tensor`, which is of the item's shape, from any device and tier: plain types take its elements as copy_
/// converts them, blocks are encoded, in pieces. Throws what GgufWriter::write does; `op` begins the messages.
void write_stored(FileWriter& file, const StoredItem& item, const Tensor& tensor, std::string_view op);
/// Appends bytes that are in the item's type already. Throws ValueError unless there are as many as it needs.
void write_stored(FileWriter& file, const StoredItem& item, std::span<const std::byte> bytes, std::string_view op);

}  // namespace strata::io
