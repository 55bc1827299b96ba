#include "strata/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/text/bpe.h"
#include "strata/text/presplit.h"

namespace strata::text {
namespace {
using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  while (!text.empty()) {
    const size_t n = piece_length(text);
    if (n == 0 || n > text.size()) throw std::logic_error("piece_length is out of range");
    pieces.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return pieces;
}

std::string random_bytes(std::mt19937& random, size_t n, std::string_view alphabet = {}) {
  std::string s(n, 0);
  for (char& c : s) c = alphabet.empty() ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
  return s;
}

TEST(PieceLength, CutsAsGpt2) {
  EXPECT_EQ(pieces_of("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(pieces_of("I'm, they'll; can't've"), (Pieces{"I", "'m", ",", " they", "'ll", ";", " can", "'t", "'ve"}));
  EXPECT_EQ(pieces_of("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(pieces_of("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(pieces_of("a\n b"), (Pieces{"a", "\n", " b"}));
  EXPECT_EQ(pieces_of("x = 42;"), (Pieces{"x", " =", " 42", ";"}));
  EXPECT_EQ(pieces_of("abc123!?"), (Pieces{"abc", "123", "!?"}));
  EXPECT_EQ(pieces_of("end   "), (Pieces{"end", "   "}));
  EXPECT_EQ(pieces_of(" "), (Pieces{" "}));
  EXPECT_EQ(pieces_of("'sx"), (Pieces{"'s", "x"}));
  EXPECT_EQ(pieces_of(" 's"), (Pieces{" '", "s"}));
  EXPECT_EQ(pieces_of("caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd"), (Pieces{"caf\xc3\xa9", " \xe4\xbd\xa0\xe5\xa5\xbd"}));
}

TEST(PieceLength, IsBoundedAndKeepsUtf8Whole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xe4\xbd\xa0";
  for (const std::string& piece : pieces_of(text)) {
    EXPECT_LE(piece.size(), kMaxPiece);
    EXPECT_EQ(piece.size() % 3, 0u);
  }
  EXPECT_EQ(pieces_of(std::string(1000, 'x')).size(), 4u);
  EXPECT_EQ(pieces_of(std::string(1000, '\x80')).size(), 4u);  // not UTF-8: cut where the limit is
}

TEST(PieceLength, CoversAnyBytes) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, random() % 800, i % 2 ? "a '\n1.s\xc3\xa9" : "");
    std::string joined;
    for (const std::string& piece : pieces_of(text)) joined += piece;
    EXPECT_EQ(joined, text);
  }
}

TEST(IdTokenizer, NumbersBetweenBlanks) {
  const IdTokenizer t(50257);
  EXPECT_EQ(t.vocab_size(), 50257);
  EXPECT_EQ(t.encode(" 0 12\n50256\t7"), (std::vector<int32_t>{0, 12, 50256, 7}));
  EXPECT_TRUE(t.encode(" \n").empty());
  EXPECT_EQ(t.decode(std::vector<int32_t>{3, 0, 50256}), "3 0 50256 ");
  EXPECT_EQ(t.encode(t.decode(std::vector<int32_t>{3, 0, 50256})), (std::vector<int32_t>{3, 0, 50256}));
  for (const char* text : {"1 two", "12a", "1,2", "+3", "1.5"}) EXPECT_THROW(t.encode(text), ValueError) << text;
  for (const char* text : {"50257", "-1", "99999999999999999999"}) EXPECT_THROW(t.encode(text), IndexError) << text;
  EXPECT_THROW(t.decode(std::vector<int32_t>{50257}), IndexError);
  EXPECT_THROW(IdTokenizer(0), ValueError);
  EXPECT_EQ(parse_tokenizer(t.to_json())->vocab_size(), 50257);
  for (const char* vocab : {"0", "-1", "1.5", "\"9\"", "4294967296"})
    EXPECT_THROW(
        parse_tokenizer(cat("{\"format\":\"strata-tokenizer\",\"version\":1,\"type\":\"ids\",\"vocab\":", vocab, "}")),
        IoError)
        << vocab;
}

TEST(ByteTokenizer, RoundTrip) {
  const ByteTokenizer t;
  std::mt19937 random(6);
  const std::string text = random_bytes(random, 5000);
  const std::vector<int32_t> ids = t.encode(text);
  ASSERT_EQ(ids.size(), 5000u);
  EXPECT_EQ(ids[17], static_cast<unsigned char>(text[17]));
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_THROW(t.decode(std::vector<int32_t>{256}), IndexError);
  EXPECT_THROW(t.decode(std::vector<int32_t>{-1}), IndexError);
  EXPECT_EQ(parse_tokenizer(t.to_json())->vocab_size(), 256);
}

// The textbook algorithm: count everything anew for every merge.
std::vector<Merge> train_slowly(std::string_view text, int64_t merges, int64_t min_frequency) {
  std::vector<std::vector<int32_t>> words;
  for (const std::string& piece : pieces_of(text)) {
    words.emplace_back();
    for (const char c : piece) words.back().push_back(static_cast<unsigned char>(c));
  }
  std::vector<Merge> result;
  while (static_cast<int64_t>(result.size()) < merges) {
    std::map<Merge, int64_t> counts;
    for (const auto& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) ++counts[{w[i], w[i + 1]}];
    Merge best;
    int64_t most = 0;
    for (const auto& [pair, n] : counts)
      if (n > most) {
        best = pair;
        most = n;
      }
    if (most < min_frequency || most == 0) break;
    const auto id = static_cast<int32_t>(256 + result.size());
    result.push_back(best);
    for (auto& w : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < w.size(); ++i) {
        if (i + 1 < w.size() && Merge{w[i], w[i + 1]} == best) {
          merged.push_back(id);
          ++i;
        } else {
          merged.push_back(w[i]);
        }
      }
      w = merged;
    }
  }
  return result;
}

// The textbook encoder: the merges one after the other over the whole piece.
std::vector<int32_t> encode_slowly(const std::vector<Merge>& merges, std::string_view text) {
  std::vector<int32_t> all;
  for (const std::string& piece : pieces_of(text)) {
    std::vector<int32_t> w;
    for (const char c : piece) w.push_back(static_cast<unsigned char>(c));
    for (size_t m = 0; m < merges.size(); ++m) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < w.size(); ++i) {
        if (i + 1 < w.size() && Merge{w[i], w[i + 1]} == merges[m]) {
          merged.push_back(static_cast<int32_t>(256 + m));
          ++i;
        } else {
          merged.push_back(w[i]);
        }
      }
      w = merged;
    }
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

TEST(Bpe, TrainsAsTheTextbook) {
  std::mt19937 random(11);
  for (const char* alphabet : {"ab", "aaab ", "abcde \n", "ab'st 12.,", "\xc3\xa9\xa8 x"}) {
    for (int i = 0; i < 6; ++i) {
      const std::string text = random_bytes(random, 50 + random() % 1500, alphabet);
      const int64_t vocab = 256 + 1 + static_cast<int64_t>(random() % 60);
      const BpeTokenizer t = train_bpe(text, {.vocab_size = vocab});
      EXPECT_EQ(t.merges(), train_slowly(text, vocab - 256, 2)) << alphabet;
      const std::string other = random_bytes(random, 700, alphabet);
      EXPECT_EQ(t.encode(other), encode_slowly(t.merges(), other));
      EXPECT_EQ(t.decode(t.encode(other)), other);
    }
  }
}

TEST(Bpe, MergesOverlappingRuns) {
  for (int n = 1; n < 40; ++n) {
    const std::string text(static_cast<size_t>(n), 'a');
    const BpeTokenizer t = train_bpe(text, {.vocab_size = 300, .min_frequency = 1});
    EXPECT_EQ(t.merges(), train_slowly(text, 44, 1)) << n;
  }
}

TEST(Bpe, RoundTripsArbitraryBytes) {
  std::mt19937 random(12);
  const BpeTokenizer t = train_bpe(random_bytes(random, 20'000, "the quick brown fox\n"), {.vocab_size = 400});
  EXPECT_EQ(t.vocab_size(), 400);
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_bytes(random, random() % 3000, i % 2 ? "the quick'll \n\x80\xff" : "");
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  EXPECT_TRUE(t.encode("").empty());
  EXPECT_THROW(t.decode(std::vector<int32_t>{400}), IndexError);
}

TEST(Bpe, SpecialTokens) {
  const std::string text = "low low low<|end|>lower lower<|end|>lowest";
  const BpeTokenizer t = train_bpe(text, {.vocab_size = 300, .special_tokens = {"<|end|>", "<|end|>!"}});
  const int32_t end = t.special_tokens().at("<|end|>"), longer = t.special_tokens().at("<|end|>!");
  EXPECT_EQ(end, t.vocab_size() - 2);
  EXPECT_EQ(longer, t.vocab_size() - 1);
  for (const Merge& m : t.merges()) EXPECT_EQ(t.token(m.first).find('<'), std::string::npos);
  const std::vector<int32_t> ids = t.encode_with_special("low<|end|>!low<|end|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), longer), 1);
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(t.decode(ids), "low<|end|>!low<|end|>");
  const std::vector<int32_t> plain = t.encode("low<|end|>");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(t.decode(plain), "low<|end|>");
}

TEST(Bpe, RefusesBadArguments) {
  EXPECT_THROW(train_bpe("text", {.vocab_size = 255}), ValueError);
  EXPECT_THROW(train_bpe("text", {.vocab_size = 256, .special_tokens = {"x"}}), ValueError);
  EXPECT_THROW(train_bpe("text", {.vocab_size = 300, .special_tokens = {""}}), ValueError);
  EXPECT_THROW(train_bpe("text", {.vocab_size = 2'000'000}), ValueError);
  EXPECT_THROW(BpeTokenizer({{97, 256}}), ValueError);
  EXPECT_THROW(BpeTokenizer({{-1, 97}}), ValueError);
  EXPECT_THROW(BpeTokenizer({{97, 98}, {97, 98}}), ValueError);
  EXPECT_THROW(BpeTokenizer({}, {"a", "a"}), ValueError);
  std::vector<Merge> doubling{{97, 97}};
  for (int32_t i = 0; i < 40; ++i) doubling.emplace_back(256 + i, 256 + i);
  EXPECT_THROW(BpeTokenizer(std::move(doubling)), ValueError);  // tokens of 2^40 bytes
}

TEST(Bpe, SaveAndLoad) {
  io::TempDir dir;
  std::mt19937 random(13);
  const std::string text = random_bytes(random, 5000, "abc de\n");
  const BpeTokenizer t = train_bpe(text, {.vocab_size = 320, .special_tokens = {"<|z|>", "<|\"a\"\n|>"}});
  t.save(dir / "tokenizer.json");
  const std::unique_ptr<Tokenizer> back = load_tokenizer(dir / "tokenizer.json");
  EXPECT_EQ(back->vocab_size(), t.vocab_size());
  EXPECT_EQ(back->special_tokens(), t.special_tokens());
  EXPECT_EQ(back->encode(text), t.encode(text));
  EXPECT_EQ(back->to_json(), t.to_json());
  EXPECT_THROW(load_tokenizer(dir / "none.json"), IoError);
}

TEST(Tokenizer, RefusesBadFiles) {
  const auto error = [](const std::string& json) -> std::string {
    try {
      parse_tokenizer(json, "t.json");
    } catch (const IoError& e) {
      return e.what();
    }
    return "";
  };
  const auto bpe = [](const std::string& special, const std::string& merges) {
    return R"({"format":"strata-tokenizer","version":1,"type":"bpe","special_tokens":)" + special +
           ",\"merges\":" + merges + "}";
  };
  ASSERT_EQ(error(bpe("[]", "[[97,98]]")), "");
  for (const auto& [json, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"[1", "not valid JSON at byte"},
           {"[1e999]", "not valid JSON"},
           {"[]", "field 'format'"},
           {R"({"format":"strata-tokenizer","version":2})", "field 'version'"},
           {R"({"format":"strata-tokenizer","version":1,"type":"x"})", "field 'type'"},
           {bpe("3", "[]"), "field 'special_tokens'"},
           {bpe("[3]", "[]"), "field 'special_tokens'"},
           {bpe("[]", "{}"), "field 'merges'"},
           {bpe("[]", "[[97,98],[1]]"), "field 'merges[1]'"},
           {bpe("[]", "[[97,-1]]"), "field 'merges[0]'"},
           {bpe("[]", "[[97,4294967296]]"), "field 'merges[0]'"},
           {bpe("[]", "[[97,256]]"), "merge 0"},
           {bpe("[\"x\",\"x\"]", "[]"), "given twice"}}) {
    EXPECT_NE(error(json).find(part), std::string::npos) << json << " gave '" << error(json) << "'";
    EXPECT_NE(error(json).find("t.json"), std::string::npos);
  }
}

TEST(Bpe, LearnsARealText) {
  const char* env = std::getenv("STRATA_DATA_DIR");
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const std::string path =
      (env ? std::string(env) : std::string(source ? source : ".") + "/../shared/data") + "/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const std::string text = io::read_file(path);
  const BpeTokenizer t = train_bpe(text, {.vocab_size = 8192});
  EXPECT_EQ(t.vocab_size(), 8192);
  const std::vector<int32_t> ids = t.encode(text);
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 3);  // over 3 bytes a token
  std::set<std::string> tokens;
  for (int32_t i = 0; i < 8192; ++i) tokens.insert(t.token(i));
  for (const char* word : {" the", " thou", " you", " king", "'s"}) EXPECT_TRUE(tokens.contains(word)) << word;
}

}  // namespace
}  // namespace strata::text
