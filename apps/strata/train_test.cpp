// The commands train and generate, as their users run them.

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "strata/core/error.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

class TrainCommand : public testing::Test {
 protected:
  TrainCommand() {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i % 37) + " of a small text\n";
    io::write_file(dir_ / "text.txt", text);
    io::write_file(dir_ / "tiny.toml",
                   "[model]\nlayers = 1\ndim = 16\nheads = 2\ncontext = 16\n[train]\nbatch = 2\nsteps = 4\n"
                   "sample_tokens = 8\nthreads = 1\nwarmup = 2\n");
  }
  std::string tiny() const { return "train " + (dir_ / "tiny.toml") + " --data " + (dir_ / "text.txt") + " "; }
  io::TempDir dir_;
};

template <class Condition>
void wait_for(Condition&& condition) {
  const auto begin = std::chrono::steady_clock::now();
  while (!condition()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
  }
}

// Whether there is a checkpoint, whichever: a run that saves more often than one looks has removed the first by then.
bool has_saved(const std::string& out) {
  return io::find_latest_checkpoint(out).has_value();
}

void expect_one_line_error(const Result& r, int status, const std::string& word) {
  EXPECT_EQ(r.status, status) << r.output;
  const size_t at = r.output.find("strata: error: ");
  ASSERT_NE(at, std::string::npos) << r.output;
  EXPECT_EQ(r.output.find('\n', at), r.output.size() - 1) << r.output;
  EXPECT_NE(r.output.find(word, at), std::string::npos) << r.output;
}

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

TEST_F(TrainCommand, OneProcessAtATimeTrainsIntoAFolder) {
  const std::string out = dir_ / "run";
  const std::string more = "train --resume --out " + out + " --steps 12";
  {
    Child child({"train", dir_ / "tiny.toml", "--data", dir_ / "text.txt", "--out", out, "--steps", "1000000", "--set",
                 "train.save_every=2", "train.eval_every=0"});
    wait_for([&] { return !child.running() || has_saved(out); });
    expect_one_line_error(strata(more), 1, "another process is training into '" + out + "'");
    EXPECT_TRUE(child.running());
    child.kill(SIGTERM);
    EXPECT_EQ(child.wait(), 0);
  }
  // Whoever is gone holds nothing.
  EXPECT_EQ(strata(more).status, 0);
}

TEST_F(TrainCommand, AnotherTextIsRefusedWhereARunGoesOn) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const std::string text = io::read_file(dir_ / "text.txt");
  std::string changed = text;
  changed[100] = '#';  // as long as before
  for (const std::string& other : {changed, text + text}) {
    io::write_file(dir_ / "text.txt", other);
    expect_one_line_error(strata("train --resume --steps 8 --out " + out), 1, "is not the text that the run in");
  }
  io::write_file(dir_ / "text.txt", text);
  EXPECT_EQ(strata("train --resume --steps 8 --out " + out).status, 0);
  EXPECT_TRUE(fs::exists(out + "/step-00000008"));
}

TEST_F(TrainCommand, DamagedCheckpointsAreToldAndPassedOver) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=2").status, 0);
  ASSERT_TRUE(fs::exists(out + "/step-00000002"));
  const std::string last = out + "/step-00000004/model.safetensors";
  fs::resize_file(last, fs::file_size(last) - 1);
  const std::string copy = dir_ / "copy";
  fs::copy(out, copy, fs::copy_options::recursive);
  const Result quiet = strata("train --resume --quiet --out " + copy + " --steps 6");
  EXPECT_EQ(quiet.status, 0) << quiet.output;
  EXPECT_TRUE(quiet.output.starts_with("skipping the broken checkpoint '" + copy + "/step-00000004'")) << quiet.output;
  EXPECT_EQ(quiet.output.find("going on"), std::string::npos) << quiet.output;
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("skipping the broken checkpoint '" + out + "/step-00000004'"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("going on after step 2"), std::string::npos) << r.output;
  // The damaged one was kept until good ones replaced it; with none left the run is not begun anew over it.
  for (const std::string& checkpoint : io::list_checkpoints(out)) fs::resize_file(checkpoint + "/state.json", 20);
  const size_t left = io::list_checkpoints(out).size();
  expect_one_line_error(strata("train --resume --out " + out), 1, "no checkpoint is whole: the broken checkpoint");
  expect_one_line_error(strata(tiny() + "--out " + out), 1, "--resume");
  expect_one_line_error(strata("generate --checkpoint " + out), 1, "no checkpoint is whole");
  EXPECT_EQ(io::list_checkpoints(out).size(), left);
}

TEST_F(TrainCommand, AFolderThatCannotBeWritten) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  fs::permissions(out, fs::perms::owner_read | fs::perms::owner_exec);
  expect_one_line_error(strata("train --resume --steps 8 --out " + out), 1, "Permission denied");
  expect_one_line_error(strata(tiny() + "--out " + out + "/more"), 1, "Permission denied");
  fs::permissions(out, fs::perms::owner_all);
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
}

TEST_F(TrainCommand, DivergenceIsOneLineAndKeepsWhatWasSaved) {
  const std::string out = dir_ / "run";
  const Result r =
      strata(tiny() + "--steps 300 --out " + out +
             " --set train.optimizer=sgd train.lr=1000 train.grad_clip=0 train.warmup=3 train.save_every=1");
  expect_one_line_error(r, 1, "The newest checkpoint is " + out);
  EXPECT_EQ(r.output.find("-nan"), std::string::npos) << r.output;
  EXPECT_NE(io::read_file(out + "/report.html").find("stopped at step"), std::string::npos);
  EXPECT_TRUE(io::find_latest_checkpoint(out).has_value());
}

// `strata train ... | head`: nobody reads on.
TEST_F(TrainCommand, AReaderThatWentAwaySavesAndStops) {
  const std::string out = dir_ / "run";
  strata(tiny() + "--out " + out + " --steps 1000000 --set train.save_every=0 train.eval_every=1 2>&1 | head -3");
  ASSERT_EQ(io::list_checkpoints(out).size(), 1u);
  EXPECT_TRUE(io::find_latest_checkpoint(out).has_value());
  EXPECT_TRUE(fs::exists(out + "/report.html"));
}

// The first Ctrl-C waits for a step that takes long; the second does not.
TEST_F(TrainCommand, SecondInterruptEndsAtOnceAndKeepsWhatWasSaved) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  Child child(
      {"train", "--resume", "--out", out, "--steps", "1000", "--set", "train.batch=20000", "train.save_every=0"});
  wait_for([&] { return !child.running() || fs::file_size(out + "/metrics.jsonl") > 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Two that come before the process has its turn are one.
  wait_for([&] {
    child.kill(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return !child.running();
  });
  EXPECT_EQ(child.wait(), 128 + SIGINT);
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
  EXPECT_EQ(strata("train --resume --steps 6 --out " + out + " --set train.batch=2").status, 0);
}

// No file may grow past a few blocks: what a full disk does to a checkpoint. The signal of that limit ends nothing.
TEST_F(TrainCommand, OutOfDiskKeepsTheLastCheckpoint) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const Result r = strata("train --resume --out " + out + " --steps 6", "ulimit -f 8;");
  expect_one_line_error(r, 1, "File too large");
  EXPECT_NE(r.output.find(out), std::string::npos) << r.output;
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
  EXPECT_FALSE(fs::exists(out + "/step-00000006"));
  const Result later = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(later.status, 0) << later.output;
  EXPECT_TRUE(fs::exists(out + "/step-00000006"));
}

TEST_F(TrainCommand, InterruptSavesAndStops) {
  const std::string out = dir_ / "run";
  Child child({"train", dir_ / "tiny.toml", "--data", dir_ / "text.txt", "--out", out, "--steps", "1000000", "--set",
               "train.save_every=0", "train.eval_every=0"});
  wait_for([&] {
    return !child.running() || (fs::exists(out + "/metrics.jsonl") && fs::file_size(out + "/metrics.jsonl") > 0);
  });
  child.kill(SIGINT);
  EXPECT_EQ(child.wait(), 0);
  const auto metrics = read_metrics(out + "/metrics.jsonl");
  ASSERT_FALSE(metrics.empty());
  char name[32];
  std::snprintf(name, sizeof name, "/step-%08lld", static_cast<long long>(metrics.back().step));
  EXPECT_TRUE(fs::exists(out + name)) << name;
  EXPECT_TRUE(fs::exists(out + "/report.html"));
}

// A small disk that fills up: the error says so, and the older checkpoint goes on once there is room.
TEST_F(TrainCommand, FullDiskKeepsTheLastCheckpoint) {
  if (::geteuid() != 0 || std::system("unshare -m true 2>/dev/null") != 0)
    GTEST_SKIP() << "this user may not mount a small file system";
  const std::string disk = dir_ / "disk", out = disk + "/run";
  fs::create_directory(disk);
  const std::string again = std::string(program()) + " train --resume --out " + out + " --steps ";
  const Result r =
      strata("--version", "unshare -m sh -c \"mount -t tmpfs -o size=4m none " + disk + " && " + program() + " " +
                              tiny() + "--out " + out + " --quiet; cat /dev/zero >" + disk + "/fill; " + again +
                              "6; echo status \\$?; rm " + disk + "/fill; " + again + "6\";");
  EXPECT_NE(r.output.find("No space left on device"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("status 1"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("going on after step 4"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("finished: 6 steps"), std::string::npos) << r.output;
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

TEST_F(TrainCommand, LogsInAFolderWithoutACheckpointAreKept) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=-1").status, 0);
  const std::string log = io::read_file(out + "/metrics.jsonl"), page = io::read_file(out + "/report.html");
  const Result r = strata(tiny() + "--out " + out);
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("is kept as '" + out + "/metrics.1.jsonl'"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("is kept as '" + out + "/report.1.html'"), std::string::npos) << r.output;
  EXPECT_EQ(io::read_file(out + "/metrics.1.jsonl"), log);
  EXPECT_EQ(io::read_file(out + "/report.1.html"), page);
  EXPECT_EQ(read_metrics(out + "/metrics.jsonl").size(), 4u);
}

TEST_F(TrainCommand, WhatAKilledRunLeftIsRemoved) {
  const std::string out = dir_ / "run";
  fs::create_directories(out + "/data");
  for (const char* name : {"/data/.train.tokens.tmp.0", "/data/.train.tokens.tmp.2147483647.1", "/.report.html.tmp.0",
                           "/.report.html.tmp.2147483647.12", "/.keep.me"})
    io::write_file(out + name, "half");
  fs::create_directory(out + "/.tmp-step-00000001-1-1");
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  std::vector<std::string> hidden;
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(out))
    if (e.path().filename().string().starts_with('.')) hidden.push_back(e.path().filename());
  EXPECT_EQ(hidden, std::vector<std::string>{".keep.me"});
}

TEST_F(TrainCommand, DamagedTokensAreBuiltAgain) {
  const std::string out = dir_ / "run", tokens = out + "/data/train.tokens";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --steps 6").status, 0);
  const std::string whole = io::read_file(tokens), weights = io::read_file(out + "/step-00000006/model.safetensors");
  fs::remove_all(out);
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  std::string damaged = whole;
  damaged[5000] ^= 1;
  io::write_file(tokens, damaged);
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("are damaged, their checksum is another; it was built again"), std::string::npos) << r.output;
  EXPECT_EQ(io::read_file(tokens), whole);
  io::write_file(tokens, damaged);
  fs::remove(dir_ / "text.txt");
  expect_one_line_error(strata("train --resume --out " + out + " --steps 8"), 1, "train.tokens': byte 88: ");
}

TEST_F(TrainCommand, TokensThatAreCutWhileTheyAreUsedEndTheRunWithAReason) {
  const std::string out = dir_ / "run";
  const Result r =
      strata(tiny() + "--quiet --out " + out + " --steps 1000000 --set train.save_every=2 train.eval_every=0 & " +
             "until ls -d " + out + "/step-* >/dev/null 2>&1 || ! kill -0 $!; do sleep 0.02; done; truncate -s 100 " +
             out + "/data/train.tokens; wait $!");
  expect_one_line_error(r, 1, "it was cut while it was in use");
  EXPECT_TRUE(has_saved(out));
}

TEST_F(TrainCommand, ABrokenLogNeverRefusesTheResume) {
  const std::string out = dir_ / "run", log = out + "/metrics.jsonl";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const std::string lines = io::read_file(log);
  const size_t second = lines.find('\n') + 1;
  io::write_file(log, lines.substr(0, second) + "rubbish\n" + lines.substr(second));
  const Result r = strata("train --resume --out " + out + " --steps 5");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("line 2 is no step of a run. It is kept as"), std::string::npos) << r.output;
  EXPECT_EQ(read_metrics(log).size(), 5u);
  io::write_file(log, lines.substr(second));
  const Result lost = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(lost.status, 0) << lost.output;
  EXPECT_NE(lost.output.find("there is no line for step 1"), std::string::npos) << lost.output;
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

TEST_F(TrainCommand, DeeplyNestedStateFallsBackToTheOlderCheckpoint) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=2").status, 0);
  io::write_file(out + "/step-00000004/state.json", std::string(100'000, '[') + std::string(100'000, ']'));
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("going on after step 2"), std::string::npos) << r.output;
  EXPECT_EQ(strata("generate --checkpoint " + out + " --tokens 1").status, 0);
}

// Killed at 20 random moments, many of them while a checkpoint is written, and resumed: the same bits as unbroken.
TEST_F(TrainCommand, KilledAndResumedIsTheSameToTheBit) {
  constexpr int kKills = 20, kSteps = 400;
  const auto arguments = [&](const std::string& out) {
    return std::vector<std::string>{"train",
                                    dir_ / "tiny.toml",
                                    "--data",
                                    dir_ / "text.txt",
                                    "--out",
                                    out,
                                    "--resume",
                                    "--steps",
                                    std::to_string(kSteps),
                                    "--set",
                                    "model.dropout=0.1",
                                    "train.save_every=3",
                                    "train.eval_every=50",
                                    "train.sample_tokens=0"};
  };
  const std::string unbroken = dir_ / "unbroken", killed = dir_ / "killed";
  ASSERT_EQ(Child(arguments(unbroken)).wait(), 0);

  const auto steps_done = [&] {
    return fs::exists(killed + "/metrics.jsonl") ? static_cast<int>(read_metrics(killed + "/metrics.jsonl").size()) : 0;
  };
  std::mt19937 random(20240607);
  int done = 0, ended_by_kill = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    // Some right after the start, most some steps further on.
    const int ahead = std::uniform_int_distribution(1, 2 * (kSteps - done) / (kKills - kill + 3) + 1)(random);
    const int target = kill % 5 == 0 ? 0 : done + ahead;
    Child child(arguments(killed));
    while (child.running() && steps_done() < target) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 20000)(random)));
    child.kill(SIGKILL);
    const int status = child.wait();
    ASSERT_TRUE(status == 128 + SIGKILL || status == 0) << status;
    ended_by_kill += status != 0;
    done = steps_done();
  }
  EXPECT_GE(ended_by_kill, 15);
  ASSERT_EQ(Child(arguments(killed)).wait(), 0);
  for (const char* file : {"/step-00000400/model.safetensors", "/step-00000400/optimizer.safetensors"}) {
    ASSERT_TRUE(fs::exists(killed + file));
    EXPECT_EQ(io::read_file(unbroken + file), io::read_file(killed + file)) << file;
  }
  const auto a = read_metrics(unbroken + "/metrics.jsonl"), b = read_metrics(killed + "/metrics.jsonl");
  ASSERT_EQ(a.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(b.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].loss, b[i].loss) << i;
}

// The same with weights, state and activations on a disk: a kill leaves nothing there, and what goes on, also with
// another budget, ends at the bits of a run that moves nothing.
TEST_F(TrainCommand, KilledWithTiersOnLeavesNothingBehind) {
  const std::string plain = dir_ / "plain", killed = dir_ / "killed", disk = dir_ / "disk";
  fs::create_directory(disk);
  const auto arguments = [&](const std::string& out, const std::vector<std::string>& memory) {
    std::vector<std::string> all{"train",
                                 dir_ / "tiny.toml",
                                 "--data",
                                 dir_ / "text.txt",
                                 "--out",
                                 out,
                                 "--resume",
                                 "--steps",
                                 "60",
                                 "--set",
                                 "train.save_every=5",
                                 "train.eval_every=0",
                                 "train.sample_tokens=0"};
    all.insert(all.end(), memory.begin(), memory.end());
    return all;
  };
  ASSERT_EQ(Child(arguments(plain, {})).wait(), 0);
  const std::vector<std::string> away{"memory.disk=" + disk, "memory.parameters=disk", "memory.state=disk",
                                      "memory.activations=disk"};
  {
    Child child(arguments(killed, away));
    wait_for([&] { return !child.running() || has_saved(killed); });
    child.kill(SIGKILL);
    ASSERT_EQ(child.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(fs::is_empty(disk));
  ASSERT_EQ(Child(arguments(killed, {"memory.disk=" + disk, "memory.parameters=auto", "memory.state=disk",
                                     "memory.activations=auto"}))
                .wait(),
            0);
  EXPECT_TRUE(fs::is_empty(disk));
  for (const char* file : {"/step-00000060/model.safetensors", "/step-00000060/optimizer.safetensors"})
    EXPECT_EQ(io::read_file(plain + file), io::read_file(killed + file)) << file;
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
