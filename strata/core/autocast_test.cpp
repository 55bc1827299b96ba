// Autocast: policies, the cache of parameters' casts, gradients in f32.
#include "strata/core/autocast.h"

#include <optional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

// a + b for each policy; the result's dtype shows what the arguments became.
template <Autocast policy>
const Op<Tensor(const Tensor&, const Tensor&)>& pair_op(std::string_view schema) {
  static const Op<Tensor(const Tensor&, const Tensor&)> op{{
      .schema = schema,
      .doc = "a + b under a policy.",
      .composed = [](const Tensor& a, const Tensor& b) { return a + b; },
      .autocast = policy,
  }};
  return op;
}
const auto& low = pair_op<Autocast::low>("test_low(Tensor a, Tensor b) -> Tensor");
const auto& full32 = pair_op<Autocast::full>("test_full(Tensor a, Tensor b) -> Tensor");
const auto& promoted = pair_op<Autocast::promote>("test_promote(Tensor a, Tensor b) -> Tensor");
const auto& kept = pair_op<Autocast::keep>("test_keep(Tensor a, Tensor b) -> Tensor");

Tensor of(DType dtype) {
  return ones({4}, dtype);
}

TEST(Autocast, PoliciesCastTheArguments) {
  EXPECT_EQ(low(of(DType::f32), of(DType::f32)).dtype(), DType::f32);  // off
  for (DType narrow : {DType::bf16, DType::f16}) {
    AutocastScope scope(narrow);
    EXPECT_EQ(low(of(DType::f32), of(DType::f32)).dtype(), narrow);
    EXPECT_EQ(full32(of(narrow), of(narrow)).dtype(), DType::f32);
    EXPECT_EQ(promoted(of(narrow), of(DType::f32)).dtype(), DType::f32);
    EXPECT_EQ(promoted(of(narrow), of(narrow)).dtype(), narrow);
    EXPECT_EQ(kept(of(DType::f32), of(DType::f32)).dtype(), DType::f32);
    EXPECT_EQ(kept(of(narrow), of(narrow)).dtype(), narrow);
    EXPECT_EQ(low(of(DType::f64), of(DType::f64)).dtype(), DType::f64);  // doubles and integers are left alone
    EXPECT_EQ(low(of(DType::i64), of(DType::i64)).dtype(), DType::i64);
    EXPECT_EQ(low(of(DType::f32), Tensor(of(DType::f32))).dtype(), narrow);
  }
  EXPECT_THROW(AutocastScope{DType::f32}, DTypeError);
}

TEST(Autocast, ScopesNestAndEnd) {
  const Tensor a = of(DType::f32);
  EXPECT_FALSE(autocast_enabled());
  {
    AutocastScope outer(DType::bf16);
    EXPECT_TRUE(autocast_enabled());
    {
      AutocastScope off(DType::bf16, false);
      EXPECT_FALSE(autocast_enabled());
      EXPECT_EQ(low(a, a).dtype(), DType::f32);
      AutocastScope inner(DType::f16);
      EXPECT_EQ(autocast_dtype(), DType::f16);
      EXPECT_EQ(low(a, a).dtype(), DType::f16);
    }
    EXPECT_EQ(low(a, a).dtype(), DType::bf16);
  }
  EXPECT_FALSE(autocast_enabled());
  EXPECT_EQ(t_mode.unusual, 0u);
}

// Counts conversions.
struct CountCasts final : CallObserver {
  void before(const Call& call) override { casts += call.op.name() == "to"; }
  int casts = 0;
};

TEST(Autocast, ParametersAreCastOncePerScope) {
  Tensor w = of(DType::f32).set_requires_grad();
  const Tensor x = of(DType::bf16);
  CountCasts count;
  ObserverScope watch(count);
  {
    AutocastScope scope;
    for (int i = 0; i < 5; ++i) low(x, w);
    EXPECT_EQ(count.casts, 1);
    low(x, of(DType::f32));  // not a parameter
    low(x, of(DType::f32));
    EXPECT_EQ(count.casts, 3);
    AutocastScope inner;
    low(x, w);
    EXPECT_EQ(count.casts, 3);
  }
  {
    AutocastScope scope;
    low(x, w);
    NoGrad guard;
    low(x, w);
    EXPECT_EQ(count.casts, 3);  // kept with the parameter
  }
  {
    NoGrad guard;
    w.fill_(3);
  }
  AutocastScope scope;
  EXPECT_EQ(to(low(x, w).detach(), DType::f32).data<float>()[0], 4);  // the new value
  EXPECT_EQ(count.casts, 4 + 1);
}

TEST(Autocast, BackwardInTheScopeGivesTheSameGradientsAsBehindIt) {
  const auto gradient = [](bool inside) {
    Tensor x = of(DType::bf16).set_requires_grad();
    std::optional<AutocastScope> scope(std::in_place);
    const Tensor y = exp(x);  // a sum in f32 under autocast
    if (!inside) scope.reset();
    return grad({y}, {x}, {ones_like(y)})[0];
  };
  const Tensor inside = gradient(true), behind = gradient(false);
  EXPECT_EQ(inside.dtype(), DType::bf16);
  EXPECT_EQ(inside.dtype(), behind.dtype());
  EXPECT_EQ(inside.to_vector<float>(), behind.to_vector<float>());
}

TEST(Autocast, AParametersCopyFollowsItsDtypeAndItsTape) {
  Tensor w = of(DType::f32).set_requires_grad();
  Tensor first, second;
  {
    AutocastScope scope;
    first = low(of(DType::bf16), w);
  }
  {
    AutocastScope scope(DType::f16);
    second = low(of(DType::f16), w);
    AutocastScope inner(DType::bf16);
    EXPECT_EQ(low(of(DType::bf16), w).dtype(), DType::bf16);
  }
  EXPECT_EQ(second.dtype(), DType::f16);
  sum(to(first, DType::f32)).backward();
  sum(to(second, DType::f32)).backward();
  EXPECT_EQ(w.grad().data<float>()[0], 2);
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

TEST(Autocast, GradientsArriveInF32) {
  Samples random(DType::f32, 3);
  Tensor x = random.tensor({5, 8}).set_requires_grad(), w = random.tensor({8, 6}).set_requires_grad();
  const Tensor exact = matmul(x, w);
  const TensorList want = grad({sum(exact * exact)}, {x, w});
  Tensor loss;
  {
    AutocastScope scope;
    const Tensor y = matmul(x, w);
    EXPECT_EQ(y.dtype(), DType::bf16);
    loss = sum(to(y, DType::f32) * to(y, DType::f32));
  }
  loss.backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  // bf16 has 8 bits; the products add up to 8 terms of size about 1.
  for (int64_t i = 0; i < w.numel(); ++i) EXPECT_NEAR(w.grad().data<float>()[i], want[1].data<float>()[i], 1.0) << i;
  EXPECT_EQ(x.dtype(), DType::f32);  // the master weights
}

TEST(Autocast, GradientsStayLowWhereAskedFor) {
  Samples samples(DType::f32, 3);
  Tensor w = samples.tensor({8, 6}).set_requires_grad();
  const Tensor x = samples.tensor({5, 8});
  const auto gradient = [&](bool low) {
    w.set_grad({});
    Tensor y;
    {
      AutocastScope scope(DType::bf16, true, low);
      y = matmul(x, w);
    }
    y.backward(ones({5, 6}, DType::bf16));
    return w.grad();
  };
  const Tensor wide = gradient(false), low = gradient(true);
  EXPECT_EQ(wide.dtype(), DType::f32);
  ASSERT_EQ(low.dtype(), DType::bf16);
  EXPECT_EQ(wide.to(DType::bf16).to_vector<double>(), low.to_vector<double>());
}

TEST(Autocast, AWeightUsedTwiceGetsBothGradients) {
  Tensor w = ones({4}).set_requires_grad();
  Tensor loss;
  {
    AutocastScope scope;
    const Tensor x = of(DType::bf16);
    loss = sum(to(low(x, w) + low(x, w) * 2.0, DType::f32));
  }
  loss.backward();
  EXPECT_EQ(w.grad().data<float>()[0], 3);
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

}  // namespace
}  // namespace strata
