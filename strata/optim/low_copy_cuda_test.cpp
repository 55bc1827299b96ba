// Autocast's copies of parameters on tiers of a card.
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/strata.h"

namespace strata::optim {
namespace {

Tensor ramp(const Shape& shape, double step) {
  return (reshape(arange(shape.product()), shape).to(DType::f32) * step - 0.5).to(Device::cuda());
}

// As a streamed module has it: autocast's copy of a parameter at home, written by the optimizer's step.
TEST(LowCopies, AreWrittenWhereTheyLive) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const auto train = [](Tier where) {
    Tensor w = ramp({96, 64}, 1e-4);
    w.set_requires_grad();
    const Tensor x = ramp({32, 96}, 1e-3);
    AdamW optimizer({w}, {.lr = 0.01});
    for (int step = 0; step < 4; ++step) {
      {
        const AutocastScope low(DType::bf16);
        const Tensor y = matmul(x, w).to(DType::f32);
        sum(y * y).backward();
      }
      LowCopy& low = autograd_meta(w).low;
      EXPECT_TRUE(low.tensor.defined());
      {
        const NoGrad guard;
        low.tensor = low.tensor.to(where);
      }
      memory::release_cached();
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_TRUE(low.is_current(w, DType::bf16));
    }
    std::vector<float> all = w.to_vector<float>();
    const std::vector<float> low = autograd_meta(w).low.tensor.to(DType::f32).to_vector<float>();
    all.insert(all.end(), low.begin(), low.end());
    return all;
  };
  const std::vector<float> wanted = train(Tier());
  EXPECT_EQ(train(Tier::pinned), wanted);
  EXPECT_EQ(train(memory::kDisk), wanted);
}

}  // namespace
}  // namespace strata::optim
