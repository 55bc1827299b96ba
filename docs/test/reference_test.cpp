// The committed reference is what the records say now, and the umbrella header lacks no family.

#include "strata/lab/reference.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/dist/exchange_page.h"
#include "strata/distributions/record.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"

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
  auto pages = reference(OpBase::all());
  using Page = std::pair<std::string, std::string>;
  std::vector<Page> all(pages.begin(), pages.end());
  all.emplace_back("optimizers.md", optim::optimizers_markdown());
  all.emplace_back("schedules.md", optim::schedules_markdown());
  all.emplace_back("exchanges.md", distributed::exchanges_markdown());
  all.emplace_back("families.md", distributions::distributions_markdown());
  for (const auto& [name, text] : all) {
    wanted.insert(name);
    EXPECT_TRUE(read(dir / name) == text) << dir / name << " is not current: run strata ops --markdown docs/reference";
  }
  for (const auto& entry : fs::directory_iterator(dir))
    if (!entry.is_directory())  // the classes'
      EXPECT_TRUE(wanted.contains(entry.path().filename().string())) << entry.path() << " belongs to no family";
}

TEST(Reference, PageSaysAllThatTheRecordDoes) {
  const OpBase* op = OpBase::find("softmax");
  ASSERT_NE(op, nullptr);
  const std::string text = page(*op);
  for (const std::string_view piece : {"softmax(Tensor x, int dim) -> Tensor", "Arguments", "Dtypes      floating",
                                       "Gradient    yes", "operations and at least", "Example"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << "\n" << text;
}

// A header with functions of tensors that is not a family's inside (kernels, loops, the losses' last step) is for
// users.
TEST(Umbrella, IncludesEveryOpHeader) {
  ASSERT_NE(read(source_dir() / "strata/strata.h").find("\"strata/ops/ops.h\""), std::string::npos);
  const std::string umbrella = read(source_dir() / "strata/ops/ops.h");  // written by CMake
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "strata/ops")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".h") || name.ends_with("_inl.h") || name.find("kernel") != std::string::npos ||
        name == "reduction.h" || name == "records.h" || name.ends_with("_record.h"))
      continue;
    if (read(entry.path()).find("\nTensor ") == std::string::npos) continue;
    const std::string header = fs::relative(entry.path(), source_dir()).string();
    EXPECT_NE(umbrella.find('"' + header + '"'), std::string::npos) << header;
    ++found;
  }
  EXPECT_GE(found, 15);
}

}  // namespace
}  // namespace strata::lab
