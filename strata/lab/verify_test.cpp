// Every linked op passes verification; and the verification catches records that are wrong on purpose.

#include "strata/lab/verify.h"
#include "strata/ops/factory/factory.h"

#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/view/view.h"

namespace strata::lab {
namespace {

// ---- records that are wrong, each in one way

void one_sample(Samples& s) {
  s.add(s.tensor({3, 5}));
}

void double_elements(Tensor& y, const Tensor& x) {
  copy_elements(y, x * 2);
}
Tensor twice(const Tensor& x) {
  return x * 2;
}
void twice_rule(Backward& b, const Tensor&) {
  b.set(0, b.gy() * 2);
}
TensorMeta same(const Tensor& x) {
  return like(x);
}

using Unary = Op<Tensor(const Tensor&)>;

// Right in all but what its test says.
Unary::Record right(std::string_view schema) {
  Unary::Record r;
  r.schema = schema;
  r.doc = "2 x.";
  r.infer = same;
  r.kernels.cpu = double_elements;
  r.backward = twice_rule;
  r.samples = one_sample;
  r.reference = twice;
  return r;
}
Unary::Record wrong(std::string_view schema, void (*spoil)(Unary::Record&)) {
  Unary::Record r = right(schema);
  spoil(r);
  return r;
}

const Unary correct_op(right("test_correct(Tensor x) -> Tensor"));

const Unary kernel_op(wrong("test_wrong_kernel(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) { copy_elements(y, x * 2.001); };
  r.backward = nullptr;
}));
const Unary last_digit_op(wrong("test_wrong_last_digits(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) { copy_elements(y, x * 2 + 2e-5); };
  r.backward = nullptr;
  r.dtypes = dtype_bit(DType::f32);
}));
const Unary gradient_op(wrong("test_wrong_gradient(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * 2.001); };
}));
// The value of the rule is right, but it is computed in a way that cannot be differentiated: d(x^2) = 2 x, detached.
const Unary second_op(wrong("test_wrong_second_gradient(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) { copy_elements(y, x * x); };
  r.reference = [](const Tensor& x) { return x * x; };
  r.saves = "x";
  r.backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (x.detach() * 2)); };
}));
// Reads x, which it does not save.
const Unary unsaved_op(wrong("test_reads_unsaved(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) { copy_elements(y, x * x); };
  r.reference = [](const Tensor& x) { return x * x; };
  r.backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (x * 2)); };
}));
const Unary infer_op(wrong("test_wrong_infer(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.infer = [](const Tensor& x) { return x.is_meta() ? like(x).with_shape({x.numel()}) : like(x); };
}));
const Unary infer_dtype_op(wrong("test_wrong_infer_dtype(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.infer = [](const Tensor& x) { return x.is_meta() ? like(x).with_dtype(DType::f64) : like(x); };
}));
const Unary unwritten_op(wrong("test_leaves_unwritten(Tensor x) -> Tensor", [](Unary::Record& r) {
  // The last element keeps what was in memory.
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    const Tensor flat = view(y, {-1});
    copy_elements(flat.slice(0, 0, y.numel() - 1), view(contiguous(x), {-1}).slice(0, 0, y.numel() - 1) * 2);
  };
  r.samples = [](Samples& s) { s.add(s.tensor({3, 5})); };
  r.tolerance = 1e300;  // so that the comparison with the reference does not see it
  r.backward = nullptr;
}));
const Unary overrun_op(wrong("test_writes_past_the_end(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    double_elements(y, x);
    if (y.numel() > 0) static_cast<char*>(y.raw_data())[y.nbytes()] = 7;
  };
}));
const Unary overwrites_op(wrong("test_overwrites_input(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    double_elements(y, x);
    if (x.numel() > 0) std::memset(x.raw_data(), 0, 1);
  };
}));
const Unary strides_op(wrong("test_ignores_strides(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    copy_elements(y, alias(x, x.shape(), contiguous_strides(x.shape()), 0) * 2);
  };
}));
const Unary empty_op(wrong("test_cannot_be_empty(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    if (x.numel() == 0) throw std::out_of_range("no first element");
    double_elements(y, x);
  };
}));
const Unary not_refused_op(wrong("test_accepts_anything(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.samples = [](Samples& s) {
    s.add(s.tensor({3}));
    s.invalid<ShapeError>("two dimensions", s.tensor({3}));
  };
}));
const Unary other_error_op(wrong("test_wrong_error(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.infer = [](const Tensor& x) {
    check<ValueError>(x.dim() != 1, "test_wrong_error", "two dimensions are wanted");
    return like(x);
  };
  r.samples = [](Samples& s) {
    s.add(s.tensor({3, 2}));
    s.invalid<ShapeError>("two dimensions", s.tensor({3}));
  };
}));
const Unary no_reference_op(wrong("test_no_reference(Tensor x) -> Tensor",
                                  [](Unary::Record& r) { r.reference = nullptr; }));
// Composed of other ops alone: its own formula is no reference.
const Unary only_composed_op(wrong("test_only_composed(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.infer = nullptr;
  r.kernels.cpu = nullptr;
  r.backward = nullptr;
  r.composed = twice;
  r.reference = nullptr;
}));
const Unary no_samples_op(wrong("test_no_samples(Tensor x) -> Tensor", [](Unary::Record& r) { r.samples = nullptr; }));
const Unary view_copies_op([] {
  Unary::Record r;
  r.schema = "test_view_copies(Tensor x) -> Tensor";
  r.doc = "Says that it is a view, and copies.";
  r.view = [](const Tensor& x) { return clone(x); };
  r.reference = [](const Tensor& x) { return x; };
  r.samples = one_sample;
  return Unary(r);
}());
// In place it doubles twice: the kernel reads what it has already written.
const Unary inplace_op(wrong("test_wrong_in_place(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.inplace = true;
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    double_elements(y, x);
    if (y.storage() == x.storage()) double_elements(y, y);
  };
}));
// Different bits on every call, as a race or a division of work by threads would make.
const Unary threads_op(wrong("test_depends_on_threads(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    double_elements(y, x);
    if (num_threads() == 3) copy_elements(y, y + 1e-3);
  };
}));
// What it adds is made where new tensors are made.
const Unary device_op(wrong("test_makes_elsewhere(Tensor x) -> Tensor", [](Unary::Record& r) {
  r.kernels.cpu = [](Tensor& y, const Tensor& x) {
    double_elements(y, x);
    copy_elements(y, y + zeros(y.shape(), y.dtype()));
  };
}));
const Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&)> alone_op{{
    .schema = "test_forgets_second_input(Tensor a, Tensor b) -> (Tensor p, Tensor q)",
    .doc = "a b and b, but the rule serves b only when a wants a gradient, too.",
    .infer =
        [](const Tensor& a, const Tensor& b) {
          return std::array<TensorMeta, 2>{like(a), like(b)};
        },
    .kernels = {.cpu =
                    [](Tensor& p, Tensor& q, const Tensor& a, const Tensor& b) {
                      copy_elements(p, a * b);
                      copy_elements(q, b);
                    }},
    .saves = "a b",
    .backward =
        [](Backward& g, const Tensor& a, const Tensor& b) {
          if (!g.needs(0)) return;
          g.set(0, g.gy(0) * b);
          if (g.needs(1)) g.set(1, g.gy(0) * a + g.gy(1));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), s.tensor({2, 3}));
        },
    .reference = [](const Tensor& a, const Tensor& b) { return std::tuple(a * b, b); },
}};

bool is_test_op(const OpBase& op) {
  return op.name().starts_with("test_");
}

OpReport report(const char* name) {
  const OpBase* op = OpBase::find(name);
  if (!op) {
    ADD_FAILURE() << "no op " << name;
    return {};
  }
  return verify(*op);
}

// The check that must fail; every other stays silent.
void expect_caught(const char* name, Check check) {
  const OpReport r = report(name);
  EXPECT_GT(r.failed[static_cast<size_t>(check)], 0) << table({r});
}
void expect_only(const char* name, Check check) {
  const OpReport r = report(name);
  EXPECT_GT(r.failed[static_cast<size_t>(check)], 0) << table({r});
  for (size_t c = 0; c < kNumChecks; ++c) {
    if (c != static_cast<size_t>(check)) {
      EXPECT_EQ(r.failed[c], 0) << table({r});
    }
  }
}

TEST(VerifyCatches, NothingInACorrectRecord) {
  const OpReport r = report("test_correct");
  EXPECT_TRUE(r.ok()) << table({r});
  EXPECT_EQ(r.reference, "record");
  for (const Check c : {Check::samples, Check::forward, Check::memory, Check::strided, Check::empty, Check::meta,
                        Check::boxed, Check::gradient, Check::second, Check::device, Check::threads, Check::invalid})
    EXPECT_GT(r.passed[static_cast<size_t>(c)], 0) << name_of(c);
  EXPECT_LE(r.worst, 1);
}
TEST(VerifyCatches, WrongKernel) {
  expect_caught("test_wrong_kernel", Check::forward);
}
TEST(VerifyCatches, WrongLastDigits) {
  expect_caught("test_wrong_last_digits", Check::forward);
}
TEST(VerifyCatches, WrongGradient) {
  expect_caught("test_wrong_gradient", Check::gradient);
}
TEST(VerifyCatches, WrongSecondGradient) {
  expect_only("test_wrong_second_gradient", Check::second);
}
TEST(VerifyCatches, RuleThatReadsWhatIsNotSaved) {
  expect_caught("test_reads_unsaved", Check::gradient);
}
TEST(VerifyCatches, GradientOfOneInputOnly) {
  expect_caught("test_forgets_second_input", Check::gradient);
}
TEST(VerifyCatches, WrongInferredShape) {
  expect_caught("test_wrong_infer", Check::meta);
}
TEST(VerifyCatches, WrongInferredDtype) {
  expect_caught("test_wrong_infer_dtype", Check::meta);
}
TEST(VerifyCatches, UnwrittenElements) {
  expect_caught("test_leaves_unwritten", Check::memory);
}
TEST(VerifyCatches, WritesPastTheEnd) {
  expect_caught("test_writes_past_the_end", Check::memory);
}
TEST(VerifyCatches, OverwrittenInput) {
  expect_caught("test_overwrites_input", Check::forward);
}
TEST(VerifyCatches, IgnoredStrides) {
  expect_only("test_ignores_strides", Check::strided);
}
TEST(VerifyCatches, EmptyInput) {
  expect_only("test_cannot_be_empty", Check::empty);
}
TEST(VerifyCatches, RefusalThatIsNone) {
  expect_only("test_accepts_anything", Check::invalid);
}
TEST(VerifyCatches, WrongClassOfError) {
  expect_only("test_wrong_error", Check::invalid);
}
TEST(VerifyCatches, MissingSamples) {
  expect_only("test_no_samples", Check::samples);
}
TEST(VerifyCatches, MissingReference) {
  for (const char* name : {"test_no_reference", "test_only_composed"}) {
    expect_only(name, Check::forward);
    const OpReport r = report(name);
    EXPECT_EQ(r.failed[static_cast<size_t>(Check::forward)], 1) << table({r});
    EXPECT_NE(r.failures[0].message.find("no reference"), std::string::npos) << r.failures[0].message;
    EXPECT_EQ(r.reference, "none");
  }
}
TEST(VerifyCatches, ViewThatCopies) {
  expect_only("test_view_copies", Check::view);
}
TEST(VerifyCatches, WrongInPlace) {
  expect_only("test_wrong_in_place", Check::inplace);
}
TEST(VerifyCatches, TensorsMadeOnAnotherDevice) {
  expect_only("test_makes_elsewhere", Check::device);
}
TEST(VerifyCatches, ThreadCount) {
  expect_only("test_depends_on_threads", Check::threads);
}

TEST(Verify, ReportsAsJsonAndTable) {
  const std::vector<OpReport> reports{report("test_wrong_kernel"), report("test_correct")};
  const auto json = nlohmann::json::parse(to_json(reports));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["op"], "test_wrong_kernel");
  EXPECT_FALSE(json[0]["ok"]);
  EXPECT_TRUE(json[1]["ok"]);
  EXPECT_GT(json[0]["checks"]["forward"]["failed"], 0);
  EXPECT_EQ(json[0]["failures"][0]["check"], "forward");
  const std::string text = table(reports);
  EXPECT_NE(text.find("1 ops FAILED"), std::string::npos) << text;
  EXPECT_NE(text.find("test_wrong_kernel [forward, f32]"), std::string::npos) << text;
}

TEST(Verify, DtypeFilter) {
  VerifyOptions only;
  only.dtypes = dtype_bit(DType::f64);
  const OpReport one = verify(*OpBase::find("test_correct"), only), all = report("test_correct");
  EXPECT_GT(one.samples, 0);
  EXPECT_LT(one.samples, all.samples);
}

TEST(Verify, BoxedCallsAreTypedCalls) {
  const Tensor a = from_span<float>(std::vector<float>{1, 2, 3}, {3}),
               b = from_span<float>(std::vector<float>{4, 5, 6}, {3});
  const auto boxed = OpBase::find("add")->call_boxed(std::vector<Value>{a, b, Scalar(2)});
  EXPECT_EQ(std::get<Tensor>(boxed[0]).to_vector<float>(), add(a, b, 2).to_vector<float>());
}

// ---- all ops

class EveryOp : public ::testing::TestWithParam<const OpBase*> {};

TEST_P(EveryOp, PassesVerification) {
  const OpReport r = verify(*GetParam());
  EXPECT_TRUE(r.ok()) << table({r});
}

std::vector<const OpBase*> product_ops() {
  std::vector<const OpBase*> ops;
  for (const OpBase* op : OpBase::all())
    if (!is_test_op(*op)) ops.push_back(op);
  return ops;
}

// gtest calls product_ops() when main() starts: by then every record has registered itself.
INSTANTIATE_TEST_SUITE_P(Verify, EveryOp, ::testing::ValuesIn(product_ops()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace strata::lab
