// Adapters that PEFT made for models of every family (scripts/make-models, make_adapters.py) against what is loaded
// here, and folders of ours for PEFT to read (make_adapters.py --check).

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/io/safetensors.h"
#include "strata/models/average.h"
#include "strata/models/peft.h"
#include "strata/models/pretrained.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

struct Case {
  const Family* family;
  FamilySample sample;
  std::string kind;
  std::string name() const { return cat(family->name, '-', sample.name); }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name() << ' ' << c.kind;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Family* family : families())
    if (family->kind == ModelKind::decoder)
      for (const FamilySample& sample : family->samples)
        for (const char* kind : {"lora", "rslora", "dora", "each"})
          if (kind != std::string("each") || sample.config.find("expert") != std::string_view::npos)
            all.push_back({family, sample, kind});
  return all;
}

fs::path models() {
  if (const char* given = std::getenv("STRATA_MODELS")) return given;
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  return fs::path(source ? source : ".") / "build/models";
}

class PretrainedAdapters : public testing::TestWithParam<Case> {};

TEST_P(PretrainedAdapters, ComputeWhatTheyComputeThereAndAreGivenBack) {
  const std::string folder = (models() / GetParam().name()).string(), adapter = folder + "/adapter-" + GetParam().kind;
  if (!fs::exists(adapter + "/expected.safetensors"))
    GTEST_SKIP() << adapter << " is not there: scripts/make-models writes it where peft is installed";
  const NoGrad guard;
  const Pretrained loaded = load_pretrained(folder);
  const Tensor tokens = io::SafetensorsFile(folder + "/reference.safetensors").tensor("tokens");
  const Tensor want = io::SafetensorsFile(adapter + "/expected.safetensors").tensor("logits");
  const double most = want.abs().max().item();
  const Tensor before = loaded.model->forward(tokens);
  EXPECT_GT((before - want).abs().max().item(), 0.01 * most);  // the adapter does something

  const AdapterNames names = adapter_names(*loaded.model, loaded.family->weights(loaded.spec));
  load_adapter(adapter, *loaded.model, names);
  loaded.model->eval();
  EXPECT_LE((loaded.model->forward(tokens) - want).abs().max().item(), 1e-4 * most);
  {
    const nn::WithoutLora off;
    EXPECT_EQ((loaded.model->forward(tokens) - before).abs().max().item(), 0);
  }

  // Written again: the same tensors under the same names.
  const std::string again = adapter + "-again";
  fs::remove_all(again);
  save_adapter(again, *loaded.model, names, {.base = folder, .task_type = "CAUSAL_LM"});
  const io::TensorMap theirs = io::SafetensorsFile(adapter + "/adapter_model.safetensors").tensors(),
                      ours = io::SafetensorsFile(again + "/adapter_model.safetensors").tensors();
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, t] : theirs) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ((ours.at(name) - t).abs().max().item(), 0) << name;
  }

  nn::merge_lora(*loaded.model);
  EXPECT_LE((loaded.model->forward(tokens) - want).abs().max().item(), 1e-4 * most);
}

// Adapters that begin here, for PEFT to read: every map but the head, one with a rank of its own. Of models with
// experts these and the maps of attention, as make_adapters.py takes them.
TEST_P(PretrainedAdapters, MadeHereComputeTheSameReadAgain) {
  const std::string folder = (models() / GetParam().name()).string(), adapter = folder + "/adapter-" + GetParam().kind;
  if (!fs::exists(adapter + "/expected.safetensors")) GTEST_SKIP() << adapter << " is not there";
  const NoGrad guard;
  manual_seed(7);
  const Pretrained made = load_pretrained(folder), again = load_pretrained(folder);
  const AdapterNames names = adapter_names(*made.model, made.family->weights(made.spec));
  nn::LoraOptions options{
      .rank = 3, .alpha = 5, .rslora = GetParam().kind == "rslora", .dora = GetParam().kind == "dora"};
  const std::string& kind = GetParam().kind;
  const bool experts =
      std::ranges::any_of(names.parts, [](const auto& e) { return e.first.ends_with("experts.down"); });
  for (const auto& [map, parts] : names.parts)
    for (const nn::LinearPart& part : parts)
      if (map != "head" && (!experts || map.find(".attn.") != std::string::npos)) options.targets.push_back(part.name);
  ASSERT_FALSE(options.targets.empty());
  options.rank_pattern = {{options.targets.front(), 1}};
  options.alpha_pattern = {{options.targets.back(), 2.5}};
  if (experts && (kind == "lora" || kind == "rslora")) {
    options.targets.push_back(kind == "lora" ? "experts" : "experts.down_proj");
    options.exclude = {"shared_experts"};
    if (kind == "lora") options.rank_pattern.emplace_back("experts.gate_up_proj", 2);
    options.alpha_pattern.emplace_back("experts.down_proj", 4);
  }
  if (kind == "each")
    for (const auto& [map, parts] : names.parts)
      for (const nn::LinearPart& part : parts)
        if (part.name.find(".*.") != std::string::npos) options.targets.push_back(part.name);
  nn::add_lora(*made.model, options, names.parts);
  for (auto& [name, p] : nn::lora_parameters(*made.model))
    if (name.ends_with(".magnitude"))
      p.mul_(1.2);
    else if (name.ends_with(".B"))
      nn::init::normal_(p, 0, 0.3);
  made.model->eval();
  const Tensor tokens = io::SafetensorsFile(folder + "/reference.safetensors").tensor("tokens");
  const Tensor logits = made.model->forward(tokens);
  EXPECT_GT((again.model->forward(tokens) - logits).abs().max().item(), 0.01 * logits.abs().max().item());
  const std::string ours = adapter + "-ours";
  fs::remove_all(ours);
  save_adapter(ours, *made.model, names, {.base = folder, .task_type = "CAUSAL_LM"});
  io::save_safetensors(ours + "/expected.safetensors", {{"logits", logits}});
  load_adapter(ours, *again.model, names);
  again.model->eval();
  EXPECT_EQ((again.model->forward(tokens) - logits).abs().max().item(), 0);
}

TEST_P(PretrainedAdapters, MergedIntoFilesComputeTheSame) {
  const std::string folder = (models() / GetParam().name()).string(), adapter = folder + "/adapter-" + GetParam().kind;
  if (!fs::exists(adapter + "/expected.safetensors")) GTEST_SKIP() << adapter << " is not there";
  const NoGrad guard;
  const std::string merged = adapter + "-merged";
  fs::remove_all(merged);
  merge_adapter(folder, adapter, merged);
  const Tensor tokens = io::SafetensorsFile(folder + "/reference.safetensors").tensor("tokens");
  const Tensor want = io::SafetensorsFile(adapter + "/expected.safetensors").tensor("logits");
  const Pretrained loaded = load_pretrained(merged);
  EXPECT_LE((loaded.model->forward(tokens) - want).abs().max().item(), 1e-4 * want.abs().max().item());
  fs::remove_all(merged);
}

INSTANTIATE_TEST_SUITE_P(All, PretrainedAdapters, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.name() + "_" + info.param.kind;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace strata
