#pragma once
// What a GGUF file says of a model beside its weights: read into a family's ModelSpec, and written of one.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/io/gguf.h"
#include "strata/models/family.h"

namespace strata {
namespace io {
class WeightFiles;
}

/// All of a file that decides a spec.
struct GgufFacts {
  io::GgufMetadata metadata;
  std::set<std::string, std::less<>> tensors;  ///< their names
  int64_t vocab = 0;                           ///< rows of the embedding
  /// Tensors that hold no weights: what frequencies of rotary positions are divided by, "rope_freqs.weight".
  std::map<std::string, std::vector<float>, std::less<>> factors;
};

/// Whether a tensor of that name is one of GgufFacts::factors.
bool is_gguf_factors(std::string_view tensor);
/// What an open file says. Throws ValueError for one that is no GGUF file.
GgufFacts gguf_facts(const io::WeightFiles& files);
/// What a file of this model says. Throws ValueError with the reason where it cannot: reading it would give another
/// model.
GgufFacts gguf_facts(const Family& family, const ModelSpec& spec);
/// The family and spec that are said. Every key of the architecture is known and says what the spec does, else it is a
/// ValueError that names it; `source` is the file, for messages.
std::pair<const Family*, ModelSpec> read_gguf_facts(const GgufFacts& facts, std::string_view source);

}  // namespace strata
