// The committed reference of the classes is what the headers say now.

#include "class_reference.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>

#include "symbols.h"

namespace strata::docs {
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

TEST(ClassReference, IsCurrent) {
  const fs::path dir = root() / "docs/reference/classes";
  std::set<std::string> wanted;
  for (const auto& [name, text] : class_reference(root(), STRATA_PRIVATE_HEADERS)) {
    wanted.insert(name);
    EXPECT_TRUE(read(dir / name) == text)
        << dir / name << " is not current: run build/release/docs/test/write_class_reference docs/reference/classes";
  }
  for (const auto& entry : fs::directory_iterator(dir))
    EXPECT_TRUE(wanted.contains(entry.path().filename().string())) << entry.path() << " belongs to no room";
}

TEST(ClassReference, HasEveryPublicClassWithItsMembers) {
  std::string nn, optim;
  for (const auto& [name, text] : class_reference(root(), STRATA_PRIVATE_HEADERS)) {
    if (name == "nn.md") nn = text;
    if (name == "optim.md") optim = text;
  }
  for (const char* text : {"### Linear\n", "class Linear", "### Module\n", "named_parameters", "### Sequential\n"})
    EXPECT_NE(nn.find(text), std::string::npos) << text;
  for (const char* text : {"### AdamWOptions\n", "double lr = ", "### Schedule\n", "static Schedule cosine("})
    EXPECT_NE(optim.find(text), std::string::npos) << text;
  // What is private, and bodies, are left out.
  EXPECT_EQ(nn.find("private:"), std::string::npos);
  EXPECT_EQ(nn.find("\n    return "), std::string::npos);
  EXPECT_EQ(optim.find("{ return"), std::string::npos);
}

const char* const kHeader = R"(#pragma once
// What it is
// about.

#include <vector>

namespace strata {

/// Turns things.
///
///     Turner t(3);
template <class T>
class Turner : public Base {
 public:
  /// From an angle.
  explicit Turner(int angle) : angle_(angle) {}
  Turner(const Turner&) = delete;

  /// What it
  /// is.
  int angle() const { return angle_; }
  int twice() const;  ///< doubled

  struct Options {
    double lr = 1;  ///< rate,
                    ///< at first
    bool fast{false};
  };

 private:
  int hidden() const;
  int angle_ = 0;
};

enum class Way { left, right };

/// Free.
inline int turn(int by) {
  return by;
}

namespace detail {
struct Internal {};
}
}  // namespace strata
)";

TEST(ClassReference, DeclarationsAsAReaderSeesThem) {
  EXPECT_EQ(head_comment(kHeader), "What it is\nabout.\n");
  const std::vector<Declaration> all = declarations(kHeader);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "Turner");
  EXPECT_EQ(all[0].scope, "strata");
  EXPECT_EQ(all[0].comment, "Turns things.\n\n    Turner t(3);\n");
  EXPECT_EQ(all[0].code,
            "template <class T>\n"
            "class Turner : public Base {\n"
            " public:\n"
            "  /// From an angle.\n"
            "  explicit Turner(int angle);\n"
            "\n"
            "  /// What it\n"
            "  /// is.\n"
            "  int angle() const;\n"
            "  int twice() const;  ///< doubled\n"
            "\n"
            "  struct Options {\n"
            "    double lr = 1;  ///< rate,\n"
            "                    ///< at first\n"
            "    bool fast{false};\n"
            "  };\n"
            "};");
  EXPECT_EQ(all[1].name, "Way");
  EXPECT_EQ(all[1].code, "enum class Way { left, right };");
  EXPECT_EQ(all[2].name, "");
  EXPECT_EQ(all[2].comment, "Free.\n");
  EXPECT_EQ(all[2].code, "inline int turn(int by);");
}

}  // namespace
}  // namespace strata::docs
