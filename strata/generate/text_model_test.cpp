// A folder's model with its tokenizer, and the options that calls name.

#include "strata/generate/text_model.h"

#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/temp_dir.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

using Ids = std::vector<int64_t>;

template <class F>
void refused(F&& f, const char* part) {
  const std::string text = message<ValueError>(f);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class TextModels : public testing::Test {
 protected:
  TextModels() {
    write_text_model(dir_ / "llama");
    model_ = TextModel::load(dir_ / "llama");
  }
  io::TempDir dir_;
  std::shared_ptr<TextModel> model_;
};

TEST_F(TextModels, ReadsAndWritesText) {
  EXPECT_EQ(model_->encode("ab"), (Ids{0, 68, 69}));
  EXPECT_EQ(model_->encode("</s>b"), (Ids{0, 1, 69}));
  EXPECT_EQ(model_->decode(Ids{0, 68, 69, 1}), "ab");
  EXPECT_EQ(model_->decode(Ids{0, 68, 69, 1}, false), "<s>ab</s>");
  EXPECT_THROW(model_->decode(Ids{96}), IndexError);
  EXPECT_THROW(model_->decode(Ids{-1}), IndexError);
  // What a message spells is text.
  EXPECT_EQ(model_->decode(model_->chat_prompt(R"([{"role": "user", "content": "<s>"}])"), false), "<s>user: <s> ");
  EXPECT_EQ(model_->chat_prompt(R"([{"role": "u", "content": "a"}])").front(), 0);
  EXPECT_NE(model_->chat_prompt(R"([{"role": "u", "content": "<s>"}])").at(4), 0);
  EXPECT_EQ(std::string(model_->kind()), "decoder");
  const auto all = nlohmann::json::parse(model_->describe());
  EXPECT_EQ(all["family"], "llama");
  EXPECT_EQ(all["vocab_size"], 96);
  EXPECT_EQ(all["context"], 256);
  EXPECT_EQ(all["special_ids"]["eos_token"], 1);
  EXPECT_EQ(all["tokenizer"], true);
  EXPECT_EQ(all["config"]["model_type"], "llama");
}

TEST_F(TextModels, WritesWhatATextGeneratorWrites) {
  const Ids prompt = model_->encode("Once upon");
  GenerationOptions o;
  o.max_tokens = 12, o.temperature = 0.7, o.top_k = 20, o.seed = 5, o.stop_ids = {1};
  const Generated want =
      TextGenerator(model_->pretrained().model, model_->tokenizer()).generate({{.prompt = prompt, .options = o}})[0];
  const std::vector<Ids> prompts{prompt};
  std::string streamed;
  const Generated got = model_->generate(
      prompts, R"({"max_new_tokens": 12, "temperature": 0.7, "top_k": 20, "seed": 5})", [&](const GenerationPiece& p) {
        streamed += p.text;
        return true;
      })[0];
  EXPECT_EQ(got.completions[0].tokens, want.completions[0].tokens);
  EXPECT_EQ(got.completions[0].text, want.completions[0].text);
  EXPECT_EQ(streamed, want.completions[0].text);
  EXPECT_FALSE(streamed.empty());
  const auto json = nlohmann::json::parse(to_json(std::vector<Generated>{got}));
  EXPECT_EQ(json[0]["completions"][0]["tokens"].get<Ids>(), want.completions[0].tokens);
  EXPECT_EQ(json[0]["completions"][0]["finish"], to_string(want.completions[0].finish));
}

TEST_F(TextModels, TrainingGoesOnAndCallsTakeTurns) {
  LanguageModel& decoder = model_->decoder("test");
  decoder.train();
  const std::vector<Ids> prompts{{0, 70}};
  const auto write = [&] { return model_->generate(prompts, R"({"max_new_tokens": 20})")[0].completions[0].tokens; };
  const Ids want = write();
  EXPECT_TRUE(decoder.is_training());
  std::vector<Ids> made(4);
  std::vector<std::thread> threads;
  for (Ids& ids : made) threads.emplace_back([&] { ids = write(); });
  for (std::thread& t : threads) t.join();
  for (const Ids& ids : made) EXPECT_EQ(ids, want);
  EXPECT_THROW(
      model_->generate(prompts, R"({"max_new_tokens": 2})", [&](const GenerationPiece&) { return write().empty(); }),
      ValueError);
  EXPECT_EQ(write(), want) << "a call that failed leaves it usable";
}

TEST_F(TextModels, EncodersEmbed) {
  write_text_model(dir_ / "bert", "bert");
  const auto bert = TextModel::load(dir_ / "bert");
  EXPECT_EQ(std::string(bert->kind()), "encoder");
  const std::vector<std::string> texts{"a longer text", "short"}, one{"short"};
  const Tensor both = bert->embed(texts), alone = bert->embed(one);
  EXPECT_EQ(both.shape(), (Shape{2, 64}));
  EXPECT_LT(max(abs(both.select(0, 1) - alone.select(0, 0))).item(), 1e-4) << "padding counts nothing";
  const Tensor unit = bert->embed(texts, R"({"pooling": "first", "normalize": true})");
  EXPECT_NEAR(sum(unit * unit).item(), 2, 1e-4);
  // The hidden state of the first place, made by hand.
  const NoGrad guard;
  const Ids ids = bert->encode("short");
  const Tensor hidden = bert->hidden(from_span<int64_t>(ids, {1, static_cast<int64_t>(ids.size())}));
  const Tensor first = bert->embed(one, R"({"pooling": "first"})");
  EXPECT_LT(max(abs(first - hidden.select(1, 0))).item(), 1e-5);
  refused([&] { bert->embed(one, R"({"pooling": "middle"})"); }, "weighted_mean");
  refused([&] { bert->embed(one, R"({"pool": "mean"})"); }, "pooling, a text");
  EXPECT_THROW(bert->embed({}), ValueError);
  const std::vector<Ids> prompts{{1}};
  refused([&] { bert->generate(prompts); }, "no model that writes");
  // A decoder's hidden states are as good.
  EXPECT_EQ(model_->embed(one).shape(), (Shape{1, 64}));
}

TEST_F(TextModels, WithoutATokenizerThereAreIds) {
  std::filesystem::remove(dir_ / "llama/tokenizer.json");
  std::filesystem::remove(dir_ / "llama/tokenizer_config.json");
  const auto bare = TextModel::load(dir_ / "llama");
  EXPECT_EQ(bare->folder(), nullptr);
  refused([&] { bare->encode("a"); }, "no tokenizer");
  refused([&] { bare->chat_prompt("[]"); }, "no tokenizer");
  const std::vector<Ids> prompts{{3, 4}};
  EXPECT_EQ(bare->generate(prompts, R"({"max_new_tokens": 3})")[0].completions[0].tokens.size(), 3u);
  EXPECT_THROW(TextModel::load(dir_ / "nothing"), IoError);
}

// ---- options

TEST(GenerationCall, IsOverTheFile) {
  const char* file = R"({"do_sample": false, "temperature": 0.5, "max_new_tokens": 7, "eos_token_id": 3})";
  GenerationOptions o = parse_generation_options("{}", file);
  EXPECT_EQ(o.temperature, 0);
  EXPECT_EQ(o.max_tokens, 7);
  o = parse_generation_options(R"({"top_p": 0.9})", file);
  EXPECT_EQ(o.temperature, 0.5) << "who says how to draw draws, and the file says the rest";
  EXPECT_EQ(o.top_p, 0.9);
  o = parse_generation_options(R"({"top_p": 0.9, "do_sample": false})", file);
  EXPECT_EQ(o.temperature, 0);
  o = parse_generation_options(
      R"({"max_length": 20, "eos_token_id": [4, 5], "temperature": null, "seed": 18446744073709551615,
    "frequency_penalty": 0.5, "presence_penalty": -0.5, "logit_bias": {"7": 1.5}, "logprobs": true, "top_logprobs": 2,
    "prompt_logprobs": true})",
      file);
  EXPECT_EQ(o.max_tokens, 0);
  EXPECT_EQ(o.max_length, 20);
  EXPECT_EQ(o.stop_ids, (Ids{4, 5}));
  EXPECT_EQ(o.temperature, 1) << "null takes the file's back";
  EXPECT_EQ(o.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(o.frequency_penalty, 0.5);
  EXPECT_EQ(o.presence_penalty, -0.5);
  EXPECT_EQ(o.logit_bias, (std::vector<std::pair<int64_t, double>>{{7, 1.5}}));
  EXPECT_TRUE(o.logprobs && o.prompt_logprobs);
  EXPECT_EQ(o.top_logprobs, 2);
}

TEST(GenerationCall, WhatIsWrongIsNamed) {
  for (const auto& [call, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temprature": 1})", "temprature"},
           {R"({"max_new_tokens": 0})", "max_new_tokens is 0: wanted at least 1"},
           {R"({"seed": -1})", "seed"},
           {R"({"seed": 1.5})", "seed"},
           {R"({"logit_bias": {"x": 1}})", "logit_bias"},
           {R"({"logit_bias": {"7": "a"}})", "logit_bias"},
           {R"({"logit_bias": [[7, 1]]})", "logit_bias"},
           {R"({"logprobs": 1})", "logprobs"},
           {R"({"top_p": 2})", "top_p"},
           {R"({"no_repeat_ngram_size": 3})", "no_repeat_ngram_size"},
           {R"({"stop_strings": [3]})", "stop_strings"},
           {R"([])", "object"},
           {R"({)", "generate"}})
    refused([&] { parse_generation_options(call); }, part);
  // A file has no seed, and its faults are a file's.
  EXPECT_THROW(parse_generation_config(R"({"seed": 1})"), IoError);
  EXPECT_THROW(parse_generation_options("{}", R"({"top_p": "x"})"), IoError);
}

TEST(GenerationCall, EveryKeyIsTaken) {
  const std::map<std::string, const char*> of_type{
      {"integer", "1"},        {"number", "1"},       {"boolean", "true"},       {"ids", "[1]"},
      {"texts", "[\"a\"]"},    {"id lists", "[[1]]"}, {"stopping", "\"never\""}, {"id biases", "[[[1], 0.5]]"},
      {"biases", "{\"1\": 1}"}};
  std::set<std::string> names;
  for (const GenerationKey& key : generation_keys()) {
    ASSERT_TRUE(of_type.contains(key.type)) << key.type;
    EXPECT_NO_THROW(parse_generation_options(cat("{\"", key.name, "\": ", of_type.at(key.type), "}"))) << key.name;
    EXPECT_FALSE(key.doc.empty());
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
  }
  EXPECT_TRUE(names.contains("max_new_tokens") && names.contains("seed"));
  EXPECT_EQ(nlohmann::json::parse(describe_generation_options()).size(), names.size());
}

}  // namespace
}  // namespace strata
