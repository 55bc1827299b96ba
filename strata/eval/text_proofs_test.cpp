#include "strata/eval/text_proofs.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/random/random.h"

namespace strata::eval {
namespace {

// A token is a byte, whose row of the table is what the output layer reads.
Subject table_model(const Tensor& table, int64_t context) {
  Subject s;
  s.hidden = [table](const Tensor& tokens) { return embedding(tokens, table); };
  s.encode = [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); };
  s.context = context;
  return s;
}

const std::vector<std::string> kTexts{std::string(70, 'a') + "some more of another kind", "x", "one two three four"};

TEST(TextProofs, AcceptTheSameModelAlone) {
  manual_seed(4);
  const Tensor table = randn({128, 64});
  const Subject model = table_model(table, 40);
  const TextProofs proofs = prove_texts(model, kTexts);
  EXPECT_EQ(proofs.tokens, 95 + 1 + 18);
  EXPECT_EQ(proofs.proofs.size(), 2u + 2 + 1 + 1 + 1);  // windows of 40, 40 and 15 tokens; 1; 18
  EXPECT_EQ(proofs.proofs[0].size(), 258u);
  EXPECT_EQ(proofs.proofs[5].size(), 2u + 2 * 64);  // one token has no more numbers
  const TextProofs read = parse_text_proofs(to_json(proofs), "p.json");
  EXPECT_EQ(read.proofs, proofs.proofs);
  const Evaluation same = check_texts(model, kTexts, read);
  EXPECT_EQ(same.value("accepted"), 1);
  EXPECT_EQ(same.value("other_exponents"), 0);
  EXPECT_EQ(same.value("mean_mantissa"), 0);
  EXPECT_EQ(same.tokens, proofs.tokens);
  EXPECT_EQ(check_texts(table_model(table * 1.0001, 40), kTexts, read).value("accepted"), 1);
  EXPECT_EQ(check_texts(table_model(randn({128, 64}), 40), kTexts, read).value("accepted"), 0);
}

TEST(TextProofs, OtherTextsOrWindowsAreTold) {
  const Subject model = table_model(randn({128, 64}), 40);
  const TextProofs proofs = prove_texts(model, kTexts);
  EXPECT_THROW(check_texts(model, {"x"}, proofs), ValueError);
  EXPECT_THROW(check_texts(model, {kTexts[0], kTexts[0]}, proofs), ValueError);
  EXPECT_THROW(check_texts(model, kTexts, proofs, {.overlap = 2}), ValueError);
  Subject other = model;
  other.context = 41;
  EXPECT_THROW(check_texts(other, kTexts, proofs), ValueError);
  other = model;
  other.prefix = 3;
  EXPECT_THROW(check_texts(other, kTexts, proofs), ValueError);
  EXPECT_THROW(prove_texts(model, {""}), ValueError);
  EXPECT_THROW(prove_texts(model, kTexts, {.watch = [](int64_t, int64_t) { return false; }}), ValueError);
}

TEST(TextProofs, FilesThatAreNone) {
  const std::string good = to_json({.context = 4, .tokens = 3, .proofs = {{1, 2, 3, 4}}});
  EXPECT_EQ(parse_text_proofs(good, "p").proofs.size(), 1u);
  const auto bad = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_text_proofs(text, "p");
    } catch (const IoError& e) {
      return std::string(e.what());
    }
    return "no error in " + text;
  };
  EXPECT_EQ(bad("proofs 1", "proofs 2"), "'p' has no proofs of texts");
  EXPECT_EQ(bad("\"every\": 32", "\"every\": 0"), "'p': every is 0, wanted from 1 to 1099511627776");
  EXPECT_EQ(bad("\"every\": 32", "\"every\": 18446744073709551615"), "'p': every is more than 1099511627776");
  EXPECT_EQ(bad("\"prefix\": 0", "\"prefix\": 0.5"), "'p': prefix is no integer");
  EXPECT_EQ(bad("\"tokens\"", "\"token\""), "'p': tokens is no integer");
  EXPECT_EQ(bad("AQIDBA==", "AQIDB"), "'p': proof 0 is no base64");
  EXPECT_EQ(bad("\"AQIDBA==\"", "7"), "'p': proof 0 is no base64");
  EXPECT_EQ(bad("[\"AQIDBA==\"]", "[]"), "'p': proofs is no list of texts");
  EXPECT_THROW(parse_text_proofs("[]", "p"), IoError);
  EXPECT_THROW(parse_text_proofs(good.substr(0, 40), "p"), IoError);
}

}  // namespace
}  // namespace strata::eval
