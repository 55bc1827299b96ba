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

// Tensors beyond those that lie on the stack, a list, and what a box holds in another type or not at all.
using Mixed = Tensor(const Tensor&, const TensorList&, const std::string&, const std::optional<Dims>&,
                     std::optional<std::string>, double, Scalar, const Tensor&, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::optional<double>, RngKey);
struct SeenArgs {
  std::string text, word;
  Dims dims;
  double number = 0, scalar = 0, factor = 0;
  size_t list = 0;
  uint64_t seed = 0;
  bool operator==(const SeenArgs&) const = default;
};
SeenArgs g_seen;
void see(const TensorList& l, const std::string& text, const std::optional<Dims>& dims,
         const std::optional<std::string>& word, double number, Scalar scalar, std::optional<double> factor,
         RngKey key) {
  g_seen = {
      text,    word.value_or("-"), dims.value_or(Dims()), number, scalar.to_double(), factor.value_or(-1), l.size(),
      key.seed};
}
const Op<Mixed>& mixed() {
  static const Op<Mixed> op{{
      .schema = "mixed(Tensor x, Tensor[] l, str text, int[]? dims, str? word, float number, Scalar scalar, Tensor a, "
                "Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor? g, float? factor, RngKey key) -> Tensor",
      .internal = true,
      .doc = "x + the sum of the others, for a test.",
      .infer = [](const Tensor& x, const TensorList&, const std::string&, const std::optional<Dims>&,
                  std::optional<std::string>, double, Scalar, const Tensor&, const Tensor&, const Tensor&,
                  const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::optional<double>,
                  RngKey) { return like(x); },
      .kernels = {.everywhere =
                      [](Tensor& y, const Tensor& x, const TensorList& l, const std::string& text,
                         const std::optional<Dims>& dims, std::optional<std::string> word, double number, Scalar scalar,
                         const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
                         const Tensor& f, const Tensor& g, std::optional<double> factor, RngKey key) {
                        see(l, text, dims, word, number, scalar, factor, key);
                        Tensor all = x + a + b + c + d + e + f;
                        if (g.defined()) all = all + g;
                        for (const Tensor& t : l) all = all + t;
                        y.copy_(all);
                      }},
      .saves = "x l a f",
      .backward =
          [](Backward& bw, const Tensor& x, const TensorList& l, const std::string& text,
             const std::optional<Dims>& dims, std::optional<std::string> word, double number, Scalar scalar,
             const Tensor& a, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor& f,
             const Tensor& g, std::optional<double> factor, RngKey key) {
            see(l, text, dims, word, number, scalar, factor, key);
            // The sum of what it may read: x 1, l 10 and 20, a 2, f 7.
            Tensor read = x + a + f;
            for (const Tensor& t : l) read = read + t;
            for (int i = 0; i < bw.num_inputs(); ++i)
              if (bw.needs(i)) bw.set(i, bw.gy() * read);
            EXPECT_TRUE(!g.defined() || g.is_meta());
          },
  }};
  return op;
}

TEST(CallPath, ArgumentsOfEveryTypeArriveInKernelNodeAndBox) {
  Tensor t[8];
  for (int i = 0; i < 8; ++i) t[i] = vec({static_cast<float>(i + 1)}).set_requires_grad();
  const TensorList list{vec({10}).set_requires_grad(), vec({20})};
  const SeenArgs wanted{std::string(40, 'x'), "word", Dims({3, 4}), 1.5, 7, -1, 2, 99};
  const Tensor y = mixed()(t[0], list, wanted.text, Dims({3, 4}), "word", 1.5, 7, t[1], t[2], t[3], t[4], t[5], t[6],
                           t[7], std::nullopt, RngKey{99, 0});
  EXPECT_FLOAT_EQ(y.item<float>(), 36 + 30);
  EXPECT_TRUE(g_seen == wanted);
  g_seen = {};
  y.backward({}, true);
  EXPECT_TRUE(g_seen == wanted);
  EXPECT_FLOAT_EQ(t[7].grad().item<float>(), 1 + 10 + 20 + 2 + 7);
  EXPECT_FLOAT_EQ(list[0].grad().item<float>(), 40);
  const NodeValues values = autograd_meta(y).grad_fn->values();
  ASSERT_EQ(values.args.size(), 16u);
  EXPECT_EQ(std::get<std::string>(values.args[2]), wanted.text);
  EXPECT_EQ(std::get<Dims>(values.args[3]), Dims({3, 4}));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(values.args[14]));

  // Numbers in boxes of other kinds, and None.
  std::vector<Value> args{t[0], list, std::string("s"), std::monostate(), std::monostate(), int64_t{3}, true, t[1]};
  for (int i = 2; i < 7; ++i) args.emplace_back(t[i]);
  args.insert(args.end(), {std::monostate(), int64_t{4}, RngKey{5, 0}});
  EXPECT_FLOAT_EQ(std::get<Tensor>(mixed().call_boxed(args)[0]).item<float>(), 28 + 30);
  EXPECT_TRUE(g_seen == (SeenArgs{"s", "-", Dims(), 3, 1, 4, 2, 5}));
  args[3] = Dims({1, 2, 3, 4, 5, 6, 7, 8});
  args[4] = std::string(100, 'w');
  for (const size_t wrong : {size_t{5}, size_t{7}, size_t{12}, size_t{15}}) {  // after arguments that were constructed
    std::vector<Value> bad = args;
    bad[wrong] = Dims({1});
    EXPECT_THROW(mixed().call_boxed(bad), ValueError) << wrong;
    bad[wrong] = std::monostate();
    EXPECT_THROW(mixed().call_boxed(bad), ValueError) << wrong;
  }
  args.resize(9);
  EXPECT_THROW(mixed().call_boxed(args), ValueError);
}

// Hooks that pack so many tensors, then throw.
struct ThrowingHooks final : SavedTensorHooks {
  int left;
  explicit ThrowingHooks(int left) : left(left) {}
  std::shared_ptr<void> pack(const Tensor& t) override {
    if (left-- == 0) throw ValueError("hooks", "no more");
    return std::make_shared<Tensor>(t.detach());
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override { return *static_cast<Tensor*>(packed.get()); }
};
TEST(CallPath, ANodeThatCannotKeepAnArgumentIsUndone) {
  Tensor t[8];
  for (int i = 0; i < 8; ++i) t[i] = vec({static_cast<float>(i + 1)}).set_requires_grad();
  const TensorList list{vec({10}), vec({20})};
  int threw = 0;
  for (int n = 0; n < 8; ++n) {
    const SavedTensorHooksScope scope(std::make_shared<ThrowingHooks>(n));
    try {
      mixed()(t[0], list, std::string(40, 'x'), Dims({3}), std::string(40, 'w'), 0, 0, t[1], t[2], t[3], t[4], t[5],
              t[6], t[7], std::nullopt, RngKey{});
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("no more"), std::string::npos) << e.what();
      ++threw;
    }
  }
  EXPECT_EQ(threw, 5);  // x, two of the list, a and f are kept
}

TEST(CallPath, RecordWithoutResultsIsRefused) {
  static const Op<Tensor(const Tensor&)> unfinished{{.schema = "unfinished(Tensor x) -> Tensor", .doc = ""}};
  EXPECT_THROW(unfinished(vec({1})), ValueError);
}

}  // namespace
}  // namespace strata
