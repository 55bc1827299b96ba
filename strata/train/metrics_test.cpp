#include "strata/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/train/progress.h"

namespace strata {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    std::string pattern = ::testing::TempDir() + "/strata_metrics_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/metrics.jsonl";
  }
  ~MetricsTest() override { std::filesystem::remove_all(folder_); }

  void write_steps(int64_t first, int64_t last, int64_t resume) const {
    MetricsWriter log(path_, resume);
    for (int64_t i = first; i <= last; ++i)
      log.write({.step = i,
                 .loss = 5.0 / static_cast<double>(i),
                 .lr = 1e-3,
                 .grad_norm = 0.5,
                 .tokens_per_s = 1e4,
                 .elapsed_s = 0.1 * static_cast<double>(i),
                 .tokens = 2048 * i});
  }
  void append(std::string_view text) const { std::ofstream(path_, std::ios::app) << text; }

  std::string folder_, path_;
};

TEST_F(MetricsTest, WritesAndReadsBack) {
  {
    MetricsWriter log(path_);
    log.write({.step = 1,
               .loss = 5.25,
               .lr = 1e-3,
               .grad_norm = 2,
               .tokens_per_s = 1e4,
               .elapsed_s = 0.5,
               .tokens = 64,
               .valid_loss = 5.5});
    log.write({.step = 2, .loss = NAN});
    // Nothing is held back until the file is closed.
    EXPECT_EQ(read_metrics(path_).size(), 2u);
  }
  const auto steps = read_metrics(path_);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[0].loss, 5.25);
  EXPECT_EQ(steps[0].tokens, 64);
  EXPECT_EQ(steps[0].valid_loss, 5.5);
  EXPECT_EQ(steps[1].step, 2);
  EXPECT_TRUE(std::isnan(steps[1].loss));
  EXPECT_TRUE(std::isnan(steps[1].valid_loss));
}

TEST_F(MetricsTest, ResumeDropsWhatCameAfterTheCheckpoint) {
  write_steps(1, 10, 0);
  append("{\"step\":11,\"lo");  // killed while writing
  write_steps(7, 8, 6);
  const auto steps = read_metrics(path_);
  ASSERT_EQ(steps.size(), 8u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].step, static_cast<int64_t>(i) + 1);
}

TEST_F(MetricsTest, ResumePastTheEndKeepsWholeLinesOnly) {
  write_steps(1, 3, 0);
  append("{\"step\":4,\"lo");
  write_steps(5, 5, 100);
  const auto steps = read_metrics(path_);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.back().step, 5);
}

TEST_F(MetricsTest, StartingAnewKeepsTheOldLogAside) {
  write_steps(1, 3, 0);
  std::vector<std::string> notes;
  MetricsWriter(path_, 0, {}, &notes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("kept as '" + folder_ + "/metrics.1.jsonl'"), std::string::npos) << notes[0];
  EXPECT_TRUE(read_metrics(path_).empty());
  EXPECT_EQ(read_metrics(folder_ + "/metrics.1.jsonl").size(), 3u);
  notes.clear();
  MetricsWriter(path_, 0, {}, &notes);  // an empty one is nothing to keep
  EXPECT_TRUE(notes.empty());
}

class MarkedLog : public MetricsTest {
 protected:
  MarkedLog() {
    MetricsWriter log(path_);
    for (int64_t i = 1; i <= 6; ++i) {
      log.write({.step = i, .loss = 1});
      if (i == 4) mark_ = log.mark();
    }
    whole_ = io::read_file(path_);
  }
  // Goes on after step 4 with step 5; what was said.
  std::string resume() {
    std::vector<std::string> notes;
    {
      MetricsWriter log(path_, 4, mark_, &notes);
      log.write({.step = 5, .loss = 2});
      now_ = log.mark();
    }
    const std::string text = io::read_file(path_);
    EXPECT_EQ(now_.bytes, text.size());
    EXPECT_EQ(now_.xxh64, io::xxh64(text));
    EXPECT_EQ(now_.lines, std::count(text.begin(), text.end(), '\n'));
    EXPECT_EQ(read_metrics(path_).back().loss, 2);
    EXPECT_LE(notes.size(), 1u);
    return notes.empty() ? "" : notes[0];
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const StepMetrics& m : read_metrics(path_)) all.push_back(m.step);
    return all;
  }
  std::string aside() const { return io::read_file(folder_ + "/metrics.1.jsonl"); }

  LogMark mark_, now_;
  std::string whole_;
};
using Steps = std::vector<int64_t>;

TEST_F(MarkedLog, GoesOnWithoutAWordWhereItIsWhole) {
  EXPECT_EQ(mark_.lines, 4);
  const LogMark read = parse_log_mark(to_string(mark_));
  EXPECT_EQ(read.lines, mark_.lines);
  EXPECT_EQ(read.bytes, mark_.bytes);
  EXPECT_EQ(read.xxh64, mark_.xxh64);
  for (const char* bad : {"", "4", "4 100", "4 100 xyz", "-1 100 0000000000000000", "a b c"})
    EXPECT_EQ(parse_log_mark(bad).lines, -1) << bad;
  EXPECT_EQ(resume(), "");
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
  // what came after the checkpoint may be anything
  io::write_file(path_, whole_.substr(0, mark_.bytes) + "{{{\n\n\xff");
  EXPECT_EQ(resume(), "");
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
}

TEST_F(MarkedLog, LostLinesAreTold) {
  const size_t second = whole_.find('\n') + 1, third = whole_.find('\n', second) + 1;
  io::write_file(path_, whole_.substr(0, second) + whole_.substr(third));
  const std::string note = resume();
  EXPECT_NE(
      note.find("there is no line for step 2. It is kept as '" + folder_ + "/metrics.1.jsonl', its 3 whole lines"),
      std::string::npos)
      << note;
  EXPECT_EQ(steps(), (Steps{1, 3, 4, 5}));
  EXPECT_EQ(aside(), whole_.substr(0, second) + whole_.substr(third));
}

TEST_F(MarkedLog, ChangedLinesAreTold) {
  std::string changed = whole_;
  changed[changed.find("\"loss\":1") + 7] = '3';
  io::write_file(path_, changed);
  const std::string note = resume();
  EXPECT_NE(note.find("a line was changed"), std::string::npos) << note;
  EXPECT_EQ(aside(), changed);
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
}

TEST_F(MarkedLog, BrokenLinesAreLeftOutAndNeverRefused) {
  const size_t second = whole_.find('\n') + 1;
  for (const std::string& rubbish : {std::string("rubbish\n"), std::string("\n"), std::string(100'000, '[') + "\n",
                                     std::string(50, '\0') + "\n", std::string("{\"step\":1}\n")}) {
    std::filesystem::remove(folder_ + "/metrics.1.jsonl");
    io::write_file(path_, whole_.substr(0, second) + rubbish + whole_.substr(second));
    const std::string note = resume();
    EXPECT_NE(note.find(rubbish[0] == '{' ? "line 2 is of step 1 again" : "line 2 is no step of a run"),
              std::string::npos)
        << note;
    EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
  }
  // every byte of it cut or flipped: always a log to go on with
  for (size_t at = 0; at < mark_.bytes; at += 7) {
    io::write_file(path_, whole_.substr(0, at));
    std::filesystem::remove(folder_ + "/metrics.1.jsonl");
    EXPECT_NE(resume(), "") << at;
    std::string flipped = whole_;
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << at % 8);
    io::write_file(path_, flipped);
    std::filesystem::remove(folder_ + "/metrics.1.jsonl");
    EXPECT_NE(resume(), "") << at;
  }
}

TEST_F(MarkedLog, AMissingLogIsTold) {
  std::filesystem::remove(path_);
  EXPECT_NE(resume().find("is gone: the log goes on after step 4"), std::string::npos);
  EXPECT_EQ(steps(), (Steps{5}));
}

TEST_F(MarkedLog, OlderCheckpointsKnowNothingOfIt) {
  mark_ = {};
  EXPECT_EQ(resume(), "");
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
  io::write_file(path_, whole_.substr(0, whole_.find('\n') + 1));
  EXPECT_NE(resume().find("has no line for steps 2 to 4"), std::string::npos);
  io::write_file(path_, "rubbish\n" + whole_);
  EXPECT_NE(resume().find("line 1 is no step of a run. It is kept as"), std::string::npos);
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5}));
}

TEST_F(MetricsTest, LenientReadersPassBrokenLinesOver) {
  write_steps(1, 2, 0);
  append("rubbish\n");
  write_steps(3, 3, 100);
  append("rubbish\n" + to_json({.step = 4}) + "\n");
  std::vector<std::string> notes;
  EXPECT_EQ(read_metrics(path_, &notes).size(), 4u);
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_THROW(read_metrics(path_), IoError);
}

TEST_F(MetricsTest, TornLastLineIsLeftOutAndABrokenOneInTheMiddleIsAnError) {
  const std::string good = to_json({.step = 1, .loss = 1}) + "\n";
  for (const char* torn : {"{\"step\":2", "{\"step\":2\n", "{\"step\":2,\"loss\":1.0}", "\n", "{\"step\":"})
    EXPECT_EQ(parse_metrics(good + torn).size(), 1u) << torn;
  for (const char* bad : {"{\"step\":2\n", "[]\n", "{}\n", "{\"step\":\"x\"}\n", "{\"step\":-1}\n",
                          "{\"step\":1,\"loss\":\"x\"}\n", "\xff\n", "\n"})
    EXPECT_THROW(parse_metrics(std::string(bad) + good), IoError) << bad;
  EXPECT_EQ(parse_metrics("{\"step\":1,\"loss\":null,\"mine\":[1]}\n").size(), 1u);
}

TEST_F(MetricsTest, DiskFullAndBadPathsAreErrors) {
  if (std::filesystem::exists("/dev/full")) {
    MetricsWriter log("/dev/full");
    EXPECT_THROW(log.write({.step = 1}), IoError);
  }
  EXPECT_THROW(MetricsWriter("/nonexistent/metrics.jsonl"), IoError);
  EXPECT_THROW(MetricsWriter{folder_}, IoError);
  EXPECT_THROW(read_metrics(folder_), IoError);
}

TEST(Progress, Numbers) {
  EXPECT_EQ(format_duration(42.4), "42s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(59.7), "1m00s");
  EXPECT_EQ(format_duration(2 * 3600 + 7 * 60), "2h07m");
  EXPECT_EQ(format_duration(5 * 86400 + 3 * 3600), "5d03h");
  EXPECT_EQ(format_duration(NAN), "--");
  EXPECT_EQ(format_duration(-1), "--");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(4.56e6), "4.56M");
}

int columns(const std::string& s) {
  int n = 0;
  for (const char c : s) n += (c & 0xc0) != 0x80;
  return n;
}

TEST(Progress, LineFitsAnyWidth) {
  const StepMetrics m{.step = 250, .loss = 2.34567, .lr = 3e-4, .grad_norm = 1, .tokens_per_s = 12345, .elapsed_s = 50};
  const std::string full = progress_line(m, 1000, 200);
  for (const char* part :
       {"25%", "step  250/1000", "loss 2.3457", "lr 3.00e-04", "12.3k tok/s", "2m30s left", "█████░"})
    EXPECT_NE(full.find(part), std::string::npos) << part << " in " << full;
  for (int width = 0; width < 120; ++width) EXPECT_LE(columns(progress_line(m, 1000, width)), width);
  // The loss is the last to go.
  EXPECT_EQ(progress_line(m, 1000, 11), "loss 2.3457");
  EXPECT_NE(progress_line({.step = 1000, .elapsed_s = 50}, 1000, 200).find("  in 50s"), std::string::npos);
  EXPECT_NE(progress_line({.step = 1}, 10, 80).find("loss nan"), std::string::npos);
}

TEST(Progress, TimeLeftCountsFromTheResumedStep) {
  // 200 steps took 900 s elsewhere, 50 took 50 s here: 750 are left.
  const StepMetrics m{.step = 250, .loss = 1, .elapsed_s = 950};
  EXPECT_NE(progress_line(m, 1000, 200, 200, 900).find("12m30s left"), std::string::npos);
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  std::FILE* out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  {
    Progress progress(100, out, 1000.0);
    for (int i = 1; i <= 100; ++i) progress.update({.step = i, .loss = 1, .elapsed_s = i * 0.1});
    progress.note("saved");
  }
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  // The first step, the note, the last step.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_NE(text.find("step   1/100"), std::string::npos) << text;
  EXPECT_NE(text.find("step 100/100"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("█"), std::string::npos) << text;  // a log is read by programs
}

}  // namespace
}  // namespace strata
