// The call path end to end: infer, kernel, tape, in-place versions, boxed calls.
#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/saves.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor vec(std::vector<float> v) {
  return from_span<float>(v, {static_cast<int64_t>(v.size())});
}

TEST(CallPath, AddsAndBroadcasts) {
  const Tensor y = vec({1, 2, 3}).reshape({3, 1}) + vec({10, 20});
  EXPECT_EQ(y.shape(), Shape({3, 2}));
  EXPECT_EQ(y.to(DType::f64).data<double>()[5], 23);
}

TEST(CallPath, NumbersYieldInPromotion) {
  EXPECT_EQ((full({2}, 1, DType::i32) + 2).dtype(), DType::i32);
  EXPECT_EQ((full({2}, 1, DType::i32) + 2.5).dtype(), DType::f32);
  EXPECT_EQ((full({2}, 1, DType::bf16) + 2.5).dtype(), DType::bf16);
  EXPECT_EQ((full({2}, 1, DType::u8) + full({2}, 1, DType::i8)).dtype(), DType::i16);
}

TEST(CallPath, GradientThroughBroadcastAndReuse) {
  Tensor x = vec({1, 2, 3}).set_requires_grad();
  Tensor w = full({}, 2.0).set_requires_grad();
  sum(x * w * x + x).backward();
  EXPECT_FLOAT_EQ(x.grad().data<float>()[2], 2 * 2 * 3 + 1);
  EXPECT_FLOAT_EQ(w.grad().item<float>(), 1 + 4 + 9);
}

TEST(CallPath, GradientOfGradient) {
  Tensor x = vec({3}).set_requires_grad();
  const Tensor y = sum(x * x * x);
  const Tensor g = grad({y}, {x}, {}, true)[0];
  EXPECT_FLOAT_EQ(g.item<float>(), 27);
  EXPECT_FLOAT_EQ(grad({sum(g)}, {x})[0].item<float>(), 18);
}

TEST(CallPath, ARecordSaysWhichArgumentsItsBackwardReads) {
  const auto reads = [](std::string_view op, size_t index, uint64_t wanting) {
    return saves_argument(*OpBase::find(op), index, wanting);
  };
  EXPECT_TRUE(reads("sin", 0, 1));
  EXPECT_FALSE(reads("relu", 0, 1));  // it reads its result
  EXPECT_FALSE(reads("neg", 0, 1));   // nothing
  EXPECT_FALSE(reads("mul", 0, 1));   // a only for the gradient of b
  EXPECT_TRUE(reads("mul", 0, 2));
  EXPECT_TRUE(reads("mul", 1, 1));
  EXPECT_FALSE(reads("mul", 1, 2));
}

TEST(CallPath, OverwrittenSavedTensorIsAnErrorThatNamesTheOps) {
  Tensor x = vec({1, 2}).set_requires_grad();
  Tensor a = x + x;
  const Tensor y = sum(a * a);
  a.add_(1);
  try {
    y.backward();
    FAIL() << "no error";
  } catch (const AutogradError& e) {
    EXPECT_NE(std::string(e.what()).find("mul: "), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("overwritten by add"), std::string::npos) << e.what();
  }
}

TEST(CallPath, SecondBackwardNeedsRetainGraph) {
  Tensor x = vec({1, 2}).set_requires_grad();
  const Tensor y = sum(x * x);
  y.backward({}, true);
  y.backward();
  EXPECT_THROW(y.backward(), AutogradError);
  EXPECT_FLOAT_EQ(x.grad().data<float>()[1], 8);
}

TEST(CallPath, WritingThroughAViewReachesTheBase) {
  Tensor x = vec({1, 2, 3, 4}).set_requires_grad();
  Tensor base = x * x;
  Tensor part = base.slice(0, 1, 3);
  Tensor other = base.slice(0, 2, 4);
  part.mul_(full({}, 10.0));
  EXPECT_FLOAT_EQ(base.data<float>()[1], 40);
  sum(base + base * 0).backward({}, true);
  EXPECT_FLOAT_EQ(x.grad().data<float>()[0], 2);
  EXPECT_FLOAT_EQ(x.grad().data<float>()[1], 40);
  EXPECT_FLOAT_EQ(x.grad().data<float>()[3], 8);
  const Tensor g = grad({sum(other)}, {x}, {}, false, true)[0];
  EXPECT_FLOAT_EQ(g.data<float>()[1], 0);
  EXPECT_FLOAT_EQ(g.data<float>()[2], 60);
  EXPECT_FLOAT_EQ(g.data<float>()[3], 8);
}

TEST(CallPath, InPlaceOnALeafIsRefused) {
  Tensor x = vec({1}).set_requires_grad();
  EXPECT_THROW(x.add_(1), AutogradError);
  NoGrad guard;
  x.add_(1);
  EXPECT_FLOAT_EQ(x.item<float>(), 2);
}

TEST(CallPath, InPlaceOnNothingIsRefused) {
  EXPECT_THROW(OpBase::find("exp")->inplace_boxed(std::vector<Value>{std::monostate()}), ValueError);
}

TEST(CallPath, MetaDeviceOnlyInfers) {
  DeviceScope dry(Device::meta());
  const Tensor y = sum(ones({1 << 20, 1 << 20}) * 2.0 + 1, {0});
  EXPECT_EQ(y.shape(), Shape({1 << 20}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_THROW(y.data<float>(), DeviceError);
}

TEST(CallPath, BoxedCallTakesDefaultsAndChecksTypes) {
  const OpBase* add = OpBase::find("add");
  ASSERT_NE(add, nullptr);
  const std::vector<Value> args{vec({1}), vec({2})};
  EXPECT_FLOAT_EQ(std::get<Tensor>(add->call_boxed(args)[0]).item<float>(), 3);
  EXPECT_THROW(add->call_boxed(std::vector<Value>{vec({1})}), ValueError);
  EXPECT_THROW(add->call_boxed(std::vector<Value>{vec({1}), std::string("x")}), ValueError);
  EXPECT_EQ(add->family(), "elementwise");
}

TEST(CallPath, DeepGraphsAreFreedWithoutRecursion) {
  Tensor x = vec({1}).set_requires_grad();
  Tensor y = x + x;
  for (int i = 0; i < 200000; ++i) y = y + 1;
  EXPECT_TRUE(y.requires_grad());
  y = Tensor();
  EXPECT_FALSE(x.grad().defined());
}

TEST(CallPath, EverySchemaParses) {
  for (const OpBase* op : OpBase::all()) {
    EXPECT_NO_THROW(op->schema()) << op->schema_text();
    EXPECT_FALSE(op->doc().empty()) << op->name();
  }
}

TEST(CallPath, RecordWithoutResultsIsRefused) {
  static const Op<Tensor(const Tensor&)> unfinished{{.schema = "unfinished(Tensor x) -> Tensor", .doc = ""}};
  EXPECT_THROW(unfinished(vec({1})), ValueError);
}

}  // namespace
}  // namespace strata
