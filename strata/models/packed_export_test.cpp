// Models with low-bit layers given back as folders: byte for byte where nothing was touched, and made here.

#include <algorithm>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/weight_files.h"
#include "strata/models/export.h"
#include "strata/models/model_test_util.h"
#include "strata/models/packed_test_util.h"
#include "strata/nn/gptq.h"
#include "strata/nn/packed.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// Bytes of every tensor of a folder, by name, type and shape.
std::map<std::string, std::vector<uint8_t>> tensors_of(const std::string& folder) {
  const io::WeightFiles files(folder);
  std::map<std::string, std::vector<uint8_t>> all;
  for (const io::WeightEntry& e : files.entries())
    all[cat(e.name, ' ', e.type->name, ' ', e.shape)] = bits(files.bytes(e.name));
  return all;
}
// The names alone of what differs, for a message that can be read.
std::string differences(const std::string& a, const std::string& b) {
  const auto x = tensors_of(a), y = tensors_of(b);
  std::string text;
  for (const auto& [name, v] : x)
    if (!y.contains(name) || y.at(name) != v) text += cat(y.contains(name) ? "other bytes: " : "missing: ", name, "\n");
  for (const auto& [name, v] : y)
    if (!x.contains(name)) text += cat("new: ", name, "\n");
  return text;
}
int packed_layers(const Pretrained& p) {
  int n = 0;
  for (const auto& [name, part] : p.module().named_modules()) n += nn::is_packed(part);
  return n;
}
Tensor tokens() {
  return from_span<int64_t>(std::vector<int64_t>{1, 5, 9, 90, 3, 3, 17}, {1, 7});
}
Pretrained plain_model(const io::TempDir& dir) {
  return load_pretrained(write_folder(dir, config_with(""), random_files().tensors), {.dtype = DType::f32});
}

TEST(PackedExport, WhatWasLoadedAndNotTouchedHasTheSameBytes) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.config);
    const io::TempDir a;
    Files files = random_files();
    io::TensorMap packed = packed_tensors(files, way);
    const std::string config = config_with(cat(R"(, "quantization_config": )", way.config));
    write_folder(a, config, packed);
    const Pretrained model = load_pretrained(a.path());
    EXPECT_EQ(packed_layers(model), 8);
    save_pretrained(model, a / "again");
    EXPECT_EQ(differences(a.path(), a / "again"), "");
    EXPECT_EQ(io::read_file(a / "again/config.json"), config);
    // From the layers alone, without the folder: but for what joining q, k and v loses, the same again.
    if (std::string_view(way.format) == "nf4") continue;
    save_pretrained(model.module(), *model.family, model.spec, a / "third", {.config = config});
    EXPECT_EQ(differences(a.path(), a / "third"), "");
  }
}

TEST(PackedExport, LayersInPartHeadsAndEmbeddingsKeepTheirBytes) {
  const Way& way = ways().at(3);
  Files files = random_files();
  std::erase_if(files.layers, [](const std::string& layer) { return layer.ends_with("k_proj"); });
  files.layers.emplace_back("lm_head");
  const io::TempDir a;
  const std::string config = config_with(cat(R"(, "quantization_config": )", way.config));
  write_folder(a, config, packed_tensors(files, way));
  const Pretrained model = load_pretrained(a.path());
  EXPECT_EQ(packed_layers(model), 6);
  save_pretrained(model, a / "again");
  EXPECT_EQ(differences(a.path(), a / "again"), "");
}

TEST(PackedExport, ALayerThatWasTouchedIsWrittenAsItIs) {
  const Way& way = ways().front();
  const io::TempDir a;
  write_folder(a, config_with(cat(R"(, "quantization_config": )", way.config)), packed_tensors(random_files(), way));
  const Pretrained model = load_pretrained(a.path());
  std::map<std::string, nn::Module> modules;
  for (const auto& [name, part] : model.module().named_modules()) modules.emplace(name, part);
  const auto qkv = std::ranges::find_if(
      modules, [](const auto& m) { return nn::is_packed(m.second) && m.first.find("qkv") != std::string::npos; });
  ASSERT_NE(qkv, modules.end());
  PackedWeight w = nn::packed_weight(qkv->second);
  w.scales = w.scales * 2;
  nn::pack_linear(qkv->second, w);
  const NoGrad guard;
  const Tensor want = model.model->forward(tokens());
  save_pretrained(model, a / "again");
  const Pretrained again = load_pretrained(a / "again");
  EXPECT_EQ((again.model->forward(tokens()) - want).abs().max().item(), 0);
  const std::string text = differences(a.path(), a / "again");
  EXPECT_EQ(std::ranges::count(text, '\n'), 3) << text;  // the scales of q, k and v
}

// Ways to make low-bit layers here, and the quant_method and format that say so.
struct Made {
  const char* format;
  QuantizeOptions rounding;
  const char* method;
  const char* form;
};
const Made kMade[] = {
    {"int4", {.block_columns = 32, .scale_dtype = DType::f16}, "compressed-tensors", "pack-quantized"},
    {"int4", {.block_columns = 64, .symmetric = false}, "compressed-tensors", "pack-quantized"},
    {"int4", {}, "compressed-tensors", "pack-quantized"},
    {"int8", {}, "compressed-tensors", "int-quantized"},
    {"int8", {.block_columns = 32}, "compressed-tensors", "pack-quantized"},
    {"e4m3", {}, "compressed-tensors", "float-quantized"},
    {"e4m3", {.block_rows = 32, .block_columns = 32}, "compressed-tensors", "float-quantized"},
    {"nf4", {.block_columns = 64}, "bitsandbytes", ""},
    {"nf4", {.block_columns = 64, .nested = true}, "bitsandbytes", ""},
};

TEST(PackedExport, WhatWasMadeHereComputesTheSameReadAgain) {
  for (const Made& made : kMade) {
    SCOPED_TRACE(cat(made.format, " ", made.rounding.block_rows, " ", made.rounding.block_columns));
    const io::TempDir a;
    const Pretrained model = plain_model(a);
    nn::quantize(model.module(), made.format, {.rounding = made.rounding});
    const NoGrad guard;
    const Tensor want = model.model->forward(tokens());
    save_pretrained(model, a / "low", {.max_shard_bytes = 20'000});
    const Pretrained again = load_pretrained(a / "low");
    EXPECT_EQ(packed_layers(again), 8);
    EXPECT_EQ((again.model->forward(tokens()) - want).abs().max().item(), 0);
    const auto config = nlohmann::json::parse(io::read_file(a / "low/config.json")).at("quantization_config");
    EXPECT_EQ(config.at("quant_method"), made.method);
    EXPECT_EQ(config.value("format", ""), made.form);
    const std::string_view skip = packed_scheme(again.config, "config.json")->file->skip_key;
    EXPECT_EQ(config.at(skip), nlohmann::json({"model.embed_tokens", "lm_head"}));
    // And given back once more.
    save_pretrained(again, a / "twice", {.max_shard_bytes = 20'000});
    EXPECT_EQ(differences(a / "low", a / "twice"), "");
  }
}

TEST(PackedExport, GptqWithItsOrderComesBack) {
  const io::TempDir a;
  const Pretrained model = plain_model(a);
  const NoGrad guard;
  nn::gptq(model.module(), "int4", {.group_size = 32, .symmetric = false, .act_order = true},
           [&] { model.model->forward(tokens()); });
  const Tensor want = model.model->forward(tokens());
  save_pretrained(model, a / "low");
  const Pretrained again = load_pretrained(a / "low");
  EXPECT_EQ(packed_layers(again), 8);
  // Which columns are a group is stored, not their order within: sums have another one.
  const double most = 1e-5 * want.abs().max().item();
  EXPECT_LE((again.model->forward(tokens()) - want).abs().max().item(), most);
  // As GPTQ's own files have it, too.
  const PackedScheme gptq =
      *packed_scheme(R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32,)"
                     R"( "desc_act": true}})",
                     "config.json");
  save_pretrained(model, a / "gptq", {.packed = gptq});
  EXPECT_LE((load_pretrained(a / "gptq").model->forward(tokens()) - want).abs().max().item(), most);
}

TEST(PackedExport, UnpackedModelsSayNothingOfLowBits) {
  const Way& way = ways().front();
  const io::TempDir a;
  write_folder(a, config_with(cat(R"(, "quantization_config": )", way.config)), packed_tensors(random_files(), way));
  const Pretrained model = load_pretrained(a.path(), {.dtype = DType::f32});
  const NoGrad guard;
  for (const auto& [name, part] : model.module().named_modules())
    if (nn::is_packed(part)) nn::unpack_linear(part);
  const Tensor want = model.model->forward(tokens());
  save_pretrained(model.module(), *model.family, model.spec, a / "plain", {.config = model.config});
  EXPECT_EQ(io::read_file(a / "plain/config.json").find("quantization_config"), std::string::npos);
  EXPECT_LE((load_pretrained(a / "plain").model->forward(tokens()) - want).abs().max().item(), 0);
}

TEST(PackedExport, RefusesWhatOneSchemeDoesNotStore) {
  const io::TempDir a;
  const Pretrained model = plain_model(a);
  nn::quantize(model.module(), "q8_0");
  std::string text = message<ValueError>([&] { save_pretrained(model, a / "b"); });
  EXPECT_NE(text.find("q8_0, which only GGUF files store"), std::string::npos) << text;
  for (const auto& [name, part] : model.module().named_modules())
    if (nn::is_packed(part)) {
      const PackedWeight w = nn::packed_weight(part);
      nn::pack_linear(part,
                      quantize_weight(dequantize_weight(w), name.find("qkv") == std::string::npos ? "int8" : "e4m3"));
    }
  text = message<ValueError>([&] { save_pretrained(model, a / "b"); });
  EXPECT_NE(text.find("a folder has one kind of low-bit layer"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(a / "b"));
}

}  // namespace
}  // namespace strata
