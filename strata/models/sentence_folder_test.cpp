// What folders of sentence-transformers say, and what is refused.

#include "strata/models/sentence_folder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata {
namespace {

struct Folder {
  io::TempDir dir;
  Folder() { std::filesystem::create_directory(dir / "1_Pooling"); }
  void write(const std::string& name, const std::string& text) const { io::write_file(dir / name, text); }
  SentenceOptions options() const { return read_sentence_options(dir.path()); }
  std::string refusal() const {
    try {
      options();
    } catch (const IoError& e) {
      return e.what();
    }
    return "nothing was refused";
  }
};

constexpr const char* kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";

TEST(SentenceFolder, SaysHowTextsBecomeVectors) {
  const Folder f;
  EXPECT_EQ(f.options().embedding.pooling, Pooling::mean);
  EXPECT_FALSE(f.options().embedding.normalize);
  EXPECT_EQ(f.options().max_length, 0);
  f.write("modules.json", kModules);
  f.write("sentence_bert_config.json", R"({"max_seq_length": 256, "do_lower_case": false})");
  f.write("1_Pooling/config.json",
          R"({"word_embedding_dimension": 384, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  EXPECT_EQ(f.options().embedding.pooling, Pooling::first);
  EXPECT_TRUE(f.options().embedding.normalize);
  EXPECT_EQ(f.options().max_length, 256);
  f.write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  EXPECT_EQ(f.options().embedding.pooling, Pooling::last);
  f.write("1_Pooling/config.json", R"({"pooling_mode": "weightedmean"})");
  EXPECT_EQ(f.options().embedding.pooling, Pooling::weighted_mean);
}

TEST(SentenceFolder, RefusesWhatItDoesNotKnow) {
  const Folder f;
  const auto expect = [&](const char* part) {
    EXPECT_NE(f.refusal().find(part), std::string::npos) << part << ": " << f.refusal();
  };
  f.write("modules.json", kModules);
  expect("1_Pooling");  // there is no configuration
  f.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  expect("one way of pooling, got 2");
  f.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": 1})");
  expect("true or false");
  f.write("1_Pooling/config.json", "[]");
  expect("wanted an object");
  f.write("modules.json", R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])");
  expect("no module sentence_transformers.models.Dense");
  for (const char* path : {"../elsewhere", "/etc", "..", "", "a\\\\b"}) {
    f.write("modules.json", std::string(R"([{"type": "Pooling", "path": ")") + path + "\"}]");
    expect("is no folder of this folder");
  }
  f.write("modules.json", R"({"type": 1})");
  expect("wanted a list");
  f.write("modules.json", R"([{"type": 1}])");
  expect("a \"type\"");
  f.write("modules.json", "[");
  expect("byte");
  f.write("sentence_bert_config.json", R"({"max_seq_length": -1})");
  expect("max_seq_length");
}

}  // namespace
}  // namespace strata
