// Gradients that are added where the sum is already: by products, by norms, of mixed dtypes; casts that several ops
// share.
#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/autograd/over_argument.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/gradient_watch.h"
#include "strata/core/recording.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/leaky_relu_kernel.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

int calls_of(const Recording& r, std::string_view op) {
  int n = 0;
  for (size_t i = 0; i < r.calls.size(); ++i) n += r.is_work(i) && r.calls[i].op->name() == op;
  return n;
}
int backward_calls(const Recording& r, std::string_view op) {
  int n = 0;
  for (const RecordedCall& c : r.calls) n += c.phase == Phase::backward && c.op->name() == op;
  return n;
}
Tensor drawn(Dims sizes, uint64_t seed, DType dtype = DType::f32) {
  Samples s(dtype, seed);
  return s.tensor(sizes, dtype).clone();
}
void expect_near(const Tensor& got, const Tensor& want, double bound) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> g = got.to_vector<double>(), w = want.to_vector<double>();
  for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], w[i], bound) << i;
}

// A weight used three times and an input of three layers: the first product makes the gradient, the others add to it.
TEST(GradientSums, ProductsAddWithinTheProduct) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor x = drawn({3, 5, 8}, 1, dtype).set_requires_grad(), w = drawn({8, 8}, 2, dtype).set_requires_grad();
    const auto loss = [&](const Tensor& in, const Tensor& weight) {
      return sum((linear(in, weight) + linear(in, weight) * 2 + matmul(in, weight)).to(DType::f64));
    };
    const TensorList want = grad({loss(x, w)}, {x, w}, {}, true);  // recorded: each gradient by itself
    const Recording r = record([&] { loss(x, w).backward(); });
    EXPECT_EQ(backward_calls(r, "matmul_add"), 4);
    EXPECT_EQ(backward_calls(r, "add"), 0);
    const double bound = dtype == DType::bf16 ? 0.5 : dtype == DType::f32 ? 1e-4 : 1e-12;
    expect_near(x.grad(), want[0], bound);
    expect_near(w.grad(), want[1], bound);
    EXPECT_EQ(x.grad().dtype(), dtype);
  }
}

TEST(GradientSums, BatchesOfProductsToo) {
  const Tensor a = drawn({4, 3, 5}, 1).set_requires_grad(), b = drawn({4, 5, 6}, 2).set_requires_grad();
  const auto loss = [&] { return sum(matmul(a, b) + matmul(a * 1.0, b) * 3); };
  const TensorList want = grad({loss()}, {a, b}, {}, true);
  const Recording r = record([&] { loss().backward(); });
  EXPECT_EQ(backward_calls(r, "matmul_add"), 1);  // a's second product is the gradient of a * 1
  expect_near(a.grad(), want[0], 1e-4);
  expect_near(b.grad(), want[1], 1e-4);
}

// A gradient that somebody else holds is not written over.
TEST(GradientSums, AGradientThatAHookKeptStays) {
  const Tensor x = drawn({4, 4}, 1).set_requires_grad(), w = drawn({4, 4}, 2);
  const Tensor h = x * 1.0;
  Tensor kept;
  const Tensor early = h * 2.0;
  register_hook(early, [&](const Tensor& g) { kept = g; });
  const Tensor loss = sum(linear(h, w)) + sum(early);
  const TensorList want = grad({loss}, {x}, {}, true, true);
  loss.backward();
  expect_near(x.grad(), want[0], 1e-5);
  EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(16, 1));
}

// x + f(norm(x)): the norm's kernel adds what came by the residual.
TEST(GradientSums, NormsAddTheGradientBesideThem) {
  for (bool rms : {false, true}) {
    const Tensor x = drawn({6, 16}, 1).set_requires_grad(), w = drawn({16, 16}, 2), scale = drawn({16}, 3);
    const auto loss = [&] {
      const Tensor h = x * 1.0, n = rms ? rms_norm(h, {16}, scale) : layer_norm(h, {16}, scale);
      return sum(exp(h * 0.1 + linear(n, w)));
    };
    const TensorList want = grad({loss()}, {x}, {}, true);
    const Recording r = record([&] { loss().backward(); });
    EXPECT_EQ(backward_calls(r, "add_"), 0);
    EXPECT_EQ(backward_calls(r, "add"), 0);
    expect_near(x.grad(), want[0], 1e-3 * (1 + want[0].abs().max().item()));
  }
}

// ---- casts ----------------------------------------------------------------------------------------------------------

TEST(SharedCasts, AResultIsCastOnceAndItsGradientIsSummedInF32) {
  const Tensor x = drawn({8, 64}, 1).set_requires_grad();
  const Tensor q = drawn({64, 64}, 2).set_requires_grad(), k = drawn({64, 64}, 3).set_requires_grad();
  const Tensor gq = drawn({8, 64}, 4, DType::bf16), gk = drawn({8, 64}, 5, DType::bf16);
  const Recording r = record([&] {
    Tensor yq, yk;
    {
      const AutocastScope low;
      const Tensor h = x * 1.0;
      yq = linear(h, q);
      yk = linear(h, k);
    }
    backward({yq, yk}, {gq, gk});
  });
  EXPECT_EQ(calls_of(r, "to"), 3);  // q, k, and x once
  EXPECT_EQ(backward_calls(r, "matmul_add"), 1);
  const auto wide = [](const Tensor& t) { return t.detach().to(DType::bf16).to(DType::f64); };
  const Tensor want = matmul(gq.to(DType::f64), wide(q)) + matmul(gk.to(DType::f64), wide(k));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  expect_near(x.grad(), want, 1e-5 * (1 + want.abs().max().item()));  // a sum rounded to bf16 is off by 4e-3
}

TEST(SharedCasts, AWriteMakesAnother) {
  const Tensor x = ones({4, 4}).set_requires_grad(), w = ones({4, 4}, DType::bf16);
  const AutocastScope low;
  Tensor h = x * 1.0;
  const Tensor before = matmul(h, w);
  {
    const NoGrad off;
    h.detach().fill_(2);
  }
  const Tensor after = matmul(h, w);
  EXPECT_EQ(before.detach().to(DType::f32).to_vector<float>()[0], 4);
  EXPECT_EQ(after.detach().to(DType::f32).to_vector<float>()[0], 8);
}

TEST(SharedCasts, WhatWantsNoGradientIsKeptFromItsSecondCastOn) {
  Tensor frozen = ones({4, 4});
  const Tensor x = ones({4, 4}, DType::bf16);
  const auto casts = [&](int times) {
    return calls_of(record([&] {
                      for (int i = 0; i < times; ++i) {
                        const AutocastScope low;
                        matmul(x, frozen);
                      }
                    }),
                    "to");
  };
  EXPECT_EQ(casts(5), 2);
  EXPECT_EQ(casts(3), 0);
  frozen.fill_(3);
  EXPECT_EQ(casts(3), 1);
  const AutocastScope low;
  EXPECT_EQ(matmul(x, frozen).to(DType::f32).to_vector<float>()[0], 12);
}

// Who makes a graph of a step has every cast in it, whatever was cast before.
TEST(SharedCasts, AGraphUsesNoneFromOutside) {
  struct Watch final : detail::GradientWatch {
    void touched(const Tensor&, bool) override {}
    void cast(const Tensor&, const Tensor&) override {}
  };
  const Tensor x = ones({4, 4}).set_requires_grad(), w = ones({4, 4}, DType::bf16), frozen = ones({4, 4});
  const AutocastScope low;
  const Tensor h = x * 1.0;
  for (int i = 0; i < 3; ++i) matmul(matmul(h, w), frozen);
  Watch watch;
  const Recording r = record([&] {
    const detail::GradientWatchScope scope(&watch);
    matmul(matmul(h, w), frozen);
    matmul(matmul(h, w), frozen);
  });
  EXPECT_EQ(calls_of(r, "to"), 3);  // h once, what is not kept twice
}

// ---- in place -------------------------------------------------------------------------------------------------------

TEST(OverArgument, TheTensorShowsTheResultAndItsMemoryIsKept) {
  const Tensor x = drawn({3, 7}, 1).set_requires_grad();
  const Tensor want = grad({sum(exp(silu(x * 2.0)))}, {x})[0];
  const Tensor h = x * 2.0;
  const void* const memory = h.raw_data();
  Tensor before = set_aside(h);
  ASSERT_TRUE(before.defined());
  EXPECT_EQ(before.raw_data(), memory);
  put_over(h, silu(before));
  before = {};
  EXPECT_NE(h.raw_data(), memory);
  EXPECT_EQ(h.detach().to_vector<float>(), silu(x.detach() * 2.0).to_vector<float>());
  sum(exp(h)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), want.to_vector<float>());
}

TEST(OverArgument, WhatOthersSeeIsNotSetAside) {
  const Tensor x = drawn({4, 4}, 1).set_requires_grad();
  EXPECT_FALSE(set_aside(x).defined());  // a leaf
  const Tensor h = x * 2.0;
  {
    const Tensor row = h.select(0, 0);
    EXPECT_FALSE(set_aside(h).defined());    // a view would miss the write
    EXPECT_FALSE(set_aside(row).defined());  // ... and its base
  }
  EXPECT_TRUE(set_aside(h).defined());
  const Tensor product = h * h;  // saved h
  EXPECT_FALSE(set_aside(h).defined());
  const Tensor y = exp(x);  // saved its result
  EXPECT_FALSE(set_aside(y).defined());
  const Tensor z = x * 3.0;
  EXPECT_THROW(put_over(z, x.to(DType::f64)), ValueError);
  EXPECT_THROW(set_aside({}), Error);
  EXPECT_THROW(put_over(z, {}), Error);
  EXPECT_THROW(put_over({}, z), Error);
}

TEST(LeakyReluOver, NeedsNoCopyForBackward) {
  const Tensor x = drawn({5, 6}, 1).set_requires_grad();
  const Tensor want = grad({sum(exp(leaky_relu(x * 2.0, 0.2)))}, {x})[0];
  Tensor h = x * 2.0;
  const void* const memory = h.raw_data();
  leaky_relu_over(h, 0.2);
  EXPECT_EQ(h.raw_data(), memory);
  sum(exp(h)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), want.to_vector<float>());
  EXPECT_THROW(leaky_relu_over(h, -0.1), ValueError);
}

// A factor of one and a pad that crops nothing have the result's gradient, or a part of it, for theirs: no pass over
// it.
TEST(GradientSums, WhatIsTheGradientAlreadyIsNotComputed) {
  Tensor x = drawn({3, 5}, 1).set_requires_grad();
  const Tensor g = drawn({3, 5}, 2), wide = drawn({5, 8}, 3);
  const Recording once = record([&] {
    (x * 1.0).backward(g);
    (x / 1.0).backward(g);
  });
  EXPECT_EQ(backward_calls(once, "mul_scalar") + backward_calls(once, "div_scalar"), 0);
  expect_near(x.grad(), g * 2, 0);
  x.set_grad({});
  const Recording padded = record([&] { pad(x, {2, 1, 0, 2}, "constant", 4).backward(wide); });
  EXPECT_EQ(backward_calls(padded, "constant_pad"), 0);
  expect_near(x.grad(), slice(slice(wide, 0, 0, 3), 1, 2, 7), 0);
  EXPECT_TRUE(x.grad().is_contiguous());
  x.set_grad({});
  const Recording cropped = record([&] { pad(x, {-1, 4}).backward(drawn({3, 8}, 4)); });
  EXPECT_EQ(backward_calls(cropped, "constant_pad"), 1);
  expect_near(slice(x.grad(), 1, 0, 1), zeros({3, 1}), 0);
  expect_near(slice(x.grad(), 1, 1, 5), slice(drawn({3, 8}, 4), 1, 0, 4), 0);
  // A second gradient is one through the same ops.
  const Tensor twice = grad({sum(pad(x * x * 1.0, {1, 0}))}, {x}, {}, true)[0];
  expect_near(grad({sum(twice * twice)}, {x})[0], x.detach() * 8, 1e-5);
}

// Large enough that only what lies around the part is filled, not all of it before the part is copied.
TEST(GradientSums, PartsOfLargeTensorsAndPads) {
  const Tensor x = drawn({300, 2, 700}, 1).set_requires_grad();
  const struct {
    int64_t dim, start, end, step;
  } cuts[] = {{2, 0, 690, 1}, {2, 13, 700, 1}, {-1, 5, -7, 1}, {0, 1, 299, 1}, {2, 3, 650, 3}, {1, 1, 1, 1}};
  for (const auto& c : cuts) {
    const Tensor g = drawn({300, 2, 700}, 2), part = slice(g, c.dim, c.start, c.end, c.step);
    Tensor want = zeros({300, 2, 700});
    slice(want, c.dim, c.start, c.end, c.step).copy_(part);
    EXPECT_TRUE(equal(grad({slice(x, c.dim, c.start, c.end, c.step)}, {x}, {part})[0], want)) << c.dim << c.start;
  }
  const Tensor padded = pad(x, {2, 0, -1, 1, 4, 3}, "constant", 5);
  Tensor want = full({307, 2, 702}, 5, DType::f32);
  slice(slice(slice(want, 0, 4, 304), 1, 0, 1), 2, 2, 702).copy_(slice(x.detach(), 1, 1, 2));
  EXPECT_TRUE(equal(padded.detach(), want));
  EXPECT_TRUE(equal(pad(x.detach(), {-700, 900}, "constant", 5), full({300, 2, 900}, 5, DType::f32)));
}

// A gradient of a convolution that is part of a larger tensor is made dense once, not for each product of it.
TEST(GradientSums, AConvolutionsGradientIsCopiedOnce) {
  const Tensor x = drawn({2, 3, 6}, 1).set_requires_grad(), w = drawn({4, 3, 3}, 2).set_requires_grad(),
               bias = drawn({4}, 3).set_requires_grad(), g = drawn({2, 4, 9}, 4);
  const auto y = [&] { return conv1d(x, w, bias, {1}, {1}); };
  const Tensor part = slice(g, 2, 1, 7);
  const TensorList want = grad({y()}, {x, w, bias}, {part.contiguous()});
  TensorList got;
  const Recording r = record([&] { got = grad({y()}, {x, w, bias}, {part}); });
  EXPECT_EQ(backward_calls(r, "clone"), 1);
  for (size_t i = 0; i < 3; ++i) expect_near(got[i], want[i], 0);
}

}  // namespace
}  // namespace strata
