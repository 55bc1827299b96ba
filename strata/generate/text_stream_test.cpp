// Text that comes token by token, and stop strings over the borders of its pieces.

#include "strata/generate/text_stream.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata {
namespace {

// What a stream gives for each token, and at the end.
std::vector<std::string> given(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                               const std::vector<int32_t>& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(stream.add(id));
  pieces.push_back(stream.finish());
  return pieces;
}

TEST(TextStream, CutsNoCharacter) {
  const auto bytes = std::make_shared<text::ByteTokenizer>();
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // of 1, 2, 3, 4 and 1 bytes
  EXPECT_EQ(given(bytes, bytes->encode(text)), (std::vector<std::string>{"a", "", "\xc3\xa9", "", "", "\xe2\x82\xac",
                                                                         "", "", "", "\xf0\x9f\x98\x80", "z", ""}));
  // What is no character is given as it is: a first byte without the rest, bytes within a character alone, no bytes of
  // any character.
  for (const std::string wrong :
       {"\xe2\x82", "\xe2\x82x", "\x80\x80\x80\x80\x80", "\xff\xfe\xc0", "\xf0\x9f\x98\xc3\xa9"}) {
    std::string all;
    for (const std::string& piece : given(bytes, bytes->encode(wrong))) all += piece;
    EXPECT_EQ(all, wrong);
  }
  EXPECT_EQ(given(bytes, {}), (std::vector<std::string>{""}));
  TextStream stream(bytes);
  EXPECT_THROW(stream.add(256), IndexError);
  EXPECT_THROW(stream.add(-1), IndexError);
}

// Words that are written with a space between them, as tokenizers with such decoders do; an id that stands for a piece
// of a character gives the replacement character until it is whole.
class Words final : public text::Tokenizer {
 public:
  int64_t vocab_size() const override { return 5; }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string out;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == 3) {  // the first half of e acute
        const bool whole = i + 1 < ids.size() && ids[i + 1] == 4;
        out += whole ? "\xc3\xa9" : "\xef\xbf\xbd";
        i += whole;
        continue;
      }
      if (i > 0) out += " ";
      out += ids[i] == 4 ? "\xef\xbf\xbd" : std::string(1, static_cast<char>('a' + ids[i]));
    }
    return out;
  }
  const std::map<std::string, int32_t>& special_tokens() const override { return special_; }
  std::string to_json() const override { return "{}"; }

 private:
  std::map<std::string, int32_t> special_;
};

TEST(TextStream, LooksAtNeighbours) {
  const auto words = std::make_shared<Words>();
  EXPECT_EQ(given(words, {0, 1, 2}), (std::vector<std::string>{"a", " b", " c", ""}));
  EXPECT_EQ(given(words, {0, 3, 4, 1}), (std::vector<std::string>{"a", "", "\xc3\xa9", " b", ""}));
  for (const std::vector<int32_t>& ids :
       std::vector<std::vector<int32_t>>{{0, 3}, {3, 3, 3, 3, 3, 3, 3, 3}, {3, 0, 3, 4, 4, 1}, {4, 4, 3, 4}}) {
    std::string all;
    for (const std::string& piece : given(words, ids)) all += piece;
    EXPECT_EQ(all, words->decode(ids));
  }
}

// Pieces of one byte, of two, and the whole text at once.
struct Outcome {
  std::string text;
  int64_t found;
  bool operator==(const Outcome&) const = default;
};
Outcome through(const std::vector<std::string>& stops, std::string_view text, size_t step) {
  StopStrings stop(stops);
  Outcome r;
  for (size_t at = 0; at < text.size(); at += step) {
    r.text += stop.add(text.substr(at, step));
    EXPECT_EQ(text.substr(0, r.text.size()), r.text) << "nothing is given that is taken back";
  }
  r.text += stop.finish();
  r.found = stop.found();
  return r;
}

TEST(StopStrings, AreFoundOverBorders) {
  for (const size_t step : {1u, 2u, 3u, 100u}) {
    EXPECT_EQ(through({"abc"}, "xxababcyy", step), (Outcome{"xxab", 0})) << step;
    EXPECT_EQ(through({"abc"}, "xxab", step), (Outcome{"xxab", -1})) << step;
    EXPECT_EQ(through({}, "xxab", step), (Outcome{"xxab", -1})) << step;
    EXPECT_EQ(through({"aab"}, "aaaab", step), (Outcome{"aa", 0})) << step;
    EXPECT_EQ(through({"zz", "b"}, "aab", step), (Outcome{"aa", 1})) << step;
    EXPECT_EQ(through({"abcabd"}, "abcabcabd", step), (Outcome{"abc", 0})) << step;
    EXPECT_EQ(through({"\n\nUser:", "\n\n\n"}, "Hi\n\nUse\n\n\nx", step), (Outcome{"Hi\n\nUse", 1})) << step;
    EXPECT_EQ(through({"x"}, "", step), (Outcome{"", -1})) << step;
  }
  EXPECT_EQ(through({"b", "bc"}, "abc", 3), (Outcome{"a", 1})) << "of those that begin alike the longest";
  EXPECT_EQ(through({"cd", "bcd"}, "abcd", 4), (Outcome{"a", 1})) << "the one that begins first";
}

TEST(StopStrings, HoldBackOnlyWhatMayBeOne) {
  StopStrings stop({"END", "\n\n"});
  EXPECT_EQ(stop.add("text E"), "text ");
  EXPECT_EQ(stop.add("N"), "");
  EXPECT_EQ(stop.add("ough\n"), "ENough");
  EXPECT_EQ(stop.add("\n"), "");
  EXPECT_EQ(stop.found(), 1);
  EXPECT_EQ(stop.add("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

}  // namespace
}  // namespace strata
