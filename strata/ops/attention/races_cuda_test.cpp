// The smallest calls that take each of attention's kernels, for compute-sanitizer --tool racecheck, under which larger
// ones take minutes: two tiles of queries and of keys, one head.

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

enum class Option { plain, causal, boolean_mask, added_mask, dropout, slopes };
constexpr const char* kOptions[] = {"plain", "causal", "boolean_mask", "added_mask", "dropout", "slopes"};

// Head size, dtype, whether f32 is multiplied as TF32, option.
using Param = std::tuple<int64_t, DType, bool, Option>;

std::string name_of_case(const ::testing::TestParamInfo<Param>& info) {
  const auto& [d, dtype, tf32, option] = info.param;
  return cat("D", d, "_", tf32 ? "tf32" : name_of(dtype), "_", kOptions[static_cast<int>(option)]);
}

class AttentionRaces : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    cuda::set_allow_tf32(std::get<2>(GetParam()));
  }
  void TearDown() override { cuda::set_allow_tf32(false); }
};

TEST_P(AttentionRaces, ForwardAndBackward) {
  const auto& [d, dtype, tf32, option] = GetParam();
  constexpr int64_t kQueries = 130, kKeys = 150;
  AttentionOptions o;
  o.is_causal = option == Option::causal;
  o.dropout_p = option == Option::dropout ? 0.25 : 0;
  if (option == Option::slopes) o.alibi_slopes = full({1}, 0.2);
  manual_seed(5);
  const Tensor q = randn({1, 1, kQueries, d}), k = randn({1, 1, kKeys, d}), v = randn({1, 1, kKeys, d}),
               gy = randn({1, 1, kQueries, d});
  Tensor mask;
  if (option == Option::boolean_mask) mask = bernoulli(full({kQueries, kKeys}, 0.7)).to(DType::boolean);
  if (option == Option::added_mask) mask = randn({kQueries, kKeys}).to(dtype).to(DType::f32);
  const auto run = [&, dtype = dtype](Device device, DType computed) {
    AttentionOptions with = o;
    if (with.alibi_slopes.defined()) with.alibi_slopes = with.alibi_slopes.to(device);
    const auto on = [&](const Tensor& t) { return t.to(dtype).to(computed).to(device); };
    TensorList in{on(q), on(k), on(v)};
    for (Tensor& t : in) t.set_requires_grad();
    Tensor m = mask;
    if (m.defined()) m = m.dtype() == DType::boolean ? m.to(device) : on(m);
    if (option == Option::added_mask) in.push_back(m.set_requires_grad());
    manual_seed(6);
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], m, with);
    TensorList all = grad({y}, in, {on(gy)}, false);
    all.push_back(y);
    return all;
  };
  const TensorList want = run(Device::cpu(), DType::f64), got = run(Device::cuda(), dtype);
  ASSERT_EQ(got.size(), want.size());
  const double tolerance = dtype == DType::f32 && !tf32 ? 1e-4 : 2e-2;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(difference(got[i], want[i]), tolerance) << i;
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionRaces,
                         ::testing::Combine(::testing::Values(16, 64, 128, 256), ::testing::Values(DType::bf16),
                                            ::testing::Values(false),
                                            ::testing::Values(Option::plain, Option::causal, Option::boolean_mask,
                                                              Option::added_mask, Option::dropout, Option::slopes)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(F16, AttentionRaces,
                         ::testing::Combine(::testing::Values(32, 64, 128), ::testing::Values(DType::f16),
                                            ::testing::Values(false), ::testing::Values(Option::causal)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(F32, AttentionRaces,
                         ::testing::Combine(::testing::Values(32, 64, 128), ::testing::Values(DType::f32),
                                            ::testing::Bool(), ::testing::Values(Option::plain, Option::added_mask)),
                         name_of_case);

}  // namespace
}  // namespace strata
