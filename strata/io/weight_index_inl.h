#pragma once
// model.safetensors.index.json and pytorch_model.bin.index.json: which tensor stands in which file of the folder.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::io {

/// A longer index is refused.
inline constexpr uint64_t kMaxWeightIndex = 100'000'000;

/// One line of the weight_map.
struct WeightIndexLine {
  std::string name;   ///< of the tensor
  std::string file;   ///< in the index's folder: a name without folders
  uint64_t line = 0;  ///< of the index, from 1
};

/// The lines in the index's order; `source` stands in the messages. Throws IoError that names it and the line for
/// anything that is not {"weight_map": {"tensor": "file", ...}, ...}, a name given twice, and a file that is no plain
/// name: empty, hidden, or with a folder in it.
std::vector<WeightIndexLine> parse_weight_index(std::string_view text, std::string_view source);

}  // namespace strata::io
