// generate, chat and embed with models from elsewhere, as their users run them: tiny ones with words for tokens.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "apps/strata/tiny_llama_test_util.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace strata::cli {
namespace {

using nlohmann::json;

// Llama's folder of random weights: 14 words, of which 0 ends a text.
class LanguageCommands : public testing::Test {
 protected:
  void SetUp() override {
    manual_seed(3);
    write_tiny_llama(dir_.path(), 14, 64);
    json vocab, tokenizer;
    const std::vector<std::string> words = {"</s>", "<s>", "[UNK]", "user", "assistant", "system", "a",
                                            "b",    "c",   "d",     "e",    "f",         "g",      "h"};
    for (size_t i = 0; i < words.size(); ++i) vocab[words[i]] = i;
    tokenizer = json::parse(
        R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
            "added_tokens": [], "model": {"type": "WordLevel", "unk_token": "[UNK]"}})");
    tokenizer["model"]["vocab"] = vocab;
    for (const int id : {0, 1})
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", words[static_cast<size_t>(id)]},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
    write("tokenizer.json", tokenizer.dump());
    write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})");
    write("generation_config.json", R"({"do_sample": true, "eos_token_id": 0, "max_new_tokens": 12})");
  }
  void write(const std::string& name, const std::string& text) const { io::write_file(dir_ / name, text); }
  void write_template() const {
    write("chat_template.jinja", "{% for m in messages %}<s> {{ m.role }} {{ m.content }} {% endfor %}<s> assistant");
  }
  std::string model() const { return "--model " + dir_.path() + " --threads 1 "; }

  io::TempDir dir_;
};

std::vector<json> lines_of(const std::string& output) {
  std::vector<json> all;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = output.find('\n', begin);
    all.push_back(json::parse(output.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

TEST_F(LanguageCommands, GenerateContinuesAText) {
  const std::string generate = "generate " + model() + "--prompt 'a b c' ";
  const Result a = strata(generate + "--seed 1"), b = strata(generate + "--seed 1"), c = strata(generate + "--seed 2");
  EXPECT_EQ(a.status, 0) << a.output;
  EXPECT_TRUE(a.output.starts_with("a b c")) << a.output;
  EXPECT_EQ(a.output, b.output);
  EXPECT_NE(a.output, c.output);
  const Result none = strata(generate + "--tokens 0");
  EXPECT_EQ(none.status, 0) << none.output;
  const Result same = strata("generate --checkpoint " + dir_.path() + " --threads 1 --prompt 'a b c' --seed 1");
  EXPECT_EQ(same.output, a.output);
  const Result stops = strata(generate + "--temperature 0 --json --ignore-stop-ids --tokens 30");
  const json line = lines_of(stops.output).at(0);
  EXPECT_EQ(line["tokens"].size(), 30u);
  EXPECT_EQ(line["finish"], "length");
  EXPECT_EQ(line["prompt"], "a b c");
}

TEST_F(LanguageCommands, GenerateWritesJsonForMany) {
  write("prompts.txt", "a\nb c d\n\xff e\n");
  const std::string generate = "generate " + model() + "--prompts " + (dir_ / "prompts.txt") + " --seed 3 ";
  const Result r = strata(generate + "--n 2 --logprobs --top-logprobs 2 --tokens 5");
  ASSERT_EQ(r.status, 0) << r.output;
  const std::vector<json> lines = lines_of(r.output);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["prompt"], "a");
  EXPECT_EQ(lines[3]["prompt"], "b c d");
  EXPECT_EQ(lines[5]["prompt"], "\xef\xbf\xbd e");
  for (const json& line : lines) {
    EXPECT_EQ(line["logprobs"].size(), line["tokens"].size());
    EXPECT_EQ(line["top_logprobs"][0].size(), 2u);
    EXPECT_LE(line["logprobs"][0].get<double>(), 0);
  }
  const Result piped = strata("generate " + model() + "--prompts - --seed 3 --tokens 5", "printf 'a\\n' |");
  const Result alone = strata("generate " + model() + "--prompt a --json --seed 3 --tokens 5");
  EXPECT_EQ(piped.output, alone.output);
  EXPECT_EQ(lines_of(piped.output).at(0)["tokens"], lines[0]["tokens"]) << "whatever the batch";

  const Result beams = strata("generate " + model() + "--prompt a --json --beams 3 --n 2 --length-penalty 0.5");
  ASSERT_EQ(beams.status, 0) << beams.output;
  const std::vector<json> found = lines_of(beams.output);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_GE(found[0]["score"].get<double>(), found[1]["score"].get<double>());
  std::set<std::string> drawn;
  for (const char* seed : {"1", "2", "3", "4"}) {
    const Result r =
        strata("generate " + model() + "--prompt a --json --beams 3 --temperature 2 --tokens 12 --seed " + seed);
    ASSERT_EQ(r.status, 0) << r.output;
    drawn.insert(r.output);
  }
  EXPECT_GT(drawn.size(), 1u);
}

TEST_F(LanguageCommands, WrongOptionsAreToldInALine) {
  const std::string generate = "generate " + model() + "--prompt a ";
  for (const auto& [arguments, status, part] :
       std::vector<std::tuple<std::string, int, std::string>>{{"--beams 2 --temperature 0", 1, "temperature above 0"},
                                                              {"--logit-bias 3", 2, "ID:NUMBER"},
                                                              {"--logit-bias 99:1", 1, "99"},
                                                              {"--stop-id 14", 1, "14"},
                                                              {"--early-stopping soon", 2, "early-stopping"},
                                                              {"--prompts /no/such", 1, "/no/such"},
                                                              {"--dtype f17", 2, "dtype"}}) {
    const Result r = strata(generate + arguments);
    EXPECT_EQ(r.status, status) << r.output;
    EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
  }
  write("generation_config.json", R"({"no_repeat_ngram_size": 2})");
  const Result r = strata(generate);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.output.find("no_repeat_ngram_size"), std::string::npos) << r.output;
}

TEST_F(LanguageCommands, ChatAnswersLineByLine) {
  const Result none = strata("chat " + model());
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.output.find("has no chat template"), std::string::npos) << none.output;
  write_template();
  const std::string saved = dir_ / "saved.json";
  const Result r = strata("chat " + model() + "--system 'e f' --seed 1 --tokens 6 --min-tokens 2",
                          "printf 'a b\\nc </s> <s>\\n/save " + saved + "\\n/reset\\n/exit\\nnever\\n' |");
  ASSERT_EQ(r.status, 0) << r.output;
  const json messages = json::parse(io::read_file(saved));
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[3]["content"], "c </s> <s>");
  EXPECT_EQ(messages[4]["role"], "assistant");
  EXPECT_EQ(r.output, messages[2]["content"].get<std::string>() + "\n" + messages[4]["content"].get<std::string>() +
                          "\nsaved 5 messages to '" + saved + "'\n");
  // The same conversation, the same answers.
  const Result again =
      strata("chat " + model() + "--system 'e f' --seed 1 --tokens 6 --min-tokens 2", "printf 'a b\\n' |");
  EXPECT_EQ(again.output, messages[2]["content"].get<std::string>() + "\n");
  const Result wrong = strata("chat " + model(), "printf '/fly\\n' |");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.output.find("/fly"), std::string::npos) << wrong.output;
  io::write_file(dir_ / "other.jinja", "{{ raise_exception('not this one') }}");
  const Result other = strata("chat " + model() + "--template " + (dir_ / "other.jinja"), "printf 'a\\n' |");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.output.find("not this one"), std::string::npos) << other.output;
}

TEST_F(LanguageCommands, EmbedMakesVectors) {
  const std::string texts = "printf 'a b\\nc\\na b\\n' |";
  const Result r = strata("embed " + model() + "--pooling mean --normalize", texts);
  ASSERT_EQ(r.status, 0) << r.output;
  const std::vector<json> lines = lines_of(r.output);
  ASSERT_EQ(lines.size(), 3u);
  double length = 0;
  for (const json& v : lines[0]["embedding"]) length += v.get<double>() * v.get<double>();
  EXPECT_EQ(lines[0]["embedding"].size(), 16u);
  EXPECT_NEAR(length, 1, 1e-5);
  EXPECT_NE(lines[0]["embedding"], lines[1]["embedding"]);
  const Result apart = strata("embed " + model() + "--pooling mean --normalize --batch 1", texts);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 16; ++k)
      EXPECT_NEAR(lines_of(apart.output)[i]["embedding"][k].get<double>(), lines[i]["embedding"][k].get<double>(),
                  1e-5);
  const std::string out = dir_ / "vectors.safetensors";
  ASSERT_EQ(strata("embed " + model() + "--pooling mean --normalize --out " + out, texts).status, 0);
  EXPECT_TRUE(std::filesystem::exists(out));
  const Result empty = strata("embed " + model() + "--out " + out);
  EXPECT_EQ(empty.status, 2);
  const Result nowhere = strata("embed --model /no/such", texts);
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_TRUE(nowhere.output.starts_with("strata: error: ")) << nowhere.output;
}

}  // namespace
}  // namespace strata::cli
