#include "strata/text/pipeline_tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/text/jinja/template.h"
#include "strata/text/utf8.h"

namespace strata::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

/// Ids as cases.jsonl writes them: characters, U+0100 and the id.
Ids ids_of(const std::string& text) {
  Ids ids;
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8_length(std::string_view(text).substr(at));
    int32_t c = static_cast<unsigned char>(text[at]) & (n == 1 ? 0x7f : 0xff >> (n + 1));
    for (size_t i = 1; i < n; ++i) c = c << 6 | (text[at + i] & 0x3f);
    ids.push_back(c - 0x100);
    at += n;
  }
  return ids;
}

std::string cases() {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  return source_dir == nullptr ? "" : io::read_file(std::string(source_dir) + "/strata/text/pipeline/cases.jsonl");
}

/// Calls f(tokenizer, its JSON, cases) for every row.
template <class F>
void each_row(F&& f) {
  std::istringstream rows(cases());
  Json bytes;
  for (std::string line; std::getline(rows, line);) {
    Json row = Json::parse(line);
    if (row.contains("bytes")) {
      bytes = row["bytes"];
      continue;
    }
    if (row["tokenizer"]["model"] == "bytes") row["tokenizer"]["model"] = bytes;
    Json parts = row["tokenizer"];
    parts.erase("model");
    f(*PipelineTokenizer::parse(row["tokenizer"].dump(), "row"), parts.dump(), row["cases"]);
  }
}

bool is_utf8(std::string_view text) {
  return valid_utf8(text) == text;
}

std::string streamed(const PipelineTokenizer& t, const Ids& ids, const DecodeOptions& options = {}) {
  StreamDecoder decoder(t, options);
  std::string all;
  for (const int32_t id : ids) {
    const std::string piece = decoder.add(id);
    EXPECT_TRUE(is_utf8(piece));
    all += piece;
  }
  return all + decoder.finish();
}

// cases.jsonl has what the `tokenizers` library makes of each (make_cases.py).
TEST(Pipeline, MakesWhatTheLibraryMakes) {
  if (cases().empty()) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  int texts = 0, decodings = 0;
  each_row([&](const PipelineTokenizer& t, const std::string& parts, const Json& rows) {
    const auto again = PipelineTokenizer::parse(t.to_json(), "again");
    EXPECT_EQ(again->to_json(), t.to_json()) << parts;
    EXPECT_EQ(again->identity(), t.identity()) << parts;
    for (const Json& c : rows) {
      if (c.contains("pair")) {
        const Encoding e = t.encode_pair(c["text"].get<std::string>(), c["pair"].get<std::string>());
        EXPECT_EQ(e.ids, ids_of(c["special"])) << parts << c;
        std::string types;
        for (const int32_t type : e.type_ids) types += std::to_string(type);
        EXPECT_EQ(types, c["types"].get<std::string>()) << parts << c;
        continue;
      }
      Ids ids;
      if (c.contains("decode")) {
        ids = ids_of(c["decode"]);
      } else {
        const std::string text = c["text"];
        const Ids parsed = ids_of(c["ids"]);
        ids = c.contains("special") ? ids_of(c["special"]) : parsed;
        EXPECT_EQ(t.encode_with_special(text), parsed) << parts << c;
        if (c.contains("spells")) {
          const Ids got = t.encode(text);
          for (const int32_t id : ids_of(c["spells"]))
            EXPECT_EQ(std::count(got.begin(), got.end(), id), 0) << parts << c;
        } else {
          EXPECT_EQ(t.encode(text), c.contains("plain") ? ids_of(c["plain"]) : parsed) << parts << c;
        }
        EXPECT_EQ(t.encode(text, EncodeOptions{}), ids) << parts << c;
        EXPECT_EQ(again->encode(text, EncodeOptions{}), ids) << parts << c;
        EXPECT_EQ(t.encode(jinja::Rendered{text, {}, {}}).ids, parsed) << parts << c;
        ++texts;
      }
      if (!c.contains("decoded")) continue;
      const std::string decoded = c["decoded"];
      EXPECT_EQ(t.decode(ids), decoded) << parts << c;
      EXPECT_EQ(t.decode(ids, {.skip_special_tokens = true}), c.value("skipped", decoded)) << parts << c;
      EXPECT_EQ(streamed(t, ids), decoded) << parts << c;
      ++decodings;
    }
  });
  EXPECT_GT(texts, 500);
  EXPECT_GT(decodings, 200);
}

/// A tokenizer whose ids are bytes, each word ended by "|" (id 124), with `parts` instead of its own.
std::unique_ptr<PipelineTokenizer> byte_words(Json parts = Json::object()) {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    vocab[name] = b;
  }
  Json all = {{"version", "1.0"}, {"added_tokens", Json::array()}};
  all.update(parts);
  if (!all.contains("model"))
    all["model"] = {{"type", "BPE"},
                    {"dropout", nullptr},
                    {"unk_token", nullptr},
                    {"continuing_subword_prefix", nullptr},
                    {"end_of_word_suffix", "|"},
                    {"fuse_unk", false},
                    {"byte_fallback", true},
                    {"ignore_merges", false},
                    {"vocab", vocab},
                    {"merges", Json::array()}};
  return PipelineTokenizer::parse(all.dump(), "made");
}

Json added(int id, const std::string& content, bool special, bool normalized = false) {
  return {{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", special}};
}

std::string text_of(const Ids& ids) {
  std::string s;
  for (const int32_t id : ids) s += id < 256 ? std::string(1, static_cast<char>(id)) : "{" + std::to_string(id) + "}";
  return s;
}

TEST(Pipeline, ParsesByContent) {
  const auto t = byte_words();
  const auto any = parse_tokenizer(t->to_json());
  ASSERT_NE(dynamic_cast<PipelineTokenizer*>(any.get()), nullptr);
  EXPECT_EQ(any->encode("ab"), t->encode("ab"));
  EXPECT_EQ(parse_tokenizer("{\"format\":\"strata-tokenizer\",\"version\":1,\"type\":\"byte\"}")->vocab_size(), 256);
}

TEST(Pipeline, InvalidUtf8BecomesReplacementCharacters) {
  const auto t = byte_words();
  EXPECT_EQ(text_of(t->encode("a\xff\xc3")), "a\xef\xbf\xbd\xef\xbf\xbd|");
  EXPECT_EQ(text_of(t->encode(std::string("\0", 1))), std::string("\0|", 2));
}

TEST(Pipeline, ControlTokensOfDataStayText) {
  const auto t = byte_words({{"added_tokens", {added(256, "<|end|>", true), added(257, "<x>", false)}}});
  EXPECT_EQ(text_of(t->encode("a<|end|><x>")), "a<|end|>|{257}");
  EXPECT_EQ(text_of(t->encode_with_special("a<|end|><x>")), "a|{256}{257}");
  const jinja::Rendered r{"<|end|>hi <|end|><x><|end|>", {{7, 20}}, {{7, 27}}};
  const Encoding e = t->encode(r);
  EXPECT_EQ(text_of(e.ids), "{256}hi <|end|>|{257}{256}");
  ASSERT_EQ(e.generated.size(), e.ids.size());
  EXPECT_FALSE(e.generated[0]);
  for (size_t i = 1; i < e.ids.size(); ++i) EXPECT_TRUE(e.generated[i]) << i;
  // One that is half data is data.
  EXPECT_EQ(text_of(t->encode(jinja::Rendered{"<|end|>", {{3, 4}}, {}}).ids), "<|end|>|");
}

TEST(Pipeline, NormalizedControlTokensOfDataStayText) {
  const auto t =
      byte_words({{"added_tokens", {added(256, "<S>", true, true)}},
                  {"normalizer",
                   {{"type", "Sequence"},
                    {"normalizers",
                     {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, {{"type", "Lowercase"}}}}}}});
  EXPECT_EQ(text_of(t->encode_with_special(" <s>A<S>")), "{256}a|{256}");
  EXPECT_EQ(text_of(t->encode(jinja::Rendered{" <s>A<S>", {{1, 4}}, {}}).ids), "<s>a|{256}");
  EXPECT_EQ(text_of(t->encode(jinja::Rendered{" <s>A<S>", {{5, 8}}, {}}).ids), "{256}a<s>|");
}

// The model's vocabulary has its special tokens, too, and may spell them by itself.
TEST(Pipeline, TheModelMakesNoControlTokenOfData) {
  Json model = {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", false}, {"vocab", Json::array()}};
  for (const char* piece : {"<unk>", "</s>", "<", "/", "s", ">", "a"})
    model["vocab"].push_back(Json::array({piece, std::string_view(piece).size() > 1 ? -1.0 : -3.0}));
  const auto t = byte_words({{"model", model}, {"added_tokens", {added(1, "</s>", true)}}});
  EXPECT_EQ(t->encode_with_special("a</s>"), (Ids{6, 1}));
  EXPECT_EQ(t->encode("a</s></s>"), (Ids{6, 2, 3, 4, 5, 2, 3, 4, 5}));
  EXPECT_EQ(t->encode(jinja::Rendered{"a</s></s>", {{1, 5}}, {}}).ids, (Ids{6, 2, 3, 4, 5, 1}));
}

TEST(Pipeline, GeneratedTokensAreMarked) {
  const Json post = {{"type", "BertProcessing"}, {"sep", {"b", 2}}, {"cls", {"a", 1}}};
  Json vocab = {{"\xc4\xa0", 0}};  // a blank in the byte alphabet
  for (const char c : std::string("abdehkosyn:. _")) vocab[std::string(1, c)] = vocab.size();
  const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}};
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}},
             whole = {{"type", "Metaspace"}, {"replacement", "_"}, {"split", false}};
  const Json lower = {{"type", "Lowercase"}};
  for (const Json& pre : {Json(), byte_level, metaspace, whole}) {
    for (const Json& normalizer : {Json(), lower}) {
      const auto t =
          byte_words({{"pre_tokenizer", pre}, {"post_processor", post}, {"model", model}, {"normalizer", normalizer}});
      const Encoding e = t->encode(jinja::Rendered{"ask: yes no.", {}, {{5, 11}}}, true);
      ASSERT_EQ(e.generated.size(), e.ids.size());
      std::string inside;
      for (size_t i = 0; i < e.ids.size(); ++i)
        if (e.generated[i]) inside += t->token(e.ids[i]) == "\xc4\xa0" ? "_" : std::string(t->token(e.ids[i]));
      // Whether the blank before the first word belongs to it depends on where the mark stands.
      if (inside.starts_with('_') || inside.starts_with(' ')) inside.erase(0, 1);
      for (char& c : inside) c = c == '_' ? ' ' : c;
      EXPECT_EQ(inside, "yes no") << pre << normalizer;
    }
  }
}

TEST(Pipeline, TemplatesAskedForByConfigurations) {
  const auto t = byte_words({{"added_tokens", {added(256, "<s>", true), added(257, "</s>", true)}}});
  EXPECT_EQ(text_of(t->with_template(256, 257)->encode("a", EncodeOptions{})), "{256}a|{257}");
  EXPECT_EQ(text_of(t->with_template({}, {})->encode("a", EncodeOptions{})), "a|");
  EXPECT_EQ(text_of(t->with_template(256, {})->encode_pair("a", "b").ids), "{256}a|{256}b|");
  EXPECT_THROW(t->with_template(999, {}), ValueError);
}

std::string error_of(const Json& parts) {
  try {
    byte_words(parts);
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Pipeline, ErrorsNameThePath) {
  EXPECT_EQ(
      error_of({{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Shout"}}}}}}}),
      "tokenizer: 'made': normalizer.normalizers[1].type is \"Shout\", wanted one of Sequence, BertNormalizer, NFC, "
      "NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Precompiled, Replace, Prepend, ByteLevel");
  EXPECT_EQ(error_of({{"pre_tokenizer", {{"type", "Digits"}}}}),
            "tokenizer: 'made': pre_tokenizer.individual_digits is absent, wanted true or false");
  EXPECT_EQ(error_of({{"pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}}}),
            "tokenizer: 'made': pre_tokenizer.length is 0, wanted a whole number from 1 to 9223372036854775807");
  EXPECT_EQ(error_of({{"post_processor", {{"type", "BertProcessing"}, {"sep", {"x", 999}}, {"cls", {"y", 1}}}}}),
            "tokenizer: 'made': post_processor puts id 999, the vocabulary has 256");
  EXPECT_EQ(error_of({{"decoder", 3}}), "tokenizer: 'made': decoder must be an object");
  EXPECT_EQ(error_of({{"version", "2.0"}}), "tokenizer: 'made': version is \"2.0\", wanted \"1.0\"");
  EXPECT_NE(
      error_of({{"pre_tokenizer",
                 {{"type", "Split"}, {"pattern", {{"Regex", "a(b"}}}, {"behavior", "Isolated"}, {"invert", false}}}})
          .find("pre_tokenizer.pattern is {\"Regex\":\"a(b\"}, wanted an expression that can be run"),
      std::string::npos);
  EXPECT_NE(error_of({{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}}})
                .find("precompiled_charsmap"),
            std::string::npos);
  EXPECT_NE(error_of({{"added_tokens", {added(256, std::string(2000, 'x'), true)}}}).find("added_tokens[0].content"),
            std::string::npos);
  Json nested = {{"type", "Fuse"}};
  for (int i = 0; i < 4; ++i) nested = {{"type", "Sequence"}, {"decoders", Json::array({nested})}};
  EXPECT_NE(error_of({{"decoder", nested}}).find("decoder.decoders[0].decoders[0].decoders is"), std::string::npos);
  const Json many = {{"type", "Sequence"}, {"normalizers", Json::array_t(65, {{"type", "NFC"}})}};
  EXPECT_NE(error_of({{"normalizer", many}}).find("wanted a list of at most 64"), std::string::npos);
  EXPECT_THROW(byte_words()->decode(Ids{256}), IndexError);
  EXPECT_THROW(byte_words()->decode(Ids{-1}), IndexError);
}

// Expressions that Oniguruma reads and PCRE2 has not, or reads otherwise.
TEST(Pipeline, ExpressionsThatCannotBeKeptAreRefused) {
  for (const char* e : {"(?~a)", "(*UTF)a", "(*LIMIT_MATCH=1)a", "(?x)a b", "a(?i)b|c", "(?(1)a|b)", "\\C-x",
                        "[[:graph:]]", "[\\R]", "(?|a|b)", "\\p{NoSuch}", "[a", "a)", "(?<n", "[b-a]", "\\"})
    EXPECT_NE(error_of({{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", e}}}, {"content", ""}}}})
                  .find("normalizer.pattern"),
              std::string::npos)
        << e;
}

// `tokenizers` does not know U+09FE, of Unicode 11, as a mark: no other mark passes it, though its class is higher.
TEST(Pipeline, NewMarksKeepTheirPlaces) {
  const auto plain = byte_words();
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    const auto t = byte_words({{"normalizer", {{"type", form}}}});
    const std::string_view newer = "\xe0\xa7\xbe\xd9\x96", swapped = "a\xcc\xb2\xcc\xa1", sorted = "a\xcc\xa1\xcc\xb2";
    EXPECT_EQ(t->encode(newer), plain->encode(newer)) << form;
    EXPECT_EQ(t->encode(swapped), plain->encode(sorted)) << form;  // marks of 220 and 202 are in its tables
  }
}

TEST(Pipeline, TimeAndMemoryAreBounded) {
  const auto replace = [](const char* regex, const char* content) {
    return Json{{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", content}};
  };
  EXPECT_THROW(byte_words({{"normalizer", replace("^(a+)+$", "")}})->encode(std::string(1000, 'a') + "!"), ValueError);
  EXPECT_THROW(byte_words({{"normalizer", replace("(x+x+)+[yz]", "")}})->encode(std::string(5'000, 'x')), ValueError);
  Json doubling = Json::array();
  for (int i = 0; i < 40; ++i) doubling.push_back(replace("a", "aa"));
  EXPECT_THROW(byte_words({{"normalizer", {{"type", "Sequence"}, {"normalizers", doubling}}}})->encode("a"),
               ValueError);
  Json spelling = Json::array();
  for (int i = 0; i < 40; ++i)
    spelling.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}});
  EXPECT_THROW(
      byte_words({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", spelling}}}})->encode("\xc3\xa4\xc3\xa4"),
      ValueError);
  // Long words, long clusters and long runs of marks take no more than others.
  std::string marks = "a";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 ? "\xcc\x81" : "\xcc\xa3";
  EXPECT_EQ(byte_words({{"normalizer", {{"type", "NFC"}}}})->encode(marks).size(), marks.size() + 1);
  EXPECT_EQ(
      byte_words({{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}}}})
          ->encode(std::string(1'000'000, 'a'))
          .size(),
      1'000'001u);
  EXPECT_EQ(
      byte_words({{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}}}})
          ->encode(std::string(300'000, ' '))
          .size(),
      600'001u);
}

TEST(Pipeline, EncodesOnSeveralThreads) {
  const auto t =
      byte_words({{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
                  {"normalizer", {{"type", "NFKC"}}}});
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back("word " + std::to_string(i) + " \xef\xac\x81 don't");
  std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto all = t->encode_batch(views);
  ASSERT_EQ(all.size(), texts.size());
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(t->encode(texts[i]), all[i]);
    });
  for (auto& th : threads) th.join();
  EXPECT_TRUE(t->encode_batch({}).empty());
}

TEST(Pipeline, StreamsWholeCharacters) {
  const auto t = byte_words({{"decoder", {{"type", "ByteLevel"}}},
                             {"model",
                              {{"type", "WordLevel"},
                               {"unk_token", "a"},
                               {"vocab", {{"a", 0}, {"Ã", 1}, {"¤", 2}, {"ðŁ", 3}, {"ĺ", 4}, {"Ģ", 5}, {"日", 6}}}}}});
  StreamDecoder d(*t);
  EXPECT_EQ(d.add(1), "");
  EXPECT_EQ(d.add(2), "\xc3\xa4");
  EXPECT_EQ(d.add(3), "");
  EXPECT_EQ(d.add(4), "");
  EXPECT_EQ(d.add(5), "\xf0\x9f\x98\x80");
  EXPECT_EQ(d.add(3), "");
  EXPECT_EQ(d.add(0),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(d.add(6), "\xe6\x97\xa5");
  EXPECT_EQ(d.add(2), "\xef\xbf\xbd");
  EXPECT_EQ(d.add(1), "");
  EXPECT_EQ(d.finish(), "\xef\xbf\xbd");
}

TEST(Pipeline, StreamsAsItDecodesWhateverTheDecoder) {
  uint32_t state = 1;
  const auto next = [&](uint32_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  int seen = 0;
  each_row([&](const PipelineTokenizer& t, const std::string& parts, const Json& rows) {
    if (rows.empty() || !rows[0].contains("decode")) return;
    for (int i = 0; i < 60; ++i) {
      Ids ids(next(25));
      for (int32_t& id : ids) id = static_cast<int32_t>(next(static_cast<uint32_t>(t.vocab_size())));
      for (const bool clean : {false, true})
        EXPECT_EQ(streamed(t, ids, {.clean_up_tokenization_spaces = clean}),
                  t.decode(ids, {.clean_up_tokenization_spaces = clean}))
            << parts;
    }
    ++seen;
  });
  EXPECT_TRUE(cases().empty() || seen > 15) << seen;
}

TEST(Pipeline, CleansUpSpacesAsTransformersDoes) {
  const auto t =
      byte_words({{"model",
                   {{"type", "WordLevel"},
                    {"unk_token", "a"},
                    {"vocab", {{"a", 0}, {".", 1}, {"n't", 2}, {"do", 3}, {"not", 4}, {"'", 5}, {"'s", 6}}}}}});
  EXPECT_EQ(t->decode(Ids{0, 1, 3, 2, 3, 4, 5, 0, 5, 6}, {.clean_up_tokenization_spaces = true}),
            "a. don't do not'a''s");
  EXPECT_EQ(t->decode(Ids{0, 1}), "a .");
}

TEST(Pipeline, IdentityIsOfWhatDecidesIds) {
  const Json bert = {
      {"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", true}, {"lowercase", true}};
  Json spelled = bert;
  spelled["strip_accents"] = nullptr;
  const std::string one = byte_words({{"normalizer", bert}})->identity();
  EXPECT_EQ(one.size(), 16u);
  EXPECT_EQ(
      byte_words({{"normalizer", spelled}, {"padding", Json::object()}, {"decoder", {{"type", "Fuse"}}}})->identity(),
      one);
  spelled["lowercase"] = false;
  EXPECT_NE(byte_words({{"normalizer", spelled}})->identity(), one);
  EXPECT_NE(byte_words({{"normalizer", bert}, {"added_tokens", {added(256, "x", true)}}})->identity(), one);
}

// Files from strangers: each row of the cases, bytes changed, cut and doubled, is a tokenizer or an error.
TEST(Pipeline, MutatedFilesAreTokenizersOrErrors) {
  fuzz::Rounds round(6000);
  const auto next = [&](size_t n) { return round.below(n); };
  std::vector<std::string> files;
  each_row([&](const PipelineTokenizer& t, const std::string& parts, const Json&) {
    // Without most of the vocabulary, so that what changes is the rest.
    Json file = Json::parse(parts);
    file["model"] = {{"type", "WordLevel"}, {"unk_token", "a"}, {"vocab", {{"a", 0}, {"b", 1}, {"<s>", 2}}}};
    files.push_back(file.dump());
  });
  int read = 0, refused = 0;
  while (!files.empty() && round.next()) {
    std::string file = files[next(files.size())];
    for (size_t k = next(3); k < 3; ++k) {
      const size_t at = next(file.size());
      switch (next(4)) {
        case 0:
          file[at] = static_cast<char>(next(256));
          break;
        case 1:
          file.erase(at, next(8));
          break;
        case 2:
          file.insert(at, file.substr(next(file.size()), next(30)));
          break;
        default:
          file[at] = "0\"[]{},:.-xA"[next(13)];
      }
    }
    try {
      const auto t = PipelineTokenizer::parse(file, "mutated");
      const std::string text = "a b<s> A\xc3\xa4 \xe6\xbc\xa2 12\xff";
      const Ids ids = t->encode(text, EncodeOptions{});
      for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t->vocab_size()) << file;
      EXPECT_TRUE(is_utf8(t->decode(ids))) << file;
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_TRUE(files.empty() || (read > 0 && refused > 0)) << read << " " << refused;
}

}  // namespace
}  // namespace strata::text
