#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "strata/core/error.h"
#include "strata/data/sequences.h"
#include "strata/data/token_file.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/text/bpe.h"

namespace strata::data {
namespace {
namespace fs = std::filesystem;
using io::TempDir;

const text::BpeTokenizer& tokenizer() {
  static const text::BpeTokenizer t = text::train_bpe(
      "the quick brown fox jumps over the lazy dog and the fox and the dog sat on the mat and the quick mat",
      {.vocab_size = 300, .special_tokens = {"<|end|>"}});
  return t;
}

std::string words(std::mt19937& random, size_t count) {
  static constexpr std::string_view kWords[] = {
      "the", "quick", "brown", "fox", "dog", "and", "mat", "jumps", "\xc3\xa9t\xc3\xa9"};
  std::string text;
  for (size_t i = 0; i < count; ++i) text += cat(i > 0 ? " " : "", kWords[random() % std::size(kWords)]);
  return text;
}

std::vector<int32_t> ids_of(const TokenFile& file, std::pair<int64_t, int64_t> range) {
  std::vector<int32_t> ids(static_cast<size_t>(range.second - range.first));
  file.read(range.first, std::span<int32_t>(ids));
  return ids;
}

TEST(TokenBuild, DocumentsOfEveryFormat) {
  TempDir dir;
  io::write_file(dir / "lines", "the fox\n\nthe dog\r\n  \nthe mat");
  io::write_file(dir / "paragraphs", "\n\nthe fox\nthe dog\n \t\nthe mat\n\n\nand\n");
  io::write_file(dir / "rows.jsonl",
                 "{\"text\": \"the fox\"}\n{\"text\": null}\n{\"text\": \"\"}\n\n{\"a\": [{}], \"text\": \"a\\nb\"}");
  const auto documents = [&](const std::string& name, TextFormat format) {
    build_token_file(dir / name, tokenizer(), dir / "out", {.separator = "<|end|>", .text = {.format = format}});
    const TokenFile file(dir / "out");
    EXPECT_EQ(file.separator(), tokenizer().special_tokens().at("<|end|>"));
    std::vector<std::string> texts;
    int64_t end = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      EXPECT_EQ(file.document(d).first, end);
      end = file.document(d).second;
      texts.push_back(tokenizer().decode(ids_of(file, file.document(d))));
      EXPECT_TRUE(texts.back().ends_with("<|end|>"));
      texts.back().resize(texts.back().size() - 7);
    }
    EXPECT_EQ(end, file.size());
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(documents("lines", TextFormat::lines), (Texts{"the fox", "the dog", "the mat"}));
  EXPECT_EQ(documents("paragraphs", TextFormat::paragraphs), (Texts{"the fox\nthe dog", "the mat", "and"}));
  EXPECT_EQ(documents("lines", TextFormat::whole), (Texts{"the fox\n\nthe dog\r\n  \nthe mat"}));
  EXPECT_EQ(documents("rows.jsonl", TextFormat::automatic), (Texts{"the fox", "a\nb"}));
  EXPECT_EQ(documents("rows.jsonl", TextFormat::jsonl), (Texts{"the fox", "a\nb"}));
  EXPECT_EQ(documents("lines", TextFormat::automatic).size(), 1u);
}

TEST(TokenBuild, TheFileDoesNotDependOnTheThreads) {
  TempDir dir;
  std::mt19937 random(1);
  std::string rows, plain;
  for (int i = 0; i < 60'000; ++i) {
    const std::string text = words(random, 1 + random() % 60);
    rows += "{\"id\": " + std::to_string(i) + ", \"text\": \"" + text + "\"}\n";
    plain += text + (random() % 3 == 0 ? "\n\n" : "\n");
  }
  io::make_directories(dir / "in");
  io::write_file(dir / "in/a.jsonl", rows);
  io::write_file(dir / "in/b.txt", plain);
  const std::vector<std::string> sources{dir / "in"};
  std::string first;
  for (const int threads : {1, 2, 5}) {
    const TokenFileOptions options{.separator = "<|end|>", .text = {}, .threads = threads};
    const BuildProgress done = build_token_file(sources, tokenizer(), dir / "out", options);
    EXPECT_EQ(done.documents, 60'001);
    EXPECT_EQ(done.files, 2);
    EXPECT_EQ(done.files_read, 2);
    EXPECT_EQ(done.bytes_read, rows.size() + plain.size());
    EXPECT_EQ(done.bytes, done.bytes_read);
    EXPECT_FALSE(fs::exists(dir / "out.parts"));
    const std::string bytes = io::read_file(dir / "out");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
    const TokenFile file(dir / "out");
    EXPECT_EQ(file.size(), done.tokens);
    EXPECT_EQ(file.documents(), done.documents);
  }
  // each document is what its text encodes to on its own
  const TokenFile file(dir / "out");
  random.seed(1);
  for (int64_t d = 0; d < 1000; ++d) {
    std::vector<int32_t> ids = tokenizer().encode(words(random, 1 + random() % 60));
    random();
    ids.push_back(tokenizer().special_tokens().at("<|end|>"));
    ASSERT_EQ(ids_of(file, file.document(d)), ids) << d;
  }
  std::vector<int32_t> whole = tokenizer().encode(plain);
  whole.push_back(tokenizer().special_tokens().at("<|end|>"));
  EXPECT_TRUE(ids_of(file, file.document(60'000)) == whole);
  const FileSequences texts(std::make_shared<const TokenFile>(dir / "out"), 60'000, 60'001);
  EXPECT_EQ(texts.length(0), static_cast<int64_t>(whole.size()));
}

// Ends the process, or asks to stop, once so many bytes of text are encoded.
class Ender final : public BuildWatch {
 public:
  Ender(uint64_t bytes, bool kill) : bytes_(bytes), kill_(kill) {}
  void progress(const BuildProgress& p) override {
    last = p;
    if (kill_ && p.text_bytes >= bytes_) ::raise(SIGKILL);
  }
  bool stop_requested() override { return last.text_bytes >= bytes_; }
  void note(const std::string& text) override { notes.push_back(text); }
  BuildProgress last;
  std::vector<std::string> notes;

 private:
  uint64_t bytes_;
  bool kill_;
};

TEST(TokenBuild, GoesOnAfterAKillAndAStop) {
  TempDir dir;
  std::mt19937 random(2);
  std::string rows;
  while (rows.size() < (size_t{80} << 20)) {
    const std::string text = words(random, 2000);
    rows += "{\"text\": \"" + text + "\"}\n";
  }
  io::write_file(dir / "a.jsonl", rows);
  const std::vector<std::string> sources{dir / "a.jsonl"};
  const text::ByteTokenizer bytes;
  const TokenFileOptions options{.text = {}, .threads = 2};
  build_token_file(sources, bytes, dir / "whole", options);
  const std::string whole = io::read_file(dir / "whole");

  const auto killed_at = [&](uint64_t at) {
    const pid_t child = ::fork();
    if (child == 0) {
      Ender ender(at, true);
      try {
        build_token_file(sources, bytes, dir / "out", options, &ender);
      } catch (...) {
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  };
  ASSERT_TRUE(killed_at(uint64_t{70} << 20));
  EXPECT_FALSE(fs::exists(dir / "out"));
  ASSERT_TRUE(fs::exists(dir / "out.parts/000000.section"));
  Ender stopped(uint64_t{72} << 20, false);
  EXPECT_THROW(build_token_file(sources, bytes, dir / "out", options, &stopped), IoError);
  EXPECT_GE(stopped.last.reused_bytes, uint64_t{64} << 20);
  ASSERT_TRUE(fs::exists(dir / "out.parts/000001.section"));
  EXPECT_FALSE(fs::exists(dir / "out"));
  // a damaged piece is made again, and what is behind it
  std::string section = io::read_file(dir / "out.parts/000001.section");
  section[section.size() / 2] ^= 1;
  std::ofstream(dir / "out.parts/000001.section", std::ios::binary) << section;
  Ender last(UINT64_MAX, false);
  const BuildProgress done = build_token_file(sources, bytes, dir / "out", options, &last);
  EXPECT_GE(done.reused_bytes, uint64_t{64} << 20);
  EXPECT_LT(done.reused_bytes, uint64_t{66} << 20);
  EXPECT_TRUE(io::read_file(dir / "out") == whole);
  EXPECT_FALSE(fs::exists(dir / "out.parts"));
  EXPECT_TRUE(last.notes.empty());

  // The same sizes, other texts: what was finished is not believed.
  ASSERT_TRUE(killed_at(uint64_t{70} << 20));
  rows[100] = rows[100] == 'x' ? 'y' : 'x';
  io::write_file(dir / "a.jsonl", rows);
  Ender other(UINT64_MAX, false);
  EXPECT_EQ(build_token_file(sources, bytes, dir / "out", options, &other).reused_bytes, 0u);
  ASSERT_EQ(other.notes.size(), 1u);
  EXPECT_NE(other.notes[0].find("all is built anew"), std::string::npos);
  const std::string changed = io::read_file(dir / "out");
  EXPECT_FALSE(changed == whole);
  build_token_file(sources, bytes, dir / "whole", options);
  EXPECT_TRUE(changed == io::read_file(dir / "whole"));
}

TEST(TokenBuild, AnotherFilesFolderIsLeftAlone) {
  TempDir dir;
  io::write_file(dir / "a", "the fox");
  io::make_directories(dir / "out.parts");
  io::write_file(dir / "out.parts/mine", "stays");
  build_token_file(dir / "a", tokenizer(), dir / "out");
  EXPECT_EQ(io::read_file(dir / "out.parts/mine"), "stays");
}

TEST(TokenBuild, ErrorsNameFileLineAndByte) {
  TempDir dir;
  const auto error = [&](const std::string& text, const TokenFileOptions& options) {
    std::ofstream(dir / "a.jsonl", std::ios::binary) << text;
    try {
      build_token_file(dir / "a.jsonl", tokenizer(), dir / "out", options);
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(dir / "out"));
      EXPECT_FALSE(fs::exists(dir / "out.parts"));
      return std::string(e.what()).substr(dir.path().size() + 1);
    }
    return std::string();
  };
  const TokenFileOptions rows{.text = {}};
  const std::string good = "{\"text\": \"ok\"}\n";
  EXPECT_EQ(error(good + "{\"text\": \"x\"", rows), "/a.jsonl': line 2, byte 27: is not valid JSON from here on");
  EXPECT_EQ(error(good + "[1]", rows), "/a.jsonl': line 2: is no JSON object");
  EXPECT_EQ(error(good + "{\"txt\": 1}", rows), "/a.jsonl': line 2: the object has no member 'text'");
  EXPECT_EQ(error(good + "{\"text\": 1}", rows),
            "/a.jsonl': line 2: the member 'text' is a number, a string is wanted");
  EXPECT_EQ(error(good + "{\"text\": {\"text\": \"a\"}}", rows),
            "/a.jsonl': line 2: the member 'text' is an object, a string is wanted");
  EXPECT_EQ(error("{\"text\": \"a\", \"text\": \"b\"}", rows),
            "/a.jsonl': line 1: the object has the member 'text' 2 times");
  EXPECT_EQ(error("{\"text\": \"a\", \"n\": 1e999}", rows), "/a.jsonl': line 1: a number is out of range");
  EXPECT_EQ(error(good + "{\"text\": \"\xff\"}", rows),
            "/a.jsonl': line 2, byte 25: the text is not UTF-8 here, and what is not is to be refused");
  EXPECT_EQ(error("{\"text\": \"\xff\"}", {.text = {.utf8 = Utf8Policy::replace}}), "");
  EXPECT_EQ(tokenizer().decode(ids_of(TokenFile(dir / "out"), {0, TokenFile(dir / "out").size()})), "\xef\xbf\xbd");
  fs::remove(dir / "out");
  EXPECT_EQ(error("a\nb\xc3(\n\n", {.text = {.format = TextFormat::paragraphs}}),
            "/a.jsonl': line 2, byte 3: the text is not UTF-8 here, and what is not is to be refused");
  EXPECT_EQ(error("a\nlonger\n", {.text = {.format = TextFormat::lines, .max_document = 3}}),
            "/a.jsonl': line 2, byte 2: the line that begins here has more than 3 bytes");
  EXPECT_EQ(error("a\nb\n\nlo\nng\n", {.text = {.format = TextFormat::paragraphs, .max_document = 4}}),
            "/a.jsonl': line 4, byte 5: the paragraph that begins here has more than 4 bytes");
  EXPECT_EQ(error("\n  \n", {.text = {.format = TextFormat::lines}}), "/a.jsonl' and what else was read has no text");
  EXPECT_EQ(error(good, {.separator = "<|no|>", .text = {}}).find("special token '<|no|>'") == std::string::npos,
            false);
  // a nested field
  std::ofstream(dir / "n.jsonl") << "{\"meta\": {\"body\": \"deep\", \"x\": {\"body\": 1}}, \"body\": \"no\"}\n";
  build_token_file(dir / "n.jsonl", tokenizer(), dir / "out", {.text = {.field = "meta.body"}});
  EXPECT_EQ(tokenizer().decode(ids_of(TokenFile(dir / "out"), {0, TokenFile(dir / "out").size()})), "deep");
}

TEST(TokenBuild, AnotherTokenizerIsRefusedWithBothIdentities) {
  TempDir dir;
  io::write_file(dir / "a", "the fox");
  build_token_file(dir / "a", tokenizer(), dir / "out");
  const TokenFile file(dir / "out");
  EXPECT_EQ(file.tokenizer(), tokenizer_identity(tokenizer()));
  file.require_tokenizer(tokenizer());
  const text::BpeTokenizer other(tokenizer().merges(), {"<|fin|>"});
  try {
    file.require_tokenizer(other);
    FAIL();
  } catch (const ValueError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(tokenizer_identity(tokenizer())), std::string::npos) << text;
    EXPECT_NE(text.find(tokenizer_identity(other)), std::string::npos) << text;
  }
}

TEST(TokenBuild, FilesFoldersAndPatterns) {
  TempDir dir;
  io::make_directories(dir / "in/sub");
  io::write_file(dir / "in/b.txt", "B");
  io::write_file(dir / "in/sub/c.txt", "C");
  io::write_file(dir / "in/a.log", "A");
  io::write_file(dir / "in/empty.txt", "");
  const auto names = [&](std::vector<std::string> sources) {
    for (std::string& s : sources) s = dir / s;
    std::string all;
    for (const TextFile& f : find_text_files(sources)) all += f.path.substr(dir.path().size() + 1) + "=" + f.name + " ";
    return all;
  };
  EXPECT_EQ(names({"in"}), "in/a.log=a.log in/b.txt=b.txt in/sub/c.txt=sub/c.txt ");
  EXPECT_EQ(names({"in/*.txt"}), "in/b.txt=b.txt ");
  EXPECT_EQ(names({"in/sub", "in/b.txt"}), "in/sub/c.txt=c.txt in/b.txt=b.txt ");
  EXPECT_EQ(names({"in/[bs]*"}), "in/b.txt=b.txt in/sub/c.txt=c.txt ");
  EXPECT_THROW(names({"in/*.no"}), IoError);
  EXPECT_THROW(find_text_files({}), IoError);
  EXPECT_THROW(build_token_file(dir / "missing", tokenizer(), dir / "out"), IoError);
  EXPECT_FALSE(fs::exists(dir / "out.parts"));
}

}  // namespace
}  // namespace strata::data
