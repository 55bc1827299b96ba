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
#include "strata/memory/allocator.h"
#include "strata/models/export.h"
#include "strata/models/gguf_model.h"
#include "strata/models/packed_test_util.h"
#include "strata/nn/packed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

TEST(PackedRows, FoldersOfLowBitWeightsComputeWithTheNumbersThatTheyStandFor) {
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{1, 5, 9, 90, 3, 3, 17}, {1, 7});
  for (const Way& way : ways()) {
    const Files files = random_files();
    const std::string quantization = cat(R"(, "quantization_config": )", way.config);
    io::TensorMap dense = files.tensors;
    const io::TensorMap packed = packed_tensors(files, way, &dense);
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

TEST(PackedRows, BlocksOfGgufStayWhateverTypesALayerIsOf) {
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
    int layers = 0, several = 0;
    for (const auto& [name, part] : got.model->named_modules()) {
      layers += nn::is_packed(part);
      several += nn::is_packed(part) && nn::packed_weights(part).size() == 3;
    }
    EXPECT_EQ(layers, 2 * 4);
    EXPECT_EQ(several, mixed ? 2 : 0);
  }
}

// Folders and GGUF files of few bits take what their bits take: no dense weight of a packed layer is ever there.
TEST(PackedRows, NoDenseModelIsMadeFirst) {
  const Family& family = family_named("llama");
  const std::string config = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 768,
      "intermediate_size": 1536, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu"})";
  const ModelSpec spec = read_spec(family, ConfigReader(config, "config"));
  const io::TempDir dir;
  int64_t dense = 0;
  {
    manual_seed(4);
    const LanguageModel model(spec);
    for (const Tensor& p : model.parameters()) dense += p.nbytes();
    save_gguf(model, family, spec, dir / "q8.gguf", {.type = "Q8_0"});
    nn::quantize(model, "int4", {.rounding = {.block_columns = 64}});
    save_pretrained(model, family, spec, dir / "int4", {.config = config});
  }
  for (const char* name : {"int4", "q8.gguf"}) {
    const int64_t before = memory::stats(Device::cpu()).live_total;
    memory::reset_peak(Device::cpu());
    const Pretrained loaded = load_pretrained(dir / name, {.dtype = DType::f32});
    const memory::Stats after = memory::stats(Device::cpu());
    int layers = 0;
    for (const auto& [layer, part] : loaded.model->named_modules()) layers += nn::is_packed(part);
    EXPECT_EQ(layers, 3 * 4) << name;
    const int64_t live = after.live_total - before,
                  largest = 2 * int64_t{1536} * 768 * 2;  // gate and up, twice, in bytes
    EXPECT_LT(live, dense / 3) << name;
    EXPECT_LE(after.peak_total - before, live + 2 * largest) << name;
    EXPECT_LT(after.peak_total - before, dense / 2) << name;
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
