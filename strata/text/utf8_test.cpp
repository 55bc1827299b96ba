#include "strata/text/utf8.h"

#include <gtest/gtest.h>

namespace strata::text {
namespace {

TEST(Utf8, OnlyInvalidBytesAreReplaced) {
  EXPECT_EQ(valid_utf8("aé€😀\n"), "aé€😀\n");
  EXPECT_EQ(valid_utf8("a\xff\x62"), "a\xef\xbf\xbd\x62");
  EXPECT_EQ(valid_utf8("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                  // cut short
  EXPECT_EQ(valid_utf8("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // surrogate
}

}  // namespace
}  // namespace strata::text
