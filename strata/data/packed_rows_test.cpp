#include "strata/data/packed_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "strata/core/error.h"
#include "strata/data/loader.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"

namespace strata::data {
namespace {

// Text i has ids 1000 i + 1, ..; about every third token is not learned.
std::shared_ptr<StoredSequences> texts_of(std::initializer_list<int64_t> lengths, bool all_learned = true) {
  auto texts = std::make_shared<StoredSequences>();
  int32_t base = 0;
  for (const int64_t n : lengths) {
    MarkedTokens t;
    for (int32_t i = 0; i < n; ++i) {
      t.tokens.push_back(base + i + 1);
      t.learned.push_back(all_learned || (base + i) % 3 != 0);
    }
    texts->add(t);
    base += 1000;
  }
  return texts;
}

std::vector<std::vector<int64_t>> rows_of(const Tensor& t) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < t.size(0); ++i) rows.push_back(t[i].to_vector<int64_t>());
  return rows;
}

Batch all_rows(const PackedRows& rows) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < rows.size(); ++i) samples.push_back({i, 0});
  return rows.get_batch(samples);
}

TEST(PackedRows, LaysTextsOneBehindAnother) {
  using Rows = std::vector<std::vector<int64_t>>;
  const PackedRows cut(texts_of({4, 3, 6}), {.context = 5, .packing = Packing::cut, .shuffle = false});
  EXPECT_EQ(cut.size(), 2);
  EXPECT_EQ(cut.texts_per_row(), 2);
  EXPECT_EQ(cut.learned(), 10);
  EXPECT_EQ(cut.fill(), 1.0);
  const Batch b = all_rows(cut);
  EXPECT_EQ(rows_of(b[0]), (Rows{{1, 2, 3, 1001, 1002}, {2001, 2002, 2003, 2004, 2005}}));
  EXPECT_EQ(rows_of(b[1]), (Rows{{2, 3, 4, 1002, 1003}, {2002, 2003, 2004, 2005, 2006}}));
  EXPECT_EQ(rows_of(b[2]), (Rows{{0, 1, 2, 0, 1}, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(rows_of(b[3]), (Rows{{0, 0, 0, 1, 1}, {0, 0, 0, 0, 0}}));
  EXPECT_EQ(rows_of(b[4]), (Rows{{3, 5}, {5, 5}}));
  EXPECT_EQ(packed_ends(b[4], 5).to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 5, 10, 10}));
  EXPECT_EQ(packed_ends(b[4].to(DType::i32), 5).to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 5, 10, 10}));

  // a text goes on in the next row, where its positions begin again
  const PackedRows across(texts_of({4, 6}), {.context = 4, .packing = Packing::cut, .shuffle = false});
  EXPECT_EQ(rows_of(all_rows(across)[0]), (Rows{{1, 2, 3, 1001}, {1002, 1003, 1004, 1005}}));
  EXPECT_EQ(rows_of(all_rows(across)[2])[1], (std::vector<int64_t>{0, 1, 2, 3}));

  const PackedRows next(texts_of({4, 6, 2}),
                        {.context = 6, .packing = Packing::next_fit, .shuffle = false, .dtype = DType::i32});
  const Batch n = all_rows(next);
  EXPECT_EQ(n[0].dtype(), DType::i32);
  EXPECT_EQ(rows_of(n[0].to(DType::i64)), (Rows{{1, 2, 3, 0, 0, 0}, {1001, 1002, 1003, 1004, 1005, 2001}}));
  EXPECT_EQ(rows_of(n[1].to(DType::i64))[0], (std::vector<int64_t>{2, 3, 4, -100, -100, -100}));
  EXPECT_EQ(rows_of(n[3].to(DType::i64))[0], (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(rows_of(n[4].to(DType::i64)), (Rows{{3, 6}, {5, 6}}));
}

TEST(PackedRows, WhatIsNotLearnedHasNoTarget) {
  const PackedRows rows(texts_of({5}, false), {.context = 6});
  EXPECT_EQ(all_rows(rows)[1].to_vector<int64_t>(), (std::vector<int64_t>{2, 3, -100, 5, -100, -100}));
  EXPECT_EQ(rows.learned(), 3);
}

TEST(PackedRows, LongTexts) {
  const auto texts = texts_of({8, 3});
  const PackedRows truncate(texts, {.context = 4, .long_text = LongText::truncate, .shuffle = false});
  EXPECT_EQ(truncate.truncated(), 1);
  EXPECT_EQ(truncate.learned(), 4 + 2);
  const PackedRows split(texts, {.context = 4, .long_text = LongText::split, .shuffle = false});
  EXPECT_EQ(split.truncated() + split.dropped(), 0);
  EXPECT_EQ(split.learned(), 7 + 2);
  const PackedRows drop(texts, {.context = 4, .long_text = LongText::drop, .shuffle = false});
  EXPECT_EQ(drop.dropped(), 1);
  EXPECT_EQ(drop.learned(), 2);
  EXPECT_THROW(PackedRows(texts_of({8}), {.context = 4, .long_text = LongText::drop}), ValueError);
  EXPECT_THROW(PackedRows(texts_of({1, 0}), {.context = 4}), ValueError);
  EXPECT_THROW(PackedRows(texts, {.context = 0}), ValueError);
  EXPECT_THROW(PackedRows(texts, {.context = 4, .window = 0}), ValueError);
  EXPECT_THROW(PackedRows(texts, {.context = 4, .dtype = DType::f32}), ValueError);
  EXPECT_THROW(PackedRows(nullptr), ValueError);
  for (const std::string_view name : packings()) EXPECT_EQ(to_string(parse_packing(name)), name);
  for (const std::string_view name : long_texts()) EXPECT_EQ(to_string(parse_long_text(name)), name);
  EXPECT_THROW(parse_packing("best"), ValueError);
}

// Whatever the packing: every target once, with the input before it and the position within its text.
TEST(PackedRows, EveryTargetOnce) {
  std::mt19937 random(3);
  auto texts = std::make_shared<StoredSequences>();
  std::multiset<int64_t> wanted;
  int64_t inputs = 0;
  for (int32_t i = 0; i < 700; ++i) {
    MarkedTokens t;
    const auto n = static_cast<int32_t>(random() % 60);
    for (int32_t k = 0; k < n; ++k) {
      t.tokens.push_back(100 * i + k);
      t.learned.push_back(random() % 2);
    }
    int64_t learned = 0;
    for (int32_t k = 1; k < n; ++k)
      if (t.learned[static_cast<size_t>(k)]) wanted.insert(100 * i + k), ++learned;
    if (learned > 0) inputs += n - 1;
    texts->add(t);
  }
  for (const std::string_view packing : packings())
    for (const bool shuffle : {false, true}) {
      const PackedRows rows(
          texts, {.context = 64, .packing = parse_packing(packing), .window = 100, .shuffle = shuffle, .seed = 9});
      std::multiset<int64_t> got;
      const Batch b = all_rows(rows);
      const auto tokens = b[0].to_vector<int64_t>(), targets = b[1].to_vector<int64_t>(),
                 positions = b[2].to_vector<int64_t>(), documents = b[3].to_vector<int64_t>();
      for (size_t i = 0; i < targets.size(); ++i) {
        if (i % 64 > 0 && documents[i] == documents[i - 1]) {
          ASSERT_EQ(positions[i], positions[i - 1] + 1);
        } else {
          ASSERT_EQ(positions[i], 0);
        }
        if (targets[i] == PackedRows::kIgnored) continue;
        got.insert(targets[i]);
        ASSERT_EQ(tokens[i] + 1, targets[i]);
      }
      EXPECT_EQ(got, wanted) << packing;
      EXPECT_EQ(rows.learned(), static_cast<int64_t>(wanted.size()));
      EXPECT_NEAR(rows.fill(), static_cast<double>(inputs) / static_cast<double>(64 * rows.size()), 1e-9);
      if (packing == "first_fit")
        EXPECT_GT(rows.fill(), 0.93);  // of windows of 100 texts each ends with a row half full
      if (packing == "cut")
        EXPECT_GE(rows.fill(), static_cast<double>(rows.size() - 1) / static_cast<double>(rows.size()));
      // ends say the same as documents
      const auto ends = rows_of(b[4]);
      for (size_t r = 0; r < ends.size(); ++r) {
        int64_t before = 0;
        for (size_t d = 0; d < ends[r].size(); ++d) {
          for (int64_t i = before; i < ends[r][d]; ++i)
            ASSERT_EQ(documents[64 * r + static_cast<size_t>(i)], static_cast<int64_t>(d));
          before = ends[r][d];
        }
        ASSERT_EQ(before, 64);
      }
      const PackedRows again(
          texts, {.context = 64, .packing = parse_packing(packing), .window = 100, .shuffle = shuffle, .seed = 9});
      EXPECT_TRUE(equal(all_rows(again)[0], b[0]));
      const PackedRows other(
          texts, {.context = 64, .packing = parse_packing(packing), .window = 100, .shuffle = shuffle, .seed = 10});
      EXPECT_EQ(other.size() == rows.size() && equal(all_rows(other)[0], b[0]), !shuffle);
    }
}

TEST(PackedRows, AttentionStaysWithinTexts) {
  const PackedRows rows(texts_of({5, 4, 9, 3, 2, 7}), {.context = 12, .shuffle = false});
  const Batch b = all_rows(rows);
  const int64_t n = rows.size(), heads = 2, d = 8;
  const Tensor q = randn({n, 12, heads, d}), k = randn({n, 12, heads, d}), v = randn({n, 12, heads, d});
  const Tensor ends = packed_ends(b[4], 12);
  const auto flat = [&](const Tensor& t) { return t.reshape({n * 12, heads, d}); };
  const Tensor varlen = varlen_attention(flat(q), flat(k), flat(v), ends, ends, {.is_causal = true});
  const auto turned = [](const Tensor& t) { return t.transpose(1, 2); };
  // Causal as a mask: one of the two may be given.
  const Tensor same = packed_mask(b[3]);
  EXPECT_EQ(same.shape(), (Shape{n, 1, 12, 12}));
  const Tensor masked =
      scaled_dot_product_attention(turned(q), turned(k), turned(v), same, {.is_causal = true}).transpose(1, 2);
  EXPECT_TRUE(allclose(varlen.reshape({n, 12, heads, d}), masked, 1e-5, 1e-5));
  // By hand: the last text of the first row sees itself alone.
  const auto first = rows_of(b[4])[0];
  ASSERT_GE(first.size(), 2u);
  const Tensor alone = scaled_dot_product_attention(
      turned(q.slice(0, 0, 1).slice(1, first[0], first[1])), turned(k.slice(0, 0, 1).slice(1, first[0], first[1])),
      turned(v.slice(0, 0, 1).slice(1, first[0], first[1])), {}, {.is_causal = true});
  EXPECT_TRUE(allclose(alone.transpose(1, 2), masked.slice(0, 0, 1).slice(1, first[0], first[1]), 1e-5, 1e-5));
}

TEST(PackedRows, ALoaderResumesThem) {
  const auto rows = std::make_shared<PackedRows>(texts_of({5, 4, 9, 3, 2, 7, 8, 8, 9}),
                                                 PackedRowsOptions{.context = 9, .packing = Packing::next_fit});
  DataLoader loader(rows, {.batch_size = 2, .shuffle = true, .seed = 4, .repeat = true});
  loader.next();
  loader.next();
  const SamplerState place = parse_sampler_state(to_string(loader.state()));
  const Batch expected = *loader.next();
  DataLoader other(rows, {.batch_size = 2, .shuffle = true, .seed = 4, .repeat = true});
  other.set_state(place);
  const Batch got = *other.next();
  ASSERT_EQ(got.size(), 5u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(equal(got[i], expected[i])) << i;
}

TEST(PackedRows, DocumentsOfATokenFile) {
  const io::TempDir dir;
  io::write_file(dir / "a", "one\ntwo words\n\nlast line");
  build_token_file(dir / "a", text::ByteTokenizer(), dir / "out", {.text = {.format = TextFormat::lines}});
  const auto file = std::make_shared<const TokenFile>(dir / "out");
  const auto texts = std::make_shared<FileSequences>(file);
  EXPECT_EQ(texts->size(), 3);
  EXPECT_EQ(texts->length(1), 9);
  const PackedRows rows(texts, {.context = 10, .packing = Packing::next_fit, .shuffle = false});
  EXPECT_EQ(rows.size(), 2);
  EXPECT_EQ(rows_of(all_rows(rows)[0])[0], (std::vector<int64_t>{'o', 'n', 't', 'w', 'o', ' ', 'w', 'o', 'r', 'd'}));
  EXPECT_THROW(FileSequences(file, 1, 4), ValueError);
  EXPECT_THROW(FileSequences(file, 1, 1), ValueError);
}

}  // namespace
}  // namespace strata::data
