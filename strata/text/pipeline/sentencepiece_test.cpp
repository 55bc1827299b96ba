#include "strata/text/pipeline/sentencepiece.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_model.h"
#include "strata/text/tokenizer_folder.h"

namespace strata::text {
namespace {

using nlohmann::json;

std::string of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

std::string error_of(std::string_view bytes) {
  try {
    tokenizer_json(parse_sentencepiece(bytes, "t.model"));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// sentencepiece_cases.jsonl has the ids that sentencepiece gives (make_sentencepiece_cases.py).
TEST(SentencePiece, GivesTheIdsOfSentencepiece) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/text/pipeline/sentencepiece_cases.jsonl"));
  std::map<std::string, int> compared;
  const std::string directory = testing::TempDir() + "sentencepiece_test";
  io::make_directories(directory);
  for (std::string line; std::getline(rows, line);) {
    const json row = json::parse(line);
    const std::string kind = row.at("kind");
    const SentencePieceModel model = parse_sentencepiece(of_hex(row.at("model").get<std::string>()), "t.model");
    EXPECT_EQ(model.kind == SentencePieceModel::Kind::bpe, kind == "bpe");
    const json tokenizer = tokenizer_json(model);
    const auto tokens = parse_token_model(tokenizer.at("model"), "t.model");
    io::write_file(directory + "/tokenizer.model", of_hex(row.at("model").get<std::string>()));
    const TokenizerFolder folder = load_tokenizer_folder(directory);
    ASSERT_EQ(tokens->vocab_size(), static_cast<int64_t>(model.pieces.size()));
    for (size_t i = 0; i < model.pieces.size(); ++i)
      EXPECT_EQ(tokens->token(static_cast<int32_t>(i)), model.pieces[i].text);
    for (size_t i = 0; i < row.at("texts").size(); ++i) {
      std::vector<int32_t> ids;
      const auto text = row["texts"][i].get<std::string>(), normalized = row.at("normalized")[i].get<std::string>();
      const auto wanted = row.at("ids")[i].get<std::vector<int32_t>>();
      if (!normalized.empty()) tokens->encode(normalized, ids);
      EXPECT_EQ(ids, wanted) << kind << " " << normalized;
      EXPECT_EQ(folder.tokenizer->encode(text), wanted) << kind << " " << text;
      ++compared[kind];
    }
  }
  std::filesystem::remove_all(directory);
  EXPECT_GT(compared["bpe"], 30);
  EXPECT_GT(compared["unigram"], 20);
}

// A message of one field: its key, the length, the bytes.
std::string field(int number, std::string_view bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + std::string(bytes);
}
std::string number(int field, int value) {
  return {static_cast<char>(field << 3), static_cast<char>(value)};
}
std::string piece(std::string_view text, int type) {
  return field(1, field(1, text) + number(3, type));
}

TEST(SentencePiece, SaysItAsTokenizerJson) {
  const std::string bpe = field(2, number(3, 2)), unk = piece("<unk>", 2);
  SentencePieceModel model = parse_sentencepiece(
      unk + piece("<s>", 3) + piece("a", 1) + piece("b", 1) + piece("ab", 1) + piece("<x>", 4) + bpe, "t");
  const json j = tokenizer_json(model, {.bos = 1});
  EXPECT_EQ(j.at("model").at("merges"), json::parse(R"([["a", "b"]])"));
  EXPECT_EQ(j["model"].at("unk_token"), "<unk>");
  ASSERT_EQ(j.at("added_tokens").size(), 3u);
  EXPECT_EQ(
      j["added_tokens"][1],
      json::parse(
          R"({"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})"));
  EXPECT_EQ(j["added_tokens"][2].at("special"), false);
  EXPECT_EQ(j.at("post_processor").at("single"),
            json::parse(R"([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}])"));
  EXPECT_EQ(j.at("normalizer").at("normalizers")[3].at("pattern"), json({{"Regex", R"(\A(?=[\s\S])(?!(?:\<x\>)\z))"}}));
  EXPECT_EQ(j.at("pre_tokenizer").at("prepend_scheme"), "never");
  model.remove_extra_whitespaces = model.add_dummy_prefix = model.escape_whitespaces = false;
  EXPECT_EQ(tokenizer_json(model).at("normalizer"), nullptr);
  EXPECT_EQ(tokenizer_json(model).at("post_processor"), nullptr);
  EXPECT_THROW(tokenizer_json(model, {.eos = 2}), ValueError);
}

TEST(SentencePiece, ErrorsNameThePlace) {
  EXPECT_EQ(error_of(""), "t.model: has no pieces: it is no sentencepiece model");
  EXPECT_EQ(error_of("\x0a"), "t.model: field 1 that ends at byte 1 is cut: 1 bytes wanted, 0 left");
  EXPECT_EQ(error_of("\x0a\x05zz"), "t.model: field 1 that ends at byte 2 is cut: 5 bytes wanted, 2 left");
  EXPECT_EQ(error_of(std::string(11, '\xff')),
            "t.model: field 0 that ends at byte 10 has a number of more than 64 bits");
  EXPECT_EQ(error_of("\x0b"), "t.model: field 1 that ends at byte 1 has the wire type 3");
  EXPECT_EQ(error_of(number(1, 1)), "t.model: field 1 that ends at byte 2 has the wire type 0, not 2");
  EXPECT_EQ(error_of(piece("a", 9)), "t.model: field 3 that ends at byte 7 is the piece type 9");
  EXPECT_EQ(error_of(piece("", 1)), "t.model: field 3 that ends at byte 6 leaves a piece without text");
  EXPECT_EQ(error_of(piece("\xff", 1)), "t.model: field 1 that ends at byte 5 is not UTF-8");
  EXPECT_EQ(error_of(piece("a", 1)), "sentencepiece: no piece is of the unknown type");
  EXPECT_EQ(error_of(piece("a", 1) + piece("a", 1)), "sentencepiece: piece 1 'a' is piece 0 already");
  EXPECT_EQ(error_of(piece("a", 5)), "sentencepiece: piece 0 'a' is marked unused, which tokenizer.json cannot say");
  EXPECT_EQ(error_of(piece("a", 2) + field(2, number(3, 4))),
            "sentencepiece: a model of words or of characters is not read, only Unigram and BPE are");
  EXPECT_EQ(error_of(piece("a", 2) + field(2, number(3, 7))),
            "t.model: field 3 that ends at byte 11 is the model type 7");
}

}  // namespace
}  // namespace strata::text
