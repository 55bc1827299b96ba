#pragma once
// What a GGUF file of an architecture says and leaves unsaid: the part of a family's record that other files do not
// need. Keys and names of tensors that all architectures share stand in one table (gguf_keys.cpp) and in the rows.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {
namespace io {
class GgufMetadata;
}
struct ModelSpec;

/// How a family stands in GGUF files, and what their readers take for granted where no key says otherwise.
///
///     .gguf = {.architectures = {"gemma2"}, .window_period = 2, .usual_window = 4096},
struct GgufForm {
  std::vector<std::string_view> architectures = {};  ///< general.architecture; the first is written; empty: not had
  /// Whether a file of an architecture that several families share is of this one; the family without it takes what no
  /// other does.
  bool (*fits)(const io::GgufMetadata& metadata) = nullptr;
  /// Layers with a window where "attention.sliding_window_pattern" is absent: all but each so-many-th; 0: all.
  int64_t window_period = 0;
  int64_t usual_window = 0;  ///< where "attention.sliding_window" is absent; 0: none
  /// The scale of attention's scores where "attention.scale" is absent; not given: that of the spec.
  double (*scale)(const ModelSpec& spec) = nullptr;
  /// Further keys of config.json, as the text of a JSON object; what the table of keys says stands above them.
  std::string (*config)(const io::GgufMetadata& metadata) = nullptr;
  /// Queries and keys lie as they turn, neighbour beside neighbour: files cannot say halves.
  bool pairs_only = false;
};

}  // namespace strata
