// In-place writes through views of tensors that had no history give them one.
#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Floats = std::vector<float>;

TEST(ViewBase, WriteIntoAViewOfAPlainTensorGivesItAHistory) {
  Tensor w = arange(4, DType::f32).set_requires_grad();
  Tensor x = zeros({4, 4});
  x[1].copy_(w * w);
  ASSERT_TRUE(x.requires_grad());
  EXPECT_FALSE(x.is_leaf());
  sum(x * arange(16, DType::f32).view({4, 4})).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({0, 2 * 1 * 5, 2 * 2 * 6, 2 * 3 * 7}));
}

TEST(ViewBase, ViewsMadeBeforeTheWriteSeeIt) {
  Tensor w = ones({2}).set_requires_grad();
  Tensor x = zeros({2, 2});
  const Tensor other = x.t();  // shows the written row as a column
  const Tensor untouched = x[1];
  x[0].add_(w * 3.0);
  EXPECT_TRUE(other.requires_grad());
  sum(other * other).backward({}, true);
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({18, 18}));
  EXPECT_EQ(grad({sum(untouched)}, {w}, {}, false, true)[0].to_vector<float>(), Floats({0, 0}));
}

TEST(ViewBase, ChainsOfViewsAndRepeatedWrites) {
  Tensor w = full({}, 2.0).set_requires_grad();
  Tensor x = zeros({2, 3, 4});
  x[1].slice(1, 0, 2).copy_(w * ones({3, 2}));
  x.transpose(0, 2).select(0, 1).mul_(full({}, 5.0));
  x[0][0].copy_((w * w) * ones({4}));
  // 3 elements 2, 3 elements 2 * 5, and a row of w^2: 3 + 15 + 4 * 2 w.
  sum(x).backward();
  EXPECT_FLOAT_EQ(w.grad().item<float>(), 3 + 15 + 16);
}

TEST(ViewBase, SliceAssignmentAndIndexPut) {
  Tensor w = arange(3, DType::f32).set_requires_grad();
  Tensor x = zeros({4, 3});
  x.index_put_({Slice(1, 3)}, w);
  x.index_put_({from_span<int64_t>(std::vector<int64_t>{0, 0, 3}, {3}), 1}, w, true);
  x.index_put_({3, Ellipsis}, w * w);  // overwrites what the last of the three added
  EXPECT_EQ(x.to_vector<float>(), Floats({0, 1, 0, 0, 1, 2, 0, 1, 2, 0, 1, 4}));
  sum(x).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({2 + 1 + 0, 2 + 1 + 2, 2 + 0 + 4}));
}

TEST(ViewBase, MaskAssignmentCutsTheGradient) {
  Tensor w = arange(4, DType::f32).set_requires_grad();
  Tensor x = zeros({2, 4});
  x[0].copy_(w);
  Tensor row = x[0];
  row.index_put_({from_span<bool>(std::initializer_list<bool>{true, false, false, true}, {4})}, full({}, 7.0));
  EXPECT_EQ(x[0].to_vector<float>(), Floats({7, 1, 2, 7}));
  sum(x).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({0, 1, 1, 0}));
}

TEST(ViewBase, SecondGradientPassesThroughTheWrite) {
  Tensor w = full({3}, 2.0).set_requires_grad();
  Tensor x = zeros({2, 3});
  x[1].copy_(w * w * w);
  const Tensor g = grad({sum(x * x)}, {w}, {}, true)[0];  // 6 w^5
  EXPECT_EQ(g.to_vector<float>(), Floats({192, 192, 192}));
  EXPECT_EQ(grad({sum(g)}, {w})[0].to_vector<float>(), Floats({480, 480, 480}));  // 30 w^4
}

TEST(ViewBase, GradientsThatDoNotStartTheirStorage) {
  // The gradient of the written base arrives as a slice of a larger one: contiguous, but with an offset.
  Tensor w = ones({2}).set_requires_grad();
  Tensor x = zeros({2, 2});
  x[1].copy_(w);
  const Tensor y = cat({ones({2, 2}), x});
  sum(y * arange(8, DType::f32).view({4, 2})).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({6, 7}));
}

TEST(ViewBase, NoHistoryWithoutGradMode) {
  Tensor w = ones({2}).set_requires_grad();
  Tensor x = zeros({2, 2});
  {
    NoGrad guard;
    x[0].copy_(w);
  }
  EXPECT_FALSE(x.requires_grad());
  x.detach()[0].copy_(w);  // the detached tensor gets the history, x does not
  EXPECT_FALSE(x.requires_grad());
}

TEST(ViewBase, ViewsOfLeavesAreRefusedEvenWhenMadeBefore) {
  Tensor x = zeros({2, 2});
  Tensor row = x[0];
  x.set_requires_grad();
  EXPECT_THROW(row.add_(1), AutogradError);
  EXPECT_THROW(x[1].copy_(ones({2})), AutogradError);
  NoGrad guard;
  row.add_(1);
  EXPECT_EQ(x.to_vector<float>(), Floats({1, 1, 0, 0}));
}

TEST(ViewBase, SplitPartsShareTheirBase) {
  Tensor w = ones({2}).set_requires_grad();
  Tensor x = zeros({6});
  TensorList parts = split(x, 2);
  parts[1].copy_(w * 4.0);
  EXPECT_EQ(x.to_vector<float>(), Floats({0, 0, 4, 4, 0, 0}));
  sum(x * x).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), Floats({32, 32}));
}

}  // namespace
}  // namespace strata
