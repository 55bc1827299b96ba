#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/models/language_model.h"
#include "strata/models/sampling.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

ModelConfig tiny(const char* family) {
  ModelConfig c;
  c.family = family;
  c.layers = 2;
  c.dim = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.context = 16;
  c.vocab = 20;
  return c;
}

Tensor pattern(int64_t batch, int64_t time, int64_t vocab, int64_t shift) {
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < time; ++t) ids.push_back(((t + shift) * 7 + b * 3) % vocab);
  return from_span<int64_t>(ids, {batch, time});
}

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, LossStartsNearUniformAndFalls) {
  manual_seed(1);
  const ModelConfig c = tiny(GetParam());
  const auto model = make_model(c);
  const Tensor x = pattern(3, 16, c.vocab, 0), y = pattern(3, 16, c.vocab, 1);
  const double first = model->loss(x, y).item();
  EXPECT_NEAR(first, std::log(20.0), 0.2);
  double last = first;
  for (int step = 0; step < 60; ++step) {
    model->zero_grad();
    Tensor loss = model->loss(x, y);
    loss.backward();
    last = loss.item();
    NoGrad guard;
    for (Tensor p : model->parameters()) {
      ASSERT_TRUE(p.grad().defined());
      p.add_(p.grad(), -0.5);
    }
  }
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace
INSTANTIATE_TEST_SUITE_P(Models, Family, testing::Values("gpt", "llama"));
}  // namespace strata
