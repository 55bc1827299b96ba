// docs/library/languages.md names every module of the Python and the Node package.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

fs::path source() {
  const char* folder = std::getenv("STRATA_SOURCE_DIR");
  return folder ? folder : ".";
}

// The page's part between two headings, to the end without a second one.
std::string part(const std::string& from, const std::string& to) {
  std::ifstream f(source() / "docs/library/languages.md");
  const std::string page{std::istreambuf_iterator<char>(f), {}};
  const size_t begin = page.find(from), end = to.empty() ? page.size() : page.find(to);
  return begin < end && end != std::string::npos ? page.substr(begin, end - begin) : "";
}

// The modules under `folder` that the text does not name.
std::set<std::string> unnamed(const fs::path& folder, const std::string& suffix, const std::string& text) {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(source() / folder)) {
    if (entry.path().extension() != suffix) continue;
    std::string name = fs::relative(entry.path(), source() / folder).generic_string();
    name.resize(name.size() - suffix.size());
    if (text.find("`" + name + "`") == std::string::npos) found.insert(name);
  }
  return found;
}

TEST(Languages, ThePageNamesEveryModule) {
  const std::string python = part("\n## Python", "\n## Node"), node = part("\n## Node", "");
  const std::set<std::string> none;
  EXPECT_EQ(unnamed("bindings/python/strata", ".py", python), none) << "docs/library/languages.md: what do they add?";
  EXPECT_EQ(unnamed("bindings/node/lib", ".js", node), none) << "docs/library/languages.md: what do they add?";
  // It would find one that is not there.
  EXPECT_TRUE(unnamed("bindings/node/lib", ".js", "").contains("nn/module"));
}

}  // namespace
}  // namespace strata
