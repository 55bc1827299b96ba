#include "strata/core/once.h"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace strata {
namespace {

double seconds_of(const char* part) {
  for (const auto& [name, seconds] : detail::once_seconds())
    if (std::strcmp(name, part) == 0) return seconds;
  return -1;
}

TEST(Once, InnerPartsCountForThemselvesAlone) {
  using std::chrono::milliseconds;
  EXPECT_EQ(seconds_of("outer"), -1);
  {
    const detail::OnceScope outer("outer");
    std::this_thread::sleep_for(milliseconds(10));
    const detail::OnceScope inner("inner");
    std::this_thread::sleep_for(milliseconds(200));
  }
  EXPECT_GE(seconds_of("inner"), 0.2);
  EXPECT_GE(seconds_of("outer"), 0.01);
  EXPECT_LT(seconds_of("outer"), 0.2);
}

TEST(Once, PartsOfOneNameAndOfOtherThreadsAddUp) {
  const auto part = [] {
    const detail::OnceScope scope("added");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  part();
  std::thread(part).join();
  EXPECT_GE(seconds_of("added"), 0.01);
}

}  // namespace
}  // namespace strata
