// Generation against transformers, against the model without a cache, and against itself in other batches.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/node.h"
#include "strata/generate/beam_draws_inl.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/sampling.h"
#include "strata/generate/sequences.h"
#include "strata/generate/text_generator.h"
#include "strata/generate/text_stream.h"
#include "strata/memory/allocator.h"
#include "strata/models/model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Ids = std::vector<int64_t>;

// Weights large enough that the next token depends on those before.
std::shared_ptr<LanguageModel> model_of(std::string_view family, int64_t vocab = 40, int64_t context = 48) {
  manual_seed(11);
  auto model = make_model(small_model(family, 2, context, vocab));
  const NoGrad guard;
  for (Tensor p : model->parameters())
    if (p.dim() >= 2) p.copy_(randn(p.shape()) * 0.3);
  return model;
}

// Logits of the token after each, without a cache.
Tensor all_logits(const LanguageModel& model, const Ids& ids) {
  const NoGrad guard;
  return model.forward(from_span<int64_t>(ids, {1, static_cast<int64_t>(ids.size())})).select(0, 0);
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<GenerationRequest> some_requests() {
  std::vector<GenerationRequest> all;
  all.push_back({{1, 2, 3}, {.max_tokens = 12, .temperature = 0.8, .seed = 4}});
  all.push_back({{7}, {.max_tokens = 20, .top_k = 5, .seed = 4}});
  all.push_back({{9, 9, 1, 0, 30, 22, 13, 8}, {.max_tokens = 15, .temperature = 1.3, .top_p = 0.8, .seed = 77}});
  all.push_back({{5, 6}, {.max_tokens = 17, .min_p = 0.1, .typical_p = 0.9, .seed = 1, .repetition_penalty = 1.2}});
  all.push_back({{1, 2, 3}, {.max_tokens = 12, .temperature = 0}});
  all.push_back({{31, 2}, {.max_tokens = 9, .seed = 2, .frequency_penalty = 0.5, .presence_penalty = 0.2}});
  all.back().options.logit_bias = {{3, 2.0}, {4, -INFINITY}};
  all.push_back({Ids(40, 6), {.seed = 3}});  // until the context is full
  all.push_back({{8, 1}, {.max_tokens = 30, .min_tokens = 6, .seed = 9}});
  all.back().options.stop_ids = {1, 2, 3, 5, 8, 13, 21, 34};
  return all;
}

class Families : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Families, testing::Values("gpt", "llama"));

// ---- the same whatever the batch

TEST_P(Families, ARequestWritesTheSameInAnyBatch) {
  const auto model = model_of(GetParam());
  const std::vector<GenerationRequest> requests = some_requests();
  std::vector<Ids> alone;
  for (const GenerationRequest& r : requests)
    alone.push_back(TextGenerator(model, nullptr, {.batch = 1}).generate({r})[0].completions[0].tokens);
  for (const int64_t batch : {1, 2, 3, 8, 20})
    for (const int64_t chunk : {3, 512}) {
      TextGenerator writer(model, nullptr, {.batch = batch, .prefill_chunk = chunk});
      for (int round = 0; round < 2; ++round) {  // rows are used again
        const std::vector<Generated> out = writer.generate(requests);
        for (size_t i = 0; i < requests.size(); ++i)
          EXPECT_EQ(out[i].completions[0].tokens, alone[i]) << "request " << i << ", batch " << batch;
      }
      EXPECT_EQ(writer.statistics().output_tokens,
                12 + 20 + 15 + 17 + 12 + 9 + 9 + static_cast<int64_t>(alone[7].size()));
    }
  EXPECT_EQ(alone[6].size(), 9u) << "the last token needs no place of its own";
}

TEST_P(Families, WithoutTemperatureTheLikeliestTokenIsTaken) {
  const auto model = model_of(GetParam());
  const Ids prompt = {3, 1, 4, 1, 5};
  const Ids written =
      TextGenerator(model).generate({{prompt, {.max_tokens = 20, .temperature = 0}}})[0].completions[0].tokens;
  const Tensor best = argmax(all_logits(*model, joined(prompt, written)), -1);
  const Ids want = best.to_vector<int64_t>();
  for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(written[i], want[prompt.size() - 1 + i]) << i;
}

TEST_P(Families, SeveralTextsOfOnePrompt) {
  const auto model = model_of(GetParam());
  const GenerationRequest one{{3, 1, 4}, {.max_tokens = 16, .seed = 5}};
  GenerationRequest many = one;
  many.options.n = 5;
  const Generated all = TextGenerator(model, nullptr, {.batch = 3}).generate({many})[0];
  EXPECT_EQ(all.completions[0].tokens, TextGenerator(model).generate({one})[0].completions[0].tokens);
  std::set<Ids> different;
  for (const Completion& c : all.completions) different.insert(c.tokens);
  EXPECT_EQ(different.size(), 5u);
  const Generated again = TextGenerator(model, nullptr, {.batch = 16}).generate({many})[0];
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(again.completions[i].tokens, all.completions[i].tokens);
}

// ---- transformers

// make_cases.py's.
std::shared_ptr<LanguageModel> formula_model() {
  ModelConfig c = small_model("llama", 2, 64, 24);
  c.dim = 16;
  c.kv_heads = 2;
  c.ffn_dim = 32;
  c.tied_embeddings = false;
  const auto model = make_model(c);
  const NoGrad guard;
  const auto fill = [](Tensor to, int salt) {
    std::vector<float> v(static_cast<size_t>(to.numel()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(0.7 * std::sin(12.9898 * static_cast<double>(i) + 78.233 * salt));
    to.copy_(from_span<float>(v, to.shape()));
  };
  for (const auto& [name, p] : model->named_parameters()) {
    if (p.dim() < 2) continue;
    const int layer = name.starts_with("blocks.1.") ? 10 : 0;
    if (name == "token_embedding.weight")
      fill(p, 1);
    else if (name == "head.weight")
      fill(p, 2);
    else if (name.ends_with("attn.qkv.weight")) {
      fill(p.narrow(0, 0, 16), layer + 11);
      fill(p.narrow(0, 16, 8), layer + 12);
      fill(p.narrow(0, 24, 8), layer + 13);
    } else if (name.ends_with("attn.out.weight"))
      fill(p, layer + 14);
    else if (name.ends_with("mlp.gate_up.weight")) {
      fill(p.narrow(0, 0, 32), layer + 15);
      fill(p.narrow(0, 32, 32), layer + 16);
    } else if (name.ends_with("mlp.down.weight"))
      fill(p, layer + 17);
    else
      ADD_FAILURE() << name;
  }
  return model;
}

TEST(Transformers, WriteTheSame) {
  const auto model = formula_model();
  TextGenerator writer(model);
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::ifstream file(std::string(source_dir) + "/strata/generate/cases.jsonl");
  int cases = 0, beams = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const nlohmann::json c = nlohmann::json::parse(line);
    GenerationOptions options = parse_generation_config(c["config"].dump());
    options.seed = 7;  // of beams that are drawn
    const Generated out = writer.generate({{c["prompt"].get<Ids>(), options}})[0];
    beams += options.beams > 1;
    ASSERT_EQ(out.completions.size(), c["texts"].size()) << line;
    for (size_t i = 0; i < out.completions.size(); ++i) {
      EXPECT_EQ(out.completions[i].tokens, c["texts"][i].get<Ids>()) << line;
      if (options.beams > 1) {
        const double want = c["scores"][i].get<double>();
        EXPECT_NEAR(out.completions[i].score, want, 1e-4 * std::max(1.0, std::abs(want))) << line;
      }
    }
  }
  EXPECT_GT(cases, 90);
  EXPECT_GT(beams, 60);
}

// ---- beams that are drawn

TEST(DrawnBeams, AreDrawnBySoftmaxWithoutReplacement) {
  const std::vector<float> logits{0.0F, 1.0F, -1.0F, 0.5F, -INFINITY};
  const Tensor sums = from_span<float>(logits, {5});
  const std::vector<float> p = softmax(sums, 0).to_vector<float>();
  constexpr int kDraws = 4000;
  // Of the first of two, and of both orders of a pair: p_i p_j / (1 - p_i) and the other way round.
  std::vector<int> in_pair(5);
  for (int seed = 0; seed < kDraws; ++seed) {
    const auto [values, places] = detail::drawn(sums, 2, static_cast<uint64_t>(seed), seed % 7);
    const Ids two = places.to_vector<int64_t>();
    ASSERT_NE(two[0], two[1]);
    const std::vector<float> v = values.to_vector<float>();
    EXPECT_GE(v[0], v[1]);
    for (const int64_t i : two) ++in_pair[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < 5; ++i) {
    double want = p[i];
    for (size_t j = 0; j < 5; ++j)
      if (j != i) want += static_cast<double>(p[j]) * p[i] / (1.0 - p[j]);
    EXPECT_NEAR(in_pair[i] / static_cast<double>(kDraws), want, 4 * std::sqrt(0.25 / kDraws)) << i;
  }
  EXPECT_EQ(in_pair[4], 0) << "what was left out is not drawn";
}

TEST(DrawnBeams, AreTheSeedsAndComeWhole) {
  const auto model = model_of("llama");
  GenerationOptions o{.max_tokens = 8, .temperature = 1.5, .top_k = 12, .seed = 3};
  o.beams = 3, o.n = 2, o.draw_beams = true;
  const auto write = [&](uint64_t seed) {
    o.seed = seed;
    return TextGenerator(model).generate({{{1, 2, 3}, o}})[0].completions[0].tokens;
  };
  EXPECT_EQ(write(3), write(3));
  std::set<Ids> different;
  for (uint64_t seed = 0; seed < 10; ++seed) different.insert(write(seed));
  EXPECT_GT(different.size(), 3u);
  // Which texts they will be is known at the end: one piece each, with all of it.
  std::vector<GenerationPiece> pieces;
  const Generated out = TextGenerator(model).generate({{{1, 2, 3}, o}}, [&](const GenerationPiece& p) {
    pieces.push_back(p);
    return true;
  })[0];
  ASSERT_EQ(pieces.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pieces[i].completion, static_cast<int64_t>(i));
    EXPECT_EQ(pieces[i].token, out.completions[i].tokens.back());
    EXPECT_TRUE(pieces[i].last);
  }
}

// ---- how texts end

// A token a byte, and a model for it.
struct Writer {
  std::shared_ptr<text::Tokenizer> tokenizer = std::make_shared<text::ByteTokenizer>();
  std::shared_ptr<LanguageModel> model = model_of("gpt", 300, 64);  // more ids than the tokenizer has
  TextGenerator generator{model, tokenizer};
  Completion write(const GenerationOptions& options, const TextGenerator::Callback& callback = {}) {
    return generator.generate({{{65, 66}, options}}, callback)[0].completions[0];
  }
};

TEST(Ends, IdsThatTheTokenizerDoesNotHaveAreNeverDrawn) {
  Writer w;
  {
    const NoGrad guard;
    Tensor beyond = narrow(w.model->token_embedding.weight, 0, 256, 44);
    beyond.copy_(beyond * 20.0);  // very likely, or very unlikely
  }
  int64_t likeliest_beyond = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Completion c = w.write({.max_tokens = 40, .temperature = 2, .seed = seed});
    EXPECT_EQ(c.text.size(), 40u);
    for (const int64_t t : c.tokens) EXPECT_LT(t, 256);
    Ids all = joined({65, 66}, c.tokens);
    for (const int64_t t : argmax(all_logits(*w.model, all), -1).to_vector<int64_t>()) likeliest_beyond += t >= 256;
  }
  EXPECT_GT(likeliest_beyond, 0);
}

TEST(Ends, AtAStopStringThatSeveralTokensMake) {
  Writer w;
  GenerationOptions o{.max_tokens = 50, .seed = 3};
  for (int64_t id = 128; id < 256; ++id) o.logit_bias.emplace_back(id, -INFINITY);  // no parts of characters
  const Completion whole = w.write(o);
  ASSERT_EQ(whole.text.size(), 50u);
  EXPECT_EQ(whole.finish, Finish::length);
  for (const size_t at : {0u, 1u, 17u, 47u}) {
    const std::string stop = whole.text.substr(at, 3);
    o.stop_strings = {"never to be seen", stop};
    std::string streamed;
    bool ended = false;
    const Completion c = w.write(o, [&](const GenerationPiece& p) {
      EXPECT_FALSE(ended);
      streamed += p.text;
      ended = p.last;
      return true;
    });
    const size_t first = whole.text.find(stop);
    EXPECT_EQ(c.text, whole.text.substr(0, first));
    EXPECT_EQ(c.tokens.size(), first + stop.size());
    EXPECT_EQ(c.finish, Finish::stop_string);
    EXPECT_EQ(c.stop, 1);
    EXPECT_EQ(streamed, c.text);
    EXPECT_TRUE(ended);
  }
}

TEST(Ends, AtAStopIdButNotBeforeTheLeastLength) {
  Writer w;
  GenerationOptions o{.max_tokens = 60, .temperature = 3, .seed = 5};
  for (int64_t id = 0; id < 256; id += 2) o.stop_ids.push_back(id);
  const Completion early = w.write(o);
  EXPECT_EQ(early.finish, Finish::stop_id);
  EXPECT_EQ(early.tokens.back() % 2, 0);
  EXPECT_EQ(o.stop_ids[static_cast<size_t>(early.stop)], early.tokens.back());
  EXPECT_EQ(early.text.size(), early.tokens.size() - 1) << "a stop id is not part of the text";
  o.min_tokens = 20;
  const Completion late = w.write(o);
  EXPECT_GE(late.tokens.size(), 21u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(late.tokens[i] % 2, 1) << i;
  o.min_tokens = 0, o.min_length = 12;  // two of them the prompt's
  const Completion between = w.write(o);
  EXPECT_GE(between.tokens.size(), 11u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(between.tokens[i] % 2, 1) << i;
}

TEST(Ends, WhenTheCallbackSaysSo) {
  Writer w;
  int calls = 0;
  const Completion c = w.write({.max_tokens = 50}, [&](const GenerationPiece&) { return ++calls < 7; });
  EXPECT_EQ(c.tokens.size(), 7u);
  EXPECT_EQ(c.finish, Finish::cancelled);
  EXPECT_EQ(calls, 7);
  // An exception of the callback's reaches the caller, and the writer goes on to be of use.
  EXPECT_THROW(w.write({}, [](const GenerationPiece&) -> bool { throw std::runtime_error("enough"); }),
               std::runtime_error);
  EXPECT_EQ(w.write({.max_tokens = 7}).tokens, c.tokens);
}

TEST(Ends, StatisticsCountWhatWasDone) {
  Writer w;
  w.generator.generate({{{1, 2, 3}, {.max_tokens = 5}}, {{4}, {.max_tokens = 9}}});
  const GenerationStatistics& s = w.generator.statistics();
  EXPECT_EQ(s.prompt_tokens, 4);
  EXPECT_EQ(s.output_tokens, 14);
  EXPECT_EQ(s.steps, 9);
  EXPECT_GT(s.output_rate(), 0);
  EXPECT_GT(s.prompt_rate(), 0);
  EXPECT_GT(s.first_token_seconds, 0);
  EXPECT_LT(s.first_token_seconds, s.prompt_seconds + s.output_seconds + 1);
}

// ---- parts of it

TEST(Parts, TheOpDrawsWhatTheHostDrew) {
  manual_seed(8);
  const int64_t draws = 400, ids = 100;
  const Tensor logits = randn({draws, ids}) * 2.0;
  const std::vector<float> all = logits.to_vector<float>();
  for (const SampleOptions& o :
       std::vector<SampleOptions>{{.seed = 3},
                                  {.temperature = 0},
                                  {.temperature = 0.7, .seed = 4},
                                  {.top_k = 7, .seed = 5},
                                  {.top_p = 0.75, .seed = 6},
                                  {.temperature = 1.4, .top_k = 30, .top_p = 0.5, .seed = 7, .vocab = 60}}) {
    const auto [tokens, logprobs] =
        sample_tokens(logits, full({draws}, static_cast<int64_t>(o.seed), DType::i64), arange(draws, DType::i64),
                      {.temperature = full({}, o.temperature, DType::f32),
                       .top_k = full({}, o.top_k, DType::i64),
                       .top_p = full({}, o.top_p, DType::f32)},
                      o.vocab);
    const Ids got = tokens.to_vector<int64_t>();
    for (int64_t i = 0; i < draws; ++i)
      EXPECT_EQ(got[static_cast<size_t>(i)],
                sample_token(std::span(all).subspan(static_cast<size_t>(i * ids), ids), o, static_cast<uint64_t>(i)))
          << i;
  }
}

TEST_P(Families, AConversationIsNotReadAgain) {
  const auto model = model_of(GetParam());
  TextGenerator chat(model, nullptr, {.reuse = true});
  Ids prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  for (int turn = 0; turn < 3; ++turn) {
    const GenerationOptions o{.max_tokens = 6, .temperature = 0};
    const Ids written = chat.generate({{prompt, o}})[0].completions[0].tokens;
    EXPECT_EQ(written, TextGenerator(model).generate({{prompt, o}})[0].completions[0].tokens) << turn;
    // The last token that was written, and those that the turn adds.
    EXPECT_EQ(chat.statistics().prompt_tokens, turn == 0 ? 8 : 4) << turn;
    prompt = joined(joined(prompt, written), {20, 21, 22});
  }
  prompt.resize(4);  // another conversation with the same beginning
  prompt.push_back(30);
  EXPECT_EQ(chat.generate({{prompt, {.max_tokens = 6, .temperature = 0}}})[0].completions[0].tokens,
            TextGenerator(model).generate({{prompt, {.max_tokens = 6, .temperature = 0}}})[0].completions[0].tokens);
  EXPECT_EQ(chat.statistics().prompt_tokens, 1);
  EXPECT_EQ(chat.generate({{{9}, {.max_tokens = 2}}})[0].completions[0].tokens,
            TextGenerator(model).generate({{{9}, {.max_tokens = 2}}})[0].completions[0].tokens);
}

TEST_P(Families, ATextRollsOnWhereItsContextIsFull) {
  const auto model = model_of(GetParam(), 40, 12);
  const Ids prompt(30, 3);  // longer than the context
  TokenSampler one(model, std::vector<int32_t>(prompt.begin(), prompt.end()), {.temperature = 0.9, .seed = 6});
  Ids want;
  for (int i = 0; i < 40; ++i) want.push_back(one.next());
  const GenerationOptions o{.max_tokens = 40, .temperature = 0.9, .seed = 6};
  TextGenerator writer(model, nullptr, {.roll = true});
  const std::vector<Generated> out = writer.generate({{prompt, o}, {{1, 2}, {.max_tokens = 25}}});
  EXPECT_EQ(out[0].completions[0].tokens, want);
  EXPECT_EQ(out[1].completions[0].tokens.size(), 25u);
  EXPECT_THROW(writer.generate({{prompt, {}}}), ValueError) << "it would never end";
}

// ---- logprobs

TEST_P(Families, LogprobsAreTheModelsOwn) {
  const auto model = model_of(GetParam());
  GenerationRequest r{{3, 1, 4, 1, 5}, {.max_tokens = 10, .temperature = 0.5, .top_k = 3, .seed = 8}};
  r.options.logprobs = r.options.prompt_logprobs = true;
  r.options.top_logprobs = 4;
  for (const double penalty : {1.0, 1.5}) {
    r.options.repetition_penalty = penalty;
    const Generated out =
        TextGenerator(model, nullptr, {.prefill_chunk = 2}).generate({r, {{2}, {.max_tokens = 3}}})[0];
    const Completion& c = out.completions[0];
    const Tensor logprobs = log_softmax(all_logits(*model, joined(r.prompt, c.tokens)), -1);
    const std::vector<float> all = logprobs.to_vector<float>();
    const auto want = [&](size_t place, int64_t id) { return all[place * 40 + static_cast<size_t>(id)]; };
    ASSERT_EQ(out.prompt_logprobs.size(), 4u);
    ASSERT_EQ(out.top_prompt_logprobs.size(), 4u);
    ASSERT_EQ(c.logprobs.size(), 10u);
    ASSERT_EQ(c.top_logprobs.size(), 10u);
    for (size_t i = 0; i < 14; ++i) {
      const int64_t id = i < 4 ? r.prompt[i + 1] : c.tokens[i - 4];
      EXPECT_NEAR(i < 4 ? out.prompt_logprobs[i] : c.logprobs[i - 4], want(i, id), 1e-4) << i;
      const auto& top = i < 4 ? out.top_prompt_logprobs[i] : c.top_logprobs[i - 4];
      ASSERT_EQ(top.size(), 4u);
      EXPECT_EQ(top[0].id, argmax(logprobs.select(0, static_cast<int64_t>(i)), -1).item());
      for (size_t k = 0; k < 4; ++k) {
        EXPECT_NEAR(top[k].logprob, want(i, top[k].id), 1e-4);
        if (k > 0) EXPECT_LE(top[k].logprob, top[k - 1].logprob);
      }
    }
  }
}

// ---- what is refused

TEST(Refusals, NameTheRequestBeforeAnythingIsComputed) {
  Writer w;
  const auto message = [&](const GenerationRequest& wrong) -> std::string {
    int calls = 0;
    try {
      w.generator.generate({{{65}, {.max_tokens = 1}}, wrong}, [&](const GenerationPiece&) { return ++calls > 0; });
    } catch (const Error& e) {
      EXPECT_EQ(calls, 0);
      return e.what();
    }
    return "nothing";
  };
  const auto with = [](auto change) {
    GenerationRequest r{{65}};
    change(r.options);
    return r;
  };
  using O = GenerationOptions;
  const std::vector<std::pair<GenerationRequest, std::string>> wrong = {
      {{{}}, "prompt is empty"},
      {{{300}}, "token 300"},
      {{{-1}}, "token -1"},
      {{Ids(66, 1)}, "leaves no room"},
      {with([](O& o) { o.max_length = 1; }), "max_length is 1"},
      {with([](O& o) { o.temperature = -1; }), "temperature"},
      {with([](O& o) { o.temperature = NAN; }), "temperature"},
      {with([](O& o) { o.top_p = 0; }), "top_p"},
      {with([](O& o) { o.typical_p = 1.5; }), "typical_p"},
      {with([](O& o) { o.min_p = -0.1; }), "min_p"},
      {with([](O& o) { o.top_k = -1; }), "top_k"},
      {with([](O& o) { o.n = 0; }), "n is at least 1"},
      {with([](O& o) { o.n = -7; }), "n is at least 1"},
      {with([](O& o) { o.max_tokens = -1; }), "max_tokens"},
      {with([](O& o) { o.repetition_penalty = 0; }), "repetition_penalty"},
      {with([](O& o) { o.presence_penalty = INFINITY; }), "presence_penalty"},
      {with([](O& o) {
         o.logit_bias = {{300, 1}};
       }),
       "logit_bias"},
      {with([](O& o) {
         o.logit_bias = {{0, INFINITY}};
       }),
       "logit_bias"},
      {with([](O& o) { o.stop_ids = {300}; }), "stop_ids"},
      {with([](O& o) {
         o.stop_strings = {"a", ""};
       }),
       "stop string is empty"},
      {with([](O& o) { o.top_logprobs = 301; }), "top_logprobs"},
      {with([](O& o) { o.beams = 2, o.n = 3; }), "2 beams"},
      {with([](O& o) { o.beams = 2, o.temperature = 0.5; }), "not drawn"},
      {with([](O& o) { o.beams = 2, o.draw_beams = true, o.temperature = 0; }), "temperature above 0"},
      {with([](O& o) { o.beams = 2, o.stop_strings = {"a"}; }), "stop strings"},
  };
  for (const auto& [request, text] : wrong) {
    const std::string got = message(request);
    EXPECT_NE(got.find("request 1"), std::string::npos) << got;
    EXPECT_NE(got.find(text), std::string::npos) << got;
  }
  GenerationOptions stops;
  stops.stop_strings = {"a"};
  EXPECT_THROW(TextGenerator(w.model).generate({{{1}, stops}}), ValueError) << "no tokenizer";
  EXPECT_THROW(TextGenerator(w.model, nullptr, {.batch = 0}), ValueError);
  EXPECT_THROW(TextGenerator(w.model, nullptr, {.prefill_chunk = 0}), ValueError);
  EXPECT_TRUE(w.generator.generate({}).empty());
}

TEST(Rows, RefuseWhatTheyHaveNot) {
  const auto model = model_of("llama", 20, 8);
  Sequences rows(model, 2);
  EXPECT_THROW(rows.start(2, Ids{1}, {}), IndexError);
  EXPECT_THROW(rows.start(0, Ids{}, {}), ValueError);
  EXPECT_THROW(rows.start(0, Ids{20}, {}), IndexError);
  EXPECT_THROW(rows.start(0, Ids(9, 1), {}), ValueError);
  EXPECT_THROW(rows.stop(-1), IndexError);
  EXPECT_THROW(rows.reorder(Ids{0, 2}), IndexError);
  EXPECT_THROW(rows.reorder(Ids{0}), ShapeError);
  EXPECT_THROW(rows.append(zeros({2})), ShapeError);
  EXPECT_THROW(rows.start(0, Ids{1, 2}, {}, 0, 1), ValueError) << "there is nothing to keep";
  rows.start(1, Ids(8, 1), {});
  rows.step();
  EXPECT_EQ(rows.length(1), 9);
  EXPECT_EQ(rows.length(0), 0);
  EXPECT_THROW(rows.step(), ValueError) << "full";
  rows.stop(1);
  rows.start(0, Ids{1, 2}, {});
  rows.step();  // the full row rests
  EXPECT_EQ(rows.length(0), 3);
}

// ---- memory

TEST(Rows, AStepTakesNoMemoryThatTheFirstDidNot) {
  const auto model = model_of("llama");
  Sequences rows(model, 4);
  for (int64_t r = 0; r < 4; ++r)
    rows.start(r, Ids{r, 1, 2}, {.temperature = 0.9, .top_p = 0.9, .seed = 1, .repetition_penalty = 1.1});
  // The longest that keys can be: what attention reads grows with them.
  const auto peak = [&] {
    memory::reset_peak(Device::cpu());
    rows.step();
    return memory::stats(Device::cpu()).peak_total;
  };
  rows.step();
  const memory::Stats before = memory::stats(Device::cpu());
  const int64_t first = peak();
  for (int i = 0; i < 40; ++i) {
    EXPECT_LE(peak(), first + 4096) << i;
    const memory::Stats now = memory::stats(Device::cpu());
    EXPECT_EQ(now.live_total, before.live_total) << i;
    EXPECT_EQ(now.blocks, before.blocks) << i;
    EXPECT_EQ(now.reserved, before.reserved) << i;
  }
}

// The same of requests of other lengths with all that a step can do: between two tokens nothing is kept, and the heap
// asks the system for nothing.
TEST(Rows, RequestsTakeNoMemoryAStep) {
  const auto model = model_of("llama");
  GenerationOptions o{.max_tokens = 30, .temperature = 0.9, .top_p = 0.9, .seed = 1, .repetition_penalty = 1.1};
  o.logit_bias = {{3, 0.5}}, o.min_tokens = 31, o.stop_ids = {7};
  std::vector<GenerationRequest> requests;
  for (int64_t r = 0; r < 4; ++r) requests.push_back({Ids(static_cast<size_t>(2 + 3 * r), r), o});
  TextGenerator writer(model);
  std::vector<memory::Stats> after;  // of each step: its first row's piece
  writer.generate(requests, [&](const GenerationPiece& piece) {
    if (piece.request == 0) after.push_back(memory::stats(Device::cpu()));
    return true;
  });
  ASSERT_EQ(after.size(), 30u);
  for (size_t i = 3; i < after.size(); ++i) {
    EXPECT_EQ(after[i].live_total, after[2].live_total) << i;
    EXPECT_EQ(after[i].blocks, after[2].blocks) << i;
    EXPECT_EQ(after[i].reserved, after[2].reserved) << i;
    EXPECT_EQ(after[i].retries, after[2].retries) << i;
    EXPECT_LE(after[i].allocations - after[i - 1].allocations, after[2].allocations - after[1].allocations + 8) << i;
  }
}

}  // namespace
}  // namespace strata
