// The commands train and generate, as their users run them.

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "apps/strata/train_test_util.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

using TrainCommand = TrainCommandTest;

TEST_F(TrainCommand, TrainThenGenerate) {
  const std::string out = dir_ / "run";
  const Result r = strata(tiny() + "--out " + out + " --steps 6 --seed 3 --set train.eval_every=3");
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("finished: 6 steps"), std::string::npos) << r.output;
  for (const char* name : {"report.html", "metrics.jsonl", "step-00000006/model.safetensors"})
    EXPECT_TRUE(fs::exists(out + "/" + name)) << name;
  const auto metrics = read_metrics(out + "/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 6u);
  EXPECT_GT(metrics[2].valid_loss, 0);
  EXPECT_GT(metrics[5].tokens_per_s, 0);

  const std::string generate = "generate --checkpoint " + out + " --prompt 'line ' --tokens 30 --threads 1 ";
  const Result a = strata(generate + "--seed 1"), b = strata(generate + "--seed 1"), c = strata(generate + "--seed 2");
  EXPECT_EQ(a.status, 0) << a.output;
  EXPECT_TRUE(a.output.starts_with("line "));
  EXPECT_EQ(a.output.size(), 5u + 30 + 1);
  EXPECT_EQ(a.output, b.output);
  EXPECT_NE(a.output, c.output);
  const Result greedy = strata(generate + "--temperature 0 --seed 1"), again = strata(generate + "--top-k 1 --seed 9");
  EXPECT_EQ(greedy.output, again.output);
}

// A vocabulary that is rounded up for the machine has rows for which no token stands; at the start they are as likely.
TEST_F(TrainCommand, AVocabularyLargerThanTheTokenizersWritesTokensOnly) {
  const std::string out = dir_ / "run";
  const Result r = strata(tiny() + "--out " + out + " --steps 1 --set model.vocab=4096 train.sample_tokens=100");
  ASSERT_EQ(r.status, 0) << r.output;
  const Result text = strata("generate --checkpoint " + out + " --prompt 'line ' --tokens 100 --threads 1");
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_EQ(text.output.size(), 5u + 100 + 1);
}

// A tokenizer.json that has words of the text, and whatever else in single bytes' place.
std::string words_tokenizer(const std::string& first) {
  std::string vocab, at;
  int id = 2;
  for (const char* word : {"line", "of", "a", "small", "text"}) vocab += cat(", \"", word, "\": ", id++);
  for (int i = 0; i < 37; ++i) vocab += cat(", \"", i, "\": ", id++);
  return cat(R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false}], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
      {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}, "decoder": null,
    "model": {"type": "WordLevel", "unk_token": ")",
             first, R"(", "vocab": {")", first, R"(": 0, "<s>": 1)", vocab, "}}}");
}

// From scratch with a tokenizer that exists: the run keeps it, and needs its folder no more.
TEST_F(TrainCommand, ATokenizerThatExists) {
  const std::string out = dir_ / "run", words = dir_ / "words";
  io::make_directories(words);
  io::write_file(words + "/tokenizer.json", words_tokenizer("<unk>"));
  io::write_file(dir_ / "other.json", words_tokenizer("<none>"));
  const std::string with = "--set train.save_every=3 data.tokenizer=" + words;
  Result r = strata(tiny() + "--out " + out + " --steps 6 --seed 3 " + with);
  ASSERT_EQ(r.status, 0) << r.output;
  // The same as the file, and told apart from another.
  const std::string file = dir_ / "file";
  r = strata(tiny() + "--out " + file + " --steps 6 --seed 3 --set train.save_every=3 data.tokenizer=" + words +
             "/tokenizer.json");
  ASSERT_EQ(r.status, 0) << r.output;
  const auto metrics = read_metrics(out + "/metrics.jsonl");
  EXPECT_EQ(metrics.at(5).loss, read_metrics(file + "/metrics.jsonl").at(5).loss);
  EXPECT_LT(metrics.at(0).loss, 4.2) << "44 tokens, not 256";
  r = strata("estimate " + (dir_ / "tiny.toml") + " --set data.tokenizer=" + words);
  EXPECT_EQ(r.status, 0) << r.output;

  // What it has is all that generate, resume and the next model need.
  fs::rename(words, dir_ / "gone");
  r = strata("generate --checkpoint " + out + " --prompt 'line of a' --tokens 12 --threads 1 --json --seed 1");
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json line = nlohmann::json::parse(r.output);
  EXPECT_EQ(line["tokens"].size(), 12u);
  for (const int64_t id : line["tokens"].get<std::vector<int64_t>>()) EXPECT_LT(id, 44);
  EXPECT_NE(line["text"].get<std::string>().find_first_of("lots0123456789"), std::string::npos) << line;
  r = strata("train --resume --out " + out + " --steps 8");
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("finished: 8 steps"), std::string::npos) << r.output;
  r = strata("train --init " + out + " --data " + (dir_ / "text.txt") + " --out " + (dir_ / "next") +
             " --steps 2 --set train.batch=2 train.threads=1");
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_LT(read_metrics((dir_ / "next") + "/metrics.jsonl").at(0).loss, metrics.at(0).loss);

  expect_one_line_error(strata(tiny() + "--out " + (dir_ / "b") + " --set data.tokenizer=" + words), 1,
                        "none of byte, bpe and ids");
  expect_one_line_error(strata(tiny() + "--out " + (dir_ / "b") + " --init " + out + " --set data.tokenizer=bits"), 2,
                        "has its own");
  expect_one_line_error(
      strata(tiny() + "--out " + (dir_ / "b") + " --set model.vocab=10 data.tokenizer=" + (dir_ / "gone")), 1,
      "the tokenizer has 44 tokens, model.vocab is 10");
}

TEST_F(TrainCommand, TokensOfAnotherTokenizerAreRefused) {
  io::make_directories(dir_ / "words");
  io::write_file(dir_ / "words/tokenizer.json", words_tokenizer("<unk>"));
  io::write_file(dir_ / "other.json", words_tokenizer("<none>"));
  Result r =
      strata("data " + (dir_ / "text.txt") + " --out " + (dir_ / "text.tokens") + " --tokenizer " + (dir_ / "words"));
  ASSERT_EQ(r.status, 0) << r.output;
  const std::string train = "train " + (dir_ / "tiny.toml") + " --data " + (dir_ / "text.tokens") + " --set ";
  r = strata(train + "data.tokenizer=" + (dir_ / "words") + " --out " + (dir_ / "a"));
  EXPECT_EQ(r.status, 0) << r.output;
  r = strata(train + "train.steps=4 --out " + (dir_ / "b"));
  EXPECT_EQ(r.status, 0) << r.output << "\nthe tokenizer beside the tokens";
  EXPECT_EQ(read_metrics((dir_ / "a") + "/metrics.jsonl").at(3).loss,
            read_metrics((dir_ / "b") + "/metrics.jsonl").at(3).loss);
  expect_one_line_error(strata(train + "data.tokenizer=" + (dir_ / "other.json") + " --out " + (dir_ / "c")), 1,
                        "tokenizer");
  expect_one_line_error(strata("train --resume --out " + (dir_ / "a") + " --steps 9 --data " + (dir_ / "text.txt")), 1,
                        "is not the text that the run");
}

TEST_F(TrainCommand, ReportOfOneRunAndOfSeveral) {
  const std::string a = dir_ / "a", b = dir_ / "b", page = dir_ / "both.html";
  ASSERT_EQ(strata(tiny() + "--out " + a).status, 0);
  ASSERT_EQ(strata(tiny() + "--out " + b + " --steps 6 --set train.save_every=-1").status, 0);  // no checkpoint
  fs::remove(a + "/report.html");
  const Result one = strata("report " + a);
  EXPECT_EQ(one.status, 0) << one.output;
  const std::string html = io::read_file(a + "/report.html");
  for (const char* text : {"finished", "Sample", "4 of 4 steps", "step-00000004"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  const Result both = strata("report " + a + " " + b + "/ --out " + page);
  EXPECT_EQ(both.status, 0) << both.output;
  EXPECT_NE(both.output.find(page), std::string::npos) << both.output;
  const std::string compared = io::read_file(page);
  for (const char* text : {"2 runs", "<td>4</td>", "<td>6</td>"})
    EXPECT_NE(compared.find(text), std::string::npos) << text;
  expect_one_line_error(strata("report " + dir_.path()), 1, "metrics.jsonl");
  EXPECT_EQ(strata("report").status, 2);
}

TEST_F(TrainCommand, StopsSayWhyAndOfWhichStepTheLossIs) {
  const std::string out = dir_ / "run";
  const Result r = strata(tiny() + "--out " + out + " --steps 50 --set train.max_seconds=1e-9");
  EXPECT_EQ(r.status, 0);
  for (const char* text : {"stopped at step 1: train.max_seconds = 1e-09 has passed, loss ", ", validation loss ",
                           "go on with: strata train --resume --out "})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  EXPECT_EQ(r.output.find(" at step"), r.output.rfind(" at step")) << r.output;
  // What is advised goes on for as long as the limit says, from its own start.
  const Result more = strata("train --resume --out " + out + " --set train.max_seconds=3600");
  EXPECT_NE(more.output.find("finished: 50 steps"), std::string::npos) << more.output;
  const Result fit = strata(tiny() + "--out " + (dir_ / "fit") + " --steps 1000 --set train.fit_seconds=1e-6");
  EXPECT_NE(fit.output.find("steps fit into train.fit_seconds = 1e-06, not 1000: the schedule ends there"),
            std::string::npos)
      << fit.output;
  EXPECT_NE(fit.output.find("finished: "), std::string::npos) << fit.output;
  EXPECT_EQ(fit.output.find("go on with"), std::string::npos) << fit.output;
}

TEST_F(TrainCommand, ResumeKeepsItsSettings) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  expect_one_line_error(strata("train --resume --out " + out + " --set train.optimizer=sgd"), 1,
                        "train.optimizer is \"sgd\", but the run in");
  const Result r = strata("train --resume --out " + out + " --steps 7");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_TRUE(fs::exists(out + "/step-00000007"));
  EXPECT_EQ(read_metrics(out + "/metrics.jsonl").size(), 7u);
}

TEST_F(TrainCommand, BadUsage) {
  for (const char* arguments :
       {"train --steps 0", "train --dtype f17", "train --set model.layer=3", "train --set train.lr=fast", "train",
        "train --steps", "generate", "generate --checkpoint x --temperature -1", "generate --checkpoint x --top-p 0",
        "estimate --set model.heads=3"}) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments << "\n" << r.output;
    EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
  }
  expect_one_line_error(strata("train --set model.layer=3"), 2, "model.layers");
}

TEST_F(TrainCommand, FailuresAreOneLine) {
  const std::string out = " --out " + (dir_ / "run");
  expect_one_line_error(strata("train --data " + (dir_ / "nowhere") + out), 1, "nowhere");
  expect_one_line_error(strata("train " + (dir_ / "no.toml") + out), 1, "no.toml");
  expect_one_line_error(strata("train " + dir_.path() + out + " --data " + (dir_ / "text.txt")), 1, dir_.path());
  expect_one_line_error(strata(tiny() + "--out " + (dir_ / "text.txt")), 1, "text.txt");
  expect_one_line_error(strata("generate --checkpoint " + (dir_ / "nowhere")), 1, "nowhere");
  expect_one_line_error(strata("generate --checkpoint " + (dir_ / "text.txt")), 1, "text.txt");
  expect_one_line_error(strata("generate --checkpoint " + dir_.path()), 1, "no checkpoint");
  io::write_file(dir_ / "empty.txt", "");
  expect_one_line_error(strata("train --data " + (dir_ / "empty.txt") + out), 1, "empty.txt");
  ASSERT_EQ(strata(tiny() + out).status, 0);
  expect_one_line_error(strata(tiny() + out), 1, "--resume");
}

TEST_F(TrainCommand, MemoryTimelineIntoDevicesLinksAndPipes) {
  const auto run = [&](const std::string& file, const std::string& name) {
    return strata(tiny() + "--quiet --steps 1 --out " + (dir_ / name) + " --memory-timeline " + file);
  };
  EXPECT_EQ(run("/dev/null", "a").status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const Result full = run("/dev/full", "b");
  expect_one_line_error(full, 1, "cannot write '/dev/full': No space left on device");
  EXPECT_NE(full.output.find("finished: 1 steps"), std::string::npos) << full.output;
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  io::write_file(dir_ / "page", "old");
  fs::create_symlink("page", dir_ / "link.html");
  EXPECT_EQ(run(dir_ / "link.html", "c").status, 0);
  EXPECT_TRUE(fs::is_symlink(dir_ / "link.html"));
  EXPECT_TRUE(io::read_file(dir_ / "page").starts_with("<!doctype html")) << io::read_file(dir_ / "page").substr(0, 80);
  const Result piped =
      strata(tiny() + "--quiet --steps 1 --out " + (dir_ / "d") + " --memory-timeline /dev/stdout | cat");
  EXPECT_NE(piped.output.find("<!doctype html"), std::string::npos);
  expect_one_line_error(run(dir_ / "no/page.html", "e"), 2, "cannot write into");
  // what ended the run is told, not that the page could not be written either
  const Result both =
      strata("train --quiet --data " + (dir_ / "nowhere") + " --out " + (dir_ / "f") + " --memory-timeline /dev/full");
  expect_one_line_error(both, 1, "nowhere");
}

// `generate` beside a run that keeps one checkpoint and saves after every step.
TEST_F(TrainCommand, GenerateBesideARun) {
  const std::string out = dir_ / "run";
  Child child({"train", dir_ / "tiny.toml", "--data", dir_ / "text.txt", "--out", out, "--steps", "1000000", "--set",
               "train.save_every=1", "train.keep_last=1", "train.eval_every=0"});
  wait_for([&] { return !child.running() || has_saved(out); });
  for (int i = 0; i < 20; ++i) {
    const Result r = strata("generate --checkpoint " + out + " --prompt 'line ' --tokens 2 --threads 1");
    ASSERT_EQ(r.status, 0) << r.output;
    ASSERT_TRUE(r.output.starts_with("line ")) << r.output;  // no note on a broken checkpoint
  }
  EXPECT_TRUE(child.running());
  child.kill(SIGTERM);
  EXPECT_EQ(child.wait(), 0);
}

// The picture of the recorded step alone.
TEST_F(TrainCommand, ReportDrawsTheTimeLine) {
  const std::string out = dir_ / "run", picture = dir_ / "step.svg";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set memory.state=disk memory.disk=" + dir_.path()).status, 0);
  const Result r = strata("report " + out + " --time-line " + picture);
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("compute busy "), std::string::npos) << r.output;
  const std::string svg = io::read_file(picture);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_NE(svg.find(">compute<"), std::string::npos);
  const std::string plain = dir_ / "plain";
  ASSERT_EQ(strata(tiny() + "--out " + plain).status, 0);
  expect_one_line_error(strata("report " + plain + " --time-line " + picture), 1, "step.trace.json");
  EXPECT_EQ(strata("report " + out + " " + plain + " --time-line " + picture).status, 2);
}

}  // namespace
}  // namespace strata::cli
