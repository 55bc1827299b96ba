#include "strata/memory/budget.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::memory {
namespace {

TEST(Budget, BytesAsUsersWriteThem) {
  EXPECT_EQ(parse_bytes("20GiB", "t"), int64_t{20} << 30);
  EXPECT_EQ(parse_bytes("1.5 gib", "t"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("800MB", "t"), 800'000'000);
  EXPECT_EQ(parse_bytes("4096", "t"), 4096);
  EXPECT_EQ(parse_bytes("0", "t"), 0);
  EXPECT_EQ(parse_bytes("7 b", "t"), 7);
  EXPECT_EQ(parse_bytes("2TB", "t"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("64KiB", "t"), 65536);
  for (const char* bad : {"", " ", "GiB", "-1", "-1GiB", "1e9", "nan", "inf", "20G", "20 GiBs", "3  MiB", "1GiB ",
                          "99999999TiB", "0x10", "1,5GiB"})
    EXPECT_THROW(parse_bytes(bad, "memory.device"), ValueError) << bad;
  try {
    parse_bytes("20G", "memory.device");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("memory.device"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("'20G'"), std::string::npos) << e.what();
  }
}

TEST(Budget, BytesAsText) {
  EXPECT_EQ(bytes_text(17), "17 B");
  EXPECT_EQ(bytes_text(int64_t{20} << 30), "20.00 GiB");
  EXPECT_EQ(bytes_text(int64_t{512} << 20), "512.0 MiB");
  EXPECT_EQ(bytes_text(1000), "0.98 KiB");
  EXPECT_EQ(parse_bytes(bytes_text(int64_t{3} << 29), "t"), int64_t{3} << 29);
}

TEST(Budget, Folders) {
  EXPECT_EQ(parse_folders(""), std::vector<std::string>{});
  EXPECT_EQ(parse_folders("/a"), std::vector<std::string>{"/a"});
  EXPECT_EQ(parse_folders("/a:/b c"), (std::vector<std::string>{"/a", "/b c"}));
  for (const char* bad : {":", "/a:", ":/a", "/a::/b"}) EXPECT_THROW(parse_folders(bad), ValueError) << bad;
  EXPECT_FALSE(Budget{}.any());
  EXPECT_TRUE(Budget{.disk = {"/a"}}.any());
}

}  // namespace
}  // namespace strata::memory
