// Adapter folders: there and back, against PEFT's numbers (peft_cases.json, written by make_peft_cases.py), and what is
// refused.

#include "strata/models/peft.h"

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/nn/container.h"
#include "strata/nn/init.h"
#include "strata/nn/layers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

using json = nlohmann::json;

double distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item();
}

// A fused map, another one, and a head.
struct Net : nn::Module {
  Net() : Module("Net") {}
  nn::Linear qkv = register_module("qkv", nn::Linear(6, 10));
  nn::Linear out = register_module("out", nn::Linear(10, 6));
  nn::Linear head = register_module("head", nn::Linear(6, 3, false));
  Tensor operator()(const Tensor& x) const { return head(out(qkv(x))); }
};
AdapterNames names() {
  return {.parts = {{"qkv", {{"layer.q_proj", 0, 4}, {"layer.k_proj", 4, 3}, {"layer.v_proj", 7, 3}}},
                    {"out", {{"layer.o_proj", 0, 6}}},
                    {"head", {{"lm_head", 0, 3}}}},
          .rows = {{"layer.v_proj", {2, 0, 1}}},
          .tensors = {{"head.weight", "lm_head.weight"}}};
}
void fill(const nn::Module& net) {
  for (auto& [name, p] : nn::lora_parameters(net)) nn::init::uniform_(p, 0.2, 1);
}

TEST(Peft, ComputesWhatPeftComputes) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  const json cases =
      json::parse(io::read_file(std::string(source_dir ? source_dir : ".") + "/strata/models/peft_cases.json"));
  ASSERT_GE(cases.size(), 6U);
  for (const json& c : cases) {
    const std::string name = c.at("name");
    const auto tensor = [&](const std::string& key) {
      return from_span<float>(c.at(key).at("values").get<std::vector<float>>(),
                              Shape(c.at(key).at("shape").get<std::vector<int64_t>>()));
    };
    const io::TempDir dir;
    io::write_file(dir.path() + "/adapter_config.json", c.at("config").dump());
    io::TensorMap file;
    for (const auto& [key, value] : c.at("tensors").items())
      file.emplace(key, from_span<float>(value.at("values").get<std::vector<float>>(),
                                         Shape(value.at("shape").get<std::vector<int64_t>>())));
    io::save_safetensors(dir.path() + "/adapter_model.safetensors", file);
    if (c.at("config").at("fan_in_fan_out") == true) continue;  // of files: average_test.cpp
    const nn::Linear map(tensor("weight").size(1), tensor("weight").size(0), c.contains("bias"));
    nn::Module(map).eval();
    nn::StateDict state{{"weight", tensor("weight")}};
    if (c.contains("bias")) state.emplace("bias", tensor("bias"));
    nn::Module(map).load_state_dict(state);
    load_adapter(dir.path(), map, {.parts = {{"", {{"proj", 0, map.weight.size(0)}}}}});
    EXPECT_LE(distance(map(tensor("x")), tensor("y")), 2e-6) << name;
    nn::merge_lora(map);
    EXPECT_LE(distance(map.weight, tensor("merged")), 1e-6) << name;
    nn::unmerge_lora(map);
    // Read by us and written again, it is the same file.
    const io::TempDir again;
    save_adapter(again.path(), map, {.parts = {{"", {{"proj", 0, map.weight.size(0)}}}}});
    const io::TensorMap ours = io::SafetensorsFile(again.path() + "/adapter_model.safetensors").tensors();
    ASSERT_EQ(ours.size(), file.size()) << name;
    for (const auto& [key, t] : file) EXPECT_EQ(distance(ours.at(key), t), 0) << name << " " << key;
    const json config = json::parse(io::read_file(again.path() + "/adapter_config.json"));
    for (const char* key : {"r", "lora_alpha", "use_dora", "use_rslora", "lora_dropout", "target_modules"})
      EXPECT_EQ(config.at(key), c.at("config").at(key)) << name << " " << key;
  }
}

TEST(Peft, ThereAndBackWithPartsOrderAndWholeModules) {
  for (const bool dora : {false, true}) {
    manual_seed(1);
    const Net net, other;
    nn::Module(other).load_state_dict(net.state_dict());
    nn::LoraOptions o{.rank = 2, .alpha = 3, .rslora = true, .dora = dora, .targets = {"q_proj", "v_proj", "o_proj"}};
    o.rank_pattern = {{"v_proj", 1}};
    o.alpha_pattern = {{"o_proj", 7}};
    nn::add_lora(net, o, names().parts);
    fill(net);
    Tensor head = net.head.weight;
    head.set_requires_grad();
    {
      const NoGrad guard;
      head.mul_(2);
    }
    const io::TempDir dir;
    save_adapter(dir.path(), net, names(), {.base = "models/small", .task_type = "CAUSAL_LM"});
    const io::SafetensorsFile file(dir.path() + "/adapter_model.safetensors");
    EXPECT_EQ(file.entries().size(), dora ? 10U : 7U);
    EXPECT_TRUE(file.contains("base_model.model.lm_head.weight"));
    // v's rows stand in another order there: our row 0 is its row 2.
    const Tensor v = file.tensor("base_model.model.layer.v_proj.lora_B.weight");
    const nn::LoraPart& part = nn::adapted_maps(net)[0].lora.parts()[1];
    EXPECT_EQ(part.of.name, "layer.v_proj");
    EXPECT_EQ(distance(v.narrow(0, 2, 1), part.B.narrow(0, 0, 1)), 0);
    EXPECT_EQ(distance(v.narrow(0, 0, 2), part.B.narrow(0, 1, 2)), 0);
    const json config = json::parse(io::read_file(dir.path() + "/adapter_config.json"));
    EXPECT_EQ(config.at("modules_to_save"), json({"lm_head"}));
    EXPECT_EQ(config.at("target_modules"), json({"o_proj", "q_proj", "v_proj"}));
    EXPECT_EQ(config.at("rank_pattern"), json({{"^layer.v_proj", 1}}));
    EXPECT_EQ(config.at("alpha_pattern"), json({{"^layer.o_proj", 7.0}}));

    const AdapterConfig read = load_adapter(dir.path(), other, names());
    EXPECT_EQ(read.base, "models/small");
    const Tensor x = randn({4, 6});
    EXPECT_EQ(distance(net(x), other(x)), 0);
    EXPECT_TRUE(other.head.weight.requires_grad());
    EXPECT_FALSE(other.out.weight.requires_grad());
    EXPECT_EQ(nn::adapted_maps(other)[0].lora.form().rslora, true);
  }
}

TEST(Peft, TargetsAreWholeNamesWhereWordsWouldNameMore) {
  manual_seed(2);
  const nn::Sequential net(nn::Linear(3, 3), nn::Linear(3, 3));
  const AdapterNames two{.parts = {{"0", {{"layers.0.proj", 0, 3}}}, {"1", {{"layers.1.proj", 0, 3}}}}};
  nn::add_lora(net, {.targets = {"layers.1"}}, two.parts);
  const io::TempDir dir;
  save_adapter(dir.path(), net, two);
  const json config = json::parse(io::read_file(dir.path() + "/adapter_config.json"));
  EXPECT_EQ(config.at("target_modules"), json({"layers.1.proj"}));
}

TEST(Peft, ConfigurationsThatComputeSomethingElseAreRefusedByKey) {
  const auto with = [](const std::string& key, const json& value) {
    json c{{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
    c[key] = value;
    return c.dump();
  };
  const AdapterConfig plain = parse_adapter_config(with("megatron_core", "megatron.core"), "a");
  EXPECT_EQ(plain.rank, 4);
  EXPECT_EQ(plain.alpha, 8);
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"some_new_key", nullptr},
                                                                            {"some_new_key", false},
                                                                            {"loftq_config", json::object()},
                                                                            {"layer_replication", json::array()},
                                                                            {"init_lora_weights", true},
                                                                            {"init_lora_weights", "gaussian"},
                                                                            {"fan_in_fan_out", true},
                                                                            {"bias", "none"}})
    EXPECT_NO_THROW(parse_adapter_config(with(key, value), "a")) << key;
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"peft_type", "IA3"},
                                                                            {"peft_type", 3},
                                                                            {"r", 0},
                                                                            {"r", 2.5},
                                                                            {"r", 1e30},
                                                                            {"r", nullptr},
                                                                            {"lora_alpha", "8"},
                                                                            {"lora_dropout", 1},
                                                                            {"lora_dropout", -0.1},
                                                                            {"use_dora", "yes"},
                                                                            {"use_rslora", 1},
                                                                            {"bias", "all"},
                                                                            {"lora_bias", true},
                                                                            {"use_qalora", true},
                                                                            {"trainable_token_indices", {3}},
                                                                            {"target_parameters", "w"},
                                                                            {"target_parameters", {1}},
                                                                            {"layer_replication", {{0, 2}}},
                                                                            {"init_lora_weights", "pissa_niter_16"},
                                                                            {"init_lora_weights", 3},
                                                                            {"rank_pattern", {{"q.*", 4}}},
                                                                            {"rank_pattern", {{"q", 0}}},
                                                                            {"rank_pattern", {1}},
                                                                            {"alpha_pattern", {{"q", "x"}}},
                                                                            {"modules_to_save", "lm_head"},
                                                                            {"modules_to_save", {1}},
                                                                            {"base_model_name_or_path", 3},
                                                                            {"some_new_key", 1}}) {
    try {
      parse_adapter_config(with(key, value), "a");
      ADD_FAILURE() << key << " " << value;
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
    }
  }
  for (const char* text : {"", "[]", "{", "{\"r\": 4}", "3", "{\"peft_type\": \"LORA\", \"r\": 1e999}"})
    EXPECT_THROW(parse_adapter_config(text, "a"), IoError) << text;
  // As PEFT writes it where it brought experts' adapters into one tensor.
  const AdapterConfig experts = parse_adapter_config(
      R"({"peft_type": "LORA", "r": 2, "rank_pattern": {".*\\.gate_up_proj": 4}, "alpha_pattern": {"a\\.b": 3},
          "target_parameters": ["gate_up_proj"], "peft_version": "0.21.2"})",
      "a");
  EXPECT_EQ(experts.rank_of("model.layers.0.mlp.experts.gate_up_proj"), 4);
  EXPECT_EQ(experts.rank_of("model.layers.0.mlp.experts.down_proj"), 2);
  EXPECT_EQ(experts.alpha_of("a.b"), 3);
  EXPECT_EQ(experts.target_parameters, std::vector<std::string>{"gate_up_proj"});
  EXPECT_EQ(experts.peft_version, "0.21.2");
  AdapterConfig c;
  c.rank_pattern = {{"q_proj", 2}, {"^v_proj", 3}};
  EXPECT_EQ(c.rank_of("q_proj"), 2);
  EXPECT_EQ(c.rank_of("a.q_proj"), 2);
  EXPECT_EQ(c.rank_of("a.xq_proj"), 8);
  EXPECT_EQ(c.rank_of("v_proj"), 3);
  EXPECT_EQ(c.rank_of("a.v_proj"), 8);
}

TEST(Peft, FoldersThatDoNotFitAreRefusedWithAllThatIsWrong) {
  manual_seed(3);
  const Net net, other;
  nn::add_lora(net, {.rank = 2, .targets = {"q_proj", "o_proj"}}, names().parts);
  const io::TempDir dir;
  save_adapter(dir.path(), net, names());
  const std::string path = dir.path() + "/adapter_model.safetensors";
  const io::TensorMap good = io::SafetensorsFile(path).tensors();
  const auto refused = [&](const io::TensorMap& tensors, const std::vector<std::string>& words) {
    io::save_safetensors(path, tensors);
    try {
      load_adapter(dir.path(), other, names());
      ADD_FAILURE() << words[0];
    } catch (const IoError& e) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in " << e.what();
    }
    EXPECT_TRUE(nn::adapted_maps(other).empty());
    EXPECT_TRUE(other.out.weight.requires_grad());
  };
  const std::string q = "base_model.model.layer.q_proj.", o = "base_model.model.layer.o_proj.";
  io::TensorMap t = good;
  t.erase(q + "lora_B.weight");
  t[o + "lora_A.weight"] = zeros({3, 10});
  t["base_model.model.layer.z_proj.lora_A.weight"] = zeros({2, 6});
  refused(t, {"no " + q + "lora_B.weight", o + "lora_A.weight is", "no place for base_model.model.layer.z_proj"});
  t = good;
  t[q + "lora_A.weight"] = zeros({2, 6}, DType::i64);
  refused(t, {q + "lora_A.weight is i64"});
  refused({{"base_model.model.lm_head.weight", zeros({3, 6})}}, {"no place"});
  io::save_safetensors(path, good);
  EXPECT_EQ(load_adapter(dir.path(), other, names()).rank, 2);
  EXPECT_THROW(load_adapter(dir.path(), other, names()), ValueError);  // it has adapters now
  EXPECT_THROW(load_adapter(dir.path() + "/none", net, names()), IoError);

  EXPECT_THROW(save_adapter(dir.path(), Net(), names()), ValueError);
  nn::merge_lora(net);
  EXPECT_THROW(save_adapter(dir.path(), net, names()), ValueError);
  nn::unmerge_lora(net);
  Tensor bias = net.out.bias;
  bias.set_requires_grad();
  EXPECT_THROW(save_adapter(dir.path(), net, names()), ValueError);
}

}  // namespace
}  // namespace strata
