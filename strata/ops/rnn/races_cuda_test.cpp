// The smallest calls that take each of the recurrent layers' persistent kernels, for compute-sanitizer --tool
// racecheck: three steps, so that every buffer of states is used again.

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/random.h"
#include "strata/ops/rnn/rnn.h"
#include "strata/ops/rnn/slstm.h"

namespace strata {
namespace {

// Cell, dtype, whether f32 is multiplied as TF32, sequences, units.
using Param = std::tuple<const char*, DType, bool, std::pair<int64_t, int64_t>>;

std::string name_of_case(const ::testing::TestParamInfo<Param>& info) {
  const auto& [cell, dtype, tf32, size] = info.param;
  return cat(cell, "_", tf32 ? "tf32" : name_of(dtype), "_", size.first, "x", size.second);
}

class RecurrentRaces : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    set_allow_tf32_convolutions(std::get<2>(GetParam()));
  }
  void TearDown() override { set_allow_tf32_convolutions(true); }
};

TEST_P(RecurrentRaces, ForwardAndBackward) {
  const auto& [name, dtype, tf32, size] = GetParam();
  const std::string cell = name;
  const auto [batch, hidden] = size;
  const int64_t width = hidden * (cell == "lstm" || cell == "slstm" ? 4 : cell == "gru" ? 3 : 1);
  const double most = 1 / std::sqrt(static_cast<double>(hidden));
  const auto run = [&, dtype = dtype, batch = batch, hidden = hidden](Device device, DType computed) {
    manual_seed(5);
    const auto drawn = [&](const Shape& shape, double bound) {
      Tensor t = uniform(shape, -bound, bound).to(dtype).to(computed).to(device);
      return t.set_requires_grad();
    };
    const Tensor x = drawn({3, batch, 16}, 1);
    const TensorList p{drawn({width, 16}, 0.3), drawn({width, hidden}, most), drawn({width}, most),
                       drawn({width}, most)};
    const Tensor h = drawn({1, batch, hidden}, 1), c = drawn({1, batch, hidden}, 1);
    TensorList in = p;
    in.push_back(x);
    Tensor y;
    if (cell == "slstm") {
      y = std::get<0>(slstm(x, {}, p));
    } else {
      in.push_back(h);
      y = cell == "lstm"  ? std::get<0>(lstm(x, {h, c}, p))
          : cell == "gru" ? std::get<0>(gru(x, h, p))
                          : std::get<0>(rnn_tanh(x, h, p));
    }
    TensorList all = grad({y}, in, {drawn({3, batch, hidden}, 1).detach()}, false);
    all.push_back(y);
    return all;
  };
  const TensorList want = run(Device::cpu(), DType::f64), got = run(Device::cuda(), dtype);
  ASSERT_EQ(got.size(), want.size());
  const double tolerance = dtype != DType::f32 ? 3e-2 : tf32 ? 5e-3 : 1e-4;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(difference(got[i], want[i]), tolerance) << i;
}

// Few and many sequences and units take kernels of their own.
INSTANTIATE_TEST_SUITE_P(Kernels, RecurrentRaces,
                         ::testing::Combine(::testing::Values("lstm", "gru", "tanh", "slstm"),
                                            ::testing::Values(DType::bf16, DType::f32), ::testing::Values(false),
                                            ::testing::Values(std::pair<int64_t, int64_t>(3, 64),
                                                              std::pair<int64_t, int64_t>(40, 128))),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Tf32, RecurrentRaces,
                         ::testing::Combine(::testing::Values("lstm", "gru", "tanh", "slstm"),
                                            ::testing::Values(DType::f32), ::testing::Values(true),
                                            ::testing::Values(std::pair<int64_t, int64_t>(3, 64),
                                                              std::pair<int64_t, int64_t>(40, 128))),
                         name_of_case);

}  // namespace
}  // namespace strata
