#include "strata/text/tokenizer_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/unicode_inl.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        testing::TempDir() + "tokenizer_folder_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    io::make_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) { io::write_file(directory_ + "/" + name, text); }
  TokenizerFolder load(const Json& config = nullptr) {
    if (!config.is_null()) write("tokenizer_config.json", config.dump());
    return load_tokenizer_folder(directory_);
  }
  static Ids encode(const TokenizerFolder& folder, const std::string& text) {
    return dynamic_cast<const PipelineTokenizer&>(*folder.tokenizer).encode(text, EncodeOptions{});
  }
  std::string error_of(const Json& config) {
    try {
      load(config);
    } catch (const IoError& e) {
      std::string text = e.what();
      for (size_t at; (at = text.find(directory_)) != std::string::npos;) text.replace(at, directory_.size(), "DIR");
      return text;
    }
    return "no error";
  }
  /// vocab.json and merges.txt over the byte alphabet.
  void write_bpe() {
    Json vocab = Json::object();
    const auto add = [&](const std::string& token) { vocab[token] = vocab.size(); };
    for (uint32_t c = 33; c < 324; ++c) {
      if ((c > 126 && c < 161) || c == 173) continue;
      std::string token;
      pipeline::append_char(token, c);
      add(token);
    }
    const std::vector<std::string> merges = {"\xc4\xa0 a", "l l", "e ll", "h ell", "hell o"};
    std::string lines = "#version: 0.2\n";
    for (std::string m : merges) {
      lines += m + "\n";
      m.erase(m.find(' '), 1);
      add(m);
    }
    for (const char* t : {"<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>", "<|startoftext|>", "o</w>",
                          "hello</w>", "a</w>", "!</w>"})
      add(t);
    write("vocab.json", vocab.dump());
    write("merges.txt", lines);
  }

  std::string directory_;
  static constexpr const char* kText = "Hello  hello a!<s> <mask>\xc3\x89\n<|endoftext|>";
};

// Ids and texts are transformers' (5.24).
TEST_F(Folder, VocabularyAndMergesByClass) {
  write_bpe();
  TokenizerFolder f = load({{"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(encode(f, kText),
            (Ids{39, 258, 78, 220, 220, 260, 256, 0, 27, 82, 29, 220, 27, 76, 64, 82, 74, 29, 127, 231, 198, 266}));
  EXPECT_EQ(f.tokenizer->decode(encode(f, kText)), kText);
  EXPECT_EQ(f.bos, 266);
  EXPECT_EQ(f.eos, 266);
  EXPECT_FALSE(f.pad.has_value());
  f = load({{"tokenizer_class", "RobertaTokenizerFast"}});
  EXPECT_EQ(encode(f, kText), (Ids{261, 39, 258, 78, 220, 220, 260, 256, 0,  261, 220, 265, 127, 231, 198,
                                   27,  91, 68,  77, 67,  78,  69,  83,  68, 87,  83,  91,  29,  262}));
  EXPECT_EQ(f.pad, 264);
  EXPECT_EQ(f.named.at("mask_token"), 265);
  f = load({{"tokenizer_class", "Qwen2Tokenizer"}});
  EXPECT_EQ(encode(f, kText),
            (Ids{39, 258, 78, 220, 220, 260, 256, 0, 27, 82, 29, 220, 27, 76, 64, 82, 74, 29, 127, 231, 198, 266}));
  EXPECT_FALSE(f.bos.has_value());
  f = load({{"tokenizer_class", "CLIPTokenizer"}});
  EXPECT_EQ(encode(f, kText),
            (Ids{267, 259, 268, 259, 268, 270, 0, 266, 266, 266, 266, 76, 64, 82, 266, 266, 127, 266, 266, 266}));
  f = load({{"tokenizer_class", "GPT2Tokenizer"},
            {"add_bos_token", true},
            {"bos_token", "<s>"},
            {"pad_token", {{"content", "<pad>"}, {"lstrip", false}}}});
  EXPECT_EQ(encode(f, "hello a"), (Ids{261, 260, 256}));
  EXPECT_EQ(f.pad, 264);
  EXPECT_EQ(f.tokenizer_class, "GPT2Tokenizer");
}

TEST_F(Folder, VocabularyOfBert) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\na\n!\ne\n");
  write("config.json", "{\"model_type\": \"bert\"}");
  const TokenizerFolder f = load();
  EXPECT_EQ(encode(f, "Hello Hellos \xc3\x89! [MASK]x"), (Ids{2, 5, 5, 6, 9, 8, 4, 1, 3}));
  const auto& t = dynamic_cast<const PipelineTokenizer&>(*f.tokenizer);
  const Encoding pair = t.encode_pair("a", "e");
  EXPECT_EQ(pair.ids, (Ids{2, 7, 3, 9, 3}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(t.decode(encode(f, "Hello Hellos !")), "[CLS] hello hellos! [SEP]");
  EXPECT_EQ(f.pad, 0);
}

TEST_F(Folder, WhatStandsBesideATokenizerJson) {
  const Json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"model", {{"type", "WordLevel"}, {"unk_token", "u"}, {"vocab", {{"u", 0}, {"<s>", 1}, {"a", 2}}}}},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  write("tokenizer.json", tokenizer.dump());
  TokenizerFolder f =
      load({{"bos_token", "<s>"},
            {"eos_token", "<new>"},
            {"add_bos_token", true},
            {"clean_up_tokenization_spaces", true},
            {"chat_template", "one"},
            {"added_tokens_decoder", {{"3", {{"content", "<tool>"}, {"special", false}, {"lstrip", true}}}}}});
  // A tokenizer.json's post-processor stands, whatever add_bos_token says.
  EXPECT_EQ(encode(f, "a<s>a <tool><new>"), (Ids{2, 1, 2, 3, 4}));
  EXPECT_EQ(f.bos, 1);
  EXPECT_EQ(f.eos, 4);
  EXPECT_EQ(f.tokenizer->special_tokens(), (std::map<std::string, int32_t>{{"<s>", 1}, {"<new>", 4}}));
  EXPECT_TRUE(f.clean_up_tokenization_spaces);
  EXPECT_EQ(f.chat_template, "one");
  f = load({{"chat_template", {{{"name", "default"}, {"template", "two"}}, {{"name", "rag"}, {"template", "three"}}}}});
  EXPECT_EQ(f.chat_template, "two");
  EXPECT_EQ(f.chat_templates.at("rag"), "three");
  write("special_tokens_map.json", "{\"eos_token\": {\"content\": \"a\", \"normalized\": false}}");
  write("chat_template.jinja", "four");
  f = load(Json::object());
  EXPECT_EQ(f.eos, 2);
  EXPECT_EQ(f.chat_template, "four");
  EXPECT_EQ(error_of({{"chat_template", 3}}),
            "tokenizer: 'DIR/tokenizer_config.json': chat_template must be a text, or a list of {name, template}");
  EXPECT_EQ(error_of({{"bos_token", 3}}),
            "tokenizer: 'DIR/tokenizer_config.json': bos_token must be a token's text, or an object with it");
  EXPECT_EQ(error_of({{"added_tokens_decoder", {{"x", "y"}}}}),
            "tokenizer: 'DIR/tokenizer_config.json': added_tokens_decoder has 'x', wanted ids");
}

TEST_F(Folder, OurOwnTokenizer) {
  write("tokenizer.json", ByteTokenizer().to_json());
  EXPECT_EQ(load().tokenizer->vocab_size(), 256);
}

/// A field of a protocol buffer that holds bytes.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

TEST_F(Folder, ModelOfSentencepiece) {
  std::string model;
  const auto piece = [&](const char* text, float score, int type) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &score, 4);
    model += field(1, field(1, text) + "\x15" + bytes + "\x18" + static_cast<char>(type));
  };
  piece("<unk>", 0, 2);
  piece("<s>", 0, 3);
  piece("</s>", 0, 3);
  piece("\xe2\x96\x81", -3, 1);
  piece("a", -2, 1);
  piece(
      "\xe2\x96\x81"
      "a",
      -1, 1);
  write("tokenizer.model", model);
  TokenizerFolder f = load();
  EXPECT_EQ(encode(f, "a aa"), (Ids{5, 5, 4}));
  EXPECT_EQ(f.tokenizer->decode(Ids{5, 5, 4}), "a aa");
  EXPECT_EQ(f.bos, 1);
  EXPECT_EQ(f.eos, 2);
  EXPECT_EQ(f.unk, 0);
  EXPECT_EQ(encode(load({{"tokenizer_class", "LlamaTokenizer"}}), "a"), (Ids{1, 5}));
  EXPECT_EQ(encode(load({{"tokenizer_class", "T5TokenizerFast"}}), "a"), (Ids{5, 2}));
  EXPECT_EQ(
      encode(load({{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}, {"add_eos_token", true}}), "a"),
      (Ids{5, 2}));
  // Control pieces are no text.
  EXPECT_EQ(f.tokenizer->special_tokens().count("</s>"), 1u);
  const Ids spelled = f.tokenizer->encode("</s>");
  EXPECT_EQ(std::count(spelled.begin(), spelled.end(), 2), 0);
}

TEST_F(Folder, WhatIsMissingIsNamed) {
  EXPECT_EQ(error_of(nullptr),
            "tokenizer: 'DIR': there is no tokenizer.json, and its tokenizer_class is not named; known are "
            "GPT2Tokenizer, RobertaTokenizer, BartTokenizer, Qwen2Tokenizer, CLIPTokenizer, "
            "BertTokenizer, DistilBertTokenizer, ElectraTokenizer");
  EXPECT_EQ(error_of({{"tokenizer_class", "BertTokenizer"}}), "tokenizer: 'DIR': there is no vocab.txt");
  write_bpe();
  write("merges.txt", "a b c\n");
  EXPECT_EQ(error_of({{"tokenizer_class", "GPT2Tokenizer"}}),
            "tokenizer: 'DIR/merges.txt': 'a b c' is no pair of tokens");
}

}  // namespace
}  // namespace strata::text
