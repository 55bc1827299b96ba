#pragma once
// `strata train` of a small model, for tests.

#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::cli {

/// A small text and settings.
class TrainCommandTest : public testing::Test {
 protected:
  TrainCommandTest() {
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

/// Whether there is a checkpoint, whichever: a run that saves more often than one looks has removed the first by then.
inline bool has_saved(const std::string& out) {
  return io::find_latest_checkpoint(out).has_value();
}

inline void expect_one_line_error(const Result& r, int status, const std::string& word) {
  EXPECT_EQ(r.status, status) << r.output;
  const size_t at = r.output.find("strata: error: ");
  ASSERT_NE(at, std::string::npos) << r.output;
  EXPECT_EQ(r.output.find('\n', at), r.output.size() - 1) << r.output;
  EXPECT_NE(r.output.find(word, at), std::string::npos) << r.output;
}

}  // namespace strata::cli
