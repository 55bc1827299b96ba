#include "strata/core/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor numbers(const Shape& shape, uint64_t seed = 1) {
  Generator g(seed);
  return uniform(shape, 0.5, 2, DType::f32, g);
}
Strides strides_of(const Tensor& t) {
  return t.strides();
}

TEST(Layout, ElementwiseResultsLieAsTheirOperands) {
  const Tensor turned = numbers({3, 5}).t(), images = numbers({2, 4, 6, 3}).permute({0, 3, 1, 2});
  EXPECT_EQ(strides_of(turned + turned), (Strides{1, 5}));
  EXPECT_EQ(strides_of(exp(turned)), (Strides{1, 5}));
  EXPECT_EQ(strides_of(turned > 1), (Strides{1, 5}));
  EXPECT_EQ(strides_of(turned.to(DType::bf16)), (Strides{1, 5}));
  EXPECT_EQ(strides_of(where(turned > 1, turned, 0)), (Strides{1, 5}));
  EXPECT_EQ(strides_of(relu(images)), images.strides());
  EXPECT_EQ(strides_of(dropout(images, 0.5, RngKey{1, 0})), images.strides());
  EXPECT_EQ(strides_of(masked_fill(images, images > 1, 0)), images.strides());
  // A bias or a number says nothing about the order; nor does which operand comes first.
  EXPECT_EQ(strides_of(images * numbers({3, 1, 1})), images.strides());
  EXPECT_EQ(strides_of(numbers({3, 1, 1}) + images), images.strides());
  EXPECT_EQ(strides_of(2 - images), images.strides());
  // The first that tells decides; gaps are left out.
  EXPECT_EQ(strides_of(numbers({5, 3}) + turned), (Strides{3, 1}));
  EXPECT_EQ(strides_of(turned + numbers({5, 3})), (Strides{1, 5}));
  EXPECT_EQ(strides_of(numbers({3, 10}).slice(1, 0, 10, 2).t() + 1), (Strides{1, 5}));
  EXPECT_TRUE((numbers({3, 10}).slice(1, 0, 10, 2) + 1).is_contiguous());
  EXPECT_EQ(strides_of(turned.clone()), turned.strides());
  // What gives copies for other reasons is row-major.
  EXPECT_TRUE(turned.contiguous().is_contiguous());
  EXPECT_TRUE((numbers({5}).expand({4, 5}) + 1).is_contiguous());
  EXPECT_TRUE((zeros({0, 4}).t() + 1).numel() == 0);
}

// Any order of any dims, sizes of 1 among them, with broadcast operands: values are those of row-major operands, and
// the result has no gaps.
TEST(Layout, ValuesDoNotDependOnIt) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    const int64_t dims = 1 + below(5);
    Dims order;
    Shape whole;
    for (int64_t d = 0; d < dims; ++d) order.push_back(d), whole.push_back(1 + below(5));
    const auto shuffled = [&](const Shape& shape) {  // a tensor of that shape whose dims lie in some order
      std::vector<int64_t> from(static_cast<size_t>(dims));
      std::iota(from.begin(), from.end(), 0);
      std::shuffle(from.begin(), from.end(), random);
      Shape stored;
      Dims back = Dims::filled(static_cast<int>(dims), 0);
      for (int64_t d = 0; d < dims; ++d) {
        stored.push_back(shape[from[static_cast<size_t>(d)]]);
        back[from[static_cast<size_t>(d)]] = d;
      }
      return numbers(stored, random()).permute(back);
    };
    Shape other = whole;
    for (int64_t d = 0; d < dims; ++d)
      if (below(4) == 0) other[d] = 1;
    const Tensor a = shuffled(whole), b = shuffled(other);
    SCOPED_TRACE(cat("round ", round, ": ", a, " ", a.strides(), " and ", b, " ", b.strides()));
    const Tensor ac = a.contiguous(), bc = b.contiguous();
    const Tensor sum = a + b;
    EXPECT_TRUE(equal(sum, ac + bc));
    EXPECT_TRUE(lie_alike(sum, sum.clone()));
    EXPECT_TRUE(lie_alike(sum, sum.contiguous().clone()) == sum.is_contiguous());
    EXPECT_TRUE(lie_alike(sum, sum + 1));
    EXPECT_TRUE(equal(b * a, bc * ac));
    EXPECT_TRUE(equal(exp(a), exp(ac)));
    EXPECT_TRUE(equal(a.to(DType::bf16).to(DType::f64), ac.to(DType::bf16).to(DType::f64)));
    EXPECT_TRUE(equal(where(a > b, a, b), where(ac > bc, ac, bc)));
    EXPECT_TRUE(equal(dropout(a, 0.4, RngKey{3, 1}), dropout(ac, 0.4, RngKey{3, 1})));
    Tensor c = a.to(DType::f64);
    c.mul_(b.to(DType::f64));
    EXPECT_TRUE(equal(c, ac.to(DType::f64) * bc.to(DType::f64)));
  }
}

TEST(Layout, LieAlike) {
  const Tensor x = numbers({4, 6});
  EXPECT_TRUE(lie_alike(x, numbers({4, 6})));
  EXPECT_TRUE(lie_alike(x.t(), numbers({4, 6}).t()));
  EXPECT_FALSE(lie_alike(x.t(), numbers({6, 4})));
  EXPECT_FALSE(lie_alike(x, numbers({4, 7})));
  EXPECT_FALSE(lie_alike(x.narrow(1, 0, 3).t(), x.narrow(1, 3, 3).t()));  // gaps
  const Tensor overlapping = alias(x, {3, 3}, {2, 2}, 0);  // reaches as far as a dense one, but not everywhere
  EXPECT_FALSE(lie_alike(overlapping, overlapping));
}

}  // namespace
}  // namespace strata
