#include "strata/eval/shots.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::eval {
namespace {

using Shown = std::vector<size_t>;

TEST(Shots, TheFirstButTheQuestionItself) {
  ShotSampler shots(4, 3);
  EXPECT_EQ(shots.next(), (Shown{0, 1, 2}));
  EXPECT_EQ(shots.next([](size_t i) { return i == 1; }), (Shown{0, 2, 3}));
  EXPECT_EQ(ShotSampler(4, 0).next(), Shown{});
  EXPECT_THROW(shots.next([](size_t i) { return i < 2; }), ValueError);
  EXPECT_THROW(ShotSampler(2, 3), ValueError);
}

// What Python's random.Random(seed).sample(range(examples), shots) gives, twice.
TEST(Shots, ThoseThatPythonDraws) {
  struct Case {
    uint64_t seed;
    size_t examples;
    Shown first, second;
  };
  const Case cases[] = {
      {1234U, 10, {7, 1, 0}, {1, 0, 9}},
      {1234U, 21, {14, 3}, {0, 2}},
      {0U, 22, {12, 13, 1, 8, 16}, {15, 12, 9, 11, 18}},
      {7U, 50, {20, 9, 25, 41, 3, 4}, {34, 6, 23, 37, 3, 32}},
      {7U, 85, {41, 19, 50, 6, 9, 68}, {12, 46, 74, 7, 64, 27}},
      {7U, 86, {41, 19, 50, 83, 6, 9}, {68, 12, 46, 74, 7, 64}},
      {1099511627781U,
       1000,
       {516, 529, 275, 679, 948, 28,  543, 776, 837, 854, 805, 979, 930,
        778, 912, 47,  169, 81,  815, 835, 137, 244, 951, 669, 703},
       {140, 253, 671, 829, 389, 751, 124, 802, 566, 235, 478, 931, 56,
        114, 978, 436, 45,  337, 912, 799, 449, 292, 133, 724, 97}},
      {42U, 100000, {83810, 14592, 3278, 97196}, {36048, 32098, 29256, 18289}},
      {1U, 1, {0}, {0}},
  };
  for (const Case& c : cases) {
    ShotSampler shots(c.examples, c.first.size(), c.seed);
    EXPECT_EQ(shots.next(), c.first) << c.seed << " " << c.examples;
    EXPECT_EQ(shots.next(), c.second) << c.seed << " " << c.examples;
  }
}

// As the harness: one more is drawn, and the question left out; where it stands there several times, again.
TEST(Shots, DrawnOnesLeaveOutTheQuestion) {
  ShotSampler shots(6, 2, 1234);
  const Shown wanted[] = {{3, 4}, {0, 4}, {5, 0}, {2, 1}, {0, 5}, {4, 3}};
  for (size_t question = 0; question < std::size(wanted); ++question)
    EXPECT_EQ(shots.next([&](size_t i) { return i == question; }), wanted[question]) << question;
  ShotSampler repeated(6, 2, 3);
  const Shown rest[] = {{4, 5}, {4, 5}, {4, 5}, {4, 5}};
  for (const Shown& w : rest) EXPECT_EQ(repeated.next([](size_t i) { return i < 4; }), w);
  EXPECT_THROW(repeated.next([](size_t i) { return i < 5; }), ValueError);
  EXPECT_THROW(ShotSampler(2, 2, 1).next([](size_t i) { return i == 0; }), ValueError);
}

}  // namespace
}  // namespace strata::eval
