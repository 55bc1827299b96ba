#pragma once
// Parts of weight files into tensors.

#include <vector>

#include "strata/io/input_file.h"
#include "strata/io/weight_files.h"

namespace strata::io {

/// One part of a bulk read whose sizes agree: `entry`'s elements from `first` on, in their order, into `target`.
struct WeightPart {
  const WeightEntry* entry = nullptr;
  int64_t first = 0;  ///< an element; the first of a block
  Tensor target;      ///< detached
};

/// `part` as it is to be read. Throws what WeightFiles::read throws for a part that makes no sense; `file` is its
/// entry's.
WeightPart check_part(const WeightEntry& entry, const WeightRead& part, std::string_view file);

/// Reads them, file after file. Throws IoError.
void read_parts(const std::vector<InputFile>& files, std::vector<WeightPart> parts);

}  // namespace strata::io
