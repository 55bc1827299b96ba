// The pages for readers: their links lead somewhere, and what their commands name exists.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

fs::path root() {
  const char* dir = std::getenv("STRATA_SOURCE_DIR");
  return dir ? dir : ".";
}

std::string read(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

std::vector<fs::path> pages() {
  std::vector<fs::path> found{root() / "README.md", root() / "CONTRIBUTING.md"};
  for (const char* folder : {"docs", "examples", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(root() / folder))
      if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

// The names that Markdown's renderers give to a page's headings: lower case, without punctuation, spaces as hyphens.
bool has_heading(const std::string& page, const std::string& anchor) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) continue;
    std::string name;
    for (const char c : line.substr(line.find_first_not_of("# "))) {
      if (c == ' ') name += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (name == anchor) return true;
  }
  return false;
}

TEST(Pages, LinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)\s]+)\))");
  int looked_at = 0;
  for (const fs::path& page : pages()) {
    std::istringstream lines(read(page));
    std::string text;
    bool fenced = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("```")) fenced = !fenced;
      if (!fenced) text += line + '\n';
    }
    for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i) {
      const std::string target = (*i)[1];
      if (target.find("://") != std::string::npos) continue;
      const size_t hash = target.find('#');
      const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << target;
      if (hash != std::string::npos)
        EXPECT_TRUE(has_heading(read(file), target.substr(hash + 1))) << page << " links to " << target;
      ++looked_at;
    }
  }
  EXPECT_GE(looked_at, 40);
}

// Commands stand in indented or fenced blocks. What they call from the repository has to be there.
TEST(Pages, CommandsNameWhatExists) {
  const std::regex named(R"((?:^|[ (=])((?:scripts|examples|configs|bench)/[A-Za-z0-9_./-]+))");
  int looked_at = 0;
  for (const fs::path& page : pages()) {
    std::istringstream lines(read(page));
    bool fenced = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("```")) fenced = !fenced;
      if (!fenced && !line.starts_with("    ")) continue;
      line = line.substr(0, line.find(" #"));
      for (std::sregex_iterator i(line.begin(), line.end(), named), end; i != end; ++i) {
        const std::string path = (*i)[1];
        EXPECT_TRUE(fs::exists(root() / path)) << page << " names " << path << " in: " << line;
        ++looked_at;
      }
    }
  }
  EXPECT_GE(looked_at, 25);
}

}  // namespace
}  // namespace strata
