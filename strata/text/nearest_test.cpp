#include "strata/text/nearest.h"

#include <vector>

#include <gtest/gtest.h>

namespace strata::text {
namespace {

TEST(Nearest, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("train", "trian"), 2u);
}

TEST(Nearest, TellsWhatMayHaveBeenMeant) {
  const std::vector<std::string> known{"train", "generate", "estimate", "ops"};
  EXPECT_EQ(nearest("trian", known), "train");
  EXPECT_EQ(nearest("generatte", known), "generate");
  EXPECT_EQ(nearest("op", known), "ops");
  EXPECT_EQ(nearest("x", known), "");
  EXPECT_EQ(nearest("nothing-like-it", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(1000, 'a'), known), "");
  EXPECT_EQ(nearest("train", {}), "");
}

}  // namespace
}  // namespace strata::text
