// Words of tokens against transformers' (make_word_cases.py), paths against every path.

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/generate/word_times_inl.h"
#include "strata/io/files.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::detail {
namespace {

using Ids = std::vector<int64_t>;

TEST(Words, OfTokensAsTransformersHasThem) {
  const char* const source = std::getenv("STRATA_SOURCE_DIR");
  const nlohmann::json file =
      nlohmann::json::parse(io::read_file(std::string(source ? source : ".") + "/strata/generate/word_cases.json"));
  const auto tokenizer = text::PipelineTokenizer::parse(file["tokenizer"].get<std::string>());
  int compared = 0;
  for (const auto& c : file["cases"]) {
    const Ids ids = c["ids"].get<Ids>();
    for (const bool blanks : {true, false}) {
      nlohmann::json got = nlohmann::json::array();
      for (const TokenWord& w : words_of(*tokenizer, ids, blanks)) {
        Ids own;
        for (size_t i = w.begin; i < w.end; ++i) own.push_back(static_cast<int64_t>(i));
        got.push_back({w.text, own});
      }
      EXPECT_EQ(got, c[blanks ? "blanks" : "characters"]) << c["ids"];
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

TEST(Words, LanguagesWithoutBlanks) {
  EXPECT_TRUE(has_blanks("<|de|>"));
  EXPECT_TRUE(has_blanks(""));
  EXPECT_FALSE(has_blanks("<|ja|>"));
}

// The least cost of all paths that end at (i, j).
double least(const std::vector<double>& costs, int64_t columns, int64_t i, int64_t j) {
  if (i < 0 || j < 0) return std::numeric_limits<double>::infinity();
  const double own = costs[static_cast<size_t>(i * columns + j)];
  if (i == 0 && j == 0) return own;
  return own + std::min({least(costs, columns, i - 1, j - 1), least(costs, columns, i - 1, j),
                         least(costs, columns, i, j - 1)});
}

TEST(Warping, FindsThePathOfLeastCost) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t rows = 1 + static_cast<int64_t>(seed % 4), columns = 1 + static_cast<int64_t>(seed % 5);
    std::vector<double> costs;
    for (int64_t i = 0; i < rows * columns; ++i)
      costs.push_back(static_cast<double>(philox({seed, 1}, static_cast<uint64_t>(i))[0] % 1000) / 100 - 5);
    const Ids begins = warped(costs, rows, columns);
    ASSERT_EQ(static_cast<int64_t>(begins.size()), rows);
    EXPECT_EQ(begins[0], 0);
    // The cost of the path through these beginnings: a row goes on up to where the next begins, or to the place before.
    double cost = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const auto at = [&](int64_t r) { return begins[static_cast<size_t>(r)]; };
      double best = std::numeric_limits<double>::infinity();
      const int64_t last = i + 1 < rows ? at(i + 1) : columns - 1;
      for (int64_t end = std::max(at(i), last - (i + 1 < rows ? 1 : 0)); end <= last; ++end) {
        double sum = 0;
        for (int64_t j = at(i); j <= end; ++j) sum += costs[static_cast<size_t>(i * columns + j)];
        best = std::min(best, sum);
      }
      cost += best;
    }
    EXPECT_NEAR(cost, least(costs, columns, rows - 1, columns - 1), 1e-5) << "seed " << seed;
  }
  EXPECT_THROW(warped(std::vector<double>(5), 2, 3), ValueError);
}

TEST(TokenPlaces, FollowTheHeads) {
  // Token t reads of places 3 t to 3 t + 2.
  const Tensor weights = full({2, 4, 12}, 0.01, DType::f32);
  for (int64_t t = 0; t < 4; ++t) weights.narrow(1, t, 1).narrow(2, 3 * t, 3).fill_(1);
  EXPECT_EQ(token_places(weights, 1), (Ids{0, 3, 6, 9}));
  EXPECT_EQ(token_places(weights, 3), (Ids{0, 3, 6, 9}));
  // One token, and fewer places than the median's half.
  EXPECT_EQ(token_places(full({1, 1, 5}, 0.2, DType::f32), 7), Ids{0});
  EXPECT_EQ(token_places(full({1, 2, 2}, 0.5, DType::f32), 7).size(), 2u);
  EXPECT_THROW(token_places(weights, 4), ValueError);
  EXPECT_THROW(token_places(zeros({2, 2}), 3), ShapeError);
}

}  // namespace
}  // namespace strata::detail
