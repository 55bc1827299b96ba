// Evaluations of a model whose probabilities are known: each token's logits are a row of a table.

#include "strata/eval/tasks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "strata/core/error.h"
#include "strata/models/language_model.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/tokenizer.h"

namespace strata::eval {
namespace {

constexpr int64_t kVocab = 128;

// The logit of `next` after `token`.
double logit(int64_t token, int64_t next, int64_t kind) {
  return std::sin(static_cast<double>(token * 31 + next * 7 + kind * 3)) * 3;
}
double log_p(int64_t token, int64_t next, int64_t kind = 0) {
  double sum = 0;
  for (int64_t i = 0; i < kVocab; ++i) sum += std::exp(logit(token, i, kind));
  return logit(token, next, kind) - std::log(sum);
}
int64_t likeliest(int64_t token, int64_t kind = 0) {
  int64_t best = 0;
  for (int64_t i = 1; i < kVocab; ++i)
    if (logit(token, i, kind) > logit(token, best, kind)) best = i;
  return best;
}

// A token is a byte; 0 stands before a text.
Subject table_model(int64_t context, int64_t kind = 0) {
  std::vector<float> values;
  for (int64_t t = 0; t < kVocab; ++t)
    for (int64_t n = 0; n < kVocab; ++n) values.push_back(static_cast<float>(logit(t, n, kind)));
  const Tensor table = from_span<float>(values, {kVocab, kVocab});
  const auto encode = [](std::string_view text) { return std::vector<int32_t>(text.begin(), text.end()); };
  Subject s;
  s.hidden = [table, context](const Tensor& tokens) {
    EXPECT_LE(tokens.size(1), context);
    return embedding(tokens, table);
  };
  s.logits = [](const Tensor& hidden) { return hidden; };
  s.encode = s.encode_plain = encode;
  const auto write = [kind](int64_t last, int64_t tokens, const std::vector<std::string>& stops) {
    std::string text;
    for (int64_t i = 0; i < tokens; ++i) {
      last = likeliest(last, kind);
      text += static_cast<char>(last);
      for (const std::string& stop : stops)
        if (const size_t at = text.find(stop); at != std::string::npos) return text.substr(0, at);
    }
    return text;
  };
  s.generate = [write](const std::vector<std::vector<int32_t>>& prompts, int64_t tokens,
                       const std::vector<std::string>& stops, const Watch& watch) {
    std::vector<std::string> texts;
    for (const std::vector<int32_t>& p : prompts) {
      texts.push_back(write(p.back(), tokens, stops));
      if (watch) watch(static_cast<int64_t>(texts.size()), static_cast<int64_t>(prompts.size()));
    }
    return texts;
  };
  s.context = context;
  return s;
}

double log_p(std::string_view text, int64_t before = 0, int64_t kind = 0) {
  double sum = 0;
  for (const char c : text) {
    sum += log_p(before, c, kind);
    before = c;
  }
  return sum;
}

std::vector<int32_t> ids(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(Likelihood, IsTheSumOfItsTokensWhateverTheBatch) {
  const Subject model = table_model(16);
  std::vector<LikelihoodRequest> requests;
  for (const auto& [before, after] :
       std::vector<std::pair<std::string, std::string>>{{"ab", "cdef"},
                                                        {"x", "y"},
                                                        {"a longer context than fits", "the end"},
                                                        {"q", "0123456789abcdef"},
                                                        {"z", "a"}})
    requests.push_back({ids(before), ids(after)});
  for (const int64_t batch : {1, 2, 3, 8}) {
    const auto found = log_likelihoods(model, requests, batch);
    ASSERT_EQ(found.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::string text(requests[i].continuation.begin(), requests[i].continuation.end());
      EXPECT_NEAR(found[i].log_probability, log_p(text, requests[i].context.back()), 1e-4) << i;
    }
  }
  EXPECT_TRUE(log_likelihoods(model, {}).empty());
}

TEST(Likelihood, ReadsTheSameTokensOnce) {
  Subject model = table_model(8);
  int64_t rows = 0;
  model.hidden = [&rows, inner = model.hidden](const Tensor& tokens) {
    rows += tokens.size(0);
    return inner(tokens);
  };
  // Three answers of one token to one question, in between another of two that is read with the first of them.
  const std::vector<LikelihoodRequest> requests{
      {{3, 4}, {5}}, {{3, 4}, {6}}, {{3, 4}, {5, 9}}, {{3, 4}, {7}}, {{3}, {4, 8}}};
  for (const int64_t batch : {1, 8}) {
    rows = 0;
    const auto found = log_likelihoods(model, requests, batch);
    EXPECT_EQ(rows, 2);
    EXPECT_NEAR(found[0].log_probability, log_p(4, 5), 1e-5);
    EXPECT_NEAR(found[1].log_probability, log_p(4, 6), 1e-5);
    EXPECT_NEAR(found[2].log_probability, log_p(4, 5) + log_p(5, 9), 1e-5);
    EXPECT_NEAR(found[3].log_probability, log_p(4, 7), 1e-5);
    EXPECT_NEAR(found[4].log_probability, log_p(3, 4) + log_p(4, 8), 1e-5);
  }
}

TEST(Likelihood, IsWatchedAndStopped) {
  const Subject model = table_model(8);
  const std::vector<LikelihoodRequest> requests{{{1, 2, 3}, {4}}, {{2}, {5}}};
  std::vector<int64_t> told;
  log_likelihoods(model, requests, 1, [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 4);
    told.push_back(done);
    return true;
  });
  EXPECT_EQ(told, (std::vector<int64_t>{0, 3, 4}));
  EXPECT_THROW(log_likelihoods(model, requests, 1, [](int64_t done, int64_t) { return done == 0; }), ValueError);
}

TEST(Likelihood, SaysWhatIsGreedy) {
  const Subject model = table_model(8);
  const auto a = static_cast<int32_t>(likeliest(5)), b = static_cast<int32_t>(likeliest(a));
  const auto found = log_likelihoods(model, {{{5}, {a, b}}, {{5}, {a, b == 1 ? 2 : 1}}, {{5}, {a == 1 ? 2 : 1}}});
  EXPECT_TRUE(found[0].greedy);
  EXPECT_FALSE(found[1].greedy);
  EXPECT_FALSE(found[2].greedy);
}

TEST(Likelihood, RefusesWhatHasNoAnswer) {
  const Subject model = table_model(4);
  EXPECT_THROW(log_likelihoods(model, {{{}, {1}}}), ValueError);
  EXPECT_THROW(log_likelihoods(model, {{{1}, {}}}), ValueError);
  EXPECT_THROW(log_likelihoods(model, {{{1}, {1, 2, 3, 4, 5}}}), ValueError);
  EXPECT_THROW(log_likelihoods(model, {{{1}, {kVocab}}}), IndexError);
  EXPECT_THROW(log_likelihoods(model, {{{1}, {1}}}, 0), ValueError);
}

TEST(RollingWindows, AskForEachTokenOnce) {
  for (const int64_t context : {1, 2, 5, 16}) {
    const Subject model = table_model(context);
    for (const size_t size : {0u, 1u, 2u, 5u, 6u, 11u, 16u, 17u, 40u}) {
      std::vector<int32_t> tokens;
      for (size_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>(i + 1));
      for (const int64_t overlap : {int64_t{1}, (context + 1) / 2, context}) {
        std::vector<int32_t> seen;
        for (const LikelihoodRequest& w : rolling_windows(tokens, model, overlap)) {
          EXPECT_LE(static_cast<int64_t>(w.context.size() + w.continuation.size()), context + 1);
          EXPECT_EQ(w.context.back(), w.continuation.front() - 1);  // what stands before is what came before
          if (!seen.empty()) {
            EXPECT_GE(static_cast<int64_t>(w.context.size()), overlap);
          }
          seen.insert(seen.end(), w.continuation.begin(), w.continuation.end());
        }
        EXPECT_EQ(seen, tokens) << context << " " << size << " " << overlap;
      }
    }
  }
  EXPECT_THROW(rolling_windows({1}, table_model(4), 0), ValueError);
  EXPECT_THROW(rolling_windows({1}, table_model(4), 5), ValueError);
}

TEST(EncodePair, BlanksGoWithTheWordThatFollows) {
  const Subject model = table_model(16);
  LikelihoodRequest r = encode_pair(model, "ab  ", "c");
  EXPECT_EQ(r.context, ids("ab"));
  EXPECT_EQ(r.continuation, ids("  c"));
  r = encode_pair(model, "", "c");
  EXPECT_EQ(r.context, std::vector<int32_t>{0});
  EXPECT_EQ(r.continuation, ids("c"));
  r = encode_pair(model, "  ", "c");
  EXPECT_EQ(r.context, std::vector<int32_t>{0});
  EXPECT_EQ(r.continuation, ids("  c"));
  EXPECT_THROW(encode_pair(model, "a", ""), ValueError);
  // Python's blanks are more than ASCII's.
  r = encode_pair(model, "ab\u00a0\u2003\x1f", "c");
  EXPECT_EQ(r.context, ids("ab"));
  EXPECT_EQ(r.continuation, ids("\u00a0\u2003\x1f"
                                "c"));
  EXPECT_EQ(encode_pair(model, "ab\u00e9", "c").continuation, ids("c"));
}

// A text that begins with the beginning of text has it.
TEST(MakeSubject, IsTheModelItself) {
  ModelConfig config;
  config.vocab = 260;
  config.layers = 1;
  config.dim = 16;
  config.heads = 2;
  config.context = 24;
  const std::shared_ptr<LanguageModel> network = make_model(config);
  const auto tokenizer = std::make_shared<const text::ByteTokenizer>();
  const Subject model = make_subject(network, tokenizer);
  EXPECT_FALSE(network->is_training());
  EXPECT_EQ(model.context, 24);
  EXPECT_EQ(model.prefix, '\n');
  EXPECT_EQ(model.encode("ab"), ids("ab"));
  const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{1, 2, 3, 4}, {1, 4});
  EXPECT_EQ(model.logits(model.hidden(tokens).select(0, 0)).to_vector<float>(),
            network->forward(tokens).select(0, 0).to_vector<float>());
  // Texts do not depend on those beside them; ids that the tokenizer does not have are not written.
  const std::vector<std::string> all = model.generate({ids("one"), ids("2"), ids("three")}, 5, {}, {});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1], model.generate({ids("2")}, 5, {}, {})[0]);
  EXPECT_EQ(all[2].size(), 5u);
  EXPECT_THROW(exact_match(model, {{"a", {"b"}}, {"c", {"d"}}}, {.tokens = 4}, [](int64_t, int64_t) { return false; }),
               ValueError);
  EXPECT_EQ(model.generate({ids("2")}, 5, {}, {})[0], all[1]);  // after it was stopped, too
  EXPECT_THROW(make_subject(network, tokenizer, {.context = -1}), ValueError);
  EXPECT_THROW(make_subject(network, tokenizer, {.prefix = 260}), ValueError);
}

TEST(Perplexity, CountsWordsBytesAndTokens) {
  const Subject model = table_model(8);
  const std::vector<std::string> texts{"one two\t\x1cthree", "a", " b "};
  const Evaluation e = perplexity(model, texts, {.batch = 3, .overlap = 3});
  double sum = 0;
  for (const std::string& t : texts) sum += log_p(t);
  EXPECT_EQ(e.documents, 3);
  EXPECT_EQ(e.tokens, 18);
  EXPECT_NEAR(std::log(e.value("word_perplexity")), -sum / 7, 1e-5);  // 3 words, 1, and 3 parts around "b"
  EXPECT_NEAR(e.value("byte_perplexity"), std::exp(-sum / 18), 1e-4);
  EXPECT_NEAR(e.value("bits_per_byte"), -sum / 18 / std::log(2.0), 1e-5);
  EXPECT_NEAR(e.value("loss"), -sum / 18, 1e-5);
  EXPECT_THROW(perplexity(model, {""}), ValueError);
  EXPECT_THROW(e.value("acc"), ValueError);
}

TEST(Divergence, IsThatOfTheTables) {
  const Subject model = table_model(8, 1), reference = table_model(6);
  const std::string text = "some text to compare";
  const Evaluation e = divergence(model, reference, {text});
  double kl = 0, most = 0, same = 0;
  int64_t before = 0;
  for (const char c : text) {
    double here = 0;
    for (int64_t i = 0; i < kVocab; ++i) here += std::exp(log_p(before, i)) * (log_p(before, i) - log_p(before, i, 1));
    kl += here;
    most = std::max(most, here);
    same += likeliest(before) == likeliest(before, 1);
    before = c;
  }
  const auto n = static_cast<double>(text.size());
  EXPECT_EQ(e.tokens, 20);
  EXPECT_NEAR(e.value("kl"), kl / n, 1e-5);
  EXPECT_NEAR(e.value("kl_max"), most, 1e-4);
  EXPECT_NEAR(e.value("same_top"), same / n, 1e-9);
  EXPECT_NEAR(e.value("token_perplexity"), std::exp(-log_p(text, 0, 1) / n), 1e-2);
  EXPECT_NEAR(e.value("reference_perplexity"), std::exp(-log_p(text) / n), 1e-2);
  const Evaluation own = divergence(reference, reference, {text});
  EXPECT_EQ(own.value("kl"), 0);
  EXPECT_EQ(own.value("same_top"), 1);
  Subject other = reference;
  other.encode = [](std::string_view t) { return std::vector<int32_t>(t.size(), 1); };
  EXPECT_THROW(divergence(other, reference, {text}), ValueError);
}

TEST(Choices, TheLikeliestByTextCharacterOrByte) {
  const Subject model = table_model(32);
  std::vector<Choice> questions;
  double acc = 0, norm = 0, bytes = 0;
  for (int i = 0; i < 12; ++i) {
    Choice q{.context = "Q" + std::to_string(i), .answers = {"a", "bc def", "\x7F!", "longer answer"}, .right = i % 4};
    const auto best = [&](auto&& length) {
      int64_t k = 0;
      double high = -INFINITY;
      for (size_t j = 0; j < 4; ++j) {
        const double s = log_p(" " + q.answers[j], q.context.back()) / length(q.answers[j]);
        if (s > high) high = s, k = static_cast<int64_t>(j);
      }
      return k == q.right;
    };
    acc += best([](const std::string&) { return 1.0; });
    norm += best([](const std::string& a) { return static_cast<double>(a.size()); });
    bytes += best([](const std::string& a) { return static_cast<double>(a.size()); });
    questions.push_back(std::move(q));
  }
  const Evaluation e = multiple_choice(model, questions);
  EXPECT_EQ(e.documents, 12);
  EXPECT_DOUBLE_EQ(e.value("acc"), acc / 12);
  EXPECT_DOUBLE_EQ(e.value("acc_norm"), norm / 12);
  EXPECT_DOUBLE_EQ(e.value("acc_bytes"), bytes / 12);
  const double m = acc / 12;
  EXPECT_NEAR(*e.measures[0].error, std::sqrt(m * (1 - m) * 12 / 11 / 12), 1e-12);
  EXPECT_THROW(multiple_choice(model, {}), ValueError);
  EXPECT_THROW(multiple_choice(model, {{"a", {}, 0}}), ValueError);
  EXPECT_THROW(multiple_choice(model, {{"a", {"b", ""}, 0}}), ValueError);
  EXPECT_THROW(multiple_choice(model, {{"a", {"b"}, 1}}), ValueError);
}

TEST(ExactMatch, ComparesWhatIsWrittenBeforeAStop) {
  const Subject model = table_model(16);
  const std::string written = model.generate({ids("Q")}, 6, {}, {})[0];
  const std::vector<Question> questions{{"Q", {"nothing", written}}, {"Q", {"nothing"}}};
  Evaluation e = exact_match(model, questions, {.tokens = 6, .stops = {}});
  EXPECT_DOUBLE_EQ(e.value("exact_match"), 0.5);
  EXPECT_EQ(e.documents, 2);
  EXPECT_EQ(e.tokens, 12);
  // Up to a stop, of a prompt whose start does not fit.
  const std::string stop = written.substr(3, 1);
  e = exact_match(model, {{std::string(40, 'a') + "Q", {written.substr(0, written.find(stop))}}},
                  {.tokens = 6, .stops = {stop}});
  EXPECT_DOUBLE_EQ(e.value("exact_match"), 1);

  Subject talker = model;
  talker.generate = [](const auto&, int64_t, const auto&, const Watch&) {
    return std::vector<std::string>{"  Yes, 42!\n"};
  };
  const auto match = [&](const MatchOptions& o, std::string answer) {
    return exact_match(talker, {{"?", {std::move(answer)}}}, o).value("exact_match");
  };
  EXPECT_EQ(match({.tokens = 2}, "Yes, 42!"), 0);
  EXPECT_EQ(match({.tokens = 2, .trim = true}, "Yes, 42!"), 1);
  EXPECT_EQ(match({.tokens = 2, .ignore_case = true, .trim = true}, "YES, 42!"), 1);
  EXPECT_EQ(match({.tokens = 2, .ignore_punctuation = true, .trim = true}, "Yes 42"), 1);
  EXPECT_EQ(match({.tokens = 2, .ignore_digits = true, .trim = true}, "Yes, 1!"), 1);
  EXPECT_THROW(exact_match(talker, {{"?", {""}}}, {.tokens = 16}), ValueError);
  talker.generate = {};
  EXPECT_THROW(exact_match(talker, {{"?", {""}}}, {.tokens = 2}), ValueError);
}

}  // namespace
}  // namespace strata::eval
