#include "strata/core/html_text.h"

#include <gtest/gtest.h>

namespace strata::detail {
namespace {

TEST(HtmlText, ShowsTextAsItIs) {
  EXPECT_EQ(html_text(""), "");
  EXPECT_EQ(html_text("plain text, Füße \xff"), "plain text, Füße \xff");
  EXPECT_EQ(html_text("<a href=\"x\">&'</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(html_text("&amp;"), "&amp;amp;");
  EXPECT_EQ(html_text("a\tb\nc"), "a\tb\nc");
}

TEST(HtmlText, ControlCharactersAreShown) {
  EXPECT_EQ(html_text(std::string_view("\0\x1b\x7f", 3)), "&#x2400;&#x241b;&#x2421;");
}

}  // namespace
}  // namespace strata::detail
