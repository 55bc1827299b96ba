// strata eval as its users run it: a tiny folder of Llama's with letters for tokens, and the cases of
// scripts/make-models.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "apps/strata/tiny_llama_test_util.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/text_model.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/models/gguf_model.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/text/pipeline/gguf_vocabulary.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void expect_one_line(const Result& r, int status, const std::string& text) {
  EXPECT_EQ(r.status, status) << r.output;
  EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
  EXPECT_EQ(r.output.find('\n'), r.output.size() - 1) << r.output;
  EXPECT_NE(r.output.find(text), std::string::npos) << r.output;
}

// Words of one letter, of which 0 ends a text; random weights.
class EvalCommand : public testing::Test {
 protected:
  void SetUp() override {
    write_model("model", 11);
    write_model("other", 12);
    write("text", "a b c d e f g h a b c d e f g h a c e g b d f h a a b b c c d d e e f f g g h h");
    write("texts.jsonl", "{\"text\": \"a b c d\"}\n{\"text\": \"h g f e d\"}\n{\"text\": \"c\"}\n");
    write("choices.jsonl",
          "{\"question\": \"a b\", \"choices\": [\"c\", \"d e\"], \"answer\": 0}\n"
          "{\"question\": \"c\", \"choices\": [\"g\", \"a\", \"h\"], \"answer\": \"C\"}\n"
          "{\"question\": \"f g\", \"choices\": [\"h\", \"b\"], \"answer\": \"b\"}\n");
    write("answers.jsonl", "{\"question\": \"a b\", \"answer\": \"c\"}\n{\"question\": \"c\", \"answer\": [\"d\"]}\n");
  }
  void write_model(const std::string& name, uint64_t seed) const {
    manual_seed(seed);
    fs::create_directory(dir_ / name);
    write_tiny_llama(dir_ / name, 10, 16);
    write(name + "/tokenizer.json",
          R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
              "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null, "added_tokens": [],
              "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"</s>": 0, "?": 1, "a": 2, "b": 3, "c": 4,
              "d": 5, "e": 6, "f": 7, "g": 8, "h": 9}}})");
    write(name + "/tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})");
  }
  void write(const std::string& name, const std::string& text) const { io::write_file(dir_ / name, text); }
  std::string path(const std::string& name) const { return dir_ / name; }
  // Runs over the model; the results by --json.
  json eval(const std::string& arguments) const {
    const Result r =
        strata("eval --threads 1 --model " + path("model") + " " + arguments + " --json " + path("out.json"));
    EXPECT_EQ(r.status, 0) << r.output;
    output_ = r.output;
    if (r.status != 0) return {};
    return json::parse(io::read_file(path("out.json")));
  }

  io::TempDir dir_;
  mutable std::string output_;
};

double value(const json& results, const std::string& kind, const std::string& measure) {
  return results["results"][kind]["measures"][measure]["value"].get<double>();
}

TEST_F(EvalCommand, TextsInWindows) {
  const json whole = eval("--text " + path("texts.jsonl") + " --samples");
  const json& text = whole["results"]["text"];
  EXPECT_EQ(text["documents"], 3);
  EXPECT_EQ(text["tokens"], 10);
  EXPECT_EQ(whole["prefix"], 0);
  EXPECT_EQ(whole["context"], 16);
  ASSERT_EQ(text["samples"].size(), 3u);
  double sum = 0;
  for (const json& s : text["samples"]) sum += s["log_probabilities"][0].get<double>();
  EXPECT_LT(sum, 0);
  EXPECT_NEAR(value(whole, "text", "loss"), -sum / 10, 1e-6);
  EXPECT_NEAR(value(whole, "text", "bits_per_byte"), -sum / 17 / std::log(2), 1e-6);  // 7, 9 and 1 bytes
  EXPECT_NEAR(value(whole, "text", "word_perplexity"), std::exp(-sum / 10), 1e-4);
  EXPECT_NE(output_.find("text: 3 documents, 10 tokens"), std::string::npos) << output_;
  EXPECT_NE(output_.find("\n  bits_per_byte "), std::string::npos) << output_;

  // 40 tokens do not fit: windows share what --overlap says. Whatever the batch, the numbers are the same.
  const double apart = value(eval("--text " + path("text")), "text", "loss");
  const double shared = value(eval("--text " + path("text") + " --overlap 12"), "text", "loss");
  EXPECT_NE(output_.find("windows of 16 tokens, each 5 further"), std::string::npos) << output_;
  EXPECT_GT(std::abs(apart - shared), 1e-4);
  EXPECT_NEAR(value(eval("--text " + path("text") + " --overlap 12 --batch 1"), "text", "loss"), shared, 1e-6);
  EXPECT_GT(std::abs(value(eval("--text " + path("text") + " --context 4"), "text", "loss") - apart), 1e-4);
  // The first document alone.
  const json first = eval("--limit 1 --text " + path("texts.jsonl"));
  EXPECT_EQ(first["results"]["text"]["tokens"], 4);
  EXPECT_FALSE(first["results"]["text"].contains("samples"));
  EXPECT_GT(
      std::abs(value(eval("--prefix 4 --text " + path("texts.jsonl")), "text", "loss") - value(whole, "text", "loss")),
      1e-4);
}

TEST_F(EvalCommand, ComparesWithAnother) {
  const json same = eval("--text " + path("text") + " --compare " + path("model"));
  EXPECT_EQ(value(same, "compare", "kl"), 0);
  EXPECT_EQ(value(same, "compare", "same_top"), 1);
  EXPECT_NEAR(value(same, "compare", "token_perplexity"), value(same, "text", "token_perplexity"), 1e-4);
  const json other = eval("--text " + path("text") + " --compare " + path("other"));
  EXPECT_GT(value(other, "compare", "kl"), 0.01);
  EXPECT_LT(value(other, "compare", "same_top"), 1);
  const Result r = strata("eval --model " + path("other") + " --text " + path("text") + " --json " + path("o.json"));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NEAR(value(json::parse(io::read_file(path("o.json"))), "text", "token_perplexity"),
              value(other, "compare", "reference_perplexity"), 1e-3);
}

TEST_F(EvalCommand, ProvesWhatItComputed) {
  const std::string texts = "--text " + path("text"), file = path("proof.json");
  eval(texts + " --proof " + file);
  const json checked = eval(texts + " --check-proof " + file);
  EXPECT_EQ(value(checked, "proof", "accepted"), 1);
  EXPECT_NE(output_.find("proof: 1 document, 40 tokens"), std::string::npos) << output_;
  const std::string other = "eval --model " + path("other") + " " + texts + " --check-proof " + file;
  const Result r = strata(other);
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_NE(r.output.find("accepted         0\n"), std::string::npos) << r.output;
  // The perplexity was told by then.
  const auto refused = [](const Result& told, const std::string& text) {
    EXPECT_EQ(told.status, 1);
    EXPECT_NE(told.output.find("\nstrata: error: " + text), std::string::npos) << told.output;
  };
  refused(strata(other + " --context 8"), "the proofs are of windows of 16 tokens that share 1, here windows have 8");
  refused(strata(other + " --text " + path("texts.jsonl")), "there are 3 proofs, and the texts have more tokens");
  expect_one_line(strata("eval --model " + path("model") + " " + texts + " --check-proof " + path("choices.jsonl")), 1,
                  "choices.jsonl");
  expect_one_line(strata("eval --model " + path("model") + " --choices " + path("choices.jsonl") + " --proof " + file),
                  2, "--proof reads texts");
}

TEST_F(EvalCommand, ChoicesAndExamples) {
  const std::string file = path("choices.jsonl");
  const json plain = eval("--samples --choices " + file);
  const json& found = plain["results"]["choices"];
  EXPECT_EQ(found["documents"], 3);
  ASSERT_EQ(found["samples"].size(), 3u);
  EXPECT_EQ(found["samples"][1]["log_probabilities"].size(), 3u);
  // The measures are what the samples say.
  const int right[] = {0, 2, 1};
  double acc = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto all = found["samples"][i]["log_probabilities"].get<std::vector<double>>();
    const auto best = std::ranges::max_element(all) - all.begin();
    EXPECT_EQ(found["samples"][i]["values"][0], best == right[i] ? 1 : 0);
    acc += best == right[i];
  }
  EXPECT_DOUBLE_EQ(value(plain, "choices", "acc"), acc / 3);
  EXPECT_NEAR(found["measures"]["acc"]["error"].get<double>(), std::sqrt(acc / 3 * (1 - acc / 3) / 2), 1e-12);

  // An example shown is the same as one written before the question.
  write("shown.jsonl", "{\"question\": \"g\", \"choices\": [\"e\", \"f\"], \"answer\": 1}\n");
  write("written.jsonl", "{\"question\": \"g f\\n\\na b\", \"choices\": [\"c\", \"d e\"], \"answer\": 0}\n");
  const json shown = eval("--samples --limit 1 --shots 1 --shots-from " + path("shown.jsonl") + " --choices " + file);
  EXPECT_NE(output_.find("1 example shown"), std::string::npos) << output_;
  const json written = eval("--samples --choices " + path("written.jsonl"));
  EXPECT_EQ(shown["results"]["choices"]["samples"], written["results"]["choices"]["samples"]);
  EXPECT_NE(shown["results"]["choices"]["samples"][0], found["samples"][0]);
  // Of the same file the others are shown, drawn by a seed as well.
  EXPECT_EQ(eval("--shots 2 --choices " + file)["results"]["choices"]["documents"], 3);
  const std::string drawn = "--samples --shots 2 --choices " + file + " --shots-seed ";
  const json one = eval(drawn + "1")["results"]["choices"]["samples"];
  EXPECT_EQ(eval(drawn + "1")["results"]["choices"]["samples"], one);
}

TEST_F(EvalCommand, AnswersAreWrittenToAStop) {
  const json found = eval("--samples --tokens 5 --answers " + path("answers.jsonl"))["results"]["answers"];
  ASSERT_EQ(found["samples"].size(), 2u);
  const std::string first = found["samples"][0]["written"], second = found["samples"][1]["written"];
  ASSERT_FALSE(first.empty());
  write("right.jsonl", json({{"question", "a b"}, {"answer", first}}).dump() + "\n" +
                           json({{"question", "c"}, {"answer", {"nothing", second + "!"}}}).dump() + "\n");
  const std::string right = "--tokens 5 --answers " + path("right.jsonl");
  const json again = eval(right);
  EXPECT_EQ(value(again, "answers", "exact_match"), 0.5);
  EXPECT_EQ(value(eval(right + " --ignore-punctuation"), "answers", "exact_match"), 1);
  EXPECT_EQ(eval("--samples --batch 1 " + right)["results"]["answers"]["samples"][0]["written"], first);
  // Up to a text that ends it.
  const std::string stop = first.substr(first.size() - 1);
  const json stopped = eval("--samples --tokens 5 --stop " + stop + " --answers " + path("answers.jsonl"));
  EXPECT_EQ(stopped["results"]["answers"]["samples"][0]["written"], first.substr(0, first.find(stop)));
}

TEST_F(EvalCommand, RefusesAndNamesTheLine) {
  const std::string command = "eval --model " + path("model") + " ";
  expect_one_line(strata(command), 2, "--text, --choices or --answers");
  expect_one_line(strata(command + "--choices " + path("choices.jsonl") + " --compare " + path("other")), 2, "--text");
  expect_one_line(strata(command + "--text " + path("text") + " --samples"), 2, "--json");
  expect_one_line(strata(command + "--text " + path("text") + " --overlap 17"), 2, "--overlap 17");
  expect_one_line(strata(command + "--text " + path("text") + " --prefix 10"), 1, "prefix 10");
  expect_one_line(strata(command + "--text " + path("text") + " --batch 0"), 2, "--batch");
  expect_one_line(strata(command + "--text " + path("none")), 1, "none");
  expect_one_line(strata(command + "--choices " + path("choices.jsonl") + " --field what=x"), 1, "'what'");
  expect_one_line(strata(command + "--choices " + path("choices.jsonl") + " --shots 3"), 1, "examples to show 3 of");
  expect_one_line(strata(command + "--choices " + path("choices.jsonl") + " --shots-from " + path("text")), 2,
                  "--shots");
  expect_one_line(strata(command + "--answers " + path("answers.jsonl") + " --tokens 16"), 1, "16 tokens to write");
  write("bad.jsonl", "\n{\"question\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}\n");
  expect_one_line(strata(command + "--choices " + path("bad.jsonl")), 1, "bad.jsonl': line 2: has an empty choice");
  write("bad.jsonl", "{\"question\": \"a\", \"choices\": [\"b\", \" \"], \"answer\": 0}\n");
  expect_one_line(strata(command + "--choices " + path("bad.jsonl")), 1, "bad.jsonl': line 1: '  ' has no token");
  const std::string many = "a b c d e f g h a b c d e f g h a";
  write("bad.jsonl", json({{"question", "a"}, {"choices", {"b", many}}, {"answer", 0}}).dump());
  expect_one_line(strata(command + "--choices " + path("bad.jsonl")), 1, "line 1 has an answer of 17 tokens");
  write("bad.jsonl", "{\"question\": \"a\", \"answer\": 1}\n{\"question\": \"a\"}\n");
  expect_one_line(strata(command + "--answers " + path("bad.jsonl")), 1, "line 2: the object has no member 'answer'");
  EXPECT_FALSE(fs::exists(path("out.json")));
  expect_one_line(strata(command + "--text " + path("text") + " --json " + path("no/out.json")), 2, "no");
}

TEST_F(EvalCommand, CtrlCLeavesNothing) {
  std::string rows;
  for (int i = 0; i < 200'000; ++i) rows += "{\"question\": \"a b c d e f\", \"answer\": \"x\"}\n";
  write("long.jsonl", rows);
  Child child({"eval", "--threads", "1", "--model", path("model"), "--answers", path("long.jsonl"), "--tokens", "8",
               "--json", path("long.json")});
  // Not before it has loaded: then a signal ends it at once, which is no less clean.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_TRUE(child.running());
  child.kill(SIGINT);
  EXPECT_NE(child.wait(), 0);
  EXPECT_FALSE(fs::exists(path("long.json")));
}

// A run of ours has no beginning of text: a line break stands there.
TEST_F(EvalCommand, ARunOfOurs) {
  const std::string out = path("run");
  const Result trained =
      strata("train --out " + out + " --data " + path("text") +
             " --quiet --set model.dim=16 model.layers=1 model.heads=2 model.context=16 train.steps=2"
             " train.batch=2 data.tokenizer=byte");
  ASSERT_EQ(trained.status, 0) << trained.output;
  const Result r = strata("eval --checkpoint " + out + " --text " + path("text") + " --answers " +
                          path("answers.jsonl") + " --tokens 4 --json " + path("run.json"));
  ASSERT_EQ(r.status, 0) << r.output;
  const json found = json::parse(io::read_file(path("run.json")));
  EXPECT_EQ(found["prefix"], '\n');
  EXPECT_EQ(found["results"]["text"]["tokens"], 79);
  EXPECT_NEAR(value(found, "text", "byte_perplexity"), value(found, "text", "token_perplexity"), 1e-6);
}

// What make_eval_cases.py computes with transformers from the definitions of the harness.
TEST(EvalCases, AreTransformers) {
  const char* models = std::getenv("STRATA_MODELS");
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = (models ? fs::path(models) : fs::path(source ? source : ".") / "build/models") / "eval";
  if (!fs::exists(root)) GTEST_SKIP() << root << " is not there: scripts/make-models writes it";
  const io::TempDir dir;
  const std::string file = dir / "out.json";
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "expected.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++seen;
    const json expected = json::parse(io::read_file((entry.path() / "expected.json").string()));
    const auto run = [&](const std::string& arguments) {
      const Result r = strata("eval --samples --model " + entry.path().string() + " " + arguments + " --json " + file);
      EXPECT_EQ(r.status, 0) << r.output;
      return r.status == 0 ? json::parse(io::read_file(file))["results"] : json();
    };
    const auto near = [](double got, double want) { EXPECT_NEAR(got, want, 1e-5 * std::max(1.0, std::abs(want))); };
    const auto compare = [&](const json& got, const json& want) {
      for (const auto& [name, v] : want["measures"].items()) {
        const bool error = name.ends_with("_stderr");
        const json& measure = got["measures"][error ? name.substr(0, name.size() - 7) : name];
        // Perplexities by their logarithms, as they are computed.
        const bool log = name.ends_with("perplexity");
        const auto scale = [&](double x) { return log ? std::log(x) : x; };
        near(scale(measure[error ? "error" : "value"].get<double>()), scale(v.get<double>()));
      }
      ASSERT_EQ(got["samples"].size(), want["samples"].size());
      for (size_t i = 0; i < want["samples"].size(); ++i) {
        const json& s = want["samples"][i];
        if (s.is_string()) {
          EXPECT_EQ(got["samples"][i]["written"], s) << i;
          continue;
        }
        const auto values = s.is_array() ? s.get<std::vector<double>>() : std::vector<double>{s.get<double>()};
        const json& found = got["samples"][i]["log_probabilities"];
        ASSERT_EQ(found.size(), values.size());
        for (size_t k = 0; k < values.size(); ++k) near(found[k].get<double>(), values[k]);
      }
    };
    const auto in = [&](const char* name) { return (root / name).string(); };
    const json all = run("--text " + in("texts.jsonl") + " --choices " + in("choices.jsonl") + " --answers " +
                         (entry.path() / "answers.jsonl").string() + " --tokens 12 --stop '\n\n' --stop .");
    for (const char* kind : {"text", "choices", "answers"}) compare(all[kind], expected[kind]);
    compare(run("--choices " + in("choices.jsonl") + " --shots 2 --shots-from " + in("shots.jsonl"))["choices"],
            expected["choices-first"]);
    compare(run("--choices " + in("choices.jsonl") + " --shots 3 --shots-seed 1234")["choices"],
            expected["choices-drawn"]);
  }
  EXPECT_GE(seen, 6);
}

// What other languages call gives what the command writes.
TEST_F(EvalCommand, IsTheCallOfOtherLanguages) {
  const json written = eval("--samples --shots 1 --shots-seed 3 --tokens 4 --overlap 3 --batch 3 --text " +
                            path("texts.jsonl") + " --choices " + path("choices.jsonl") + " --answers " +
                            path("answers.jsonl") + " --compare " + path("other"));
  const auto model = TextModel::load(path("model")), other = TextModel::load(path("other"));
  set_num_threads(1);
  const json called = json::parse(eval::evaluate(*model,
                                                 json{{"text", path("texts.jsonl")},
                                                      {"choices", path("choices.jsonl")},
                                                      {"answers", path("answers.jsonl")},
                                                      {"num_fewshot", 1},
                                                      {"fewshot_seed", 3},
                                                      {"max_gen_toks", 4},
                                                      {"overlap", 3},
                                                      {"batch_size", 3},
                                                      {"log_samples", true}}
                                                     .dump(),
                                                 other.get()));
  const auto plain = [](json report) {
    report.erase("version");
    for (auto& [name, result] : report["results"].items()) result.erase("seconds");
    return report;
  };
  EXPECT_EQ(plain(written), plain(called));
  EXPECT_EQ(written["results"].size(), 4u);
}

// A GGUF file, and the folder that is made of it: the same measures. One of blocks differs, by as much as they round.
TEST_F(EvalCommand, GgufFilesGiveWhatTheirFolderGives) {
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  text::GgufVocabulary vocabulary{.model = "gpt2", .pre = "llama-bpe"};
  vocabulary.tokens = {"</s>", "\xc4\xa0"};  // and the blank
  for (char c = 'a'; c <= 'h'; ++c) vocabulary.tokens.emplace_back(1, c);
  vocabulary.token_types.assign(vocabulary.tokens.size(), 1);
  vocabulary.token_types[0] = 3;
  vocabulary.eos = 0;
  io::GgufMetadata metadata;
  set_gguf_vocabulary(vocabulary, metadata);
  io::GgufWriter(path("tokenizer.gguf"), metadata, {}).commit();
  manual_seed(9);
  const LanguageModel model(spec);
  {
    const NoGrad guard;
    for (Tensor p : model.parameters())
      if (p.dim() >= 2) p.copy_(randn(p.shape()) * 0.3);
  }
  for (const char* type : {"F32", "Q8_0"})
    save_gguf(model, family, spec, path(std::string(type) + ".gguf"),
              {.type = type, .companions = path("tokenizer.gguf")});
  const Result made = strata("model convert " + path("F32.gguf") + " " + path("folder"));
  ASSERT_EQ(made.status, 0) << made.output;
  const auto of = [&](const std::string& which) {
    const Result r = strata("eval --threads 1 --model " + path(which) + " --text " + path("texts.jsonl") +
                            " --choices " + path("choices.jsonl") + " --answers " + path("answers.jsonl") +
                            " --compare " + path("F32.gguf") + " --tokens 6 --json " + path("out.json"));
    EXPECT_EQ(r.status, 0) << r.output;
    return r.status == 0 ? json::parse(io::read_file(path("out.json"))) : json();
  };
  const json file = of("F32.gguf"), folder = of("folder"), blocks = of("Q8_0.gguf");
  ASSERT_EQ(file["results"].size(), 4u) << file["results"];
  for (const auto& [kind, result] : file["results"].items()) {
    EXPECT_FALSE(result["measures"].empty()) << kind;
    for (const auto& [name, measure] : result["measures"].items()) {
      const json& other = folder["results"][kind]["measures"][name];
      const auto number = [](const json& m) { return m.is_object() ? m["value"].get<double>() : m.get<double>(); };
      EXPECT_NEAR(number(measure), number(other), 1e-9) << kind << ' ' << name;
    }
  }
  EXPECT_GT(value(file, "text", "token_perplexity"), 1);
  EXPECT_NEAR(value(file, "text", "loss"), value(blocks, "text", "loss"), 0.1);
  EXPECT_GT(std::abs(value(file, "text", "loss") - value(blocks, "text", "loss")), 1e-7);
}

}  // namespace
}  // namespace strata::cli
