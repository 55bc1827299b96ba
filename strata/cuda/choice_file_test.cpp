#include "strata/cuda/choice_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace strata::cuda {
namespace {

class Choices : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/choicesXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/deep/er/choices"; }
  std::string text() const {
    std::ifstream in(path());
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  void rewrite(const std::string& text) const { std::ofstream(path(), std::ios::trunc) << text; }
  std::string folder_;
};

TEST_F(Choices, OutliveTheProgram) {
  const std::string odd("\0\xff\n ", 4);
  {
    ChoiceFile f(path(), "test 1", 10);
    EXPECT_EQ(f.find("a"), std::nullopt);
    EXPECT_EQ(f.put("a", odd), odd);
    EXPECT_EQ(f.put(odd, "b"), "b");
    EXPECT_EQ(f.find("a"), odd);
  }
  ChoiceFile f(path(), "test 1", 10);
  EXPECT_EQ(f.find("a"), odd);
  EXPECT_EQ(f.find(odd), "b");
  EXPECT_EQ(f.find("c"), std::nullopt);
}

TEST_F(Choices, TheFirstProcessDecides) {
  ChoiceFile one(path(), "test 1", 10), two(path(), "test 1", 10);
  EXPECT_EQ(one.find("a"), std::nullopt);
  EXPECT_EQ(two.find("a"), std::nullopt);
  EXPECT_EQ(one.put("a", "1"), "1");
  EXPECT_EQ(two.put("a", "2"), "1");
  EXPECT_EQ(two.put("b", "2"), "2");
  EXPECT_EQ(ChoiceFile(path(), "test 1", 10).find("a"), "1");
}

TEST_F(Choices, AFullFileTakesNoMore) {
  ChoiceFile f(path(), "test 1", 2);
  EXPECT_TRUE(f.writable());
  EXPECT_EQ(f.put("a", "1"), "1");
  EXPECT_EQ(f.put("b", "2"), "2");
  EXPECT_FALSE(f.writable());
  EXPECT_EQ(f.put("c", "3"), std::nullopt);
  EXPECT_EQ(f.put("a", "4"), "1");
  EXPECT_EQ(ChoiceFile(path(), "test 1", 2).find("c"), std::nullopt);
}

TEST_F(Choices, DamageIsIgnoredAndMended) {
  ChoiceFile(path(), "test 1", 10).put("key", "value");
  const std::string whole = text();
  std::string flipped = whole, nonsense = "test 1\nnonsense\n";
  flipped[whole.size() - 3] = flipped[whole.size() - 3] == '0' ? '1' : '0';
  for (const std::string& bad : {flipped, whole.substr(0, whole.size() - 1), nonsense, std::string("test 2\n"),
                                 std::string("\0\0\0", 3), std::string()}) {
    rewrite(bad);
    ::testing::internal::CaptureStderr();
    ChoiceFile f(path(), "test 1", 10);
    EXPECT_EQ(f.find("key"), std::nullopt) << bad;
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("damaged"), std::string::npos) << bad;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(f.put("key", "value"), "value");
    ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(text(), whole);
  }
}

TEST_F(Choices, WithoutAFolderNothingIsKept) {
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  ChoiceFile f(file + "/choices", "test 1", 10);
  EXPECT_FALSE(f.writable());
  EXPECT_EQ(f.put("a", "b"), std::nullopt);
  EXPECT_EQ(f.find("a"), std::nullopt);
}

TEST(CacheFolder, FollowsTheEnvironment) {
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before != nullptr ? before : "";
  setenv("XDG_CACHE_HOME", "/some/where", 1);
  EXPECT_EQ(cache_folder(), "/some/where/strata");
  setenv("XDG_CACHE_HOME", "", 1);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    EXPECT_EQ(cache_folder(), std::string(home) + "/.cache/strata");
  }
  if (before != nullptr)
    setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  else
    unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace strata::cuda
