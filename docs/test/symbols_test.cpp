// Every public symbol has a comment and stands in an example that is compiled and run.
// Arguments: the files of extracted examples.

#include "symbols.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace strata::docs {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> example_files;

std::string read(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// Meaning what they mean in the standard library, or (forward) what the class's comment says.
const std::set<std::string> kVocabulary = {"size",      "begin",    "end",   "empty",  "data", "back",
                                           "push_back", "insert",   "erase", "resize", "swap", "reset",
                                           "release",   "contains", "get",   "forward"};

// The engine's own machinery, which other public headers need to see but programs do not write: the tape's inside,
// reference counts, choosing by device, and names that are written through others (None, checks, registering hooks,
// records' braces).
bool is_machinery(const std::string& header, const Symbol& s) {
  static const std::set<std::string> headers = {"strata/core/by_device.h", "strata/core/launch.h", "strata/core/node.h",
                                                "strata/core/ref.h", "strata/cuda/launch.h"};
  static const std::set<std::string> names = {"TensorImpl",   "ref_dispose",     "throw_too_many_dims",  // core
                                              "RngBaseScope",                                            // CUDA graphs
                                              "FunctionNode", "check_gradients", "BackwardOf",           // autograd
                                              "drawn",     // what random functions are written with
                                              "Policies",  // of records
                                              "NoneIndex",    "EllipsisIndex",  // None, Ellipsis
                                              "append_text",                    // found by argument-dependent lookup
                                              "Metas",        "Kernel",          "Kernels",
                                              "Record"};  // Op<...>{{.schema = ...}}
  return headers.contains(header) || names.contains(s.name) || s.scope == "strata::FunctionNode";
}

struct Missing {
  std::vector<std::string> comments, examples;
  int symbols = 0;
};

Missing missing(const std::string& header, const std::string& text, const std::string& code) {
  Missing m;
  for (const Symbol& s : symbols(text)) {
    ++m.symbols;
    const bool method = s.kind == Symbol::Kind::method;
    if (method && (s.accessor || kVocabulary.contains(s.name))) continue;
    const std::string where = header + ":" + std::to_string(s.line) + ": " + s.scope + "::" + s.name;
    if (!s.commented) m.comments.push_back(where);
    if (is_machinery(header, s)) continue;
    Symbol plain = s;  // an op's in-place form is the op, written over its first argument
    if (header.starts_with("strata/ops/") && plain.name.ends_with('_')) plain.name.pop_back();
    if (!mentions(code, s) && !mentions(code, plain)) m.examples.push_back(where);
  }
  return m;
}

std::string lines(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& line : all) text += line + "\n";
  return text;
}

TEST(Symbols, AreCommentedAndInAnExample) {
  const char* dir = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = dir ? dir : ".";
  std::string code;
  for (const std::string& file : example_files) {
    const std::string text = read(file);
    EXPECT_FALSE(text.empty()) << file;
    code += text;
  }
  for (const auto& entry : fs::recursive_directory_iterator(root / "examples")) {
    const std::string extension = entry.path().extension();
    if (extension == ".cpp" || extension == ".c" || extension == ".cu") code += read(entry.path());
  }
  const std::regex is_private(STRATA_PRIVATE_HEADERS);
  std::vector<std::string> comments, examples;
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "strata")) {
    if (entry.path().filename() == "strata.h" && entry.path().parent_path().filename() == "c") continue;  // below
    const std::string path = "/" + fs::relative(entry.path(), root).string();
    if (!path.ends_with(".h") || std::regex_search(path, is_private)) continue;
    const Missing m = missing(path.substr(1), read(entry.path()), code);
    count += m.symbols;
    comments.insert(comments.end(), m.comments.begin(), m.comments.end());
    examples.insert(examples.end(), m.examples.begin(), m.examples.end());
  }
  EXPECT_GT(count, 1000);
  EXPECT_TRUE(comments.empty()) << "without a comment:\n" << lines(comments);
  EXPECT_TRUE(examples.empty()) << "in no example (docs/library has a page for each part):\n" << lines(examples);
}

// The header in C: each function has a comment, before it or before the row it stands in, and is called in an example;
// each struct is used in one.
TEST(Symbols, OfCAreCommentedAndInAnExample) {
  const char* dir = std::getenv("STRATA_SOURCE_DIR");
  const fs::path root = dir ? dir : ".";
  std::string code;
  for (const std::string& file : example_files) code += read(file);
  for (const auto& entry : fs::recursive_directory_iterator(root / "examples"))
    if (entry.path().extension() == ".c" || entry.path().extension() == ".cu") code += read(entry.path());
  std::istringstream header(read(root / "strata/c/strata.h"));
  std::vector<std::string> comments, examples;
  std::string line;
  int functions = 0;
  bool commented = false;
  const std::regex function(R"(^STRATA_EXPORT [^(]*?(strata_\w+)\()"), type(R"(^typedef struct (\w+))");
  while (std::getline(header, line)) {
    std::smatch m;
    if (line.empty()) commented = false;
    if (line.find("*/") != std::string::npos) commented = true;
    if (std::regex_search(line, m, function)) {
      ++functions;
      if (!commented) comments.push_back(m[1]);
      if (!std::regex_search(code, std::regex("\\b" + m.str(1) + "\\("))) examples.push_back(m[1]);
    } else if (std::regex_search(line, m, type)) {
      if (!std::regex_search(code, std::regex("\\b" + m.str(1) + "\\b"))) examples.push_back(m[1]);
    }
  }
  EXPECT_GT(functions, 50);
  EXPECT_TRUE(comments.empty()) << "without a comment:\n" << lines(comments);
  EXPECT_TRUE(examples.empty()) << "in no example (docs/library/c.md, examples/c, examples/plugin):\n"
                                << lines(examples);
}

const char* const kHeader = R"(#pragma once
#define MACRO(x) \
  void not_a_function(x);

namespace strata {
class Forward;

/// Has a comment.
struct Commented {
  Commented() = default;
  Commented(int a, int b = {}) : a_{a}, b_(b) {}
  Commented& operator=(const Commented&) { return *this; }
  /// Turns.
  int turn(int by) { return by; }
  int angle() const { return 0; }

  int undocumented(int by);

  int (*callback)(int) = nullptr;

 private:
  struct Hidden {
    int inside(int);
  };
  int a_ = 0, b_{1};
};

class Uncommented {
  int hidden(int);

 public:
  /// Shows.
  template <class T>
    requires(sizeof(T) > 1)
  void shown(const T& t = {}) const;
};

/// A row of two.
inline int first(int a) { return a; }
int second(int a);

int third(int a);
inline constexpr int kValue = 3;  ///< a constant
enum class Kind { one, two };

namespace detail {
int internal(int);
}

template <class T>
T fourth(T a);  // with a trailing comment
}  // namespace strata
)";

TEST(Symbols, FindsWhatIsMissing) {
  std::string names;
  for (const Symbol& s : symbols(kHeader)) names += s.name + (s.commented ? " " : "! ");
  EXPECT_EQ(names, "Commented turn angle undocumented! Uncommented! shown first second third! kValue Kind! fourth ");

  const std::string code =
      "Commented c; c.turn(1); Uncommented().shown<int>(2); first(second(third(kValue))); Kind k = Kind::one;";
  const Missing m = missing("strata/x.h", kHeader, code);
  EXPECT_EQ(lines(m.comments),
            "strata/x.h:17: strata::Commented::undocumented\nstrata/x.h:28: strata::Uncommented\nstrata/x.h:42: "
            "strata::third\nstrata/x.h:44: strata::Kind\n");
  EXPECT_EQ(lines(m.examples), "strata/x.h:17: strata::Commented::undocumented\nstrata/x.h:50: strata::fourth\n");
}

}  // namespace
}  // namespace strata::docs

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  strata::docs::example_files.assign(argv + 1, argv + argc);
  return RUN_ALL_TESTS();
}
