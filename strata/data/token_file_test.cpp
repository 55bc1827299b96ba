#include "strata/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "strata/core/error.h"
#include "strata/data/dataset.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/text/bpe.h"

namespace strata::data {
namespace {
namespace fs = std::filesystem;
using io::TempDir;
using text::ByteTokenizer;

std::string read_all(const TokenFile& file, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids(static_cast<size_t>(file.size()));
  file.read(0, std::span<int32_t>(ids));
  return tokenizer.decode(ids);
}

std::string error_of(const std::string& path) {
  try {
    TokenFile file(path);
  } catch (const IoError& e) {
    return e.what();
  }
  return "";
}

TEST(TokenFile, FromAFile) {
  TempDir dir;
  io::write_file(dir / "a.txt", "hello tokens");
  const ByteTokenizer bytes;
  build_token_file(dir / "a.txt", bytes, dir / "out/a.bin");
  const TokenFile file(dir / "out/a.bin");
  EXPECT_EQ(file.size(), 12);
  EXPECT_EQ(file.vocab_size(), 256);
  EXPECT_EQ(file.token_bytes(), 2);
  EXPECT_EQ(fs::file_size(dir / "out/a.bin"), 48u + 24u);
  EXPECT_EQ(read_all(file, bytes), "hello tokens");
  std::vector<int64_t> some(3);
  file.read(9, std::span<int64_t>(some));
  EXPECT_EQ(some, (std::vector<int64_t>{'e', 'n', 's'}));
  EXPECT_THROW(file.read(10, std::span<int64_t>(some)), IndexError);
  EXPECT_THROW(file.read(-1, std::span<int64_t>(some)), IndexError);
  EXPECT_THROW(file.read(INT64_MAX, std::span<int64_t>(some)), IndexError);
}

TEST(TokenFile, FromADirectory) {
  TempDir dir;
  fs::create_directories(dir / "t/sub");
  fs::create_directories(dir / "t/.git");
  io::write_file(dir / "t/b.txt", "BB");
  io::write_file(dir / "t/a.md", "A");
  io::write_file(dir / "t/sub/c", "C");
  io::write_file(dir / "t/empty", "");
  io::write_file(dir / "t/.hidden", "no");
  io::write_file(dir / "t/.git/x", "no");
  io::write_file(dir / "t/binary", std::string_view("no\0", 3));
  const text::BpeTokenizer plain({}, {"<|end|>"});
  build_token_file(dir / "t", plain, dir / "t.bin", {.separator = "<|end|>"});
  EXPECT_EQ(read_all(TokenFile(dir / "t.bin"), plain), "A<|end|>BB<|end|>C<|end|>");
  EXPECT_THROW(build_token_file(dir / "t", plain, dir / "t.bin", {.separator = "<|none|>"}), ValueError);
  fs::create_directories(dir / "nothing");
  EXPECT_THROW(build_token_file(dir / "nothing", plain, dir / "n.bin"), IoError);
  EXPECT_THROW(build_token_file(dir / "missing", plain, dir / "n.bin"), IoError);
  EXPECT_THROW(build_token_file(dir / "t/empty", plain, dir / "n.bin"), IoError);
  EXPECT_FALSE(fs::exists(dir / "n.bin"));
}

TEST(TokenFile, WideTokens) {
  TempDir dir;
  io::write_file(dir / "a", "abc");
  std::vector<text::Merge> merges;
  for (int32_t i = 0; i < 256; ++i)
    for (int32_t j = 0; j < 256; ++j) merges.emplace_back(i, j);
  const text::BpeTokenizer large(merges);
  build_token_file(dir / "a", large, dir / "a.bin");
  const TokenFile file(dir / "a.bin");
  EXPECT_EQ(file.token_bytes(), 4);
  EXPECT_EQ(file.size(), 2);
  EXPECT_EQ(read_all(file, large), "abc");
}

TEST(TokenFile, IsReusedOnlyForTheSameSource) {
  TempDir dir;
  const ByteTokenizer bytes;
  const auto open = [&](const text::Tokenizer& t) { return open_or_build_token_file(dir / "a", t, dir / "a.bin"); };
  io::write_file(dir / "a", "first text");
  EXPECT_EQ(read_all(open(bytes), bytes), "first text");
  const auto inode = [&] {
    struct stat st {};
    stat((dir / "a.bin").c_str(), &st);
    return st.st_ino;
  };
  const auto before = inode();
  open(bytes);
  EXPECT_EQ(inode(), before);  // not written again
  io::write_file(dir / "a", "other text");
  EXPECT_EQ(read_all(open(bytes), bytes), "other text");
  const text::BpeTokenizer pairs({{'o', 't'}});
  EXPECT_EQ(open(pairs).size(), 9);
  fs::resize_file(dir / "a.bin", 50);  // a damaged one is built again
  EXPECT_EQ(open(pairs).size(), 9);
}

TEST(TokenFile, RefusesDamage) {
  TempDir dir;
  io::write_file(dir / "a", "0123456789");
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  const std::string good = io::read_file(dir / "a.bin");
  const auto with = [&](size_t at, char c) {
    std::string bad = good;
    bad[at] = c;
    std::ofstream(dir / "x", std::ios::binary) << bad;
    return error_of(dir / "x");
  };
  EXPECT_NE(with(0, 'X').find("not a Strata token file"), std::string::npos);
  EXPECT_NE(with(8, 2).find("version"), std::string::npos);
  for (const size_t at : {12, 16, 24, 32, 40}) EXPECT_NE(with(at, 77).find("checksum"), std::string::npos) << at;
  std::ofstream(dir / "x", std::ios::binary) << good.substr(0, good.size() - 1);
  EXPECT_NE(error_of(dir / "x").find("10 tokens of 2 bytes, the file has 19"), std::string::npos)
      << error_of(dir / "x");
  std::ofstream(dir / "x", std::ios::binary) << good.substr(0, 40);
  EXPECT_NE(error_of(dir / "x").find("has 40 bytes"), std::string::npos);
  // a token beyond the vocabulary is seen when it is read
  EXPECT_EQ(with(48 + 2 * 3 + 1, 1), "");
  const TokenFile file(dir / "x");
  std::vector<int32_t> ids(3);
  file.read(0, std::span<int32_t>(ids));
  EXPECT_THROW(file.read(1, std::span<int32_t>(ids)), IoError);
}

TEST(EncodablePrefix, PiecesEncodeAsTheWhole) {
  std::mt19937 random(4);
  const std::string_view alphabet = "aab b'st\n\n .1";
  std::string training(20'000, 0);
  for (char& c : training) c = alphabet[random() % alphabet.size()];
  const text::BpeTokenizer t = text::train_bpe(training, {.vocab_size = 400});
  for (int i = 0; i < 100; ++i) {
    std::string text(500 + random() % 3000, 0);
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    std::vector<int32_t> ids;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t n = encodable_prefix(rest, 200);
      ASSERT_GT(n, 0u);
      ASSERT_LE(n, rest.size());
      const std::vector<int32_t> more = t.encode(rest.substr(0, n));
      ids.insert(ids.end(), more.begin(), more.end());
      rest.remove_prefix(n);
    }
    EXPECT_EQ(ids, t.encode(text));
  }
  EXPECT_EQ(encodable_prefix(std::string(100, 'x'), 10), 10u);  // nowhere to cut: bounded all the same
}

TEST(TokenDataset, WindowsAndTargets) {
  TempDir dir;
  std::string text(101, 0);
  for (int i = 0; i < 101; ++i) text[static_cast<size_t>(i)] = static_cast<char>(i);
  io::write_file(dir / "a", text);
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  const auto file = std::make_shared<const TokenFile>(dir / "a.bin");
  const TokenDataset fixed(file, 0, 101, {.context = 10, .shift_each_epoch = false});
  EXPECT_EQ(fixed.size(), 10);
  const std::vector<Sample> samples{{9, 0}, {2, 5}};
  const Batch batch = fixed.get_batch(samples);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].shape(), (Shape{2, 10}));
  EXPECT_EQ(batch[0].dtype(), DType::i64);
  for (int64_t t = 0; t < 10; ++t) {
    EXPECT_EQ(batch[0].data<int64_t>()[t], 90 + t);
    EXPECT_EQ(batch[1].data<int64_t>()[t], 91 + t);
    EXPECT_EQ(batch[0].data<int64_t>()[10 + t], 20 + t);
  }
  const TokenDataset narrow(file, 50, 101, {.context = 50, .dtype = DType::i32});
  EXPECT_EQ(narrow.size(), 1);
  EXPECT_EQ(narrow.get_batch(std::vector<Sample>{{0, 0}})[1].data<int32_t>()[49], 100);
  EXPECT_THROW(fixed.get_batch(std::vector<Sample>{{10, 0}}), IndexError);
  EXPECT_THROW(TokenDataset(file, 0, 101, {.context = 101}), ValueError);
  EXPECT_THROW(TokenDataset(file, 0, 102), ValueError);
  EXPECT_THROW(TokenDataset(file, 0, 101, {.context = 0}), ValueError);
  EXPECT_THROW(TokenDataset(file, 0, 101, {.context = 5, .dtype = DType::f32}), ValueError);
}

TEST(TokenDataset, ShiftsStayInRangeAndDiffer) {
  TempDir dir;
  io::write_file(dir / "a", std::string(1000, 'x'));
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  const auto file = std::make_shared<const TokenFile>(dir / "a.bin");
  for (const int64_t context : {1, 2, 7, 64, 400, 499, 500, 999}) {
    const TokenDataset set(file, 100, 1000 - 100 * (context < 500), {.context = std::min<int64_t>(context, 899)});
    std::set<int64_t> shifts;
    const int64_t end = 1000 - 100 * (context < 500);
    for (int64_t epoch = 0; epoch < 200; ++epoch) {
      const int64_t first = set.begin_of({0, epoch}), last = set.begin_of({set.size() - 1, epoch});
      EXPECT_GE(first, 100);
      EXPECT_LE(last + std::min<int64_t>(context, 899) + 1, end);
      shifts.insert(first);
    }
    if (context == 64) {
      EXPECT_GT(shifts.size(), 50u);
    }
  }
}

TEST(SplitTokens, LeavesEnoughOnBothSides) {
  EXPECT_EQ(split_tokens(1000, 0.1, 10), 900);
  EXPECT_EQ(split_tokens(1000, 0.001, 10), 989);
  EXPECT_EQ(split_tokens(1000, 0.999, 10), 11);
  EXPECT_EQ(split_tokens(22, 0.5, 10), 11);
  EXPECT_THROW(split_tokens(21, 0.5, 10), ValueError);
  EXPECT_THROW(split_tokens(1000, 0, 10), ValueError);
  EXPECT_THROW(split_tokens(1000, 1, 10), ValueError);
}

}  // namespace
}  // namespace strata::data
