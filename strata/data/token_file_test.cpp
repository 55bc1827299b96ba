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
  EXPECT_EQ(fs::file_size(dir / "out/a.bin"), 88u + 24u + 8u + 16u + 8u);  // header, tokens, start, identity, table
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

// As version 1 wrote it: no blocks, the header's checksum where their size is now.
std::string as_version_1(const std::string& file, size_t token_bytes) {
  std::string header = file.substr(0, 40);
  header[8] = 1;
  const uint64_t checksum = io::xxh64(header);
  return header + std::string(reinterpret_cast<const char*>(&checksum), 8) + file.substr(88, token_bytes);
}

// As version 2 wrote a file of one block: neither documents nor an identity.
std::string as_version_2(const std::string& file, size_t token_bytes) {
  const auto raw = [](uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  const std::string tokens = file.substr(88, (token_bytes + 7) / 8 * 8), table = raw(io::xxh64(tokens));
  std::string header = file.substr(0, 48);
  header[8] = 2;
  header += raw(io::xxh64(table));
  return header + raw(io::xxh64(header)) + tokens + table;
}

void write_raw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TokenFile, RefusesDamage) {
  TempDir dir;
  io::write_file(dir / "a", "0123456789");
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  const std::string good = io::read_file(dir / "a.bin");
  const auto with = [&](size_t at, char c) {
    std::string bad = good;
    bad[at] = c;
    write_raw(dir / "x", bad);
    return error_of(dir / "x");
  };
  EXPECT_NE(with(0, 'X').find("not a Strata token file"), std::string::npos);
  EXPECT_NE(with(8, 4).find("version"), std::string::npos);
  for (const size_t at : {12, 16, 24, 32, 40, 48, 56, 64, 72, 80})
    EXPECT_NE(with(at, 77).find("checksum"), std::string::npos) << at;
  write_raw(dir / "x", good.substr(0, good.size() - 1));
  EXPECT_NE(error_of(dir / "x").find("with 10 tokens of 2 bytes it has 144 bytes, there are 143"), std::string::npos)
      << error_of(dir / "x");
  write_raw(dir / "x", good.substr(0, 40));
  EXPECT_NE(error_of(dir / "x").find("has 40 bytes"), std::string::npos);
}

TEST(TokenFile, EveryFlippedBitIsFoundAndMended) {
  TempDir dir;
  io::write_file(dir / "a", "0123456789 ab");
  const ByteTokenizer bytes;
  const auto open = [&](std::vector<std::string>& notes) {
    return open_or_build_token_file(dir / "a", bytes, dir / "a.bin", {}, &notes);
  };
  std::vector<std::string> notes;
  open(notes);
  const std::string good = io::read_file(dir / "a.bin");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    write_raw(dir / "a.bin", bad);
    EXPECT_THROW(TokenFile(dir / "a.bin").verify(), IoError) << bit;
    if (bit % 61 == 0) {
      notes.clear();
      EXPECT_EQ(read_all(open(notes), bytes), "0123456789 ab");
      ASSERT_EQ(notes.size(), 1u) << bit;
      EXPECT_NE(notes[0].find("it was built again from '" + dir / "a" + "'"), std::string::npos) << notes[0];
      EXPECT_EQ(io::read_file(dir / "a.bin"), good);
    }
  }
  write_raw(dir / "a.bin", good);
  notes.clear();
  open(notes);
  EXPECT_TRUE(notes.empty());
  // with the source gone there is nothing to build it from
  std::string bad = good;
  bad[94] ^= 1;
  write_raw(dir / "a.bin", bad);
  fs::remove(dir / "a");
  try {
    open(notes);
    FAIL() << "took damaged tokens";
  } catch (const IoError& e) {
    const std::string text = e.what();
    for (const std::string& part : {dir / "a.bin", std::string("byte 88"), std::string("is gone")})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(TokenFile, BlocksAreCheckedWhenTheyAreRead) {
  TempDir dir;
  std::string text(100'000, 0);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  io::write_file(dir / "a", text);
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  std::string bad = io::read_file(dir / "a.bin");
  EXPECT_EQ(bad.size(), 88u + 200'000 + 8 + 16 + 4 * 8);
  bad[88 + 70'000] ^= 16;  // in the second block of 32768 tokens
  write_raw(dir / "a.bin", bad);
  const TokenFile file(dir / "a.bin");
  std::vector<int32_t> ids(100);
  for (const int64_t good : {0, 32'668, 65'536, 99'900}) {
    file.read(good, std::span<int32_t>(ids));
    EXPECT_EQ(ids[7], 'a' + (good + 7) % 23);
  }
  for (const int64_t damaged : {32'669, 35'000, 65'535}) {
    try {
      file.read(damaged, std::span<int32_t>(ids));
      FAIL() << damaged;
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find(dir / "a.bin" + "': byte 65624: the 65536 bytes"), std::string::npos)
          << e.what();
    }
  }
  EXPECT_THROW(file.verify(), IoError);
}

TEST(TokenFile, OneThatIsCutMeanwhileIsAnError) {
  TempDir dir;
  io::write_file(dir / "a", std::string(200'000, 'x'));
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  for (const bool verified : {false, true}) {
    build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
    const TokenFile file(dir / "a.bin");
    if (verified) file.verify();
    fs::resize_file(dir / "a.bin", 100'000);
    std::vector<int32_t> ids(10);
    file.read(100, std::span<int32_t>(ids));
    EXPECT_THROW(file.read(190'000, std::span<int32_t>(ids)), IoError);
  }
}

TEST(TokenFile, Version1IsReadAndBuiltAgain) {
  TempDir dir;
  io::write_file(dir / "a", "0123456789");
  const ByteTokenizer bytes;
  build_token_file(dir / "a", bytes, dir / "a.bin");
  const std::string now = io::read_file(dir / "a.bin"), before = as_version_1(now, 20);
  write_raw(dir / "a.bin", before);
  {
    const TokenFile file(dir / "a.bin");
    EXPECT_FALSE(file.has_checksums());
    EXPECT_EQ(read_all(file, bytes), "0123456789");
    file.verify();
  }
  // a token beyond the vocabulary is seen when it is read
  std::string bad = before;
  bad[48 + 2 * 3 + 1] = 1;
  write_raw(dir / "x", bad);
  const TokenFile damaged(dir / "x");
  std::vector<int32_t> ids(3);
  damaged.read(0, std::span<int32_t>(ids));
  EXPECT_THROW(damaged.read(1, std::span<int32_t>(ids)), IoError);
  EXPECT_THROW(damaged.verify(), IoError);
  for (size_t bit = 0; bit < 8 * 48; ++bit) {
    bad = before;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    write_raw(dir / "x", bad);
    EXPECT_NE(error_of(dir / "x"), "") << bit;
  }
  write_raw(dir / "x", before.substr(0, before.size() - 1));
  EXPECT_NE(error_of(dir / "x").find("there are 67"), std::string::npos) << error_of(dir / "x");
  std::vector<std::string> notes;
  EXPECT_EQ(read_all(open_or_build_token_file(dir / "a", bytes, dir / "a.bin", {}, &notes), bytes), "0123456789");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("without checksums"), std::string::npos) << notes[0];
  EXPECT_EQ(io::read_file(dir / "a.bin"), now);
}

TEST(TokenFile, Version2IsReadAndKept) {
  TempDir dir;
  io::write_file(dir / "a", "0123456789");
  const ByteTokenizer bytes;
  build_token_file(dir / "a", bytes, dir / "a.bin");
  const std::string before = as_version_2(io::read_file(dir / "a.bin"), 20);
  write_raw(dir / "a.bin", before);
  const TokenFile file(dir / "a.bin");
  EXPECT_TRUE(file.has_checksums());
  EXPECT_EQ(read_all(file, bytes), "0123456789");
  EXPECT_EQ(file.documents(), 0);
  EXPECT_EQ(file.tokenizer(), "");
  EXPECT_FALSE(file.separator().has_value());
  EXPECT_THROW(file.document(0), IndexError);
  file.verify();
  file.require_tokenizer(bytes);  // as many ids: all that it can tell
  EXPECT_THROW(file.require_tokenizer(text::IdTokenizer(255)), ValueError);
  for (size_t bit = 0; bit < 8 * before.size(); ++bit) {
    std::string bad = before;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    write_raw(dir / "x", bad);
    EXPECT_THROW(TokenFile(dir / "x").verify(), IoError) << bit;
  }
  std::vector<std::string> notes;
  open_or_build_token_file(dir / "a", bytes, dir / "a.bin", {}, &notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(io::read_file(dir / "a.bin"), before);
}

TEST(TokenFile, LargerThanAPiece) {
  TempDir dir;
  std::string text;
  std::mt19937 random(5);
  while (text.size() < (size_t{5} << 20)) {
    text.append(1 + random() % 200, static_cast<char>('a' + random() % 26));
    text += "\n";
  }
  text += std::string(size_t{9} << 20, 'z');  // with nowhere to cut
  io::write_file(dir / "a", text);
  build_token_file(dir / "a", ByteTokenizer(), dir / "a.bin");
  const TokenFile file(dir / "a.bin");
  EXPECT_EQ(file.size(), static_cast<int64_t>(text.size()));
  file.verify();
  EXPECT_TRUE(read_all(file, ByteTokenizer()) == text);
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
