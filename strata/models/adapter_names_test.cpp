// Where families' rows say that maps stand: an adapter that is written by them adds to a file's tensor what it adds to
// ours.

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/models/config_reader.h"
#include "strata/models/family.h"
#include "strata/models/peft.h"
#include "strata/nn/init.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// What the adapters of a map add to its weight.
Tensor added(const nn::AdaptedMap& m) {
  const Tensor w = zeros(m.map.parameter("weight").shape());
  for (const nn::LoraPart& p : m.lora.parts()) w.narrow(0, p.of.first, p.of.rows).copy_(matmul(p.B, p.A) * p.scale);
  return w;
}

TEST(AdapterNames, OfEveryFamilyAddToFilesWhatTheyAddHere) {
  int64_t ordered = 0, transposed = 0, several = 0;
  for (const Family* family : families()) {
    if (family->kind != ModelKind::decoder) continue;
    for (const FamilySample& sample : family->samples) {
      const std::string what = cat(family->name, " ", sample.name);
      manual_seed(1);
      const NoGrad guard;
      const ModelSpec spec = read_spec(*family, ConfigReader(std::string(sample.config), what));
      const LanguageModel model(spec);
      const std::vector<WeightRow> rows = family->weights(spec);
      const AdapterNames names = adapter_names(model, rows);
      nn::add_lora(model, {.rank = 2, .targets = {}}, names.parts);
      for (auto& [name, p] : nn::lora_parameters(model)) nn::init::normal_(p);
      const io::TempDir dir;
      save_adapter(dir.path(), model, names);
      const io::SafetensorsFile file(dir.path() + "/adapter_model.safetensors");
      std::map<std::string, Tensor> ours;
      for (const nn::AdaptedMap& m : nn::adapted_maps(model)) ours.emplace(m.path + ".weight", added(m));
      std::set<std::string> covered;
      for (const WeightRow& row : rows) {
        const auto it = ours.find(row.parameter);
        if (it == ours.end() || row.name.empty()) continue;
        covered.insert(row.parameter);
        const Tensor wanted = row.view.of(it->second).contiguous().view(row.shape);
        const std::string module = "base_model.model." + row.name.substr(0, row.name.size() - 7);
        ASSERT_TRUE(file.contains(module + ".lora_A.weight")) << what << " " << module;
        const Tensor a = file.tensor(module + ".lora_A.weight"), b = file.tensor(module + ".lora_B.weight");
        const Tensor theirs = matmul(b, a) * (8.0 / 2);
        // Of GPT-2's maps the output layer alone is stored as [out, in].
        const Tensor there = names.fan_in_fan_out && row.parameter != "head.weight" ? theirs.t() : theirs;
        ASSERT_EQ(there.shape(), wanted.shape()) << what << " " << module;
        EXPECT_LE((there - wanted).abs().max().item(), 1e-5) << what << " " << module;
      }
      EXPECT_EQ(covered.size(), ours.size()) << what;
      ordered += static_cast<int64_t>(names.rows.size());
      transposed += names.fan_in_fan_out;
      for (const auto& [path, parts] : names.parts) several += parts.size() > 1;
      EXPECT_TRUE(names.tensors.contains("token_embedding.weight")) << what;
      EXPECT_EQ(names.tensors.contains("head.weight"), !spec.tied) << what;
      for (const auto& [ours_, theirs_] : names.tensors) EXPECT_FALSE(theirs_.empty()) << what << " " << ours_;
    }
  }
  EXPECT_GT(ordered, 0);     // GPT-NeoX: heads whose q, k and v lie together
  EXPECT_GT(transposed, 0);  // GPT-2
  EXPECT_GT(several, 0);     // q, k, v of most
}

TEST(AdapterNames, OfAModelOfOurOwn) {
  ModelConfig c;
  c.family = "llama";
  c.layers = 1;
  c.dim = 16;
  c.heads = 4;
  c.kv_heads = 2;
  c.vocab = 11;
  const auto model = make_model(c);
  const AdapterNames names = own_adapter_names(*model);
  const std::vector<nn::LinearPart>& qkv = names.parts.at("blocks.0.attn.qkv");
  ASSERT_EQ(qkv.size(), 3U);
  EXPECT_EQ(qkv[2].name, "blocks.0.attn.v");
  EXPECT_EQ(qkv[2].first, 24);
  EXPECT_EQ(qkv[2].rows, 8);
  EXPECT_EQ(names.parts.at("blocks.0.mlp.gate_up")[1].name, "blocks.0.mlp.up");
  nn::add_lora(*model, {.rank = 2, .targets = {"q", "v", "gate"}}, names.parts);
  EXPECT_EQ(nn::lora_parameters(*model).size(), 6U);
}

}  // namespace
}  // namespace strata
