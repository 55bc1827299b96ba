#pragma once
// What records of text encoders share: BERT's keys, and names that differ by family.

#include "strata/models/family_parts_inl.h"

namespace strata::parts {

/// How many labels a classifier has: num_labels, else as many as id2label names, else 2.
int64_t read_labels(const ConfigReader& config);
/// As id2label, which transformers counts by.
void write_labels(Json& config, int64_t labels);

/// Which of a family's classes a configuration is of: "model" (no head), "tokens", "labels". `classes` are their names
/// in config.json in this order; a configuration that says none is the first. Throws ValueError for another one.
enum class EncoderClass : uint8_t { model, tokens, labels };
EncoderClass encoder_class(const ConfigReader& config, const std::vector<std::string_view>& classes);

/// A BERT-like encoder: keys of BertConfig, defaults of BERT.
ModelSpec read_bert(const ConfigReader& config, EncoderClass kind);
/// The keys that read_bert reads.
Json write_bert(std::string_view model_type, std::string_view architecture, const ModelSpec& spec);

/// Names in the files of an encoder whose blocks have norms behind. "{}" is the layer.
struct EncoderNames {
  std::string prefix;  ///< of all but the head: "bert."
  std::string embeddings = "embeddings.";
  std::string layer = "encoder.layer.{}.";
  std::string q = "attention.self.query", k = "attention.self.key", v = "attention.self.value",
              out = "attention.output.dense", norm1 = "attention.output.LayerNorm", up = "intermediate.dense",
              down = "output.dense", norm2 = "output.LayerNorm";
  std::string pooler = "pooler.dense";
  std::string token_dense, token_norm, token_bias, token_head;  ///< of logits over tokens
  std::string label_dense, label_head;                          ///< of labels
};
std::vector<WeightRow> encoder_weights(const ModelSpec& spec, const EncoderNames& names);

}  // namespace strata::parts
