// Heads and their losses against their formulas.

#include "strata/nn/heads.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/gradcheck.h"
#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata::nn {
namespace {

TEST(Heads, LossesGoWithTheirTargets) {
  manual_seed(1);
  const ClassificationHead head(5, 3, true);
  const Tensor scores = head(randn({4, 5}));
  EXPECT_EQ(scores.shape(), Shape({4, 3}));
  const Tensor labels = from_span<int64_t>(std::vector<int64_t>{2, 0, -100, 1}, {4});
  const Tensor logs = log_softmax(scores, 1);
  const double by_hand =
      -(logs.select(0, 0).select(0, 2) + logs.select(0, 1).select(0, 0) + logs.select(0, 3).select(0, 1)).item() / 3;
  EXPECT_NEAR(classification_loss(scores, labels).item(), by_hand, 1e-6);
  const Tensor some = uniform({4, 3}, 0, 1), p = scores.sigmoid();
  EXPECT_NEAR(classification_loss(scores, some).item(), -(some * p.log() + (1 - some) * (1 - p).log()).mean().item(),
              1e-6);
  const Tensor one = randn({4, 1}), numbers = randn({4});
  EXPECT_NEAR(classification_loss(one, numbers).item(),
              ((one.squeeze(1) - numbers) * (one.squeeze(1) - numbers)).mean().item(), 1e-6);
  EXPECT_EQ(classification_loss(one.to(DType::bf16), numbers).dtype(), DType::f32);
  EXPECT_THROW(classification_loss(scores, randn({4})), ShapeError);
  EXPECT_THROW(classification_loss(randn({4}), labels), ShapeError);
  EXPECT_THROW(ClassificationHead(5, 0), ValueError);
}

TEST(Heads, ContrastiveLossWantsEachOwn) {
  manual_seed(2);
  const Tensor a = randn({3, 4}), b = randn({5, 4});
  const Tensor logs = log_softmax(a.matmul(b.t()) / 0.5, 1);
  double wanted = 0;
  for (int64_t i = 0; i < 3; ++i) wanted -= logs.select(0, i).select(0, i).item() / 3;
  EXPECT_NEAR(contrastive_loss(a, b, 0.5).item(), wanted, 1e-6);
  EXPECT_LT(contrastive_loss(a, a * 100, 0.5).item(), contrastive_loss(a, b, 0.5).item());
  const GradcheckResult r = gradcheck([](const TensorList& in) { return contrastive_loss(in[0], in[1], 0.5); },
                                      {a.to(DType::f64).set_requires_grad(), b.to(DType::f64).set_requires_grad()});
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_THROW(contrastive_loss(b, a), ShapeError);
  EXPECT_THROW(contrastive_loss(a, randn({5, 3})), ShapeError);
  EXPECT_THROW(contrastive_loss(a, b, 0), ValueError);
}

}  // namespace
}  // namespace strata::nn
