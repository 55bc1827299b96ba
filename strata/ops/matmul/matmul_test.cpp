// What the generated verification does not see: strided results, meta tensors, autocast, large and odd shapes.

#include "strata/ops/matmul/matmul.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor random(const Shape& shape, DType t = DType::f32, uint64_t seed = 1) {
  return Samples(t, seed).tensor(shape);
}

// |a - b| <= bound everywhere.
void expect_near(const Tensor& a, const Tensor& b, double bound) {
  ASSERT_EQ(to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_NEAR(x.data<double>()[i], y.data<double>()[i], bound) << "element " << i;
}

TEST(Matmul, ALayersProductsAgreeWithDouble) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = random({4, 96, 160}, t, 1), w = random({224, 160}, t, 2), bias = random({224}, t, 3);
    const Tensor y = linear(x, w, bias);
    EXPECT_EQ(y.dtype(), t);
    // Sums of 160 products of numbers up to 2, rounded once.
    const double bound = t == DType::f32 ? 1e-3 : t == DType::bf16 ? 0.5 : 0.07;
    expect_near(y, linear(x.to(DType::f64), w.to(DType::f64), bias.to(DType::f64)), bound);
  }
}

TEST(Matmul, MethodAndFunctionAgree) {
  const Tensor a = random({3, 4}), b = random({4, 2}, DType::f32, 2);
  expect_near(a.matmul(b), matmul(a, b), 0);
}

TEST(Matmul, WritesIntoStridedResults) {
  const auto* op = dynamic_cast<const Op<Tensor(const Tensor&, const Tensor&)>*>(OpBase::find("matmul"));
  ASSERT_NE(op, nullptr);
  const Tensor a = random({64, 40}), b = random({40, 96}, DType::f32, 2), want = matmul(a, b);
  Tensor columns = empty({{96, 64}, DType::f32, Device(), std::nullopt}).t();
  op->out(columns, a, b);
  expect_near(columns, want, 1e-4);
  Tensor stepped = slice(empty({{64, 192}, DType::f32, Device(), std::nullopt}), 1, 0, 192, 2);
  op->out(stepped, a, b);
  expect_near(stepped, want, 1e-4);
}

TEST(Matmul, ShapesWithoutMemory) {
  const Tensor a = empty({{1000000, 4096}, DType::bf16, Device::meta(), std::nullopt});
  const Tensor b = empty({{4096, 1000000}, DType::bf16, Device::meta(), std::nullopt});
  EXPECT_EQ(to_string(matmul(a, b).shape()), "[1000000, 1000000]");
  EXPECT_EQ(to_string(einsum("ik,kj->ji", {a, b}).shape()), "[1000000, 1000000]");
}

TEST(Matmul, AutocastKeepsMastersInF32) {
  Tensor w = random({16, 8}), x = random({4, 8}, DType::f32, 2);
  w.set_requires_grad();
  Tensor y;
  {
    AutocastScope scope(DType::bf16);
    y = linear(x, w);
  }
  EXPECT_EQ(y.dtype(), DType::bf16);
  y.backward(random({4, 16}, DType::bf16, 3));
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  expect_near(w.grad(), matmul(random({4, 16}, DType::bf16, 3).to(DType::f32).t(), x), 0.1);
}

// Of batches that both broadcast the gradients are products too: those of operands that were expanded before, added up.
TEST(Matmul, GradientsOfBatchesThatBothBroadcast) {
  const auto gradients = [](bool expanded) {
    Tensor a = random({3, 1, 2, 1, 4, 5}, DType::f64), b = random({2, 1, 6, 5, 7}, DType::f64, 2);
    const Tensor g = random({3, 2, 2, 6, 4, 7}, DType::f64, 3);
    a.set_requires_grad(), b.set_requires_grad();
    const Tensor y = expanded ? matmul(a.expand({3, 2, 2, 6, 4, 5}), b.expand({3, 2, 2, 6, 5, 7})) : matmul(a, b);
    y.backward(g);
    return std::array<Tensor, 3>{y.detach(), a.grad(), b.grad()};
  };
  const auto got = gradients(false), want = gradients(true);
  for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], want[i], 1e-12);
}

TEST(Matmul, NanAndInfinityPass) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    Tensor a = random({64, 64}, t), b = random({64, 64}, t, 2);
    select(select(a, 0, 3), 0, 5).fill_(std::nan(""));
    const Tensor y = matmul(a, b);
    for (int64_t j = 0; j < 64; ++j) EXPECT_TRUE(std::isnan(y[3][j].item())) << j;
    EXPECT_FALSE(std::isnan(y[4][0].item()));
  }
}

TEST(Matmul, AddmmWithBetaZeroIgnoresInput) {
  const Tensor a = random({8, 4}), b = random({4, 8}, DType::f32, 2);
  Tensor input = random({8, 8}, DType::f32, 3);
  input.fill_(std::nan(""));
  expect_near(addmm(input, a, b, 0), matmul(a, b), 0);
}

TEST(Matmul, MessagesSayWhatToDo) {
  try {
    matmul(random({32, 768}), random({512, 768}));
    FAIL() << "accepted";
  } catch (const ShapeError& e) {
    EXPECT_STREQ(e.what(),
                 "matmul: inner sizes differ: a is [32, 768], b is [512, 768] (did you mean b.transpose(-2, -1)?)");
  }
}

TEST(Einsum, AttentionInOneLine) {
  const Tensor q = random({2, 5, 3, 8}), k = random({2, 7, 3, 8}, DType::f32, 2);
  const Tensor scores = einsum("bthd,bshd->bhts", {q, k});
  const Tensor want = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 3, 1}));
  expect_near(scores, want, 1e-5);
}

TEST(Einsum, RanksBeyondAnEightDimensionalProduct) {
  const Shape seven{2, 1, 2, 1, 2, 1, 2};
  const Tensor a = random(seven), b = random(seven, DType::f32, 2);
  expect_near(einsum("abcdefg,abcdefg->abcdefg", {a, b}), einsum("x,x->x", {a.flatten(), b.flatten()}).reshape(seven),
              1e-6);
}

// The gradient of a layer's master weight is not rounded on its way.
TEST(Linear, AMasterWeightsGradientIsASumInF32) {
  Samples samples(DType::f32, 5);
  const Tensor x = samples.tensor({300, 8}), g = samples.tensor({300, 6});
  Tensor w = samples.tensor({6, 8}).set_requires_grad();
  Tensor y;
  {
    AutocastScope scope;
    y = linear(x, w);
  }
  ASSERT_EQ(y.dtype(), DType::bf16);
  backward({y}, {g.to(DType::bf16)});
  const Tensor want = matmul(g.to(DType::bf16).to(DType::f32).t(), x.to(DType::bf16).to(DType::f32));
  ASSERT_EQ(w.grad().dtype(), DType::f32);
  double worst = 0, rounded = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double v = want.data<float>()[i];
    worst = std::max(worst, std::abs(w.grad().data<float>()[i] - v));
    rounded = std::max(rounded, std::abs(want.to(DType::bf16).to(DType::f32).data<float>()[i] - v));
  }
  EXPECT_LT(worst, 0.01 * rounded);
}

}  // namespace
}  // namespace strata
