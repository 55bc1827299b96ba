#include "strata/train/startup.h"

#include <cmath>

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Startup, TellsWhatTookLongestFirst) {
  EXPECT_EQ(detail::startup_text(3.4, {{"memory", 1.0}}, {{"text", 0.001}, {"model", 0.31}, {"memory", 2.9}}),
            "the first step ended after 3.40 s: memory 1.90, model 0.31");
  EXPECT_EQ(detail::unsigned_text(-NAN), detail::unsigned_text(NAN));
  EXPECT_EQ(detail::unsigned_text(-INFINITY), "-inf");
  EXPECT_EQ(detail::startup_text(0.004, {}, {}), "the first step ended after 0.00 s");
}

}  // namespace
}  // namespace strata
