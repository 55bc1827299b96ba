// What the generated tests of SwiGLU do not cover: every instruction-set level, long inputs, and the halves of a
// tensor.

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor numbers(const Shape& shape, unsigned seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor t = empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = normal(rng);
  return t;
}

struct Level {
  explicit Level(int level) { set_vec_level(level); }
  ~Level() { set_vec_level(-1); }
};

TEST(Swiglu, EveryLevelMatchesTheDefinition) {
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;  // this processor ends below
    for (int64_t n : {1, 17, 9000}) {
      Tensor a = numbers({n}, 1), b = numbers({n}, 2);
      a.set_requires_grad();
      b.set_requires_grad();
      const Tensor y = swiglu(a, b), g = numbers({n}, 3);
      const TensorList grads = grad({y}, {a, b}, {g});
      for (int64_t i = 0; i < n; ++i) {
        const double x = a.data<float>()[i], s = 1 / (1 + std::exp(-x)), w = b.data<float>()[i],
                     gi = g.data<float>()[i];
        ASSERT_NEAR(y.data<float>()[i], x * s * w, 2e-6) << "level " << level << " at " << i;
        ASSERT_NEAR(grads[0].data<float>()[i], gi * w * s * (1 + x * (1 - s)), 4e-6)
            << "level " << level << " at " << i;
        ASSERT_NEAR(grads[1].data<float>()[i], gi * x * s, 4e-6) << "level " << level << " at " << i;
      }
    }
  }
}

TEST(Swiglu, HalvesOfOneTensor) {
  Tensor x = numbers({3, 5, 14});
  x.set_requires_grad();
  const Tensor a = x.narrow(-1, 0, 7), b = x.narrow(-1, 7, 7);
  const Tensor one = swiglu(x), two = swiglu(a, b), g = numbers({3, 5, 7}, 9);
  ASSERT_EQ(one.shape(), two.shape());
  for (int64_t i = 0; i < one.numel(); ++i) EXPECT_EQ(one.data<float>()[i], two.data<float>()[i]);
  const Tensor ga = grad({one}, {x}, {g})[0], gb = grad({two}, {x}, {g})[0].contiguous();
  for (int64_t i = 0; i < x.numel(); ++i) EXPECT_EQ(ga.data<float>()[i], gb.data<float>()[i]);
}

}  // namespace
}  // namespace strata
