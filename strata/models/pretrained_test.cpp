// Models of every family, made and computed with by transformers (scripts/make-models), against what is loaded here.

#include <cmath>
#include <filesystem>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// Frequencies that follow the length of a text: with a cache, its capacity is the length.
bool by_length(const ModelSpec& spec) {
  for (const nn::RotarySpec& r : spec.rotary)
    if (r.scaling == nn::RotarySpec::Scaling::dynamic || r.scaling == nn::RotarySpec::Scaling::longrope) return true;
  return false;
}

class Pretrained_ : public PretrainedSample {};

TEST_P(Pretrained_, Logits) {
  const NoGrad guard;
  expect_near(loaded.model->forward(of("tokens")), of("logits"), 1e-4, "one text");
}

// Padding at the beginnings or the ends of rows: what stands at tokens is the same.
TEST_P(Pretrained_, LogitsOfABatchOfDifferentLengths) {
  const NoGrad guard;
  const Tensor rows = of("rows"), real = of("mask").to(DType::boolean), want = of("row_logits");
  const Tensor before = loaded.model->forward(rows, logical_not(real));
  expect_near(before * of("mask").to(DType::f32).unsqueeze(2), want, 1e-4, "padded before");
  for (int64_t b = 0; b < rows.size(0); ++b) {
    const int64_t n = of("mask").select(0, b).sum().item<int64_t>(), begin = rows.size(1) - n;
    const Tensor own = want.narrow(0, b, 1).narrow(1, begin, n);
    const Tensor text = cat({rows.narrow(0, b, 1).narrow(1, begin, n), zeros({1, 3}, DType::i64)}, 1);
    const Tensor padding = cat({zeros({1, n}, DType::boolean), ones({1, 3}, DType::boolean)}, 1);
    expect_near(loaded.model->forward(text, padding).narrow(1, 0, n), own, 1e-4, cat("padded behind, row ", b));
  }
}

TEST_P(Pretrained_, CacheGivesWhatOnePassGives) {
  const NoGrad guard;
  const Tensor tokens = of("tokens"), want = of("logits");
  const int64_t length = tokens.size(1);
  for (const bool host_counts : {true, false}) {
    ModelCache cache = loaded.model->make_cache(1, length);
    cache.host_counts = host_counts;
    for (int64_t begin = 0, n = 20; begin < length; begin += n, n = begin < 30 ? 7 : 1) {
      const Tensor x = loaded.model->hidden(tokens.narrow(1, begin, n), cache);
      expect_near(loaded.model->logits(x), want.narrow(1, begin, n), 1e-4, cat("from ", begin));
    }
    EXPECT_EQ(cache.lengths.to_vector<int64_t>(), std::vector<int64_t>{length});
  }
}

// Texts of different lengths, then one token each: every row as if it were alone.
TEST_P(Pretrained_, CacheOfABatchOfDifferentLengths) {
  const NoGrad guard;
  const Tensor tokens = of("tokens"), want = of("logits");
  const int64_t length = tokens.size(1);
  const std::vector<int64_t> lengths{9, 3, 20};
  Tensor prompts = zeros({3, 20}, DType::i64);
  for (int64_t b = 0; b < 3; ++b)
    prompts.select(0, b)
        .narrow(0, 0, lengths[static_cast<size_t>(b)])
        .copy_(tokens.select(0, 0).narrow(0, 0, lengths[static_cast<size_t>(b)]));
  ModelCache cache = loaded.model->make_cache(3, length);
  Tensor last = loaded.model->next_logits(prompts, cache, from_span<int64_t>(lengths, {3}));
  for (int64_t step = 0; step < 15; ++step) {
    std::vector<int64_t> next;
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t at = lengths[static_cast<size_t>(b)] + step;
      expect_near(last.select(0, b), want.select(0, 0).select(0, at - 1), 2e-4, cat("row ", b, ", token ", at));
      next.push_back(tokens.select(0, 0).select(0, at).item<int64_t>());
    }
    last = loaded.model->next_logits(from_span<int64_t>(next, {3, 1}), cache);
  }
}

// Rows that rest stay as they are, in a full cache too; the host counts nothing.
TEST_P(Pretrained_, RowsThatRest) {
  const NoGrad guard;
  const Tensor tokens = of("tokens").narrow(1, 0, 24), want = of("logits");
  ModelCache cache = loaded.model->make_cache(2, 24);
  const auto counts = [](int64_t a, int64_t b) { return from_span<int64_t>(std::vector<int64_t>{a, b}, {2}); };
  loaded.model->hidden(cat({tokens, tokens}, 0), cache, counts(24, 20));
  cache.host_counts = false;
  for (int64_t at = 20; at < 24; ++at) {
    const Tensor next = tokens.narrow(1, at, 1);
    const Tensor logits = loaded.model->next_logits(cat({next, next}, 0), cache, counts(0, 1));
    if (!by_length(loaded.spec)) expect_near(logits.select(0, 1), want.select(0, 0).select(0, at), 2e-4, cat(at));
  }
  EXPECT_EQ(cache.lengths.to_vector<int64_t>(), (std::vector<int64_t>{24, 24}));
}

TEST_P(Pretrained_, GreedyTokens) {
  const NoGrad guard;
  const Tensor prompt = of("prompt");
  const std::vector<int64_t> want = of("greedy").to_vector<int64_t>();
  std::vector<int64_t> got;
  const auto likeliest = [](const Tensor& logits) { return logits.argmax(-1).item<int64_t>(); };
  if (by_length(loaded.spec)) {  // the library's own cache keeps keys that turned by other frequencies
    Tensor text = prompt;
    while (got.size() < want.size()) {
      const Tensor logits = loaded.model->forward(text);
      got.push_back(likeliest(logits.select(1, text.size(1) - 1)));
      text = cat({text, full({1, 1}, got.back(), DType::i64)}, 1);
    }
  } else {
    ModelCache cache = loaded.model->make_cache(1);
    Tensor next = prompt;
    while (got.size() < want.size()) {
      got.push_back(likeliest(loaded.model->next_logits(next, cache)));
      next = full({1, 1}, got.back(), DType::i64);
    }
  }
  EXPECT_EQ(got, want);
}

TEST_P(Pretrained_, Gradients) {
  const Tensor train = of("train");
  const int64_t n = train.size(1) - 1;
  const Tensor loss = loaded.model->loss(train.narrow(1, 0, n), train.narrow(1, 1, n));
  EXPECT_NEAR(loss.item(), of("loss").item(), 1e-5 * of("loss").item());
  loss.backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& [name, p] : loaded.model->named_parameters()) gradients.emplace(name, p.grad());
  int64_t compared = 0;
  for (const WeightRow& row : loaded.family->weights(loaded.spec)) {
    if (row.repeats || row.name.empty() || !gradients.contains(row.parameter)) continue;  // or a buffer
    auto want = reference.find("grad." + row.name);
    if (want == reference.end()) want = reference.find("grad." + row.other_name);
    ASSERT_TRUE(want != reference.end()) << row.name;
    const Tensor own = row.view.of(gradients.at(row.parameter)).contiguous().view(row.shape);
    expect_near(own, want->second, 1e-3, row.name);
    ++compared;
  }
  EXPECT_EQ(compared, std::ranges::count_if(reference, [](const auto& r) { return r.first.starts_with("grad."); }));
}

// What the library makes of the configuration when it writes it itself, in the spelling of its version.
TEST_P(Pretrained_, ConfigurationAsTheLibraryWritesIt) {
  const std::string path = (fs::path(loaded.folder) / "config.saved.json").string();
  const ConfigReader config(io::read_file(path), path);
  EXPECT_EQ(&family_of(config), loaded.family);
  const ModelSpec spec = read_spec(*loaded.family, config);
  EXPECT_TRUE(spec == loaded.spec) << to_string(spec) << "differs from\n" << to_string(loaded.spec);
}

// Every tensor goes back to the bytes that it came from.
TEST_P(Pretrained_, TensorsAreGivenBack) {
  const io::WeightFiles files(loaded.folder);
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : loaded.model->named_parameters()) parameters.emplace(name, p.detach());
  for (const auto& [name, b] : loaded.model->named_buffers()) parameters.emplace(name, b);
  for (const WeightRow& row : loaded.family->weights(loaded.spec)) {
    if (row.repeats || row.name.empty()) continue;
    const std::string name = files.contains(row.name) ? row.name : row.other_name;
    const Tensor there = files.tensor(name);
    EXPECT_TRUE(equal(row.view.of(parameters.at(row.parameter)).contiguous().view(row.shape), there)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Pretrained_, testing::ValuesIn(samples_of({ModelKind::decoder})), sample_test_name);

// A folder of a tiny Llama, whose tensors a test may change.
class Folder {
 public:
  explicit Folder(std::string_view config = family_named("llama").samples.front().config) {
    io::write_file(dir.path() + "/config.json", config);
    const Family& family = family_named("llama");
    const ModelSpec spec = read_spec(family, ConfigReader(config, "config.json"));
    const LanguageModel model(spec);
    std::map<std::string, Tensor> parameters;
    for (const auto& [name, p] : model.named_parameters()) parameters.emplace(name, p.detach());
    for (const WeightRow& row : family.weights(spec))
      if (!row.repeats) tensors[row.name] = row.view.of(parameters.at(row.parameter)).contiguous().view(row.shape);
  }
  std::string write() {
    io::save_safetensors(dir.path() + "/model.safetensors", tensors);
    return dir.path();
  }
  io::TempDir dir;
  io::TensorMap tensors;
};

TEST(LoadPretrained, WhatDoesNotFitIsListed) {
  Folder f;
  f.tensors.erase("model.norm.weight");
  f.tensors["model.layers.1.mlp.up_proj.weight"] = zeros({3, 64});
  f.tensors["model.layers.7.input_layernorm.weight"] = zeros({64});
  f.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = zeros({8});  // a known table
  f.tensors["model.layers.2.mlp.up_proj.weight"] = zeros({96, 64}, DType::i32);
  const std::string folder = f.write();
  const std::string text = message<ValueError>([&] { load_pretrained(folder); });
  for (const char* part : {"4 differences", "missing: model.norm.weight [64], for norm.weight",
                           "model.layers.1.mlp.up_proj.weight [3, 64] is to be [96, 64]", "left over",
                           "layers.7.input_layernorm", "layers.2.mlp.up_proj.weight [96, 64] is of type I32"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(text.find("inv_freq"), std::string::npos) << text;
}

TEST(LoadPretrained, NamesWithoutTheirPrefix) {
  Folder f;
  io::TensorMap bare;
  for (const auto& [name, t] : f.tensors) bare[name.starts_with("model.") ? name.substr(6) : name] = t;
  const Tensor embedding = f.tensors.at("model.embed_tokens.weight");
  f.tensors = bare;
  EXPECT_TRUE(equal(load_pretrained(f.write()).model->token_embedding.weight.detach(), embedding));
}

TEST(LoadPretrained, DtypesAndTiedHeads) {
  Folder plain;
  for (auto& [name, t] : plain.tensors) t = t.to(DType::bf16);
  const std::string folder = plain.write();
  EXPECT_EQ(load_pretrained(folder).model->token_embedding.weight.dtype(), DType::bf16);
  const Pretrained wide = load_pretrained(folder, {.dtype = DType::f32});
  EXPECT_EQ(wide.model->token_embedding.weight.dtype(), DType::f32);
  EXPECT_FALSE(wide.model->is_training());
  EXPECT_TRUE(
      equal(wide.model->token_embedding.weight.detach(), plain.tensors.at("model.embed_tokens.weight").to(DType::f32)));
  EXPECT_EQ(default_dtype(), DType::f32);

  Folder tied(family_named("llama").samples[1].config);
  EXPECT_FALSE(tied.tensors.contains("lm_head.weight"));
  load_pretrained(tied.write());
  tied.tensors["lm_head.weight"] = tied.tensors.at("model.embed_tokens.weight");
  load_pretrained(tied.write());
  tied.tensors["lm_head.weight"] = tied.tensors.at("model.embed_tokens.weight") + 1;
  const std::string other = tied.write();
  EXPECT_THROW(load_pretrained(other), ValueError);
}

TEST(LoadPretrained, FoldersThatAreNone) {
  io::TempDir dir;
  EXPECT_THROW(load_pretrained(dir.path()), IoError);
  io::write_file(dir.path() + "/config.json", "[1]");
  EXPECT_THROW(load_pretrained(dir.path()), IoError);
  io::write_file(dir.path() + "/config.json", R"({"model_type": "mamba"})");
  EXPECT_THROW(load_pretrained(dir.path()), ValueError);
  io::write_file(dir.path() + "/config.json", family_named("llama").samples.front().config);
  EXPECT_THROW(load_pretrained(dir.path()), IoError);  // no weights
}

}  // namespace
}  // namespace strata
