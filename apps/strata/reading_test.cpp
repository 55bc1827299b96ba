// generate with a model that answers what it reads, transcribe, and embed with pictures, as their users run them.

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "strata/core/rng.h"
#include "strata/data/wav_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/models/export.h"

namespace strata::cli {
namespace {

using nlohmann::json;

// A folder of random weights of a family's first sample, with 14 words for tokens, of which 1 ends a text.
class ReadingCommands : public testing::Test {
 protected:
  std::string make(const std::string& family, const std::string& settings = {}) {
    manual_seed(5);
    const Family& record = family_named(family);
    const ModelSpec spec = read_spec(record, ConfigReader(record.samples.front().config, "config.json"));
    const std::string folder = dir_ / family;
    save_pretrained(make_module(spec).module(), record, spec, folder,
                    {.config = std::string(record.samples.front().config)});
    json tokenizer = json::parse(
        R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
            "added_tokens": [{"id": 0, "content": "<pad>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true},
                             {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"<pad>": 0, "</s>": 1, "[UNK]": 2}}})");
    int id = 3;
    for (const char* word : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"})
      tokenizer["model"]["vocab"][word] = id++;
    io::write_file(folder + "/tokenizer.json", tokenizer.dump());
    io::write_file(folder + "/tokenizer_config.json",
                   R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})");
    if (!settings.empty()) io::write_file(folder + "/generation_config.json", settings);
    return folder;
  }

  io::TempDir dir_;
};

TEST_F(ReadingCommands, GenerateAnswersWhatT5Reads) {
  const std::string folder = make("t5"), generate = "generate --threads 1 --model " + folder + " --tokens 9 ";
  const Result a = strata(generate + "--prompt 'a b c' --temperature 0");
  EXPECT_EQ(a.status, 0) << a.output;
  EXPECT_FALSE(a.output.starts_with("a b c")) << "an answer, and not the prompt: " << a.output;
  const Result line = strata(generate + "--prompt 'a b c' --temperature 0 --json --ignore-stop-ids");
  ASSERT_EQ(line.status, 0) << line.output;
  const json answer = json::parse(line.output);
  EXPECT_EQ(answer["prompt"], "a b c");
  EXPECT_EQ(answer["tokens"].size(), 9u);
  for (const json& id : answer["tokens"]) EXPECT_LT(id.get<int>(), 14) << "an id that the tokenizer has not";
  // Sources of other lengths beside it change nothing.
  io::write_file(dir_ / "prompts.txt", "d e f g h i j k\na b c\n");
  const Result many = strata(generate + "--prompts " + (dir_ / "prompts.txt") + " --temperature 0 --ignore-stop-ids");
  ASSERT_EQ(many.status, 0) << many.output;
  EXPECT_EQ(json::parse(many.output.substr(many.output.find('\n') + 1))["tokens"], answer["tokens"]);
  const Result beams = strata(generate + "--prompt 'a b c' --beams 3 --n 2 --json");
  EXPECT_EQ(beams.status, 0) << beams.output;
  const Result chat = strata("chat --model " + folder, "printf 'a\\n' |");
  EXPECT_EQ(chat.status, 2) << chat.output;
  EXPECT_NE(chat.output.find("strata generate"), std::string::npos) << chat.output;
  const Result info = strata("model info --no-limits " + folder);
  EXPECT_EQ(info.status, 0) << info.output;
  EXPECT_NE(info.output.find("relative positions: 32 buckets"), std::string::npos) << info.output;
}

TEST_F(ReadingCommands, TranscribeWritesALineForEachPiece) {
  const std::string folder = make("whisper", R"({"decoder_start_token_id": 3, "eos_token_id": 1, "max_new_tokens": 6,
      "lang_to_id": {"<|de|>": 4, "<|en|>": 5}, "task_to_id": {"transcribe": 6, "translate": 7},
      "begin_suppress_tokens": [1], "suppress_tokens": [2]})");
  io::write_file(folder + "/preprocessor_config.json",
                 R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 16, "chunk_length": 1})");
  std::string wav = data::test_wav(24000);
  io::write_file(dir_ / "a.wav", wav);
  const std::string transcribe = "transcribe --threads 1 --model " + folder + " " + (dir_ / "a.wav") + " ";
  const Result r = strata(transcribe + "--json");
  ASSERT_EQ(r.status, 0) << r.output;
  std::istringstream lines(r.output);
  std::string first, second, third;
  std::getline(lines, first), std::getline(lines, second);
  EXPECT_EQ(json::parse(first)["end"], 1.0);
  EXPECT_EQ(json::parse(second)["end"], 1.5);
  EXPECT_FALSE(json::parse(first)["text"].get<std::string>().empty());
  EXPECT_FALSE(std::getline(lines, third)) << third;
  const Result de = strata(transcribe + "--language de"),
               translated = strata(transcribe + "--language de --task translate");
  EXPECT_EQ(de.status, 0) << de.output;
  EXPECT_EQ(translated.status, 0) << translated.output;
  const Result none = strata(transcribe + "--language fr");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.output.find("<|de|>, <|en|>"), std::string::npos) << none.output;
  wav[24] = 0x40, wav[25] = 0x1f;  // 8000
  io::write_file(dir_ / "a.wav", wav);
  const Result rate = strata(transcribe);
  EXPECT_EQ(rate.status, 1);
  EXPECT_NE(rate.output.find("8000 samples a second"), std::string::npos) << rate.output;
  const Result text = strata("generate --model " + folder + " --prompt a");
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(text.output.find("reads sound"), std::string::npos) << text.output;
}

TEST_F(ReadingCommands, EmbedReadsPictures) {
  const std::string folder = make("clip");
  io::write_file(folder + "/preprocessor_config.json",
                 R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 24}, "crop_size": 24})");
  std::string picture = "P6 40 30 255\n";
  for (int i = 0; i < 40 * 30 * 3; ++i) picture += static_cast<char>(i * i % 251);
  io::write_file(dir_ / "a.ppm", picture);
  io::write_file(dir_ / "list.txt", (dir_ / "a.ppm") + "\n" + (dir_ / "a.ppm") + "\n");
  const std::string embed = "embed --threads 1 --images --model " + folder + " --input " + (dir_ / "list.txt") + " ";
  const Result r = strata(embed + "--normalize");
  ASSERT_EQ(r.status, 0) << r.output;
  const std::string first = r.output.substr(0, r.output.find('\n'));
  double length = 0;
  const json vector = json::parse(first)["embedding"];
  // Rows of one batch may differ in their last bits.
  const json second = json::parse(r.output.substr(first.size() + 1))["embedding"];
  ASSERT_EQ(second.size(), vector.size());
  for (size_t i = 0; i < vector.size(); ++i) EXPECT_NEAR(second[i].get<double>(), vector[i].get<double>(), 1e-5);
  EXPECT_EQ(vector.size(), 24u);
  for (const json& x : vector) length += x.get<double>() * x.get<double>();
  EXPECT_NEAR(length, 1, 1e-5);
  io::write_file(dir_ / "a.ppm", picture.substr(0, 100));
  const Result cut = strata(embed);
  EXPECT_EQ(cut.status, 1);
  EXPECT_NE(cut.output.find("a.ppm"), std::string::npos) << cut.output;
}

}  // namespace
}  // namespace strata::cli
