#pragma once
// A small model whose folders hold low-bit weights, in every way that files store them.

#include <string>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/models/packed_files.h"
#include "strata/models/pretrained.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/random/random.h"

namespace strata {

inline std::string config_with(const std::string& quantization) {
  return cat(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,)",
      R"( "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,)",
      R"( "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false)", quantization, "}");
}

// A random model's tensors as a folder has them.
struct Files {
  io::TensorMap tensors;
  std::vector<std::string> layers;  // those of linear layers, without ".weight"
};
inline Files random_files() {
  manual_seed(11);
  const ConfigReader config(config_with(""), "config.json");
  const Family& family = family_of(config);
  const ModelSpec spec = read_spec(family, config);
  Files files;
  for (const WeightRow& row : family.weights(spec)) {
    files.tensors.emplace(row.name, row.shape.size() == 1 ? randn(row.shape) * 0.1 + 1.0 : randn(row.shape) * 0.2);
    if (row.shape.size() == 2 && row.name.find("layers.") != std::string::npos)
      files.layers.push_back(row.name.substr(0, row.name.size() - 7));
  }
  return files;
}
// Bytes that are a matrix are 8-bit floating numbers, as such folders have them.
inline std::string write_folder(const io::TempDir& dir, const std::string& config, const io::TensorMap& tensors) {
  io::write_file(dir.path() + "/config.json", config);
  std::vector<io::StoredItem> items;
  for (const auto& [name, t] : tensors) {
    const bool fp8 = t.dtype() == DType::u8 && t.dim() == 2 && t.size(1) > 1;
    items.push_back({name, fp8 ? io::find_stored_type("F8_E4M3") : &io::stored_type(t.dtype()), t.shape()});
  }
  io::ShardedSafetensorsWriter out(dir.path(), items);
  for (const std::string& name : out.order()) {
    const Tensor t = tensors.at(name).contiguous();
    out.write_bytes({static_cast<const std::byte*>(t.raw_data()), static_cast<size_t>(t.nbytes())});
  }
  out.commit();
  return dir.path();
}

struct Way {
  const char* config;
  const char* format;
  QuantizeOptions rounding;
};
inline const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false})",
       "int4",
       {.block_columns = 32, .symmetric = false, .scale_dtype = DType::f16}},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": -1})", "int8", {.scale_dtype = DType::f16}},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 64})", "int4", {.block_columns = 64, .symmetric = false}},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {)"
       R"( "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}}})",
       "int4",
       {.block_columns = 32, .scale_dtype = DType::bf16}},
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g": {"weights": )"
       R"({"num_bits": 8, "strategy": "tensor"}}}})",
       "int8",
       {.block_rows = 0}},
      {R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"weights": )"
       R"({"num_bits": 8, "type": "float", "strategy": "channel"}}}})",
       "e4m3",
       {}},
      {R"({"quant_method": "fp8", "weight_block_size": [32, 32]})", "e4m3", {.block_rows = 32, .block_columns = 32}},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})",
       "nf4",
       {.block_columns = 64, .nested = true}},
  };
  return all;
}

// The tensors of a folder whose layers are stored so: `dense` gets the numbers that they stand for.
inline io::TensorMap packed_tensors(const Files& files, const Way& way, io::TensorMap* dense = nullptr) {
  const PackedScheme scheme =
      *packed_scheme(config_with(cat(R"(, "quantization_config": )", way.config)), "config.json");
  io::TensorMap packed = files.tensors;
  for (const std::string& layer : files.layers) {
    const std::string name = layer + ".weight";
    const PackedWeight w = quantize_weight(files.tensors.at(name), way.format, way.rounding);
    if (dense) (*dense)[name] = dequantize_weight(w);
    packed.erase(name);
    for (const auto& [piece, t] : write_packed(scheme, w, layer)) packed[cat(layer, ".", piece)] = t;
  }
  return packed;
}

}  // namespace strata
