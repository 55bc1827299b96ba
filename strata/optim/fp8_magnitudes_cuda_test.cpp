// The largest magnitudes that ops and optimizers leave for fp8's scales: the codes are those of a tensor that nobody
// left any beside.

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/autocast_fp8.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/magnitudes.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/linear_fp8.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

void expect_codes(const Fp8Matrix& got, const Fp8Matrix& want) {
  EXPECT_EQ(got.scale.to_vector<float>(), want.scale.to_vector<float>());
  EXPECT_EQ(got.codes.to_vector<int64_t>(), want.codes.to_vector<int64_t>());
  EXPECT_EQ(got.codes_t.to_vector<int64_t>(), want.codes_t.to_vector<int64_t>());
}
Tensor rows_of(const Tensor& t) {
  return t.view({t.numel() / t.shape().back(), t.shape().back()});
}

class Fp8Magnitudes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    manual_seed(7);
    const AutocastScope policy{Fp8Options{}};  // from here on, in the scope around it
  }
  static Tensor drawn(const Shape& s, DType dtype, double most = 3) {
    return uniform(s, -most, most).to(Device::cuda()).to(dtype);
  }
  static void left_beside(const Tensor& y) {
    const Tensor left = cuda::magnitudes_of(y);
    ASSERT_TRUE(left.defined());
    // What is stored, rounded, as a copy has it, beside which there is nothing.
    const Tensor copy = y.clone();
    EXPECT_FALSE(cuda::magnitudes_of(copy).defined());
    for (const char* format : {"e4m3", "e5m2"})
      expect_codes(fp8_codes(rows_of(y), format), fp8_codes(rows_of(copy), format));
    const auto bits = left.to_vector<int64_t>();
    float most = 0;
    for (const int64_t b : bits) most = std::max(most, std::bit_cast<float>(static_cast<uint32_t>(b)));
    EXPECT_EQ(most, y.to(DType::f32).abs().max().item());
  }
  const Fp8WeightsScope scope_;
};

TEST_F(Fp8Magnitudes, AreLeftByNormsAndActivations) {
  const NoGrad guard;
  for (const DType t : {DType::bf16, DType::f16, DType::f32})
    for (const Shape& s : {Shape{37, 48}, Shape{2, 5, 3072}, Shape{9, 9216}, Shape{5, 16384}, Shape{3, 40000}}) {
      const int64_t n = s[s.size() - 1];
      const Tensor x = drawn(s, t), more = drawn(s, t), weight = drawn({n}, DType::f32);
      left_beside(rms_norm(x, {n}, weight));
      left_beside(layer_norm(x, {n}, weight, weight));
      left_beside(std::get<0>(add_rms_norm(x, more, weight)));
      left_beside(swiglu(x, more));
      if (n % 32 == 0) left_beside(swiglu(x));
    }
  // Past the largest number: infinity, and so NaN for every code.
  const auto all = [](double v) { return full({16, 32}, v, DType::bf16).to(Device::cuda()); };
  const Tensor y = swiglu(all(3e38), all(2));
  ASSERT_TRUE(cuda::magnitudes_of(y).defined());
  EXPECT_TRUE(std::isnan(fp8_codes(y).scale.item()));
}

TEST_F(Fp8Magnitudes, AreLeftByTheirGradients) {
  for (const DType t : {DType::bf16, DType::f16, DType::f32})
    // A warp a row, several, blocks of a cluster, rows that are read again.
    for (const Shape& s :
         {Shape{37, 48}, Shape{300, 3072}, Shape{9, 9216}, Shape{300, 16384}, Shape{9, 24576}, Shape{3, 40000}}) {
      const int64_t n = s[s.size() - 1];
      const auto gradient = [&](auto f) {
        Tensor x = drawn(s, t);
        x.set_requires_grad();
        const Tensor y = f(x);
        y.backward(drawn(y.shape(), t, 1e-3));
        left_beside(x.grad());
      };
      gradient([&](const Tensor& x) { return rms_norm(x, {n}); });
      gradient([&](const Tensor& x) { return layer_norm(x, {n}); });
      // With the gradient of the sum, which is added on the way.
      const Tensor residual = drawn(s, t), weight = drawn({n}, DType::f32);
      const auto both = [](const auto& two) { return std::get<0>(two) + std::get<1>(two); };
      gradient([&](const Tensor& x) { return both(add_rms_norm(x, residual, weight)); });
      gradient([&](const Tensor& x) { return both(add_layer_norm(x, residual, weight, weight)); });
      if (n % 32 == 0) gradient([&](const Tensor& x) { return swiglu(x); });
    }
}

TEST_F(Fp8Magnitudes, AreOfWhatIsThereOrNotAtAll) {
  const NoGrad guard;
  Tensor y = rms_norm(drawn({32, 64}, DType::bf16), {64});
  left_beside(y);
  EXPECT_TRUE(cuda::magnitudes_of(y.view({64, 32})).defined());
  EXPECT_FALSE(cuda::magnitudes_of(y.t()).defined());
  EXPECT_FALSE(cuda::magnitudes_of(y.narrow(0, 0, 16)).defined());
  {
    const cuda::Stream side = cuda::Stream::create();
    const cuda::StreamScope other(side);
    EXPECT_FALSE(cuda::magnitudes_of(y).defined());
  }
  y.mul_(4);
  EXPECT_FALSE(cuda::magnitudes_of(y).defined());
  EXPECT_FALSE(cuda::magnitudes_of(rms_norm(drawn({32, 20}, DType::bf16), {20})).defined());  // no product takes it
}

// A feed-forward block of linear layers in fp8. `apart`: a product by one between all of them, beside whose results and
// gradients nobody leaves anything.
TensorList block_and_gradients(const TensorList& leaves, bool apart, bool recomputed) {
  TensorList own;
  for (const Tensor& t : leaves) own.push_back(t.detach().clone().set_requires_grad());
  const auto between = [&](const Tensor& t) { return apart ? t * 1.0 : t; };
  const auto block = [&](const Tensor& x) {
    const Tensor normed = between(rms_norm(x, {x.shape().back()}, own[1]));
    const Tensor gated = between(swiglu(between(linear_fp8(normed, own[2]))));
    // The norm's result is read by a second product, too.
    return between(linear_fp8(gated, own[3])) + between(linear_fp8(normed, own[4]));
  };
  TensorList results;
  for (int batch = 0; batch < 2; ++batch) {  // whose gradients add up
    const Tensor y = recomputed ? checkpoint(block, own[0]) : block(own[0]);
    y.backward(y.detach() * 1e-3);
    results.push_back(y.detach());
  }
  for (const Tensor& t : own) results.push_back(t.grad());
  return results;
}

TEST_F(Fp8Magnitudes, GiveABlockTheSameBits) {
  const int64_t rows = 48, dim = 64, wide = 128;
  const TensorList leaves{drawn({rows, dim}, DType::bf16), drawn({dim}, DType::f32), drawn({2 * wide, dim}, DType::f32),
                          drawn({dim, wide}, DType::f32), drawn({dim, dim}, DType::f32)};
  const TensorList want = block_and_gradients(leaves, true, false);
  for (const bool recomputed : {false, true}) {
    const TensorList got = block_and_gradients(leaves, false, recomputed);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(cat("tensor ", i, recomputed ? ", recomputed" : ""));
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>());
    }
  }
}

TEST(Fp8MagnitudesOff, NobodyLeavesAnyWithoutThePolicy) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const NoGrad guard;
  const Tensor x = uniform({32, 64}, -1, 1).to(Device::cuda());
  EXPECT_FALSE(cuda::magnitudes_of(rms_norm(x, {64})).defined());
  Fp8Options by_row;
  by_row.scaling = "row";
  const AutocastScope policy(by_row);
  EXPECT_FALSE(cuda::magnitudes_of(rms_norm(x, {64})).defined());
}

TEST_F(Fp8Magnitudes, OfAParameterAreRenewedByItsOptimizer) {
  Tensor p = drawn({300, 48}, DType::f32);
  p.set_requires_grad();
  const auto same = [&] {
    const Tensor kept = cuda::kept_magnitudes(p);
    ASSERT_TRUE(kept.defined());
    EXPECT_EQ(kept.max().item(), p.detach().abs().max().item());
    expect_codes(fp8_codes(p.detach()), fp8_codes(p.detach().clone()));
  };
  EXPECT_FALSE(cuda::kept_magnitudes(p).defined());
  cuda::want_magnitudes(p);
  same();
  for (const char* rule : {"adamw", "sgd", "muon", "adafactor"}) {
    const OptimizerRecord& record = optimizer_record(rule);
    const auto optimizer = record.make(record, {{number_params({p}), {{"lr", 1.0}}}});
    for (int step = 0; step < 3; ++step) {
      SCOPED_TRACE(std::string(rule) + cat(" step ", step));
      p.set_grad(drawn({300, 48}, DType::f32));
      const Tensor before = p.detach().clone();
      optimizer->step();
      EXPECT_GT((p.detach() - before).abs().max().item(), 0);
      same();
    }
    // A step that the device leaves out leaves them, too.
    p.set_grad(drawn({300, 48}, DType::f32));
    const auto before = p.detach().to_vector<float>();
    optimizer->step_guarded({.loss = full({}, NAN).to(Device::cuda())});
    EXPECT_EQ(p.detach().to_vector<float>(), before) << rule;
    same();
  }
  {
    const NoGrad guard;
    p.mul_(8);
  }
  EXPECT_FALSE(cuda::kept_magnitudes(p).defined());
  cuda::want_magnitudes(p);
  same();
}

TEST_F(Fp8Magnitudes, OfAParameterAreReadInAGraphOnlyWhereSomebodyRenewsThem) {
  Tensor p = drawn({64, 48}, DType::f32);
  p.set_requires_grad();
  cuda::want_magnitudes(p);
  cuda::Graph graph;
  graph.capture([&] {
    EXPECT_FALSE(cuda::readable_magnitudes(p).defined());
    const detail::Fp8RenewedScope renewed;
    EXPECT_TRUE(cuda::readable_magnitudes(p).defined());
  });
}

}  // namespace
}  // namespace strata::optim
