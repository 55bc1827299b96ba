// generation_config.json: what models come with, what is refused.

#include "strata/generate/generation_config.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata {
namespace {

using Ids = std::vector<int64_t>;

TEST(GenerationConfig, WhatModelsComeWith) {
  // Llama 3.1's, Qwen2.5's and GPT-2's, and what says nothing.
  GenerationOptions o = parse_generation_config(
      R"({"bos_token_id": 128000, "do_sample": true, "eos_token_id": [128001, 128008, 128009], "temperature": 0.6,
          "top_p": 0.9, "transformers_version": "4.42.3"})");
  EXPECT_EQ(o.stop_ids, (Ids{128001, 128008, 128009}));
  EXPECT_EQ(o.temperature, 0.6);
  EXPECT_EQ(o.top_p, 0.9);
  EXPECT_EQ(o.top_k, 50) << "transformers' default where something is drawn";
  EXPECT_EQ(o.max_tokens, 0);
  o = parse_generation_config(
      R"({"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
          "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20})");
  EXPECT_EQ(o.repetition_penalty, 1.05);
  EXPECT_EQ(o.top_k, 20);
  o = parse_generation_config(
      R"({"_from_model_config": true, "bos_token_id": 50256, "eos_token_id": 50256, "transformers_version": "4.26.0"})");
  EXPECT_EQ(o.stop_ids, (Ids{50256}));
  EXPECT_EQ(o.temperature, 0) << "the likeliest token";
  EXPECT_EQ(o.top_k, 0);
  o = parse_generation_config("{}");
  EXPECT_EQ(o.temperature, 0);
  o = parse_generation_config(R"({"temperature": 0.3, "top_p": 0.5, "top_k": 7, "typical_p": 0.4})");
  EXPECT_EQ(o.temperature, 0) << "nothing is drawn, so nothing shapes it";
  EXPECT_EQ(o.top_p, 1);
}

TEST(GenerationConfig, EveryKeyThatIsTaken) {
  const GenerationOptions o = parse_generation_config(
      R"({"do_sample": true, "max_new_tokens": 5, "max_length": 9, "min_new_tokens": 2, "min_length": 3, "min_p": 0.1,
          "top_k": 0, "typical_p": 0.7, "num_return_sequences": 3, "suppress_tokens": [1, 2],
          "bad_words_ids": [[4]], "sequence_bias": [[[5], -1.5]], "stop_strings": ["a", "b"], "guidance_scale": 1.0,
          "no_repeat_ngram_size": 0, "epsilon_cutoff": 0.0, "num_beam_groups": 1, "forced_eos_token_id": null,
          "use_cache": false, "output_scores": true})");
  EXPECT_EQ(o.max_tokens, 5);
  EXPECT_EQ(o.max_length, 0) << "max_new_tokens counts";
  EXPECT_EQ(o.min_tokens, 2);
  EXPECT_EQ(o.min_length, 0);
  EXPECT_EQ(o.min_p, 0.1);
  EXPECT_EQ(o.top_k, 0);
  EXPECT_EQ(o.typical_p, 0.7);
  EXPECT_EQ(o.n, 3);
  EXPECT_EQ(o.stop_strings, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(o.logit_bias.size(), 4u);
  double sum = 0;
  for (const auto& [id, value] : o.logit_bias) sum += std::isinf(value) ? static_cast<double>(id) : value;
  EXPECT_EQ(sum, 1 + 2 + 4 - 1.5);
  // As Whisper's files have it; what its texts begin with is parse_decoder_start()'s.
  const GenerationOptions whisper = parse_generation_config(
      R"({"begin_suppress_tokens": [220, 50257], "forced_decoder_ids": [[1, null], [2, 50359]], "is_multilingual": true,
          "lang_to_id": {"<|en|>": 50259}, "task_to_id": {"transcribe": 50359}, "no_timestamps_token_id": 50363,
          "return_timestamps": false, "max_initial_timestamp_index": 50, "alignment_heads": [[2, 2]],
          "prev_sot_token_id": 50361, "decoder_start_token_id": 50258, "suppress_tokens": [1]})");
  EXPECT_EQ(whisper.not_first, (std::vector<int64_t>{220, 50257}));
  EXPECT_EQ(whisper.logit_bias.size(), 1u);
  const GenerationOptions beams = parse_generation_config(
      R"({"num_beams": 4, "length_penalty": 0.5, "early_stopping": "never", "num_return_sequences": 2, "top_k": 9,
          "stop_strings": null, "max_length": 30, "min_length": 6})");
  EXPECT_EQ(beams.beams, 4);
  EXPECT_EQ(beams.length_penalty, 0.5);
  EXPECT_EQ(beams.early_stopping, EarlyStopping::never);
  EXPECT_EQ(beams.max_length, 30);
  EXPECT_EQ(beams.min_length, 6);
  EXPECT_EQ(beams.top_k, 0);
}

TEST(GenerationConfig, WhatWouldWriteOtherTextsIsRefused) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_generation_config(text, "model/generation_config.json");
    } catch (const IoError& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"guidance_scale": 1.5})", "guidance_scale is 1.5"},
      {R"({"no_repeat_ngram_size": 3})", "no_repeat_ngram_size"},
      {R"({"forced_bos_token_id": 3})", "forced_bos_token_id"},
      {R"({"watermarking_config": {}})", "watermarking_config"},
      {R"({"eta_cutoff": 0.1})", "eta_cutoff"},
      {R"({"begin_suppress_tokens": ["a"]})", "begin_suppress_tokens"},
      {R"({"return_timestamps": true})", "return_timestamps"},
      {R"({"num_beam_groups": 2})", "num_beam_groups"},
      {R"({"max_time": 3})", "max_time"},
      {R"({"bad_words_ids": [[1, 2]]})", "several ids"},
      {R"({"bad_words_ids": [[]]})", "bad_words_ids"},
      {R"({"sequence_bias": [[[1, 2], 1]]})", "several ids"},
      {R"({"sequence_bias": {"1": 2}})", "sequence_bias"},
      {R"({"num_beams": 2, "do_sample": true, "temperature": 0.0})", "temperature above 0"},
      {R"({"a_new_key": 1})", "a_new_key is 1: the key is not known"},
      {R"({"top_p": "high", "do_sample": true})", "top_p"},
      {R"({"top_p": 1.5, "do_sample": true})", "top_p"},
      {R"({"temperature": -1, "do_sample": true})", "temperature"},
      {R"({"top_k": 1.5})", "top_k"},
      {R"({"max_new_tokens": 99999999999})", "max_new_tokens"},
      {R"({"max_new_tokens": -1})", "max_tokens"},
      {R"({"eos_token_id": ["a"]})", "eos_token_id"},
      {R"({"eos_token_id": -1})", "stop_ids"},
      {R"({"do_sample": 1})", "do_sample"},
      {R"({"early_stopping": "soon"})", "early_stopping"},
      {R"({"stop_strings": [1]})", "stop_strings"},
      {R"({"stop_strings": [""]})", "stop string"},
      {R"([])", "object"},
      {R"({"top_k": )", "byte"},
  };
  for (const auto& [text, part] : wrong) {
    const std::string got = message(text);
    EXPECT_NE(got.find(part), std::string::npos) << text << ": " << got;
    EXPECT_NE(got.find("model/generation_config.json"), std::string::npos) << got;
  }
}

TEST(GenerationConfig, WhatIsThereIsChangedByACall) {
  const GenerationOptions usual{
      .max_tokens = 12, .max_length = 40, .temperature = 0.8, .top_k = 30, .top_p = 0.9, .stop_ids = {2}};
  GenerationOptions o = change_generation_options(usual, R"({"top_p": 0.5, "seed": 3, "min_new_tokens": null})");
  EXPECT_EQ(o.max_tokens, 12);
  EXPECT_EQ(o.max_length, 40);
  EXPECT_EQ(o.temperature, 0.8);
  EXPECT_EQ(o.top_k, 30);
  EXPECT_EQ(o.top_p, 0.5);
  EXPECT_EQ(o.seed, 3u);
  EXPECT_EQ(o.stop_ids, std::vector<int64_t>{2});
  EXPECT_EQ(change_generation_options(usual, R"({"max_new_tokens": 5})").max_length, 0);
  // Who says how to draw wants something drawn.
  GenerationOptions greedy = usual;
  greedy.temperature = 0;
  EXPECT_EQ(change_generation_options(greedy, "{}").temperature, 0);
  for (const char* how : {R"({"seed": 1})", R"({"top_k": 3})", R"({"do_sample": true})"})
    EXPECT_EQ(change_generation_options(greedy, how).temperature, 1) << how;
  EXPECT_EQ(change_generation_options(greedy, R"({"temperature": 0, "seed": 1})").temperature, 0);
  EXPECT_EQ(change_generation_options(usual, R"({"do_sample": false})").temperature, 0);
  // What is there for drawing says nothing of a search.
  o = change_generation_options(usual, R"({"num_beams": 3})");
  EXPECT_EQ(o.beams, 3);
  EXPECT_FALSE(o.draw_beams);
  EXPECT_EQ(o.temperature, 1);
  EXPECT_EQ(o.top_k, 0);
  EXPECT_EQ(o.top_p, 1);
  o = change_generation_options(usual, R"({"num_beams": 3, "top_k": 5})");
  EXPECT_TRUE(o.draw_beams);
  EXPECT_EQ(o.top_k, 5);
  EXPECT_EQ(o.top_p, 1);
  EXPECT_EQ(change_generation_options(o, R"({"num_beams": 1})").temperature, 0);
  EXPECT_EQ(change_generation_options(o, R"({"num_beams": 1, "temperature": 0.5})").temperature, 0.5);
  for (const char* wrong : {R"({"temprature": 1})", R"({"top_k": "a"})", "[]", "{"})
    EXPECT_THROW(change_generation_options(usual, wrong), ValueError) << wrong;
}

}  // namespace
}  // namespace strata
