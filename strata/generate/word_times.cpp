#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/generate/word_times_inl.h"
#include "strata/text/utf8.h"

namespace strata::detail {
namespace {

constexpr std::string_view kUnknown = "\xef\xbf\xbd";  // bytes that are no character
constexpr std::string_view kBlanks = " \t\n\r\v\f";
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
constexpr std::string_view kBefore = "\"'“¡¿([{-";                // belongs to the word behind it
constexpr std::string_view kBehind = "\"'.。,，!！?？:：”)]}、";  // to the one before
constexpr std::array<std::string_view, 6> kWithoutBlanks = {"zh", "ja", "th", "lo", "my", "yue"};

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}
// As Python's `in` has it: some text of several characters, too, and the empty one.
bool within(std::string_view text, std::string_view all) {
  return all.find(text) != std::string_view::npos;
}

// The middle of `width` numbers around each, the row mirrored at its ends.
void smooth(std::vector<float>& row, int64_t width) {
  const auto n = static_cast<int64_t>(row.size()), half = width / 2;
  if (n <= half) return;
  const std::vector<float> x = row;
  std::vector<float> near(static_cast<size_t>(width));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < width; ++k) {
      int64_t at = std::abs(i + k - half);
      if (at >= n) at = 2 * (n - 1) - at;
      near[static_cast<size_t>(k)] = x[static_cast<size_t>(at)];
    }
    std::ranges::nth_element(near, near.begin() + half);
    row[static_cast<size_t>(i)] = near[static_cast<size_t>(half)];
  }
}

// Tokens whose bytes end with a whole character.
std::vector<TokenWord> characters(const text::Tokenizer& tokenizer, std::span<const int64_t> tokens) {
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const auto decoded = [&](size_t begin, size_t end) {
    return text::valid_utf8(tokenizer.decode(std::span(ids).subspan(begin, end - begin)));
  };
  const std::string all = decoded(0, ids.size());
  std::vector<TokenWord> out;
  size_t begin = 0, offset = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string text = decoded(begin, i + 1);
    const size_t at = text.find(kUnknown);
    // Bytes that are no character in the whole text either are not waited for.
    if (at != std::string::npos && offset + at < all.size() && all.compare(offset + at, kUnknown.size(), kUnknown) != 0)
      continue;
    offset += text.size();
    out.push_back({begin, i + 1, std::move(text)});
    begin = i + 1;
  }
  return out;
}

}  // namespace

std::vector<int64_t> warped(std::span<const double> costs, int64_t rows, int64_t columns) {
  check(rows > 0 && columns > 0 && static_cast<int64_t>(costs.size()) == rows * columns, "warped", "costs are [", rows,
        ", ", columns, "], got ", costs.size());
  enum Step : uint8_t { both, row, column };
  const auto width = static_cast<size_t>(columns + 1);
  std::vector<float> above(width, std::numeric_limits<float>::infinity()), sums(width);
  std::vector<Step> steps(static_cast<size_t>(rows + 1) * width, column);
  above[0] = 0;
  for (int64_t i = 1; i <= rows; ++i) {
    Step* const step = steps.data() + static_cast<size_t>(i) * width;
    step[0] = row;
    sums[0] = std::numeric_limits<float>::infinity();
    for (size_t j = 1; j < width; ++j) {
      const float from[] = {above[j - 1], above[j], sums[j - 1]};
      const Step way = from[both] < from[row] && from[both] < from[column]  ? both
                       : from[row] < from[both] && from[row] < from[column] ? row
                                                                            : column;
      const double cost = costs[static_cast<size_t>(i - 1) * (width - 1) + j - 1];
      sums[j] = static_cast<float>(cost + static_cast<double>(from[way]));
      step[j] = way;
    }
    std::swap(above, sums);
  }
  std::vector<int64_t> begins(static_cast<size_t>(rows));
  int64_t i = rows, j = columns;
  while (i > 0 || j > 0) {
    if (i > 0) begins[static_cast<size_t>(i - 1)] = std::max<int64_t>(0, j - 1);
    const Step way = steps[static_cast<size_t>(i) * width + static_cast<size_t>(j)];
    if (way != column) --i;
    if (way != row) --j;
  }
  return begins;
}

std::vector<int64_t> token_places(const Tensor& weights, int64_t width) {
  const NoGrad guard;
  check<ShapeError>(weights.dim() == 3 && weights.numel() > 0, "token_places", "wants [heads, tokens, places], got ",
                    weights);
  check(width > 0 && width % 2 == 1, "token_places", "the width of a median is odd, got ", width);
  const auto heads = static_cast<size_t>(weights.size(0)), tokens = static_cast<size_t>(weights.size(1)),
             places = static_cast<size_t>(weights.size(2));
  const std::vector<float> w = weights.to(DType::f32).to_vector<float>();
  std::vector<double> costs(tokens * places);
  std::vector<float> mean(places), deviation(places), row(places);
  for (size_t h = 0; h < heads; ++h) {
    const float* const own = w.data() + h * tokens * places;
    for (size_t p = 0; p < places; ++p) {
      double sum = 0, squares = 0;
      for (size_t t = 0; t < tokens; ++t) sum += static_cast<double>(own[t * places + p]);
      const double middle = sum / static_cast<double>(tokens);
      for (size_t t = 0; t < tokens; ++t) squares += std::pow(static_cast<double>(own[t * places + p]) - middle, 2);
      mean[p] = static_cast<float>(middle);
      deviation[p] = static_cast<float>(std::sqrt(squares / static_cast<double>(tokens)));
    }
    for (size_t t = 0; t < tokens; ++t) {
      // Where all tokens read alike (one token), no place says more than another.
      for (size_t p = 0; p < places; ++p)
        row[p] = deviation[p] > 0 ? (own[t * places + p] - mean[p]) / deviation[p] : 0;
      smooth(row, width);
      for (size_t p = 0; p < places; ++p)
        costs[t * places + p] -= static_cast<double>(row[p]) / static_cast<double>(heads);
    }
  }
  return warped(costs, static_cast<int64_t>(tokens), static_cast<int64_t>(places));
}

std::vector<TokenWord> words_of(const text::Tokenizer& tokenizer, std::span<const int64_t> tokens, bool blanks) {
  std::vector<TokenWord> words;
  for (TokenWord& c : characters(tokenizer, tokens)) {
    if (!blanks || words.empty() || c.text.starts_with(' ') || within(stripped(c.text), kPunctuation))
      words.push_back(std::move(c));
    else
      words.back().text += c.text, words.back().end = c.end;
  }
  // Words that another took have no text; a word's tokens lie together.
  for (size_t i = words.size(), behind = words.size(); i-- > 0;) {
    TokenWord& w = words[i];
    if (behind < words.size() && w.text.starts_with(' ') && within(stripped(w.text), kBefore)) {
      words[behind].text = w.text + words[behind].text;
      words[behind].begin = w.begin;
      w.text.clear();
    } else {
      behind = i;
    }
  }
  for (size_t i = 0, j = 1; j < words.size(); ++j) {
    TokenWord &w = words[i], &next = words[j];
    if (!w.text.ends_with(' ') && within(next.text, kBehind)) {
      w.text += next.text;
      if (!next.text.empty()) w.end = next.end;
      next.text.clear();
    } else {
      i = j;
    }
  }
  std::erase_if(words, [](const TokenWord& w) { return w.text.empty(); });
  return words;
}

bool has_blanks(const std::string& language) {
  return std::ranges::none_of(kWithoutBlanks, [&](std::string_view l) { return language == cat("<|", l, "|>"); });
}

}  // namespace strata::detail
