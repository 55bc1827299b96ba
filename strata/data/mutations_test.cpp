// The fuzz targets over good files and seeded mutations of them.

#include <gtest/gtest.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

#define LLVMFuzzerTestOneInput fuzz_text_reader
#include "strata/data/text_reader_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_token_file
#include "strata/data/token_file_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_chat
#include "strata/data/chat_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_questions
#include "strata/data/questions_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace strata::data {
namespace {

TEST(Mutations, OfTexts) {
  const std::string rows =
      "{\"text\": \"one\", \"a\": {\"b\": \"two\"}}\n{\"a\": {\"b\": null, \"text\": 3}, \"text\": \"\"}\n";
  std::string packed(1000, 0);
  packed.resize(ZSTD_compress(packed.data(), packed.size(), rows.data(), rows.size(), 3));
  std::vector<std::string> corpus;
  for (int options = 0; options < 256; options += 3)
    for (const std::string& text : {rows, std::string("a line\n\nanother\r\n \t\nlast \xc3\xa9"), packed})
      corpus.push_back(static_cast<char>(options) + text);
  fuzz::run(&fuzz_text_reader, corpus, 20'000);
}

TEST(Mutations, OfTokenFiles) {
  const io::TempDir dir;
  io::write_file(dir / "a", "one\ntwo words\nthree");
  build_token_file(dir / "a", text::ByteTokenizer(), dir / "t", {.text = {.format = TextFormat::lines}});
  fuzz::run(&fuzz_token_file, {io::read_file(dir / "t")}, 3000);
}

TEST(Mutations, OfQuestions) {
  const std::string rows =
      R"({"question": "q", "choices": ["a", "b"], "answer": 1, "a": "x", "b": "y", "names": ["A", "1"],)"
      R"( "meta": {"more": 3, "answer": "A"}})"
      "\n\n"
      R"({"question": 7, "choices": ["one", "two", "3"], "answer": "two", "a": "two", "b": "y", "names": ["k", "two"],)"
      R"( "meta": {"more": "m", "answer": ["y", 2]}})"
      "\n";
  std::vector<std::string> corpus;
  for (int fields = 0; fields < 32; ++fields) corpus.push_back(static_cast<char>(fields) + rows);
  fuzz::run(&fuzz_questions, corpus, 20'000);
}

TEST(Mutations, OfConversations) {
  fuzz::run(
      &fuzz_chat,
      {R"({"messages": [{"role": "user", "content": "hi <|a|>"}, {"role": "assistant", "content": "yes"}], "tools": null})",
       R"({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]})",
       R"({"prompt": "q", "completion": [{"role": "assistant", "content": "a"}], "chat_template_kwargs": {"x": 1}})",
       R"({"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]})",
       R"({"chosen": [{"role": "user", "content": "q"}], "rejected": [{"role": "user", "content": "q"}]})",
       R"({"text": "t"})"},
      10'000);
}

}  // namespace
}  // namespace strata::data
