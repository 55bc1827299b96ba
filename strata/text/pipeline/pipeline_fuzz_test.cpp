// The fuzz targets of tokenizers over the files that the tests compare by.

#include <sstream>

#include <nlohmann/json.hpp>

#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"

#define LLVMFuzzerTestOneInput fuzz_pipeline
#include "strata/text/pipeline/pipeline_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_token_model
#include "strata/text/pipeline/token_model_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer_model
#include "strata/text/pipeline/tokenizer_model_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace strata::text {
namespace {

using nlohmann::json;

class TokenizerFuzz : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("STRATA_SOURCE_DIR") == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  }
  static std::vector<json> rows(const std::string& file) {
    std::istringstream lines(
        io::read_file(std::string(std::getenv("STRATA_SOURCE_DIR")) + "/strata/text/pipeline/" + file));
    std::vector<json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
};

TEST_F(TokenizerFuzz, Pipelines) {
  std::vector<std::string> corpus;
  for (const json& row : rows("cases.jsonl")) {
    if (!row.contains("tokenizer")) continue;
    json file = row["tokenizer"];
    // A small vocabulary, so that what changes is the rest.
    file["model"] = {{"type", "WordLevel"}, {"unk_token", "a"}, {"vocab", {{"a", 0}, {"b", 1}, {"<s>", 2}}}};
    corpus.push_back(file.dump() + '\0' + "a b<s> A\xc3\xa4 \xe6\xbc\xa2 12\xff");
  }
  fuzz::run(&fuzz_pipeline, corpus, 3000);
}

TEST_F(TokenizerFuzz, Models) {
  std::vector<std::string> corpus;
  for (const json& row : rows("model_cases.jsonl"))
    if (const std::string model = row.at("model").dump(); model.size() < 4000)
      corpus.push_back(model + "\nweaab \xc4\xa0s");
  fuzz::run(&fuzz_token_model, corpus, 3000);
}

TEST_F(TokenizerFuzz, SentencePieces) {
  std::vector<std::string> corpus;
  for (const json& row : rows("sentencepiece_cases.jsonl")) {
    const auto hex = row.at("model").get<std::string>();
    std::string& bytes = corpus.emplace_back();
    for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  fuzz::run(&fuzz_tokenizer_model, corpus, 3000);
}

}  // namespace
}  // namespace strata::text
