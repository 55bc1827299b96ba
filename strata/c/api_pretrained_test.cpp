// Models that exist, through the C interface, against the C++ that it is made of and against transformers.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/c/strata.h"
#include "strata/core/node.h"
#include "strata/data/wav_test_util.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"

namespace {
namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

constexpr strata_device kCpu = {STRATA_CPU, 0};

#define EXPECT_OK(...) EXPECT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()
#define ASSERT_OK(...) ASSERT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()

void expect_error(strata_status got, strata_status want, const char* part) {
  EXPECT_EQ(got, want) << strata_error_text();
  EXPECT_NE(std::string(strata_error_text()).find(part), std::string::npos) << strata_error_text();
}

// What the interface gives out, as C++ has it; released here.
std::string text_of(strata_value& value) {
  EXPECT_EQ(value.kind, STRATA_STRING);
  std::string text(value.as.text, value.size);
  strata_value_clear(&value);
  return text;
}
template <class T>
std::vector<T> numbers_of(strata_tensor* t) {
  std::vector<T> v(static_cast<size_t>(strata_tensor_numel(t)));
  EXPECT_OK(strata_tensor_copy_to_host(t, v.data(), v.size() * sizeof(T)));
  strata_tensor_release(t);
  return v;
}
strata_tensor* tensor_of(const Ids& ids, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(ids.size())};
  strata_tensor* t = nullptr;
  EXPECT_OK(strata_tensor_from_data(ids.data(), ids.size() * sizeof(int64_t), shape.data(),
                                    static_cast<int32_t>(shape.size()), STRATA_I64, kCpu, &t));
  return t;
}

class CPretrained : public testing::Test {
 protected:
  void SetUp() override {
    strata::write_text_model(dir_ / "llama");
    want_ = strata::TextModel::load(dir_ / "llama");
    ASSERT_OK(strata_pretrained_load((dir_ / "llama").c_str(), -1, kCpu, &model_));
  }
  void TearDown() override { strata_pretrained_release(model_); }

  // Generates from one prompt.
  nlohmann::json generate(const Ids& prompt, const char* options, strata_piece_fn fn = nullptr,
                          void* context = nullptr) {
    strata_tensor* ids = tensor_of(prompt);
    strata_value out = {};
    EXPECT_OK(strata_pretrained_generate(model_, &ids, 1, options, fn, context, &out));
    strata_tensor_release(ids);
    return nlohmann::json::parse(text_of(out));
  }

  strata::io::TempDir dir_;
  std::shared_ptr<strata::TextModel> want_;
  strata_pretrained* model_ = nullptr;
};

TEST_F(CPretrained, TextAndIds) {
  strata_tensor* ids = nullptr;
  ASSERT_OK(strata_pretrained_encode(model_, "ab</s>", &ids));
  strata_value text = {};
  ASSERT_OK(strata_pretrained_decode(model_, ids, true, &text));
  EXPECT_EQ(text_of(text), "ab");
  ASSERT_OK(strata_pretrained_decode(model_, ids, false, &text));
  EXPECT_EQ(text_of(text), "<s>ab</s>");
  EXPECT_EQ(numbers_of<int64_t>(ids), want_->encode("ab</s>"));
  const char* messages = R"([{"role": "user", "content": "Hi <s>"}])";
  ASSERT_OK(strata_pretrained_chat_prompt(model_, messages, nullptr, &ids));
  EXPECT_EQ(numbers_of<int64_t>(ids), want_->chat_prompt(messages));
  ASSERT_OK(strata_pretrained_describe(model_, &text));
  EXPECT_EQ(text_of(text), want_->describe());
}

TEST_F(CPretrained, GeneratesWhatTheLibraryDoes) {
  const char* options =
      R"({"max_new_tokens": 15, "temperature": 0.8, "seed": 3, "num_return_sequences": 2, "logprobs": true})";
  const std::vector<Ids> prompts{want_->encode("Once"), want_->encode("a")};
  std::vector<strata_tensor*> handles;
  for (const Ids& prompt : prompts) handles.push_back(tensor_of(prompt));
  strata_value out = {};
  std::string streamed;
  const strata_piece_fn add = [](void* context, const strata_piece* piece) {
    EXPECT_EQ(piece->struct_size, sizeof(strata_piece));
    if (piece->request == 1 && piece->completion == 1)
      static_cast<std::string*>(context)->append(piece->text, piece->size);
    return true;
  };
  ASSERT_OK(strata_pretrained_generate(model_, handles.data(), handles.size(), options, add, &streamed, &out));
  for (strata_tensor* t : handles) strata_tensor_release(t);
  const std::string json = text_of(out);
  EXPECT_EQ(json, strata::to_json(want_->generate(prompts, options)));
  EXPECT_EQ(nlohmann::json::parse(json)[1]["completions"][1]["text"], streamed);
  EXPECT_FALSE(streamed.empty());

  int pieces = 0;
  const strata_piece_fn stop = [](void* context, const strata_piece* piece) {
    return ++*static_cast<int*>(context) < 4 || piece->last;
  };
  const nlohmann::json cut = generate({0, 70}, R"({"max_new_tokens": 50, "eos_token_id": []})", stop, &pieces);
  EXPECT_EQ(cut[0]["completions"][0]["finish"], "cancelled");
  EXPECT_EQ(cut[0]["completions"][0]["tokens"].size(), 4u);
  EXPECT_EQ(std::string(strata_describe_generation_options()), strata::describe_generation_options());
}

TEST_F(CPretrained, LogitsParametersAndVectors) {
  const Ids ids{0, 70, 71, 80};
  strata_tensor *tokens = tensor_of(ids, {1, 4}), *logits = nullptr;
  ASSERT_OK(strata_pretrained_forward(model_, tokens, nullptr, &logits));
  const strata::NoGrad guard;
  EXPECT_EQ(numbers_of<float>(logits), want_->forward(strata::from_span<int64_t>(ids, {1, 4})).to_vector<float>());
  strata_tensor_release(tokens);
  const auto parameters = want_->pretrained().module().named_parameters();
  ASSERT_EQ(strata_pretrained_num_parameters(model_), parameters.size());
  const char* name = nullptr;
  strata_tensor* first = nullptr;
  ASSERT_OK(strata_pretrained_parameter(model_, 0, &name, &first));
  EXPECT_EQ(name, parameters[0].first);
  EXPECT_EQ(numbers_of<float>(first), parameters[0].second.to_vector<float>());
  expect_error(strata_pretrained_parameter(model_, 1000, &name, nullptr), STRATA_INDEX_ERROR, "no number 1000");

  const char* texts[] = {"one", "and two"};
  strata_tensor* vectors = nullptr;
  ASSERT_OK(strata_pretrained_embed(model_, texts, 2, R"({"normalize": true})", &vectors));
  EXPECT_EQ(numbers_of<float>(vectors),
            want_->embed(std::vector<std::string>{"one", "and two"}, R"({"normalize": true})").to_vector<float>());

  strata_pretrained* low = nullptr;
  ASSERT_OK(strata_pretrained_load((dir_ / "llama").c_str(), STRATA_BF16, kCpu, &low));
  ASSERT_OK(strata_pretrained_parameter(low, 0, nullptr, &first));
  EXPECT_EQ(strata_tensor_dtype(first), STRATA_BF16);
  strata_tensor_release(first);
  strata_pretrained_release(strata_pretrained_retain(low));
  strata_pretrained_release(low);
}

TEST_F(CPretrained, WhatIsWrongIsTold) {
  strata_pretrained* none = nullptr;
  expect_error(strata_pretrained_load((dir_ / "nothing").c_str(), -1, kCpu, &none), STRATA_IO_ERROR, "nothing");
  EXPECT_EQ(strata_pretrained_load((dir_ / "llama").c_str(), -1, {STRATA_META, 0}, &none), STRATA_DEVICE_ERROR);
  EXPECT_EQ(strata_pretrained_load((dir_ / "llama").c_str(), 77, kCpu, &none), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_pretrained_load(nullptr, -1, kCpu, &none), STRATA_VALUE_ERROR);
  strata_value out = {};
  strata_tensor *ids = tensor_of({0, 70}), *wrong = tensor_of({0, 70}, {1, 2}), *far = tensor_of({96}), *got = nullptr;
  expect_error(strata_pretrained_generate(model_, &ids, 1, R"({"temprature": 1})", nullptr, nullptr, &out),
               STRATA_VALUE_ERROR, "temprature");
  expect_error(strata_pretrained_generate(model_, &ids, 1, "{", nullptr, nullptr, &out), STRATA_VALUE_ERROR,
               "generate");
  expect_error(strata_pretrained_generate(model_, &wrong, 1, nullptr, nullptr, nullptr, &out), STRATA_SHAPE_ERROR,
               "[1, 2]");
  EXPECT_EQ(strata_pretrained_generate(model_, &far, 1, nullptr, nullptr, nullptr, &out), STRATA_INDEX_ERROR);
  EXPECT_EQ(strata_pretrained_generate(nullptr, &ids, 1, nullptr, nullptr, nullptr, &out), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_pretrained_generate(model_, nullptr, 1, nullptr, nullptr, nullptr, &out), STRATA_VALUE_ERROR);
  EXPECT_OK(strata_pretrained_generate(model_, nullptr, 0, nullptr, nullptr, nullptr, &out));
  EXPECT_EQ(text_of(out), "[]");
  EXPECT_EQ(strata_pretrained_decode(model_, far, true, &out), STRATA_INDEX_ERROR);
  EXPECT_EQ(strata_pretrained_encode(model_, nullptr, &got), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_pretrained_chat_prompt(model_, "no json", nullptr, &got), STRATA_IO_ERROR);
  EXPECT_EQ(strata_pretrained_embed(model_, nullptr, 0, nullptr, &got), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_pretrained_forward(model_, nullptr, nullptr, &got), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_pretrained_num_parameters(nullptr), 0u);
  for (strata_tensor* t : {ids, wrong, far}) strata_tensor_release(t);
  strata_pretrained_release(nullptr);
}

// The report that C++ gives, but for the time that it took.
TEST_F(CPretrained, MeasuresWhatTheLibraryDoes) {
  strata::io::write_file(dir_ / "choices.jsonl",
                         "{\"question\": \"a b\", \"choices\": [\"c\", \"d e\"], \"answer\": 0}\n"
                         "{\"question\": \"c\", \"choices\": [\"g\", \"a\"], \"answer\": 1}\n");
  const nlohmann::json options{{"documents", {"Once upon a time", "ab"}},
                               {"choices", dir_ / "choices.jsonl"},
                               {"num_fewshot", 1},
                               {"log_samples", true}};
  const std::string call = options.dump();
  const auto plain = [](nlohmann::json report) {
    for (auto& [name, result] : report["results"].items()) result.erase("seconds");
    return report;
  };
  strata_value out = {};
  ASSERT_OK(strata_eval_run(model_, call.c_str(), model_, nullptr, nullptr, &out));
  const nlohmann::json got = plain(nlohmann::json::parse(text_of(out)));
  EXPECT_EQ(got, plain(nlohmann::json::parse(strata::eval::evaluate(*want_, call, want_.get()))));
  EXPECT_EQ(got["results"].size(), 3u);
  EXPECT_EQ(got["results"]["compare"]["measures"]["kl"]["value"], 0.0);
  EXPECT_EQ(std::string(strata_eval_options()), strata::eval::describe_evaluation_options());

  std::string heard;
  const strata_eval_fn stop = [](void* context, const char* name, const char* unit, int64_t done, int64_t all) {
    *static_cast<std::string*>(context) += std::string(name) + ' ' + unit + ' ';
    return done < all && done == 0;
  };
  expect_error(strata_eval_run(model_, R"({"documents": ["aa", "b"], "batch_size": 1})", nullptr, stop, &heard, &out),
               STRATA_VALUE_ERROR, "stopped after");
  EXPECT_EQ(heard, "text tok text tok ");
  expect_error(strata_eval_run(model_, nullptr, nullptr, nullptr, nullptr, &out), STRATA_VALUE_ERROR,
               "nothing to evaluate on");
  expect_error(strata_eval_run(model_, R"({"text": "no.txt"})", nullptr, nullptr, nullptr, &out), STRATA_IO_ERROR,
               "no.txt");
  EXPECT_EQ(strata_eval_run(nullptr, call.c_str(), nullptr, nullptr, nullptr, &out), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_eval_run(model_, call.c_str(), nullptr, nullptr, nullptr, nullptr), STRATA_VALUE_ERROR);
}

// The 64 likeliest tokens that transformers writes.
TEST_F(CPretrained, WritesTransformersTokens) {
  const char *models = std::getenv("STRATA_MODELS"), *source = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = models ? fs::path(models) : fs::path(source ? source : ".") / "build/models";
  int compared = 0;
  for (const char* name : {"llama-plain", "gpt2-plain", "qwen3-plain", "gemma3-plain"}) {
    const std::string folder = (root / name).string();
    if (!fs::exists(folder + "/reference.safetensors")) continue;
    const strata::io::TensorMap reference = strata::io::SafetensorsFile(folder + "/reference.safetensors").tensors();
    const auto ids = [&](const char* key) { return reference.at(key).to_vector<int64_t>(); };
    strata_pretrained_release(model_);
    model_ = nullptr;
    ASSERT_OK(strata_pretrained_load(folder.c_str(), STRATA_F32, kCpu, &model_));
    const Ids want = ids("greedy");
    const std::string options = "{\"max_new_tokens\": " + std::to_string(want.size()) + "}";
    EXPECT_EQ(generate(ids("prompt"), options.c_str())[0]["completions"][0]["tokens"].get<Ids>(), want) << name;
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << root << " has no models: scripts/make-models writes them";
}

TEST(CEncoderDecoder, AnswersAndHears) {
  strata::io::TempDir dir;
  const auto save = [&](const char* name) {
    const strata::Family& family = strata::family_named(name);
    const std::string config(family.samples.front().config);
    const strata::ModelSpec spec = strata::read_spec(family, strata::ConfigReader(config, "config.json"));
    strata::manual_seed(3);
    strata::save_pretrained(strata::make_module(spec).module(), family, spec, dir / name, {.config = config});
  };
  save("t5");
  save("whisper");
  strata_pretrained* model = nullptr;
  ASSERT_OK(strata_pretrained_load((dir / "t5").c_str(), -1, kCpu, &model));
  const auto want = strata::TextModel::load(dir / "t5");
  const Ids source{4, 5, 6, 1}, tokens{0, 7};
  strata_tensor *ids = tensor_of(source), *read = tensor_of(source, {1, 4}), *written = tensor_of(tokens, {1, 2});
  strata_value out = {};
  const char* options = R"({"max_new_tokens": 6, "do_sample": false})";
  ASSERT_OK(strata_pretrained_generate(model, &ids, 1, options, nullptr, nullptr, &out));
  EXPECT_EQ(text_of(out), strata::to_json(want->generate(std::vector<Ids>{source}, options)));
  strata_tensor* logits = nullptr;
  ASSERT_OK(strata_pretrained_forward_source(model, read, written, nullptr, &logits));
  {
    const strata::NoGrad guard;
    EXPECT_EQ(numbers_of<float>(logits), want->forward_source(strata::from_span<int64_t>(source, {1, 4}),
                                                              strata::from_span<int64_t>(tokens, {1, 2}))
                                             .to_vector<float>());
  }
  expect_error(strata_pretrained_forward(model, read, nullptr, &logits), STRATA_VALUE_ERROR, "tokens that it writes");
  for (strata_tensor* t : {ids, read, written}) strata_tensor_release(t);
  strata_pretrained_release(model);

  strata::io::write_file(
      dir / "whisper/preprocessor_config.json",
      R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 16, "chunk_length": 1})");
  strata::io::write_file(dir / "a.wav", strata::data::test_wav(24000));
  ASSERT_OK(strata_pretrained_load((dir / "whisper").c_str(), -1, kCpu, &model));
  strata_tensor* samples = nullptr;
  int64_t rate = 0;
  ASSERT_OK(strata_read_wav((dir / "a.wav").c_str(), &samples, &rate));
  EXPECT_EQ(rate, 16000);
  ASSERT_OK(strata_pretrained_transcribe(model, samples, rate, R"({"max_new_tokens": 5})", &out));
  const nlohmann::json said = nlohmann::json::parse(text_of(out));
  EXPECT_EQ(said["segments"].size(), 2u);
  EXPECT_EQ(said["segments"][1]["end"], 1.5);
  expect_error(strata_pretrained_transcribe(model, samples, 8000, nullptr, &out), STRATA_VALUE_ERROR, "8000");
  expect_error(strata_pretrained_transcribe(model, samples, 16000, R"({"timestamps": true})", &out), STRATA_VALUE_ERROR,
               "one id that ends a text");
  expect_error(strata_read_wav((dir / "b.wav").c_str(), &samples, nullptr), STRATA_IO_ERROR, "b.wav");
  strata_tensor_release(samples);
  strata_pretrained_release(model);
}

}  // namespace
