// The loops of strata/cuda/loop.h as a C++ compiler sees them; examples/triad.cpp runs them on a card.
#include "strata/cuda/loop.h"

#include <gtest/gtest.h>

#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

struct Square {
  double* y;
  const double* x;
  STRATA_LOOP_BODY void operator()(int64_t i) const { y[i] = x[i] * x[i]; }
};
struct Times {
  double by;
  STRATA_LOOP_BODY double operator()(double a, double b) const { return by * a * b; }
};

TEST(Loop, EveryIterationRunsOnce) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, 3 * loop::kLeastPart + 7}) {
    const Tensor x = ones({n}, DType::f64), y = zeros({n}, DType::f64);
    for (int64_t i = 0; i < n; ++i) x.data<double>()[i] = static_cast<double>(i % 97);
    loop::for_each(Device::cpu(), n, Square{y.data<double>(), x.data<double>()});
    const Tensor twice = zeros({n}, DType::f64);
    loop::map<double>(twice, Times{2}, x, x);
    for (int64_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(i % 97);
      ASSERT_EQ(y.data<double>()[i], v * v);
      ASSERT_EQ(twice.data<double>()[i], 2 * v * v);
    }
  }
}

TEST(Loop, RefusesWhatItCannotRun) {
  const Tensor x = ones({4, 3}, DType::f64);
  EXPECT_THROW(loop::for_each(Device::meta(), 3, Square{nullptr, nullptr}), DeviceError);
  EXPECT_THROW(loop::for_each(Device::cuda(), 3, Square{nullptr, nullptr}), DeviceError);  // no nvcc compiled this
  EXPECT_THROW(loop::map<double>(x, Times{1}, x, ones({4, 3})), DTypeError);
  EXPECT_THROW(loop::map<float>(x, Times{1}, x, x), DTypeError);
  EXPECT_THROW(loop::map<double>(x, Times{1}, x, ones({3, 4}, DType::f64)), ShapeError);
  EXPECT_THROW(loop::map<double>(ones({3, 4}, DType::f64), Times{1}, ones({3, 4}, DType::f64), x.t()), ShapeError);
}

}  // namespace
}  // namespace strata
