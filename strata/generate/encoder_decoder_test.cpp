// Texts that encoder-decoders write for a source, against what transformers writes (scripts/make-models).

#include <cmath>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/generate/decoder_start.h"
#include "strata/generate/text_generator.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

using Ids = std::vector<int64_t>;

class WritesForASource : public PretrainedSample {
 protected:
  // Row b of the reference's sources, without its padding.
  Tensor source(int64_t b) const {
    const Tensor own = of("source").select(0, b);
    return has("mask") ? own.narrow(0, 0, of("mask").select(0, b).sum().item<int64_t>()) : own;
  }
  Ids prompt() const { return {of("tokens").select(0, 0).select(0, 0).item<int64_t>()}; }
  Ids row(const char* name, int64_t b) const { return of(name).select(0, b).to_vector<int64_t>(); }
  GenerationRequest request(int64_t b, const GenerationOptions& options) const {
    return {prompt(), options, source(b)};
  }
  std::vector<Generated> write(const std::vector<GenerationRequest>& requests, int64_t batch) {
    return TextGenerator(loaded.encoder_decoder, nullptr, {.batch = batch}).generate(requests);
  }
};

// Three texts in two rows: the second row takes the last source when its first text ended.
TEST_P(WritesForASource, GreedyAsTransformersWrites) {
  std::vector<GenerationRequest> requests;
  for (int64_t b = 0; b < 3; ++b)
    requests.push_back(request(b, {.max_tokens = b == 1 ? 20 : 64, .temperature = 0, .logprobs = true}));
  for (const int64_t batch : {1, 2, 8}) {
    const std::vector<Generated> out = write(requests, batch);
    for (int64_t b = 0; b < 3; ++b) {
      Ids want = row("greedy", b);
      if (b == 1) want.resize(20);
      EXPECT_EQ(out[static_cast<size_t>(b)].completions[0].tokens, want) << "row " << b << ", batch " << batch;
    }
    EXPECT_TRUE(std::isfinite(out[0].completions[0].logprobs[63]));
  }
}

TEST_P(WritesForASource, WhatIsDrawnDoesNotDependOnTheBatch) {
  const GenerationOptions options{.max_tokens = 30, .top_k = 20, .seed = 4, .repetition_penalty = 1.1, .n = 2};
  const std::vector<Generated> all = write({request(0, options), request(1, options), request(2, options)}, 4);
  for (int64_t b = 0; b < 3; ++b) {
    const std::vector<Generated> alone = write({request(b, options)}, 1);
    for (const size_t n : {0u, 1u})
      EXPECT_EQ(alone[0].completions[n].tokens, all[static_cast<size_t>(b)].completions[n].tokens) << b << ", " << n;
  }
  EXPECT_NE(all[0].completions[0].tokens, all[0].completions[1].tokens);
}

TEST_P(WritesForASource, BeamsAsTransformersFindsThem) {
  const ConfigReader config(loaded.config, "config.json");
  GenerationOptions options{.max_tokens = 24, .n = 1, .beams = 3, .length_penalty = 0.8};
  options.not_first = of("beams_not_first").to_vector<int64_t>();
  options.stop_ids = {config.integer("eos_token_id", 1)};
  const std::vector<float> scores = of("beam_scores").to_vector<float>();
  for (int64_t b = 0; b < 3; ++b) {
    Ids want = row("beams", b);
    std::erase(want, -1);
    const Generated out = write({request(b, options)}, 1)[0];
    EXPECT_EQ(out.completions[0].tokens, want) << "row " << b;
    EXPECT_NEAR(out.completions[0].score, static_cast<double>(scores[static_cast<size_t>(b)]), 1e-3);
  }
}

TEST_P(WritesForASource, IdsThatAreNotTheFirst) {
  const Ids greedy = row("greedy", 0);
  const GenerationOptions options{.max_tokens = 8, .temperature = 0, .not_first = {greedy[0]}};
  const Ids got =
      write({request(0, options), request(0, {.max_tokens = 8, .temperature = 0})}, 2)[0].completions[0].tokens;
  EXPECT_NE(got[0], greedy[0]);
  const GenerationOptions twice{.max_tokens = 8, .temperature = 0, .not_first = {greedy[1]}};
  if (greedy[0] != greedy[1]) {
    const Ids whole(greedy.begin(), greedy.begin() + 8);
    EXPECT_EQ(write({request(0, twice)}, 1)[0].completions[0].tokens, whole) << "the second may be it";
  }
}

TEST_P(WritesForASource, Refusals) {
  const GenerationOptions options{.max_tokens = 2};
  EXPECT_NE(message<ValueError>([&] {
              write({request(0, options), {prompt(), options, {}}}, 1);
            }).find("request 1"),
            std::string::npos);
  EXPECT_THROW(write({{prompt(), options, zeros({3, 2, 2})}}, 1), ShapeError);
  EXPECT_THROW(write({{{}, options, source(0)}}, 1), ValueError);
  EXPECT_THROW(write({request(0, {.max_tokens = 2, .not_first = {96}})}, 1), IndexError);
  TextGenerator decoder(std::make_shared<LanguageModel>(model_spec({.vocab = 8})));
  EXPECT_THROW(decoder.generate({{{1}, options, source(0)}}), ValueError);
}

INSTANTIATE_TEST_SUITE_P(Families, WritesForASource, testing::ValuesIn(samples_of({ModelKind::encoder_decoder})),
                         sample_test_name);

TEST(DecoderStarts, OfBothFiles) {
  EXPECT_EQ(parse_decoder_start("", R"({"decoder_start_token_id": 0})", "t5").tokens(), Ids{0});
  EXPECT_EQ(parse_decoder_start(R"({"decoder_start_token_id": 3})", R"({"decoder_start_token_id": 0})", "t5").tokens(),
            Ids{3});
  // Whisper of English alone, and of many languages.
  EXPECT_EQ(parse_decoder_start(R"({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, 9]],
                                    "no_timestamps_token_id": 9})",
                                "", "w")
                .tokens(),
            (Ids{7, 9}));
  const DecoderStart many =
      parse_decoder_start(R"({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, null], [2, 5]],
      "lang_to_id": {"<|de|>": 20, "<|en|>": 21}, "task_to_id": {"transcribe": 5, "translate": 6},
      "no_timestamps_token_id": 9})",
                          "{}", "w");
  EXPECT_EQ(many.tokens("de"), (Ids{7, 20, 5, 9}));
  EXPECT_EQ(many.tokens("<|en|>", "translate"), (Ids{7, 21, 6, 9}));
  EXPECT_NE(message<ValueError>([&] { many.tokens(); }).find("<|de|>, <|en|>"), std::string::npos);
  EXPECT_THROW(many.tokens("fr"), ValueError);
  EXPECT_THROW(many.tokens("de", "sing"), ValueError);
  EXPECT_THROW(parse_decoder_start("", R"({"decoder_start_token_id": 0})", "t5").tokens("de"), ValueError);
  const std::string none = message<IoError>([] { parse_decoder_start("{}", "{}", "folder"); });
  EXPECT_NE(none.find("folder: decoder_start_token_id"), std::string::npos) << none;
  const std::string head = R"({"decoder_start_token_id": 0, "forced_decoder_ids": )";
  for (const char* bad : {"3", "[3]", "[[1]]", "[[2, 4]]", R"([[1, "a"]])", "[[1, -4]]", "[[1, 1e30]]"})
    EXPECT_THROW(parse_decoder_start(head + bad + "}", "", "w"), IoError) << bad;
  EXPECT_THROW(parse_decoder_start("[]", "", "w"), IoError);
  EXPECT_THROW(parse_decoder_start(R"({"decoder_start_token_id": 0, "lang_to_id": [1]})", "", "w"), IoError);
}

}  // namespace
}  // namespace strata
