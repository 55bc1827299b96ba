// Rows to places on a CUDA device: what the processor gives, and the same bits in every call, with places that are
// given twice too.

#include <gtest/gtest.h>

#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

class DispatchCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_F(DispatchCuda, PlacesGivenTwiceAreTheLastChoices) {
  manual_seed(31);
  const int64_t tokens = 244, k = 163, rows = 489, width = 408;
  const Tensor x = randn({tokens, width}).to(DType::bf16).to(Device::cuda());
  const Tensor place = randint(0, rows, {tokens, k});
  // The last choice of each place alone: what the processor takes.
  std::vector<int64_t> at = place.to_vector<int64_t>();
  std::vector<bool> taken(static_cast<size_t>(rows));
  for (size_t i = at.size(); i-- > 0;) {
    const auto row = static_cast<size_t>(at[i]);
    if (taken[row]) at[i] = -1;
    taken[row] = true;
  }
  const Tensor once = from_span<int64_t>(at, {tokens, k});
  const std::vector<float> want = dispatch_rows(x.to(Device::cpu()), once, rows).to_vector<float>();
  const Tensor there = place.to(Device::cuda());
  for (int again = 0; again < 20; ++again) EXPECT_EQ(dispatch_rows(x, there, rows).to_vector<float>(), want);
}

TEST_F(DispatchCuda, SlotsAreThoseOfTheProcessor) {
  manual_seed(32);
  for (const int64_t capacity : {1, 16, 64}) {
    for (const bool reroute : {false, true}) {
      const Tensor logits = randn({3 * 100, 9}) + arange(9, DType::f32) * 0.5;
      const Tensor chosen = std::get<1>(route_experts(logits, 2));
      const auto [e, s] = expert_slots(chosen, logits, 100, capacity, reroute);
      const auto [e2, s2] = expert_slots(chosen.to(Device::cuda()), logits.to(Device::cuda()), 100, capacity, reroute);
      EXPECT_EQ(e2.to_vector<int64_t>(), e.to_vector<int64_t>());
      EXPECT_EQ(s2.to_vector<int64_t>(), s.to_vector<int64_t>());
    }
  }
}

}  // namespace
}  // namespace strata
