// Writes the examples of the documentation as tests: extract_examples OUT.cpp page.md..., or the records' examples
// without a page. Each record's example becomes one test. In the pages, a ```cpp or ```c block counts whose first line
// is
//   // run                 a test of its own
//   // run: declarations   put before the page's tests, at namespace scope
// and every block with a main(), which becomes a test that calls it. assert(...) in an example is the test's check.
// extract_examples --program OUT.cpp page.md writes a page's marked blocks as one program, with the includes that the
// page shows and no others: what a reader who copies them gets.

#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "strata/core/op.h"

namespace {

const char* const kHead = R"(// Generated; do not edit.
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/strata.h"
)";

// After the pages' own includes, which may bring the C library's.
const char* const kAssert = R"(
#undef assert
#define assert(...) EXPECT_TRUE((__VA_ARGS__)) << #__VA_ARGS__

using namespace strata;
)";

std::string read(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  if (!f) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(f), {}};
}

// Leaves a file of the same contents alone, so that nothing is compiled again for it.
void write(const std::string& path, const std::string& text) {
  std::ifstream old(path, std::ios::binary);
  if (old && std::string(std::istreambuf_iterator<char>(old), {}) == text) return;
  std::ofstream f(path, std::ios::binary);
  f << text;
  if (!f.flush()) throw std::runtime_error("cannot write " + path);
}

std::string identifier(const std::string& path) {
  // with the folder's name: a page of the guide and one of the library may be called the same
  const size_t file = path.rfind('/'), folder = file == std::string::npos ? file : path.rfind('/', file - 1);
  std::string name = path.substr(folder == std::string::npos ? 0 : folder + 1);
  name = name.substr(0, name.rfind('.'));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

std::string records() {
  std::string out = kHead;
  out += kAssert;
  out += "namespace {\n";
  for (const strata::OpBase* op : strata::OpBase::all()) {
    if (op->example().empty()) continue;
    const std::string name(op->name());
    out += "\nTEST(RecordExample, " + name + ") {\n  " + std::string(op->example()) + "\n}\n";
  }
  return out + "\n}  // namespace\n";
}

struct Block {
  int line = 0;  // of the first line after the marker
  bool declarations = false, program = false;
  std::string text;
};

std::vector<Block> blocks(const std::string& path) {
  std::vector<Block> found;
  std::istringstream in(read(path));
  std::string line;
  int number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (!line.starts_with("```cpp") && line != "```c") continue;
    Block b;
    bool first = true, run = false;
    while (std::getline(in, line) && !line.starts_with("```")) {
      ++number;
      if (first) {
        run = line.starts_with("// run");
        b.declarations = line.starts_with("// run: declarations");
        b.line = number + (run ? 1 : 0);
      }
      if (!first || !run) b.text += line + "\n";
      first = false;
    }
    ++number;
    b.program = b.text.find("int main() {") != std::string::npos;
    if (run || b.program) found.push_back(b);
  }
  return found;
}

std::string examples(const std::vector<std::string>& pages) {
  std::string head, body;
  for (const std::string& page : pages) {
    const std::string name = identifier(page);
    std::string declarations, tests;
    for (const Block& b : blocks(page)) {
      std::istringstream in(b.text);
      std::string line, text;
      int number = b.line;
      // #include lines go to the top of the file; the line numbers in the compiler's messages stay those of the page.
      for (; std::getline(in, line); ++number) {
        if (line.starts_with("#include")) {
          head += line + "\n";
          text += "\n";
        } else {
          text += line + "\n";
        }
      }
      const std::string where = "#line " + std::to_string(b.line) + " \"" + page + "\"\n";
      if (b.program) {
        // Only main() may end without a return.
        text.replace(text.find("int main() {"), 12, "int example_main() {");
        text.insert(text.rfind('}'), "return 0; ");
        declarations += where + text;
        tests += "\nTEST(Page_" + name + ", main) { EXPECT_EQ(example_main(), 0); }\n";
      } else if (b.declarations) {
        declarations += where + text;
      } else {
        tests += "\nTEST(Page_" + name + ", line" + std::to_string(b.line) + ") {\n" + where + text + "}\n";
      }
    }
    if (!tests.empty() || !declarations.empty())
      body += "\nnamespace example_" + name + " {\n" + declarations + tests + "}\n";
  }
  return kHead + head + kAssert + body;
}

std::string program(const std::string& page) {
  std::string head, declarations, body;
  for (const Block& b : blocks(page)) {
    std::string text;
    std::istringstream in(b.text);
    for (std::string line; std::getline(in, line);) (line.starts_with("#include") ? head : text) += line + "\n";
    if (b.declarations) {
      declarations += text;
    } else if (!b.program) {
      body += "{\n" + text + "}\n";
    }
  }
  if (body.empty()) throw std::runtime_error(page + " has no marked block");
  return head + declarations + "int main() {\n" + body + "}\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: extract_examples [--program] OUT.cpp [page.md...]");
    if (argc == 4 && std::string(argv[1]) == "--program") {
      write(argv[2], program(argv[3]));
      return 0;
    }
    write(argv[1], argc == 2 ? records() : examples({argv + 2, argv + argc}));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "extract_examples: %s\n", e.what());
    return 1;
  }
}
