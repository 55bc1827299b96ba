// Records of families, and reading config.json, without any file.

#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/io/gguf.h"
#include "strata/models/family.h"
#include "strata/models/pretrained.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"

namespace strata {
namespace {

ConfigReader reader(std::string_view text) {
  return ConfigReader(text, "config.json");
}
std::string refusal(std::string_view text) {
  return message<Error>([&] {
    const ConfigReader config(text, "config.json");
    read_spec(family_of(config), config);
  });
}
void expect_part(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Families, RecordsAreWhole) {
  std::set<std::string_view> names, types;
  for (const Family* f : families()) {
    SCOPED_TRACE(f->name);
    EXPECT_TRUE(names.insert(f->name).second);
    for (const std::string_view type : f->model_types) EXPECT_TRUE(types.insert(type).second) << type;
    ASSERT_TRUE(f->spec && f->config && f->weights);
    EXPECT_FALSE(f->title.empty() || f->model_types.empty() || f->architectures.empty());
    EXPECT_GE(f->samples.size(), 2u);
    EXPECT_EQ(&family_named(f->name), f);
    for (const std::string_view name : f->gguf.architectures) {
      io::GgufMetadata metadata("x.gguf");
      metadata.set("general.architecture", io::GgufValue::of(std::string(name)));
      EXPECT_NO_THROW(family_of_gguf(metadata)) << name;
    }
  }
  EXPECT_GE(names.size(), 13u);
  expect_part(message<ValueError>([] { family_named("mamba"); }), "gemma2, ");
  io::GgufMetadata metadata("x.gguf");
  metadata.set("general.architecture", io::GgufValue::of("mamba"));
  expect_part(message<ValueError>([&] { family_of_gguf(metadata); }), "'mamba' names no family");
  expect_part(message<ValueError>([&] { family_of_gguf(metadata); }), "qwen2");
}

// What is read is written so that reading it gives the same, and names the family.
TEST(Families, SpecsAreWrittenAndReadAgain) {
  for (const Family* f : families()) {
    std::vector<ModelSpec> specs;
    for (const FamilySample& sample : f->samples) {
      SCOPED_TRACE(cat(f->name, '-', sample.name));
      const ConfigReader config = reader(sample.config);
      EXPECT_EQ(&family_of(config), f);
      const ModelSpec spec = read_spec(*f, config);
      EXPECT_EQ(spec.kind, f->kind);
      const std::string text = write_config(*f, spec);
      const ConfigReader again = reader(text);
      EXPECT_EQ(&family_of(again), f);
      EXPECT_TRUE(read_spec(*f, again) == spec) << to_string(spec);
      for (const ModelSpec& other : specs) {
        EXPECT_FALSE(other == spec) << "two samples are the same";
        EXPECT_NE(to_string(other), to_string(spec));
      }
      specs.push_back(spec);
    }
  }
}

// Every element of every parameter stands in one place of the files, in both kinds.
TEST(Families, RowsFillEachElementOnce) {
  for (const Family* f : families()) {
    for (const FamilySample& sample : f->samples) {
      SCOPED_TRACE(cat(f->name, '-', sample.name));
      const ModelSpec spec = read_spec(*f, reader(sample.config));
      const Pretrained made = make_module(spec);
      const nn::Module& model = made.module();
      std::set<std::string> names, gguf;
      std::map<std::string, Tensor> parameters, theirs, of_gguf;
      for (const auto& [name, p] : model.named_parameters()) {
        parameters[name] = p.detach();
        theirs[name] = zeros(p.shape());
        of_gguf[name] = zeros(p.shape());
      }
      for (const auto& [name, b] : model.named_buffers()) {
        parameters[name] = b;
        theirs[name] = zeros(b.shape());
        of_gguf[name] = zeros(b.shape());
      }
      for (const WeightRow& row : f->weights(spec)) {
        ASSERT_TRUE(parameters.contains(row.parameter)) << row.parameter;
        EXPECT_TRUE(row.name.empty() || names.insert(row.name).second) << row.name;
        EXPECT_TRUE(row.gguf.empty() || gguf.insert(row.gguf).second) << row.gguf;
        Tensor view = row.view.of(theirs.at(row.parameter));
        EXPECT_EQ(view.numel(), row.shape.product()) << row.name;
        if (row.repeats) continue;
        // A row without any name is of numbers that no file has.
        if (!row.name.empty() || row.gguf.empty()) view.copy_(view + 1.0);
        if (row.gguf.empty()) continue;
        Tensor other = row.gguf_view.of(of_gguf.at(row.parameter));
        other.copy_(other + 1.0);
      }
      for (const auto& [name, p] : parameters) {
        EXPECT_TRUE(equal(theirs.at(name), ones(p.shape()))) << name;
        if (f->gguf.architectures.empty()) continue;
        EXPECT_TRUE(equal(of_gguf.at(name), ones(p.shape()))) << name << ", GGUF";
      }
    }
  }
}

TEST(WeightRows, Views) {
  const Tensor t = arange(24, DType::i64).view({6, 4});
  EXPECT_TRUE(equal(WeightView().narrow(0, 2, 2).of(t), t.narrow(0, 2, 2)));
  EXPECT_TRUE(equal(WeightView().transposed().of(t), t.t()));
  EXPECT_TRUE(equal(WeightView().view({2, 3, 4}).select(0, 1).of(t), t.narrow(0, 3, 3)));
  // Two heads of four rows: of each, rows 0 and 2 are neighbours, then 1 and 3.
  const Tensor rows = arange(8, DType::i64);
  const WeightView pairs = gguf_rotary_rows({}, 2, 4, {});
  EXPECT_EQ(pairs.of(rows).contiguous().to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_THROW(WeightView().view({5}).of(t), ShapeError);
}

TEST(ConfigReader, Values) {
  const ConfigReader c = reader(R"({"n": 3, "x": 0.5, "yes": true, "s": "word", "none": null, "list": [1, 2],
      "names": ["a", "b"], "inner": {"n": 4}})");
  EXPECT_EQ(c.size("n"), 3);
  EXPECT_EQ(c.integer("absent", -7), -7);
  EXPECT_EQ(c.number("x"), 0.5);
  EXPECT_EQ(c.number("n"), 3);
  EXPECT_TRUE(c.flag("yes"));
  EXPECT_EQ(c.text("s"), "word");
  EXPECT_EQ(c.text("absent", "other"), "other");
  EXPECT_EQ(c.maybe_size("none", 5), std::nullopt);
  EXPECT_EQ(c.maybe_size("absent", 5), 5);
  EXPECT_EQ(c.maybe_number("x"), 0.5);
  EXPECT_TRUE(c.has("none") && c.is_null("none") && !c.has("absent"));
  EXPECT_EQ(c.numbers("list"), (std::vector<double>{1, 2}));
  EXPECT_EQ(c.integers("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(c.texts("names"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.texts("none"), std::nullopt);
  EXPECT_EQ(c.object("inner")->size("n"), 4);
  EXPECT_FALSE(c.object("none").has_value());
  EXPECT_NO_THROW(c.finish());
  EXPECT_EQ(c.source(), "config.json");
}

TEST(ConfigReader, Refusals) {
  const ConfigReader c = reader(R"({"n": 3, "text": "3", "big": 4294967296, "negative": -1, "real": 2.5, "none": null,
      "a": 1, "b": 2, "twice": 1, "again": 1, "list": [1, "x"], "inner": {"deep": 1}})");
  const auto said = [&](auto&& read) { return message<ValueError>(read); };
  expect_part(said([&] { c.size("text"); }), "config.json: 'text' is to be a whole number, got \"3\"");
  expect_part(said([&] { c.size("big"); }), "2^31");
  expect_part(said([&] { c.size("negative"); }), "from 1");
  expect_part(said([&] { c.integer("real"); }), "whole number");
  expect_part(said([&] { c.size("none", 4); }), "null");
  expect_part(said([&] { c.size("absent"); }), "is missing");
  expect_part(said([&] { c.flag("n"); }), "true or false");
  expect_part(said([&] { c.numbers("list"); }), "is to be a number");
  expect_part(said([&] { c.texts("n"); }), "list");
  expect_part(said([&] { c.object("n"); }), "object");
  expect_part(said([&] { c.size({"a", "b"}); }), "'a' or 'b' mean the same and differ");
  EXPECT_EQ(c.size({"twice", "again"}), 1);
  expect_part(said([&] { c.expect("n", true); }), "taken as true alone");
  expect_part(said([&] { c.expect("text", "4"); }), "taken as '4' alone");
  expect_part(said([&] { c.expect("n", 4.0); }), "taken as 4 alone");
  expect_part(said([&] { c.expect_none("n"); }), "is not taken");
  EXPECT_NO_THROW(c.expect("n", 3.0));
  EXPECT_NO_THROW(c.expect_none("none"));
  c.object("inner");
  const std::string left = said([&] { c.finish(); });
  expect_part(left, "'inner': 'deep' = 1");
  EXPECT_EQ(left.find("'twice'"), std::string::npos) << left;
  EXPECT_THROW(ConfigReader("[1]", "config.json"), IoError);
  EXPECT_THROW(ConfigReader("{", "config.json"), IoError);
}

// What may change the network and is not known is refused by its name.
TEST(Families, RefusalsNameTheKey) {
  const std::string head = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4)";
  EXPECT_EQ(refusal(head + "}"), "no error");
  EXPECT_EQ(refusal(head + R"(, "torch_dtype": "bfloat16", "use_cache": false, "auto_map": {}})"), "no error");
  expect_part(refusal(head + R"(, "alibi": true})"), "'alibi' = true");
  expect_part(refusal(head + R"(, "quantization_config": {"bits": 4}})"), "'quantization_config'");
  expect_part(refusal(head + R"(, "num_key_value_heads": 3})"), "'num_key_value_heads' does not divide");
  expect_part(refusal(head + R"(, "hidden_act": "mish"})"), "'hidden_act' is taken as one of gelu");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "spiral", "factor": 2}})"), "is taken as one of default");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "linear"}})"), "'factor' is missing");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}})"),
              "mean the same and differ");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {}})"), "beside");
  expect_part(refusal(head + R"(, "rope_theta": 5, "rope_parameters": {"rope_theta": 6}})"), "differs");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1]}})"),
              "'mrope_section'");
  expect_part(refusal(head + R"(, "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}})"),
              "'short_factor' is to have 8 numbers");
  expect_part(refusal(head + R"(, "num_hidden_layers": 100000})"), "above 4096");
  expect_part(refusal(head + R"(, "architectures": ["LlamaForSequenceClassification"]})"), "LlamaForCausalLM");
  expect_part(refusal(R"({"model_type": "mamba"})"), "gpt_neox");
  expect_part(refusal(R"({"architectures": ["MambaForCausalLM"]})"), "GPT2LMHeadModel");
  expect_part(refusal("{}"), "is missing");
  expect_part(refusal(R"({"model_type": "gpt2", "n_embd": 64, "hidden_size": 32})"), "mean the same and differ");
  expect_part(refusal(R"({"model_type": "gpt2", "add_cross_attention": true})"), "'add_cross_attention'");
  expect_part(refusal(R"({"model_type": "gemma2", "use_bidirectional_attention": true})"),
              "'use_bidirectional_attention'");
  expect_part(refusal(R"({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0})"), "'attn_logit_softcapping'");
  expect_part(refusal(R"({"model_type": "qwen2", "layer_types": ["full_attention"]})"), "each of 32 layers");
  expect_part(refusal(R"({"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["chunked_attention"]})"),
              "chunked_attention");
  const std::string t5 = R"({"model_type": "t5", "feed_forward_proj": "gated-gelu")";
  EXPECT_EQ(refusal(t5 + R"(, "dense_act_fn": "gelu_new", "is_gated_act": true, "n_positions": 512})"), "no error");
  expect_part(refusal(t5 + R"(, "dense_act_fn": "relu"})"), "'dense_act_fn' differs from feed_forward_proj");
  expect_part(refusal(t5 + R"(, "is_gated_act": false})"), "'is_gated_act' differs from feed_forward_proj");
  expect_part(refusal(t5 + R"(, "relative_attention_num_buckets": 7})"), "is to be even");
  expect_part(refusal(t5 + R"(, "relative_attention_max_distance": 16})"), "above half");
  expect_part(refusal(t5 + R"(, "tie_word_embeddings": false, "scale_decoder_outputs": true})"), "stands beside");
  expect_part(refusal(t5 + R"(, "architectures": ["T5EncoderModel"]})"), "T5ForConditionalGeneration");
  expect_part(refusal(R"({"model_type": "t5", "feed_forward_proj": "gated-swiglu"})"), "is taken as one of gelu");
  expect_part(refusal(R"({"model_type": "whisper", "encoder_layers": 4, "num_hidden_layers": 5})"),
              "mean the same and differ");
  expect_part(refusal(R"({"model_type": "whisper", "decoder_layerdrop": 0.1})"), "'decoder_layerdrop'");
  expect_part(refusal(R"({"model_type": "whisper", "decoder_attention_heads": 7})"), "does not divide d_model");
  expect_part(refusal(R"({"model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2}})"), "longrope");
  EXPECT_EQ(refusal(R"({"architectures": ["LlamaForCausalLM"]})"), "no error");
}

// Absent keys mean what the library means by them.
TEST(Families, DefaultsAreTheLibrarys) {
  const auto spec = [](std::string_view type) {
    const ConfigReader config = reader(cat(R"({"model_type": ")", type, "\"}"));
    return read_spec(family_of(config), config);
  };
  EXPECT_EQ(spec("llama").layers.size(), 32u);
  EXPECT_EQ(spec("llama").layers[0].attention.kv_heads, 32);
  EXPECT_EQ(spec("mistral").layers[0].attention.window, 4096);
  EXPECT_EQ(spec("mistral").layers[0].attention.kv_heads, 8);
  EXPECT_EQ(spec("qwen3").layers[0].attention.head_size, 128);
  EXPECT_EQ(spec("gemma2").layers[0].attention.window, 4096);
  EXPECT_EQ(spec("gemma2").layers[1].attention.window, 0);
  EXPECT_EQ(spec("gemma2").layers[1].attention.soft_cap, 50);
  EXPECT_EQ(spec("gemma2").logit_soft_cap, 30);
  EXPECT_EQ(spec("gemma3_text").layers[5].attention.rotary, 0);
  EXPECT_EQ(spec("gemma3_text").layers[4].attention.rotary, 1);
  EXPECT_EQ(spec("gemma3_text").rotary[0].base, 1e6);
  EXPECT_EQ(spec("phi3").layers[0].norm.eps, 1e-5);
  EXPECT_EQ(spec("gpt2").layers[0].feed_forward.width, 3072);
  EXPECT_TRUE(spec("gpt2").tied);
  EXPECT_EQ(spec("gpt_neox").rotary[0].dims, 24);
  EXPECT_EQ(spec("t5").parts[1].layers.size(), 6u);
  EXPECT_EQ(spec("t5").parts[0].relative->buckets, 32);
  EXPECT_TRUE(spec("t5").parts[1].tied);
  EXPECT_EQ(spec("whisper").parts[0].context, 1500);
  EXPECT_EQ(spec("whisper").parts[1].layers[0].attention.head_size, 64);
}

TEST(Specs, ChecksNameTheField) {
  ModelConfig c;
  c.vocab = 8;
  c.layers = 1;
  c.dim = 16;
  c.heads = 4;
  const auto refused = [&](auto&& change) {
    ModelSpec s = model_spec(c);
    change(s);
    return message<ValueError>([&] { check_spec(s); });
  };
  EXPECT_EQ(refused([](ModelSpec&) {}), "no error");
  expect_part(refused([](ModelSpec& s) { s.dim = 0; }), "dim is 0");
  expect_part(refused([](ModelSpec& s) { s.vocab = int64_t{1} << 31; }), "vocab");
  expect_part(refused([](ModelSpec& s) { s.layers.clear(); }), "layers");
  expect_part(refused([](ModelSpec& s) { s.layers[0].attention.kv_heads = 3; }), "does not divide");
  expect_part(refused([](ModelSpec& s) { s.layers[0].attention.rotary = 0; }), "rotary is 0, there are 0");
  expect_part(refused([](ModelSpec& s) { s.layers[0].attention.dropout = 2; }), "attention.dropout");
  expect_part(refused([](ModelSpec& s) { s.learned_positions = 3; }), "learned positions");
  expect_part(refused([](ModelSpec& s) { s.logit_scale = NAN; }), "logit_scale");
  expect_part(refused([](ModelSpec& s) { s.layers[0].feed_forward.width = -1; }), "feed_forward.width");
  const ModelSpec t5 = read_spec(family_named("t5"), reader(R"({"model_type": "t5"})"));
  const auto refused_pair = [&](auto&& change) {
    ModelSpec s = t5;
    change(s);
    return message<ValueError>([&] { check_spec(s); });
  };
  EXPECT_EQ(refused_pair([](ModelSpec&) {}), "no error");
  expect_part(refused_pair([](ModelSpec& s) { s.parts[1].kind = ModelKind::encoder; }), "an encoder and a decoder");
  expect_part(refused_pair([](ModelSpec& s) { s.parts[0].relative->buckets = 2; }), "relative.buckets");
  expect_part(refused_pair([](ModelSpec& s) { s.parts[0].relative->distance = 16; }), "relative.distance");
  expect_part(refused_pair([](ModelSpec& s) { s.parts[1].layers[1].attention.heads = 16; }), "as many heads");
  expect_part(refused_pair([](ModelSpec& s) { s.parts[0].audio = AudioSpec{.bins = 0}; }), "audio.bins");
  expect_part(to_string(t5), "relative positions: 32 buckets to 128");
  expect_part(to_string(model_spec(c)), "layer 0: heads 4");
}

}  // namespace
}  // namespace strata
