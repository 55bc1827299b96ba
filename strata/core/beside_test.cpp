#include "strata/core/beside.h"

#include <gtest/gtest.h>

#include "strata/core/tensor.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

struct Noted final : detail::Beside {
  Noted(int number, int& ended, Tensor held = {}) : number(number), ended(ended), held(std::move(held)) {}
  ~Noted() override { ++ended; }
  int number;
  int& ended;
  Tensor held;
};
int number_beside(const Tensor& t) {
  const auto* noted = dynamic_cast<const Noted*>(detail::beside(*t.storage()));
  return noted ? noted->number : -1;
}

TEST(Beside, GoesWithTheStorageAndNotBefore) {
  int ended = 0;
  {
    const Tensor x = zeros({4}), y = zeros({4});
    Tensor view;
    EXPECT_EQ(number_beside(x), -1);
    detail::put_beside(*x.storage(), std::make_unique<Noted>(1, ended));
    view = x.view({2, 2});
    EXPECT_EQ(number_beside(view), 1);
    EXPECT_EQ(number_beside(y), -1);
    detail::put_beside(*x.storage(), std::make_unique<Noted>(2, ended));
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(number_beside(x), 2);
  }
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(number_beside(zeros({4})), -1);
}

TEST(Beside, WhatIsLeftMayHoldATensorThatHasSomethingBesideItself) {
  int ended = 0;
  {
    const Tensor x = zeros({4});
    Tensor held = zeros({4});
    detail::put_beside(*held.storage(), std::make_unique<Noted>(3, ended));
    detail::put_beside(*x.storage(), std::make_unique<Noted>(4, ended, std::move(held)));
  }
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace strata
