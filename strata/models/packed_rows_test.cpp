// Folders whose weights are of low bits, loaded: the logits are those of a model with the numbers in full.

#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/models/packed_files.h"
#include "strata/models/pretrained.h"
#include "strata/nn/packed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

std::string config_with(const std::string& quantization) {
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
Files random_files() {
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
std::string write_folder(const io::TempDir& dir, const std::string& config, const io::TensorMap& tensors) {
  io::write_file(dir.path() + "/config.json", config);
  io::save_safetensors(dir.path() + "/model.safetensors", tensors);
  return dir.path();
}

struct Way {
  const char* config;
  const char* format;
  QuantizeOptions rounding;
};
const std::vector<Way>& ways() {
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
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})",
       "nf4",
       {.block_columns = 64, .nested = true}},
  };
  return all;
}

TEST(PackedRows, FoldersOfLowBitWeightsComputeWithTheNumbersThatTheyStandFor) {
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{1, 5, 9, 90, 3, 3, 17}, {1, 7});
  for (const Way& way : ways()) {
    Files files = random_files();
    const std::string quantization = cat(R"(, "quantization_config": )", way.config);
    const PackedScheme scheme = *packed_scheme(config_with(quantization), "config.json");
    io::TensorMap dense = files.tensors, packed = files.tensors;
    for (const std::string& layer : files.layers) {
      const std::string name = layer + ".weight";
      const PackedWeight w = quantize_weight(dense.at(name), way.format, way.rounding);
      dense[name] = dequantize_weight(w);
      packed.erase(name);
      for (const auto& [piece, t] : write_packed(scheme, w, layer)) packed[cat(layer, ".", piece)] = t;
    }
    const io::TempDir a, b;
    const Pretrained want = load_pretrained(write_folder(a, config_with(""), dense), {.dtype = DType::f32});
    const Pretrained got = load_pretrained(write_folder(b, config_with(quantization), packed), {.dtype = DType::f32});
    const NoGrad guard;
    const Tensor y = got.model->forward(tokens), z = want.model->forward(tokens);
    EXPECT_LE((y - z).abs().max().item(), 1e-4 * z.abs().max().item()) << way.config;
    int layers = 0;
    for (const auto& [name, part] : got.model->named_modules()) layers += nn::is_packed(part);
    EXPECT_EQ(layers, 2 * 4) << way.config;  // qkv, out, gate_up, down
  }
}

TEST(PackedRows, OfALayerThatIsPackedInPartTheNumbersAreTaken) {
  // k_proj stays as it is, as `ignore` would say.
  Files files = random_files();
  const std::string quantization = R"(, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32})";
  const PackedScheme scheme = *packed_scheme(config_with(quantization), "config.json");
  io::TensorMap dense = files.tensors, packed = files.tensors;
  for (const std::string& layer : files.layers) {
    if (layer.ends_with("k_proj")) continue;
    const std::string name = layer + ".weight";
    const PackedWeight w = quantize_weight(dense.at(name), "int4", {.block_columns = 32, .symmetric = false});
    dense[name] = dequantize_weight(w);
    packed.erase(name);
    for (const auto& [piece, t] : write_packed(scheme, w, layer)) packed[cat(layer, ".", piece)] = t;
  }
  const io::TempDir a, b;
  const Pretrained want = load_pretrained(write_folder(a, config_with(""), dense), {.dtype = DType::f32});
  const Pretrained got = load_pretrained(write_folder(b, config_with(quantization), packed), {.dtype = DType::f32});
  const Tensor tokens = full({1, 4}, 7, DType::i64);
  const NoGrad guard;
  const Tensor y = got.model->forward(tokens), z = want.model->forward(tokens);
  EXPECT_LE((y - z).abs().max().item(), 1e-4 * z.abs().max().item());
  int layers = 0;
  for (const auto& [name, part] : got.model->named_modules()) layers += nn::is_packed(part);
  EXPECT_EQ(layers, 2 * 3);
}

TEST(PackedRows, BlocksOfGgufStayWhereALayersAreOfOneType) {
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{1, 5, 9, 90, 3, 3, 17}, {1, 7});
  for (const bool mixed : {false, true}) {
    const io::TempDir a, b;
    const Pretrained want =
        load_pretrained(write_folder(a, config_with(""), random_files().tensors), {.dtype = DType::f32});
    std::map<std::string, Tensor> parameters;
    for (const auto& [name, t] : want.model->named_parameters()) parameters.emplace(name, t.detach());
    std::vector<io::StoredItem> items;
    std::vector<std::string> bytes;
    for (const WeightRow& row : want.family->weights(want.spec)) {
      if (row.gguf.empty()) continue;
      Tensor view = row.gguf_view.of(parameters.at(row.parameter));
      Tensor dense = view.contiguous().view(row.shape);
      const bool block = row.shape.size() == 2 && row.name.find("layers.") != std::string::npos;
      // With `mixed`, values are of another type than queries and keys, beside which they lie here.
      const bool four = mixed && row.name.find("v_proj") != std::string::npos;
      if (block) {
        const PackedWeight w = quantize_weight(dense, four ? "q4_0" : "q8_0");
        view.copy_(dequantize_weight(w).view(view.shape()));
        dense = w.codes;
      }
      items.push_back({row.gguf, io::find_stored_type(!block ? "F32" : four ? "Q4_0" : "Q8_0"), row.shape});
      bytes.emplace_back(static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes()));
    }
    io::GgufMetadata about;
    about.set("general.architecture", io::GgufValue::of("llama"));
    io::GgufWriter writer(b / "model.gguf", about, items);
    for (const std::string& one : bytes) writer.write_bytes(std::as_bytes(std::span(one)));
    writer.commit();
    io::write_file(b / "config.json", config_with(""));
    const Pretrained got = load_pretrained(b.path(), {.dtype = DType::f32});
    const NoGrad guard;
    const Tensor y = got.model->forward(tokens), z = want.model->forward(tokens);
    EXPECT_LE((y - z).abs().max().item(), 1e-4 * z.abs().max().item()) << mixed;
    int layers = 0;
    for (const auto& [name, part] : got.model->named_modules()) layers += nn::is_packed(part);
    EXPECT_EQ(layers, mixed ? 2 * 3 : 2 * 4);
  }
}

TEST(PackedRows, FoldersThatDoNotFitAreRefused) {
  Files files = random_files();
  const io::TempDir a;
  const std::string quantization = R"(, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32})";
  io::TensorMap packed = files.tensors;
  const PackedScheme scheme = *packed_scheme(config_with(quantization), "config.json");
  const std::string layer = files.layers[0];
  packed.erase(layer + ".weight");
  for (const auto& [piece, t] :
       write_packed(scheme, quantize_weight(randn({32, 64}), "int4", {.block_columns = 32}), layer))
    packed[cat(layer, ".", piece)] = t;
  const std::string text = message([&] { load_pretrained(write_folder(a, config_with(quantization), packed)); });
  EXPECT_NE(text.find(layer), std::string::npos) << text;
  const io::TempDir b;
  packed.erase(layer + ".scales");
  const std::string missing = message([&] { load_pretrained(write_folder(b, config_with(quantization), packed)); });
  EXPECT_NE(missing.find(layer + ".qweight"), std::string::npos) << missing;
}

}  // namespace
}  // namespace strata
