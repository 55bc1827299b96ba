// Adapters of experts in PEFT's files: where they stand, both forms, what older versions wrote, and what is refused.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/average.h"
#include "strata/models/config_reader.h"
#include "strata/models/export.h"
#include "strata/models/family.h"
#include "strata/models/peft.h"
#include "strata/models/pretrained.h"
#include "strata/nn/init.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using json = nlohmann::json;

constexpr const char* kPrefix = "base_model.model.";

double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  return (a - b).abs().max().item();
}

// What the adapters of a weight add to it.
Tensor added(const nn::AdaptedMap& m) {
  const Tensor w = zeros(m.map.parameter(m.weight).shape());
  for (const nn::LoraPart& p : m.lora.parts())
    for (int64_t e = 0; e < w.size(0); ++e)
      w.select(0, e).narrow(0, p.of.first, p.of.rows).add_(matmul(p.B[e], p.A[e]) * p.scale);
  return w;
}

void fill(const nn::Module& model) {
  const NoGrad guard;
  for (auto& [name, p] : nn::lora_parameters(model)) nn::init::normal_(p, 0, 0.3);
}

std::vector<std::string> each_form(const AdapterNames& names) {
  std::vector<std::string> targets;
  for (const auto& [map, parts] : names.parts)
    for (const nn::LinearPart& p : parts)
      if (p.name.find(".*.") != std::string::npos) targets.push_back(p.name);
  return targets;
}

struct Made {
  const Family* family;
  ModelSpec spec;
  std::shared_ptr<LanguageModel> model;
  std::vector<WeightRow> rows;
  AdapterNames names;
};
Made made(const Family& family, const FamilySample& sample) {
  manual_seed(1);
  Made m{&family, read_spec(family, ConfigReader(std::string(sample.config), sample.name)), nullptr, {}, {}};
  m.model = std::make_shared<LanguageModel>(m.spec);
  m.rows = family.weights(m.spec);
  m.names = adapter_names(*m.model, m.rows);
  return m;
}
Made mixtral() {
  const Family& family = family_named("mixtral");
  return made(family, family.samples.front());
}

// PEFT's ParamWrapper.get_delta_weight: einsum("o r e, e r i -> e o i"), written out.
Tensor peft_delta(const Tensor& a, const Tensor& b, int64_t count, double scale) {
  const int64_t rank = a.size(0) / count, in = a.size(1), out = b.size(0);
  const std::vector<double> av = a.to_vector<double>(), bv = b.to_vector<double>();
  std::vector<double> w(static_cast<size_t>(count * out * in), 0.0);
  for (int64_t e = 0; e < count; ++e)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        for (int64_t r = 0; r < rank; ++r)
          w[static_cast<size_t>((e * out + o) * in + i)] += scale *
                                                            bv[static_cast<size_t>((o * rank + r) * count + e)] *
                                                            av[static_cast<size_t>((e * rank + r) * in + i)];
  return from_span<double>(w, {count, out, in}).to(DType::f32);
}

TEST(ExpertAdapters, OfEveryFamilyAddToFilesWhatTheyAddHere) {
  int64_t experts = 0;
  for (const Family* family : families())
    for (const FamilySample& sample : family->samples) {
      if (family->kind != ModelKind::decoder || sample.config.find("expert") == std::string_view::npos) continue;
      const NoGrad guard;
      for (const bool each : {false, true}) {
        const Made m = made(*family, sample);
        const std::string what = cat(family->name, '-', sample.name, each ? " each" : " all");
        nn::LoraOptions o{.rank = 2, .alpha = 3, .targets = {"experts"}};
        if (each) o.targets = each_form(m.names);
        nn::add_lora(*m.model, o, m.names.parts);
        fill(*m.model);
        const io::TempDir dir;
        save_adapter(dir.path(), *m.model, m.names);
        const io::SafetensorsFile file(dir.path() + "/adapter_model.safetensors");
        const json config = json::parse(io::read_file(dir.path() + "/adapter_config.json"));
        EXPECT_EQ(config.contains("target_parameters"), !each) << what;
        std::map<std::string, Tensor> ours;
        for (const nn::AdaptedMap& a : nn::adapted_maps(*m.model))
          if (!a.weight.empty()) ours.emplace(a.path, added(a));
        for (const WeightRow& row : m.rows) {
          if (row.expert < 0) continue;
          ++experts;
          const Tensor mine = ours.at(row.parameter), wanted = row.view.of(mine).contiguous().view(row.shape);
          Tensor theirs;
          if (each) {
            const std::string module = kPrefix + row.name.substr(0, row.name.size() - 7);
            theirs = matmul(file.tensor(module + ".lora_B.weight"), file.tensor(module + ".lora_A.weight")) * 1.5;
          } else {
            const bool down = row.stacked.ends_with(".down_proj");
            const std::string module =
                kPrefix + row.stacked.substr(0, row.stacked.rfind('.')) + (down ? "" : ".base_layer");
            const Tensor delta = peft_delta(file.tensor(module + ".lora_A.weight"),
                                            file.tensor(module + ".lora_B.weight"), mine.size(0), 1.5);
            theirs = row.view.of(delta).contiguous().view(row.shape);
          }
          EXPECT_LE(distance(theirs, wanted), 1e-5) << what << ' ' << row.name;
        }
        // Read again it is the same; and read where another was taken off.
        const Made again = made(*family, sample);
        nn::add_lora(*again.model, {.rank = 5, .targets = {"experts", "o_proj"}}, again.names.parts);
        nn::remove_lora(*again.model);
        load_adapter(dir.path(), *again.model, again.names);
        const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{5, 9, 2, 77, 31}, {1, 5});
        m.model->eval();
        again.model->eval();
        EXPECT_EQ(distance(again.model->forward(tokens), m.model->forward(tokens)), 0) << what;
      }
    }
  EXPECT_GT(experts, 100);
}

// Token after token with a cache is the whole text at once, and the merged model.
TEST(ExpertAdapters, DecodeStepByStep) {
  const NoGrad guard;
  const Made m = mixtral();
  nn::add_lora(*m.model, {.rank = 3, .alpha = 6, .targets = {"experts", "q_proj"}}, m.names.parts);
  fill(*m.model);
  m.model->eval();
  const std::vector<int64_t> ids{5, 9, 2, 77, 31, 8, 40};
  const Tensor tokens = from_span<int64_t>(ids, {1, 7}), whole = m.model->forward(tokens);
  const auto steps = [&] {
    ModelCache cache = m.model->make_cache(1, 7);
    TensorList out;
    for (int64_t t = 0; t < 7; ++t) out.push_back(m.model->next_logits(tokens.narrow(1, t, 1), cache));
    return stack(out, 1);
  };
  EXPECT_LE(distance(steps(), whole), 1e-5 * whole.abs().max().item());
  {
    const nn::WithoutLora off;
    EXPECT_GT(distance(m.model->forward(tokens), whole), 0.01);
  }
  nn::merge_lora(*m.model);
  EXPECT_LE(distance(steps(), whole), 1e-5 * whole.abs().max().item());
}

// A folder of the model, and adapters of it as a file with these tensors and keys.
class ExpertAdapterFolder : public testing::Test {
 protected:
  ExpertAdapterFolder() : m_(mixtral()) { save_pretrained(*m_.model, *m_.family, m_.spec, base()); }
  std::string base() const { return dir_ / "base"; }
  std::string adapter() const { return dir_ / "adapter"; }
  void write(const io::TensorMap& tensors, const json& keys) const {
    io::make_directories(adapter());
    io::save_safetensors(adapter() + "/adapter_model.safetensors", tensors);
    json c{{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 3}, {"target_modules", json::array()}};
    c.update(keys);
    io::write_file(adapter() + "/adapter_config.json", c.dump());
  }
  // What load_adapter and merge_adapter say.
  void refused(const std::vector<std::string>& words, bool merged_too = true) const {
    const Made other = mixtral();
    std::vector<std::string> said{message<IoError>([&] { load_adapter(adapter(), *other.model, other.names); })};
    if (merged_too) said.push_back(message<IoError>([&] { merge_adapter(base(), adapter(), dir_ / "refused"); }));
    for (const std::string& text : said)
      for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
    EXPECT_TRUE(nn::adapted_maps(*other.model).empty());
  }
  const io::TempDir dir_;
  const Made m_;
  // Of the sample: 4 experts, 64 in, 48 wide, two layers.
  static constexpr int64_t kCount = 4, kDim = 64, kWidth = 48;
  static std::string module(int layer, const char* inside = "") {
    return cat(kPrefix, "model.layers.", layer, ".mlp.experts", inside);
  }
};

// PEFT before 0.19 took a weight [count, out, in] for [count, in, out].
TEST_F(ExpertAdapterFolder, OfOlderVersionsIsTheSameTheOtherWayRound) {
  const NoGrad guard;
  manual_seed(5);
  const Tensor a = randn({kCount * 2, kDim}), b = randn({kWidth, 2 * kCount});  // of down [4, 64, 48]: out, in
  write({{module(1) + ".lora_A.weight", a}, {module(1) + ".lora_B.weight", b}},
        {{"target_parameters", {"layers.1.mlp.experts.down_proj"}}});
  const Tensor want = peft_delta(a, b, kCount, 1.5).transpose(1, 2);  // its "e r i, o r e -> e i o"
  const Made other = mixtral();
  load_adapter(adapter(), *other.model, other.names);
  ASSERT_EQ(nn::adapted_maps(*other.model).size(), 1U);
  EXPECT_EQ(nn::adapted_maps(*other.model)[0].path, "blocks.1.mlp.experts.down");
  EXPECT_LE(distance(added(nn::adapted_maps(*other.model)[0]), want), 1e-5);
  merge_adapter(base(), adapter(), dir_ / "merged");
  const io::WeightFiles before(base()), after(dir_ / "merged");
  for (const io::WeightEntry& e : before.entries()) {
    const Tensor was = before.tensor(e.name), is = after.tensor(e.name);
    Tensor expected = was;
    for (int64_t x = 0; x < kCount; ++x)
      if (e.name == cat("model.layers.1.block_sparse_moe.experts.", x, ".w2.weight")) expected = was + want[x];
    EXPECT_LE(distance(is, expected), 1e-5) << e.name;
  }
}

// Where the shapes say nothing the version does; a folder without one is older than 0.18.
TEST(ExpertAdaptersOf, SquareWeightsGoByTheVersion) {
  const NoGrad guard;
  const nn::Experts experts(6, {.count = 3, .per_token = 1, .width = 6}, nn::Activation::silu);
  const AdapterNames names{
      .parts = {{"gate_up", {{"m.experts.gate_up_proj", 0, 12}}}, {"down", {{"m.experts.down_proj", 0, 6}}}}};
  manual_seed(5);
  const Tensor a = randn({6, 6}), b = randn({6, 6});
  for (const auto& [version, swapped] : std::vector<std::pair<std::string, bool>>{
           {"", true}, {"0.18.1", true}, {"0.19.0", false}, {"0.21.2", false}, {"1.0.0.dev0", false}}) {
    const io::TempDir dir;
    io::save_safetensors(dir / "adapter_model.safetensors",
                         {{cat(kPrefix, "m.experts.lora_A.weight"), a}, {cat(kPrefix, "m.experts.lora_B.weight"), b}});
    json c{{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 2}, {"target_parameters", {"down_proj"}}};
    if (!version.empty()) c["peft_version"] = version;
    io::write_file(dir / "adapter_config.json", c.dump());
    nn::remove_lora(experts);
    load_adapter(dir.path(), experts, names);
    const Tensor want = peft_delta(a, b, 3, 1);
    EXPECT_LE(distance(added(nn::adapted_maps(experts).at(0)), swapped ? want.transpose(1, 2) : want), 1e-5) << version;
    const io::TempDir again;
    save_adapter(again.path(), experts, names);
    EXPECT_EQ(json::parse(io::read_file(again / "adapter_config.json")).at("target_parameters"),
              json({"experts.down_proj"}));
    nn::remove_lora(experts);
    load_adapter(again.path(), experts, names);
    EXPECT_LE(distance(added(nn::adapted_maps(experts).at(0)), swapped ? want.transpose(1, 2) : want), 1e-5) << version;
  }
}

TEST_F(ExpertAdapterFolder, WhatDoesNotFitIsNamed) {
  const Tensor a = randn({kCount * 2, kDim}), b = randn({2 * kWidth, 2 * kCount});
  const std::string gate = module(0, ".base_layer") + ".lora_", down = module(0) + ".lora_";
  const json both{{"target_parameters", {"layers.0.mlp.experts.gate_up_proj", "layers.0.mlp.experts.down_proj"}}};
  const Tensor da = randn({kCount * 2, kWidth}), db = randn({kDim, 2 * kCount});
  io::TensorMap good{{gate + "A.weight", a}, {gate + "B.weight", b}, {down + "A.weight", da}, {down + "B.weight", db}};
  write(good, both);
  EXPECT_EQ(load_adapter(adapter(), *m_.model, m_.names).target_parameters.size(), 2U);
  io::TensorMap t = good;
  t.erase(down + "B.weight");
  t[gate + "A.weight"] = randn({kCount * 3, kDim});
  write(t, both);
  refused({"no " + down + "B.weight", gate + "A.weight is"});
  // Named by target_parameters or not, tensors and keys say the same.
  write(good, {{"target_parameters", {"layers.0.mlp.experts.down_proj"}}});
  refused({gate + "A.weight", gate + "B.weight"});
  write(good, json::object());
  refused({gate + "A.weight", down + "A.weight"});
  t = good;
  t[down + "magnitude_vector"] = randn({kDim});
  write(t, both);
  refused({down + "magnitude_vector"});
  // A module for each expert: all of them, of one rank.
  t.clear();
  const auto of = [](int64_t e, const char* end) {
    return cat(kPrefix, "model.layers.0.block_sparse_moe.experts.", e, ".w1", end);
  };
  for (int64_t e = 0; e < kCount; ++e) {
    t[of(e, ".lora_A.weight")] = randn({2, kDim});
    t[of(e, ".lora_B.weight")] = randn({kWidth, 2});
  }
  io::TensorMap each = t;
  each.erase(of(2, ".lora_A.weight"));
  each.erase(of(2, ".lora_B.weight"));
  write(each, json::object());
  refused({"no " + of(2, ".lora_A.weight"), "no " + of(2, ".lora_B.weight")}, false);
  each = t;
  each[of(3, ".lora_A.weight")] = randn({1, kDim});
  each[of(3, ".lora_B.weight")] = randn({kWidth, 1});
  write(each, {{"rank_pattern", {{"experts.3.w1", 1}}}});
  refused({of(3, ".lora_A.weight") + " has rank 1"}, false);
  // Learned lengths of experts, and adapters of a part twice.
  each = t;
  for (int64_t e = 0; e < kCount; ++e) each[of(e, ".lora_magnitude_vector")] = randn({kWidth});
  write(each, {{"use_dora", true}});
  refused({of(1, ".lora_magnitude_vector")}, false);
  each = t;
  each.insert(good.begin(), good.end());
  write(each, both);
  refused({"mlp.experts.gate_up_proj", "experts.*.w1"}, false);
  // The router, an expert past the last, a model without such a parameter.
  t[cat(kPrefix, "model.layers.0.mlp.gate.lora_A.weight")] = randn({2, kDim});
  t[of(kCount, ".lora_A.weight")] = randn({2, kDim});
  write(t, json::object());
  refused({"mlp.gate.lora_A.weight", of(kCount, ".lora_A.weight")});
  EXPECT_NE(message<ValueError>([&] {
              const Made other = mixtral();
              nn::add_lora(*other.model, {.dropout = 0.1, .targets = {"experts"}}, other.names.parts);
              save_adapter(adapter(), *other.model, other.names);
            }).find("has a dropout of 0.1"),
            std::string::npos);
}

// A layer alone is named whole; both of all layers by their last words.
TEST_F(ExpertAdapterFolder, ParametersAreNamedAsShortAsTheyCanBe) {
  const auto named = [&](const std::vector<std::string>& targets) {
    const Made m = mixtral();
    nn::add_lora(*m.model, {.rank = 2, .targets = targets, .rank_pattern = {{"blocks.1", 1}}}, m.names.parts);
    save_adapter(adapter(), *m.model, m.names);
    return json::parse(io::read_file(adapter() + "/adapter_config.json"));
  };
  json c = named({"experts"});
  EXPECT_EQ(c.at("target_parameters"), json({"experts.down_proj", "experts.gate_up_proj"}));
  EXPECT_EQ(c.at("target_modules"), json::array());
  c = named({"blocks.1.mlp.experts", "q_proj"});
  EXPECT_EQ(c.at("target_parameters"),
            json({"model.layers.1.mlp.experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj"}));
  EXPECT_EQ(c.at("target_modules"), json({"q_proj"}));
  EXPECT_TRUE(c.at("rank_pattern").contains("^model.layers.0.self_attn.q_proj"));
}

}  // namespace
}  // namespace strata
