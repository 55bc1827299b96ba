// The rooms of the library: a file includes what stands below it, never above or in a circle. Tests may look anywhere.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

namespace fs = std::filesystem;

// What the files of a room may include besides their own.
const std::map<std::string, std::set<std::string>> kBelow{
    {"core", {}},
    {"memory", {"core"}},
    {"cuda", {"core", "memory"}},
    {"autograd", {"core", "memory", "cuda"}},
    {"ops", {"core", "memory", "cuda", "autograd"}},
    {"dist", {"core", "memory", "cuda", "autograd", "ops"}},
    {"io", {"core", "memory", "cuda", "autograd", "ops", "dist"}},
    {"text", {"core", "io"}},
    {"data", {"core", "memory", "autograd", "ops", "io", "text"}},
    {"nn", {"core", "memory", "cuda", "autograd", "ops", "dist"}},
    {"optim", {"core", "memory", "cuda", "autograd", "ops", "dist", "nn"}},
    {"distributions", {"core", "memory", "autograd", "ops"}},
    {"models", {"core", "memory", "autograd", "ops", "dist", "io", "text", "nn"}},
    {"eval", {"core", "memory", "ops", "io", "text", "data", "nn", "models", "generate"}},
    {"generate", {"core", "memory", "cuda", "autograd", "ops", "io", "text", "data", "nn", "models"}},
    {"lab", {"core", "memory", "cuda", "autograd", "ops", "dist", "nn"}},
    {"train", {"core", "memory", "cuda", "autograd", "ops", "dist", "io", "text", "data", "nn", "optim", "models", "generate", "eval", "lab"}},
    {"c", {"core", "memory", "cuda", "autograd", "ops", "dist", "io", "text", "data", "nn", "optim", "models", "generate", "eval", "lab", "train"}},
};

struct Include {
  std::string file, header;  // relative to strata/
};

bool is_test(const std::string& file) {
  static const std::regex test("(_test|_fuzz)\\.(cpp|cu)$|_test_util\\.h$|/test_plugin/");
  return std::regex_search(file, test);
}

// The includes of the library's own headers, of all files but tests.
std::vector<Include> includes() {
  static const std::regex line("^#include \"strata/([^\"]+)\"");
  static const std::set<std::string> kinds{".h", ".cpp", ".cu", ".cuh"};
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = fs::path(source ? source : ".") / "strata";
  std::vector<Include> found;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = fs::relative(entry.path(), root).generic_string();
    if (!kinds.count(entry.path().extension()) || is_test(name) || name == "strata.h") continue;
    std::ifstream f(entry.path());
    std::smatch m;
    for (std::string text; std::getline(f, text);)
      if (text.starts_with("#include \"strata/") && std::regex_search(text, m, line)) found.push_back({name, m[1]});
  }
  return found;
}

std::string part(const std::string& path, int depth) {
  size_t begin = 0;
  for (; depth > 0; --depth) begin = path.find('/', begin) + 1;
  const size_t end = path.find('/', begin);
  return end == std::string::npos ? "" : path.substr(begin, end - begin);
}

TEST(Rooms, IncludesGoDown) {
  size_t seen = 0;
  for (const Include& i : includes()) {
    const std::string from = part(i.file, 0), to = part(i.header, 0);
    if (from == to) continue;
    ++seen;
    const auto room = kBelow.find(from);
    ASSERT_NE(room, kBelow.end()) << "strata/" << i.file << ": which rooms stand below " << from << "?";
    EXPECT_TRUE(room->second.count(to)) << "strata/" << i.file << " includes strata/" << i.header << ": " << to
                                        << " does not stand below " << from;
  }
  EXPECT_GT(seen, 300u);
}

// Who uses whom, with a file that does.
using Uses = std::map<std::string, std::map<std::string, std::string>>;

// A circle in them, a line a step; empty where there is none.
std::string circle(const Uses& uses) {
  std::map<std::string, int> state;  // 1: being looked at, 2: done
  std::vector<std::string> way;
  const auto visit = [&](const auto& self, const std::string& family) -> std::string {
    state[family] = 1;
    way.push_back(family);
    if (const auto at = uses.find(family); at != uses.end())
      for (const auto& [to, file] : at->second) {
        if (state[to] == 1) {
          std::string text;
          for (auto f = std::find(way.begin(), way.end(), to); f != way.end(); ++f) {
            const std::string& next = f + 1 == way.end() ? to : *(f + 1);
            text += *f + " -> " + next + " (" + uses.at(*f).at(next) + ")\n";
          }
          return text;
        }
        if (state[to] == 0)
          if (const std::string found = self(self, to); !found.empty()) return found;
      }
    way.pop_back();
    state[family] = 2;
    return "";
  };
  for (const auto& [family, to] : uses)
    if (state[family] == 0)
      if (const std::string found = visit(visit, family); !found.empty()) return found;
  return "";
}

TEST(Rooms, FamiliesOfOpsFormNoCircle) {
  Uses uses;
  for (const Include& i : includes()) {
    if (part(i.file, 0) != "ops" || part(i.header, 0) != "ops") continue;
    const std::string from = part(i.file, 1), to = part(i.header, 1);
    if (!from.empty() && !to.empty() && from != to) uses[from].emplace(to, i.file);
  }
  EXPECT_GT(uses.size(), 15u);
  EXPECT_EQ(circle(uses), "");
}

TEST(Rooms, TheListHasNoCircle) {
  Uses uses;
  for (const auto& [room, below] : kBelow)
    for (const std::string& b : below) {
      ASSERT_TRUE(kBelow.count(b)) << room << " names " << b;
      uses[room].emplace(b, "the list");
    }
  EXPECT_EQ(circle(uses), "");
}

TEST(Rooms, ACircleIsSeen) {
  EXPECT_EQ(circle({{"a", {{"b", "1"}}}, {"b", {{"c", "2"}}}, {"c", {{"b", "3"}}}}), "b -> c (2)\nc -> b (3)\n");
  EXPECT_EQ(circle({{"a", {{"b", "1"}, {"c", "1"}}}, {"b", {{"c", "2"}}}}), "");
}

}  // namespace
}  // namespace strata
