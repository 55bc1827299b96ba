// A model on another card than a process's first: skips where there is one card or none.

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/models/language_model.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

// The loss and the gradients, on the host.
std::vector<Tensor> step_on(Device device, bool scope, DType low) {
  manual_seed(3);
  const ModelConfig shape{.layers = 2, .dim = 128, .heads = 4, .context = 64, .vocab = 256};
  const std::shared_ptr<LanguageModel> model = make_model(shape);
  model->to(device);
  const Tensor tokens = (arange(2 * 64) % 251).view({2, 64}).to(device),
               targets = (arange(2 * 64) % 13).view({2, 64}).to(device);
  std::optional<DeviceScope> there;
  if (scope) there.emplace(device);
  std::optional<AutocastScope> autocast;
  if (low != DType::f32) autocast.emplace(low);
  const Tensor loss = model->loss(tokens, targets);
  loss.backward();
  std::vector<Tensor> all{loss.detach().to(Device::cpu())};
  for (const Tensor& p : model->parameters()) all.push_back(p.grad().to(Device::cpu()));
  return all;
}

TEST(LastCard, HasTheBitsOfTheFirst) {
  const int cards = cuda::device_count();
  if (cards < 2) GTEST_SKIP() << "needs two cards, and there are " << cards;
  for (const DType low : {DType::f32, DType::bf16})
    for (const bool scope : {false, true}) {
      const std::vector<Tensor> first = step_on(Device::cuda(0), scope, low),
                                last = step_on(Device::cuda(cards - 1), scope, low);
      ASSERT_EQ(first.size(), last.size());
      for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(equal(first[i], last[i])) << i;
    }
}

}  // namespace
}  // namespace strata
