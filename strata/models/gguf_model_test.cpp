// Models written as GGUF files and read again.

#include "strata/models/gguf_model.h"

#include <map>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

struct Sample {
  const Family* family;
  ModelSpec spec;
  std::string name;
};

// Of the families that GGUF has a name for: its first sample, which the metadata can say.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Family* family : families()) {
    if (family->kind != ModelKind::decoder || family->gguf.architectures.empty()) continue;
    for (const FamilySample& s : family->samples)
      all.push_back(
          {family, read_spec(*family, ConfigReader(s.config, "config.json")), cat(family->name, '-', s.name)});
  }
  return all;
}

// Why a file cannot say what a sample is; of all others it can.
const std::map<std::string, std::string_view> kRefused = {
    {"deepseek_v3-halves", "turn neighbours"},          {"gpt2-scaled", "relu"},
    {"gpt_neox-sequential", "gelu_tanh"},               {"llama-dynamic", "follows the length"},
};

TEST(GgufModel, RoundTripsGiveTheSameModelOrAreRefused) {
  size_t refused = 0;
  for (const Sample& s : samples()) {
    SCOPED_TRACE(s.name);
    const io::TempDir dir;
    const LanguageModel model(s.spec);
    const std::string why =
        message<ValueError>([&] { save_gguf(model, *s.family, s.spec, dir / "x.gguf", {.type = "F32"}); });
    if (why != "no error") {
      ++refused;
      const auto known = kRefused.find(s.name);
      EXPECT_TRUE(known != kRefused.end() && why.find(known->second) != std::string::npos) << why;
      EXPECT_FALSE(io::find_gguf(dir / "x.gguf") != "");
      continue;
    }
    const Pretrained again = load_pretrained(dir / "x.gguf");
    // One architecture of GGUF is several families here, and a scaling may be said as another that is the same.
    EXPECT_EQ(again.spec.layers.size(), s.spec.layers.size());
    if (again.family == s.family && s.spec.rotary == again.spec.rotary) {
      EXPECT_EQ(to_string(again.spec), to_string(s.spec));
    }
    std::map<std::string, Tensor> want;
    for (const auto& [name, p] : model.named_parameters()) want.emplace(name, p);
    for (const auto& [name, p] : again.model->named_parameters()) {
      const Tensor difference = (p - want.at(name)).detach().abs().max();
      EXPECT_LE(difference.item(), s.family->name.starts_with("gemma") ? 1e-7 : 0) << name;  // 1 is added and taken off
    }
    const NoGrad guard;
    const Tensor tokens = stepping_tokens(2, 40, 5, s.spec.vocab);
    const Tensor got = again.model->forward(tokens), logits = model.forward(tokens);
    EXPECT_LE((got - logits).abs().max().item(), 1e-5 * logits.abs().max().item());
  }
  EXPECT_EQ(refused, kRefused.size());
}

TEST(GgufModel, MatricesAreOfTheTypeThatIsAskedFor) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  const LanguageModel model(spec);
  for (const char* type : {"F16", "BF16", "Q8_0", "Q4_0"}) {
    const std::string path = dir / type;
    save_gguf(model, family, spec, path, {.type = type});
    const io::WeightFiles files(path);
    EXPECT_EQ(files.entry("blk.0.attn_q.weight").type->name, type);
    EXPECT_EQ(files.entry("blk.0.attn_norm.weight").type->name, "F32");
    const NoGrad guard;
    const Tensor tokens = stepping_tokens(1, 9, 5, spec.vocab);
    const Tensor got = load_pretrained(path, {.dtype = DType::f32}).model->forward(tokens), want = model.forward(tokens);
    const double share = std::string_view(type) == "Q4_0" ? 0.3 : 0.05;
    EXPECT_LE((got - want).abs().max().item(), share * want.abs().max().item()) << type;
  }
  EXPECT_THROW(save_gguf(model, family, spec, dir / "x", {.type = "Q2_K"}), ValueError);
}

TEST(GgufModel, KeysThatAreNotKnownAreRefused) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  save_gguf(LanguageModel(spec), family, spec, dir / "x", {.type = "F32"});
  const io::WeightFiles files(dir / "x");
  const auto with = [&](const std::string& key, const io::GgufValue& value) {
    io::GgufMetadata m = *files.gguf();
    m.set(key, value);
    std::vector<io::StoredItem> items;
    for (const io::WeightEntry& e : files.entries()) items.push_back({e.name, e.type, e.shape});
    io::GgufWriter out(dir / "y", m, items);
    for (const io::StoredItem& item : items) out.write(files.tensor(item.name));
    out.commit();
    return message<Error>([&] { load_pretrained(dir / "y"); });
  };
  EXPECT_EQ(with("tokenizer.ggml.model", io::GgufValue::of("gpt2")), "no error");
  EXPECT_NE(with("llama.expert_count", io::GgufValue::of(uint32_t{8})).find("llama.expert_count"), std::string::npos);
  EXPECT_NE(with("general.architecture", io::GgufValue::of("mamba")).find("'mamba' names no family"),
            std::string::npos);
  EXPECT_NE(with("llama.rope.scaling.type", io::GgufValue::of("dynamic")).find("linear and yarn"), std::string::npos);
  EXPECT_NE(with("llama.block_count", io::GgufValue::of("two")).find("an integer is wanted"), std::string::npos);
  EXPECT_NE(with("llama.attention.value_length", io::GgufValue::of(uint32_t{3})).find("head_dim"), std::string::npos);
  io::save_safetensors(dir / "z", io::TensorMap{});
  EXPECT_THROW(load_pretrained(dir / "z"), ValueError);
}

}  // namespace
}  // namespace strata
