// The committed reference is what the records say now, and the umbrella header lacks no family.

#include "strata/lab/reference.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace strata::lab {
namespace {

namespace fs = std::filesystem;

fs::path source_dir() {
  const char* dir = std::getenv("STRATA_SOURCE_DIR");
  return dir ? dir : ".";
}

std::string read(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

TEST(Reference, IsCurrent) {
  const fs::path dir = source_dir() / "docs/reference";
  std::set<std::string> wanted;
  for (const auto& [name, text] : reference(OpBase::all())) {
    wanted.insert(name);
    EXPECT_TRUE(read(dir / name) == text) << dir / name << " is not current: run strata ops --markdown docs/reference";
  }
  for (const auto& entry : fs::directory_iterator(dir))
    EXPECT_TRUE(wanted.contains(entry.path().filename().string())) << entry.path() << " belongs to no family";
}

TEST(Reference, PageSaysAllThatTheRecordDoes) {
  const OpBase* op = OpBase::find("softmax");
  ASSERT_NE(op, nullptr);
  const std::string text = page(*op);
  for (const std::string_view piece : {"softmax(Tensor x, int dim) -> Tensor", "Arguments", "Dtypes     floating", "Gradient   yes",
                                       "operations and at least", "Example"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << "\n" << text;
}

TEST(Umbrella, IncludesEveryFamily) {
  const std::string umbrella = read(source_dir() / "strata/strata.h");
  ASSERT_FALSE(umbrella.empty());
  for (const auto& entry : fs::directory_iterator(source_dir() / "strata/ops")) {
    const std::string family = entry.path().filename().string();
    const std::string header = "strata/ops/" + family + "/" + family + ".h";
    if (!fs::exists(source_dir() / header)) continue;  // a folder of helpers
    EXPECT_NE(umbrella.find('"' + header + '"'), std::string::npos) << header;
  }
}

}  // namespace
}  // namespace strata::lab
