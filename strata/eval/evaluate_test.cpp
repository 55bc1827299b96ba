// Evaluations in one call: plans from JSON, what hears of them, models of folders.

#include "strata/eval/evaluate.h"

#include <gtest/gtest.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/eval/text_proofs.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/temp_dir.h"

namespace strata::eval {
namespace {
using nlohmann::json;

template <class E, class F>
void expect_error(F&& f, const std::string& part) {
  const std::string text = message<E>(f);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// A small Llama of characters, and questions.
class Evaluate : public testing::Test {
 protected:
  void SetUp() override {
    write_text_model(dir_ / "model");
    model_ = TextModel::load(dir_ / "model");
    io::write_file(dir_ / "texts.jsonl", "{\"text\": \"Once upon a time\"}\n{\"text\": \"ab\"}\n{\"text\": \"c\"}\n");
    io::write_file(dir_ / "choices.jsonl",
                   "{\"question\": \"a b\", \"choices\": [\"c\", \"d e\"], \"answer\": 0}\n"
                   "{\"question\": \"c\", \"choices\": [\"g\", \"a\", \"h\"], \"answer\": 2}\n");
    io::write_file(dir_ / "answers.jsonl", "{\"q\": \"a b\", \"answer\": \"c\"}\n{\"q\": \"c\", \"answer\": \"d\"}\n");
  }
  json call(json options) const {
    for (const char* files : {"text", "choices", "answers", "fewshot_from"})
      if (options.contains(files)) options[files] = dir_ / options[files].get<std::string>();
    return options;
  }
  json run(const json& options, TextModel* reference = nullptr, const EvaluationHooks& hooks = {}) {
    return json::parse(evaluate(*model_, call(options).dump(), reference, hooks));
  }

  io::TempDir dir_;
  std::shared_ptr<TextModel> model_;
};

// What the functions give that it is made of.
TEST_F(Evaluate, IsItsParts) {
  const json report = run({{"text", "texts.jsonl"},
                           {"documents", {"and more"}},
                           {"limit", 3},
                           {"max_length", 8},
                           {"overlap", 2},
                           {"batch_size", 2},
                           {"log_samples", true}});
  SubjectOptions seen;
  seen.context = 8;
  const Subject subject =
      make_subject(model_->pretrained().model, model_->tokenizer(), with_folder(seen, *model_->folder()));
  const Evaluation want = perplexity(subject, {"Once upon a time", "ab", "c"}, {.batch = 2, .overlap = 2});
  const json& text = report["results"]["text"];
  EXPECT_EQ(report["results"].size(), 1u);
  EXPECT_EQ(text["documents"], 3);
  EXPECT_EQ(text["tokens"], want.tokens);
  ASSERT_EQ(text["measures"].size(), want.measures.size());
  for (const Measure& m : want.measures) EXPECT_EQ(text["measures"][m.name]["value"].get<double>(), m.value) << m.name;
  ASSERT_EQ(text["samples"].size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(text["samples"][i]["log_probabilities"], json(want.samples[i].log_probabilities));
  EXPECT_EQ(text["files"], json({dir_ / "texts.jsonl"}));
  EXPECT_EQ(text["details"], "windows of 8 tokens, each 7 further");
  EXPECT_EQ(report["model"], dir_ / "model");
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["dtype"], "f32");
  EXPECT_EQ(report["prefix"], 0);  // <s>
  EXPECT_EQ(report["context"], 8);
  EXPECT_EQ(report["batch"], 2);
  EXPECT_FALSE(report.contains("version"));
  // A document behind the files' is one, too.
  const json more = run({{"text", "texts.jsonl"}, {"documents", {"and more"}}});
  EXPECT_EQ(more["results"]["text"]["documents"], 4);
  EXPECT_FALSE(more["results"]["text"].contains("samples"));
}

TEST_F(Evaluate, QuestionsWithExamples) {
  const json report = run({{"choices", "choices.jsonl"},
                           {"num_fewshot", 1},
                           {"fewshot_delimiter", " | "},
                           {"target_delimiter", "="},
                           {"description", "Say: "},
                           {"log_samples", true}});
  EXPECT_EQ(report["results"]["choices"]["details"], "1 example shown");
  const Subject subject =
      make_subject(model_->pretrained().model, model_->tokenizer(), with_folder({}, *model_->folder()));
  const Evaluation want =
      multiple_choice(subject, {{"Say: c=h | a b", {"c", "d e"}, 0}, {"Say: a b=c | c", {"g", "a", "h"}, 2}}, "=");
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(report["results"]["choices"]["samples"][i]["log_probabilities"], json(want.samples[i].log_probabilities));
  EXPECT_EQ(report["results"]["choices"]["measures"]["acc_norm"]["value"].get<double>(), want.value("acc_norm"));

  const json written = run({{"answers", "answers.jsonl"},
                            {"fields", {{"context", "{q}!"}}},
                            {"max_gen_toks", 5},
                            {"until", "~"},
                            {"log_samples", true}});
  const json& found = written["results"]["answers"];
  EXPECT_EQ(found["documents"], 2);
  const std::vector<int64_t> prompt = model_->encode("a b!");
  const std::vector<Generated> likeliest =
      model_->generate(std::vector<std::vector<int64_t>>{prompt}, R"({"max_new_tokens": 5, "do_sample": false})");
  EXPECT_EQ(found["samples"][0]["written"], likeliest[0].completions[0].text);
}

TEST_F(Evaluate, HooksHearAndStop) {
  std::vector<std::string> order, told;
  EvaluationHooks hooks;
  hooks.watch = [&](std::string_view name, std::string_view unit, int64_t done, int64_t all) {
    EXPECT_LE(done, all);
    EXPECT_EQ(unit, name == "answers" ? "texts" : "tok");
    if (order.empty() || order.back() != name) order.emplace_back(name);
    return true;
  };
  hooks.told = [&](const EvaluationResult& r) { told.push_back(r.name); };
  const json all{{"text", "texts.jsonl"},         {"choices", "choices.jsonl"}, {"answers", "answers.jsonl"},
                 {"fields", {{"context", "{}"}}}, {"max_gen_toks", 2},          {"proof", dir_ / "proof"}};
  json asked = all;
  asked["fields"] = nullptr;
  asked["answers"] = nullptr;
  const json report = run(asked, model_.get(), hooks);
  EXPECT_EQ(order, (std::vector<std::string>{"text", "compare", "prove", "choices"}));
  EXPECT_EQ(told, (std::vector<std::string>{"text", "compare", "choices"}));
  EXPECT_EQ(report["results"]["compare"]["measures"]["kl"]["value"], 0.0);
  EXPECT_EQ(report["results"]["compare"]["details"], "from " + (dir_ / "model"));
  const json checked = run({{"text", "texts.jsonl"}, {"check_proof", dir_ / "proof"}});
  EXPECT_EQ(checked["results"]["proof"]["measures"]["accepted"]["value"], 1.0);

  hooks.watch = [](std::string_view, std::string_view, int64_t done, int64_t) { return done < 3; };
  expect_error<ValueError>([&] { run({{"text", "texts.jsonl"}, {"batch_size", 1}}, nullptr, hooks); }, "stopped after");
  // What is thrown there comes out as it was.
  hooks.watch = [](std::string_view, std::string_view, int64_t, int64_t) -> bool { throw std::string("mine"); };
  EXPECT_THROW(run({{"text", "texts.jsonl"}}, nullptr, hooks), std::string);
  EXPECT_EQ(run({{"text", "texts.jsonl"}})["results"]["text"]["documents"], 3);  // and the model is free again
}

// A model that trains goes on training; it writes nothing meanwhile, and two that are each other's reference do not
// wait for each other.
TEST_F(Evaluate, TakesTheModelsTurn) {
  model_->pretrained().module().train();
  EvaluationHooks hooks;
  hooks.watch = [&](std::string_view, std::string_view, int64_t, int64_t) {
    EXPECT_FALSE(model_->pretrained().module().is_training());
    expect_error<ValueError>([&] { model_->generate(std::vector<std::vector<int64_t>>{{1}}, "{}"); }, "callback");
    return true;
  };
  run({{"documents", "a"}}, nullptr, hooks);
  EXPECT_TRUE(model_->pretrained().module().is_training());

  const std::shared_ptr<TextModel> other = TextModel::load(dir_ / "model");
  const std::string asked = R"({"documents": ["some text", "more"]})";
  std::thread there([&] {
    for (int i = 0; i < 10; ++i) evaluate(*other, asked, model_.get());
  });
  for (int i = 0; i < 10; ++i) evaluate(*model_, asked, other.get());
  there.join();
  EXPECT_EQ(json::parse(evaluate(*other, asked, model_.get()))["results"]["compare"]["measures"]["same_top"]["value"],
            1);
}

TEST_F(Evaluate, RefusesAndNamesTheOption) {
  const auto refused = [&](const json& options, const std::string& part) {
    expect_error<ValueError>([&] { run(options); }, part);
  };
  refused(json::object(), "nothing to evaluate on");
  refused({{"tekst", "a"}}, "tekst is \"a\": there is no such option");
  refused({{"documents", 3}}, "documents is 3: wanted a text or a list of texts");
  refused({{"documents", {"a", 3}}}, "wanted a list of texts");
  refused({{"documents", "a"}, {"limit", -1}}, "a limit is at least 0, got -1");
  refused({{"documents", "a"}, {"limit", 1.5}}, "limit is 1.5: wanted a whole number");
  refused({{"documents", "a"}, {"batch_size", 0}}, "a batch is at least 1, got 0");
  refused({{"documents", "a"}, {"num_fewshot", -2}}, "there are -2 examples to show");
  refused({{"documents", "a"}, {"fewshot_from", "choices.jsonl"}}, "and none are shown");
  refused({{"documents", "a"}, {"fewshot_seed", -1}}, "fewshot_seed is -1");
  refused({{"documents", "a"}, {"trim", "yes"}}, "trim is \"yes\": wanted true or false");
  refused({{"documents", "a"}, {"description", 1}}, "description is 1: wanted a text");
  refused({{"documents", "a"}, {"overlap", 1000}}, "overlap");
  refused({{"documents", "a"}, {"prefix_token_id", 96}}, "prefix 96");
  refused({{"documents", "a"}, {"max_length", -1}}, "a context is at least 1, got -1");
  refused({{"choices", "choices.jsonl"}, {"fields", {{"what", "x"}}}}, "'what'");
  refused({{"choices", "choices.jsonl"}, {"fields", "x"}}, "fields is \"x\"");
  refused({{"choices", "choices.jsonl"}, {"fields", {{"context", true}}}}, "context is no text");
  refused({{"choices", "choices.jsonl"}, {"proof", "x"}}, "a proof reads texts");
  expect_error<ValueError>([&] { run({{"choices", "choices.jsonl"}}, model_.get()); }, "a comparison reads texts");
  expect_error<ValueError>([&] { evaluate(*model_, "{"); }, "evaluate");
  expect_error<ValueError>([&] { evaluate(*model_, "[]"); }, "wanted an object");
  expect_error<IoError>([&] { run({{"text", "none.jsonl"}}); }, "none.jsonl");
  expect_error<IoError>([&] { run({{"documents", "a"}, {"check_proof", dir_ / "choices.jsonl"}}); }, "choices.jsonl");
  // Every option is one of the list, and null is none given.
  json nothing{{"documents", "a"}};
  for (const json& option : json::parse(describe_evaluation_options())) {
    EXPECT_FALSE(option["doc"].get<std::string>().empty());
    if (option["name"] != "documents") nothing[option["name"].get<std::string>()] = nullptr;
  }
  EXPECT_GT(nothing.size(), 20u);
  EXPECT_EQ(json::parse(evaluate(*model_, nothing.dump()))["results"]["text"]["documents"], 1);

  write_text_model(dir_ / "encoder", "bert");
  const auto encoder = TextModel::load(dir_ / "encoder");
  expect_error<ValueError>([&] { evaluate(*encoder, R"({"documents": "a"})"); }, "no model that writes");
  expect_error<ValueError>([&] { evaluate(*model_, R"({"documents": "a"})", encoder.get()); }, "no model that writes");
  TextModel bare(model_->pretrained());
  expect_error<ValueError>([&] { evaluate(bare, R"({"documents": "a"})"); }, "no tokenizer");
}

}  // namespace
}  // namespace strata::eval
