#include <string>

#include <gtest/gtest.h>

#include "apps/strata/child.h"

namespace strata::cli {
namespace {

TEST(Cli, Version) {
  const Result r = strata("--version");
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(r.output.starts_with("strata 0.")) << r.output;
}

TEST(Cli, HelpOfEachCommand) {
  const Result all = strata("--help");
  EXPECT_EQ(all.status, 0);
  EXPECT_NE(all.output.find("info"), std::string::npos);
  const Result info = strata("info --help");
  EXPECT_EQ(info.status, 0);
  EXPECT_NE(info.output.find("--no-peaks"), std::string::npos) << info.output;
}

TEST(Cli, BadUsageIsStatus2AndOneLine) {
  for (const char* arguments : {"trian", "--nonsense", "info --nonsense", "info more"}) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
    EXPECT_EQ(r.output.find('\n'), r.output.size() - 1) << r.output;
  }
  EXPECT_EQ(strata("").status, 2);
  EXPECT_TRUE(strata("trian --steps 3").output.starts_with("strata: error: unknown command 'trian'"));
}

TEST(Cli, FullDiskIsAFailure) {
  const Result r = strata("info --no-peaks >/dev/full");
  EXPECT_EQ(r.status, 1);
}

TEST(Cli, InfoNamesMachineAndLibraries) {
  const Result r = strata("info --no-peaks");
  EXPECT_EQ(r.status, 0);
  for (const char* word : {"Processor", "Memory", "oneDNN", "Highway", "GiB"})
    EXPECT_NE(r.output.find(word), std::string::npos) << word << "\n" << r.output;
}

}  // namespace
}  // namespace strata::cli
