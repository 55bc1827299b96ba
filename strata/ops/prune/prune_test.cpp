// What the generated tests of the masks do not cover: chains of them, their numbers, other dtypes.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/prune/prune.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"

namespace strata {
namespace {

using Floats = std::vector<float>;

TEST(Prune, AMaskThatIsPrunedAgainLosesWhatItStillHas) {
  const Tensor weight = from_span<float>(Floats{5, -1, 4, -2, 3, 6, -8, 7}, {8});
  const Tensor first = l1_unstructured_mask(ones({8}), weight, 0.25);
  EXPECT_EQ(first.to_vector<float>(), Floats({1, 0, 1, 0, 1, 1, 1, 1}));
  // Half of six.
  const Tensor second = l1_unstructured_mask(first, weight, 0.5);
  EXPECT_EQ(second.to_vector<float>(), Floats({0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(l1_unstructured_mask(second, weight, 3).sum().item(), 0);
  // A share of a half is rounded to an even count.
  EXPECT_EQ(l1_unstructured_mask(ones({5}), weight.narrow(0, 0, 5), 0.5).sum().item(), 3);
  EXPECT_EQ(l1_unstructured_mask(ones({7}), weight.narrow(0, 0, 7), 0.5).sum().item(), 3);
  // Of scores that are not finite, NaN goes last.
  const Tensor odd = from_span<float>(Floats{NAN, -INFINITY, 1, INFINITY}, {4});
  EXPECT_EQ(l1_unstructured_mask(ones({4}), odd, 3).to_vector<float>(), Floats({1, 0, 0, 0}));
  // What is out does not come back before an infinite score that is there.
  EXPECT_EQ(l1_unstructured_mask(from_span<float>(Floats{0, 1, 1, 1}, {4}), odd, 2).to_vector<float>(),
            Floats({0, 0, 0, 1}));
}

TEST(Prune, SlicesGoAsAWhole) {
  const Tensor weight = from_span<float>(Floats{1, 1, 9, 0, 0, 3, 2, 2, 2}, {3, 3});
  EXPECT_EQ(ln_structured_mask(ones({3, 3}), weight, 1, 2, 0).to_vector<float>(), Floats({1, 1, 1, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(ln_structured_mask(ones({3, 3}), weight, 1, 1, 1).to_vector<float>(), Floats({0, 1, 1, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(ln_structured_mask(ones({3, 3}), weight, 1, -INFINITY, 0).sum().item(), 6);
  // A row without elements is no row that could go.
  const Tensor mask = from_span<float>(Floats{1, 1, 1, 0, 0, 0, 0, 1, 0}, {3, 3});
  EXPECT_EQ(ln_structured_mask(mask, weight, 0.5, 2, 0).to_vector<float>(), Floats({1, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(Prune, DrawsFromTheGenerator) {
  manual_seed(3);
  const Tensor a = random_unstructured_mask(ones({64}), 0.5), b = random_unstructured_mask(ones({64}), 0.5);
  EXPECT_NE(a.to_vector<float>(), b.to_vector<float>());
  EXPECT_EQ(a.sum().item(), 32);
  // The smallest of the numbers that rand() gives go.
  manual_seed(3);
  const Tensor drawn = rand({64});
  EXPECT_EQ(l1_unstructured_mask(ones({64}), drawn, 0.5).to_vector<float>(), a.to_vector<float>());
  EXPECT_EQ(random_unstructured_mask(ones({64}), 0.5).to_vector<float>(), b.to_vector<float>());
  Generator own(5);
  const Tensor slices = random_structured_mask(ones({4, 6, 2}), 2, 1, own);
  EXPECT_EQ(slices.sum().item(), 32);
  EXPECT_EQ(sum(slices, {0, 2}).to_vector<float>(), (sum(slices, {0, 2}) / 8 * 8).to_vector<float>());
  EXPECT_EQ(amax(slices, {0, 2}).sum().item(), 4);
}

TEST(Prune, OtherDTypesAndGradients) {
  const Tensor weight = arange(1, 7, 1, DType::f32).reshape({2, 3}).set_requires_grad();
  const Tensor mask = l1_unstructured_mask(ones({2, 3}, DType::i64), weight, 0.5);
  EXPECT_EQ(mask.dtype(), DType::i64);
  EXPECT_EQ(mask.to_vector<int64_t>(), std::vector<int64_t>({0, 0, 0, 1, 1, 1}));
  EXPECT_FALSE(l1_unstructured_mask(ones({2, 3}), weight, 0.5).requires_grad());
  const Tensor meta = l1_unstructured_mask(ones({2, 3}).to(Device::meta()), weight.detach().to(Device::meta()), 4);
  EXPECT_TRUE(meta.is_meta() && meta.shape() == Shape({2, 3}));
}

}  // namespace
}  // namespace strata
