#pragma once
// What a folder of sentence-transformers says beside the model.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/models/text_encoder.h"

namespace strata {

/// How a folder's texts become vectors.
///
///     const SentenceOptions o = read_sentence_options("all-MiniLM-L6-v2");
///     const Tensor vectors = text_embeddings(hidden, padding, o.embedding);
struct SentenceOptions {
  EmbeddingOptions embedding = {};
  int64_t max_length = 0;  ///< tokens of a text at most; 0: the folder does not say
};

/// From modules.json, the pooling's config.json and sentence_bert_config.json; the mean, as sentence-transformers does,
/// where there is no modules.json. Throws IoError naming file and field for what is no JSON of that form, for two ways
/// of pooling at once, and for modules that there are not here (Dense).
SentenceOptions read_sentence_options(const std::string& folder);

/// "first", "last", "mean", "max", "weighted_mean", "root_mean".
std::vector<std::string> pooling_names();
/// Of such a name. Throws ValueError listing them.
Pooling parse_pooling(std::string_view name);

}  // namespace strata
