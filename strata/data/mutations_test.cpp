// The fuzz targets over good files and seeded mutations of them. STRATA_FUZZ_ROUNDS and STRATA_FUZZ_SEED make it longer
// and another one.

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

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

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Some bytes changed, put in, taken out or doubled, or a piece of another file put in.
std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  static constexpr std::string_view kPieces[] = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 "\"",
                                                 ",",
                                                 ":",
                                                 "\n",
                                                 "\n\n",
                                                 "\\u0000",
                                                 "\\ud800",
                                                 "null",
                                                 "1e999",
                                                 "\"text\"",
                                                 "\xff",
                                                 "\xef\xbb\xbf",
                                                 "\x28\xb5\x2f\xfd",
                                                 "\x1f\x8b"};
  std::string s = corpus[random() % corpus.size()];
  for (uint64_t n = 1 + random() % 6; n > 0; --n) {
    const size_t at = s.empty() ? 0 : random() % s.size();
    switch (random() % 6) {
      case 0:
        if (!s.empty()) s[at] = static_cast<char>(random());
        break;
      case 1:
        if (!s.empty()) s[at] = static_cast<char>(s[at] ^ 1 << random() % 8);
        break;
      case 2:
        s.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 3:
        s.erase(at, 1 + random() % 9);
        break;
      case 4:
        s.insert(at, s.substr(random() % (s.size() + 1), random() % 40));
        break;
      default: {
        const std::string& other = corpus[random() % corpus.size()];
        s.insert(at, other.substr(random() % (other.size() + 1), random() % 60));
      }
    }
  }
  return s;
}

void run(int (*target)(const uint8_t*, size_t), const std::vector<std::string>& corpus, uint64_t rounds) {
  std::mt19937_64 random(setting("STRATA_FUZZ_SEED", 1));
  rounds = setting("STRATA_FUZZ_ROUNDS", rounds);
  const auto call = [&](const std::string& s) { return target(reinterpret_cast<const uint8_t*>(s.data()), s.size()); };
  for (const std::string& s : corpus) EXPECT_EQ(call(s), 0);
  for (uint64_t i = 0; i < rounds; ++i) ASSERT_EQ(call(mutated(corpus, random)), 0) << i;
}

TEST(Mutations, OfTexts) {
  const std::string rows =
      "{\"text\": \"one\", \"a\": {\"b\": \"two\"}}\n{\"a\": {\"b\": null, \"text\": 3}, \"text\": \"\"}\n";
  std::string packed(1000, 0);
  packed.resize(ZSTD_compress(packed.data(), packed.size(), rows.data(), rows.size(), 3));
  std::vector<std::string> corpus;
  for (int options = 0; options < 256; options += 3)
    for (const std::string& text : {rows, std::string("a line\n\nanother\r\n \t\nlast \xc3\xa9"), packed})
      corpus.push_back(static_cast<char>(options) + text);
  run(&fuzz_text_reader, corpus, 20'000);
}

TEST(Mutations, OfTokenFiles) {
  const io::TempDir dir;
  io::write_file(dir / "a", "one\ntwo words\nthree");
  build_token_file(dir / "a", text::ByteTokenizer(), dir / "t", {.text = {.format = TextFormat::lines}});
  run(&fuzz_token_file, {io::read_file(dir / "t")}, 3000);
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
  run(&fuzz_questions, corpus, 20'000);
}

TEST(Mutations, OfConversations) {
  run(&fuzz_chat,
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
