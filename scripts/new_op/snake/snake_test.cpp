// The op from C++, by the header of everything, and what a dry run of it promises.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/op_base.h"
#include "strata/core/recording.h"
#include "strata/strata.h"

namespace strata {
namespace {

TEST(Snake, IsAFunction) {
  Tensor x = full({2}, 0.5, DType::f64);
  x.set_requires_grad();
  const Tensor y = snake(x, 2);
  EXPECT_NEAR(y.to_vector<double>()[1], 0.5 + std::pow(std::sin(1.0), 2) / 2, 1e-12);
  sum(y).backward();
  EXPECT_NEAR(x.grad().to_vector<double>()[0], 1 + std::sin(2.0), 1e-12);
}

TEST(Snake, HasItsOwnKernels) {
  const OpBase* op = OpBase::find("snake");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->family(), "snake");
  EXPECT_TRUE(op->has_kernel(DeviceType::cpu));
  EXPECT_EQ(op->has_kernel(DeviceType::cuda), OpBase::find("tril")->has_kernel(DeviceType::cuda));
}

// `strata estimate` and the forecasts run a step like this.
TEST(Snake, IsEstimated) {
  DeviceScope meta(Device::meta());
  const Tensor x = zeros({1024, 8});
  const Recording r = record([&] { return snake(x); });
  ASSERT_EQ(r.calls.size(), 1u);
  EXPECT_EQ(r.calls[0].op->name(), "snake");
  EXPECT_EQ(r.calls[0].cost.flops, 10.0 * 1024 * 8);
  EXPECT_EQ(r.calls[0].cost.bytes, 2.0 * 4 * 1024 * 8);
  int64_t made = 0;
  for (const RecordedStorage& s : r.storages) made += s.born == 0 ? s.nbytes : 0;
  EXPECT_EQ(made, 4 * 1024 * 8);
}

}  // namespace
}  // namespace strata
