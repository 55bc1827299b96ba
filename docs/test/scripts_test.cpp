// Scripts end where a pipe's writer fails (pipefail). A reader that leaves early makes it fail, by SIGPIPE, whenever
// the writer is not done by then: now and then.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

bool leaves_early(const std::string& line) {
  static const std::regex reader(R"(\|\s*(head\b|grep\s+(-\w*q|-m)|awk\b.*\bexit\b|sed\b[^|]*[0-9$/]q\b))");
  return std::regex_search(line, reader);
}

TEST(Scripts, ReadPipesToTheirEnds) {
  EXPECT_TRUE(leaves_early("x=$(ldconfig -p | awk '$1 == \"a\" { print $2; exit }')"));
  EXPECT_TRUE(leaves_early("git log | head -n 1"));
  EXPECT_TRUE(leaves_early("ldd a | grep -q libdnnl"));
  EXPECT_TRUE(leaves_early("ls | sed -n '1p;1q'"));
  EXPECT_FALSE(leaves_early("ls | sed -n 1p"));
  EXPECT_FALSE(leaves_early("grep -q a file || die"));

  const char* folder = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = folder ? folder : ".";
  std::vector<fs::path> files{root / ".ci/run", root / "bench/size_report.sh"};
  for (const auto& entry : fs::directory_iterator(root / "scripts"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  int pipefail = 0;
  for (const fs::path& file : files) {
    std::ifstream f(file);
    ASSERT_TRUE(f) << file;
    std::string line;
    for (int number = 1; std::getline(f, line); ++number) {
      pipefail += line.find("pipefail") != std::string::npos || line.find("/common.sh\"") != std::string::npos;
      EXPECT_FALSE(leaves_early(line)) << file << ':' << number << ": " << line;
    }
  }
  EXPECT_GE(pipefail, 10);
}

}  // namespace
}  // namespace strata
