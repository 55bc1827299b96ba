// What records say to languages: the description, the schema's types, and what lists beside the records said before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "strata/core/describe.h"
#include "strata/core/dtype_limits.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/distributions/distributions.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/prune/prune.h"
#include "strata/ops/random/random.h"
#include "strata/ops/random/samplers.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

const Op<Pair(const Tensor&, Scalar, const Dims&, std::optional<double>, const std::string&, DType, RngKey)> described{{
    .schema = "test_described(Tensor x, Scalar by=1.5, int[] dims=[0, 1], float? eps=None, str mode=\"fast\", "
              "DType dtype=f32, RngKey key) -> (Tensor y, Tensor kept)",
    .aliases = "test_called test_named",
    .shown = 1,
    .doc = "Line one,\nline two.",
    .infer =
        [](const Tensor& x, Scalar, const Dims&, std::optional<double>, const std::string&, DType, RngKey) {
          return std::array{like(x), like(x)};
        },
    .kernels = {.cpu =
                    [](Tensor& y, Tensor& kept, const Tensor& x, Scalar, const Dims&, std::optional<double>,
                       const std::string&, DType, RngKey) {
                      y.copy_(x);
                      kept.copy_(x);
                    }},
    .draws = [](const Tensor& x, Scalar, const Dims&, std::optional<double>, const std::string&, DType,
                RngKey) { return random_blocks(x.numel()); },
    .autocast = Autocast::full,
    .dtypes = kFloats & ~dtype_bit(DType::f16),
}};

TEST(Describe, OneRecordWordForWord) {
  const std::string want =
      R"j({"name":"test_described","family":"core","schema":"test_described(Tensor x, Scalar by=1.5, )j"
      R"j(int[] dims=[0, 1], float? eps=None, str mode=\"fast\", DType dtype=f32, RngKey key) )j"
      R"j(-> (Tensor y, Tensor kept)","doc":"Line one,\u000aline two.","aliases":["test_called","test_named"],"args":[)j"
      R"j({"name":"x","type":"Tensor","kind":"Tensor","optional":false},)j"
      R"j({"name":"by","type":"Scalar","kind":"Scalar","optional":false,"default":1.5},)j"
      R"j({"name":"dims","type":"int[]","kind":"int[]","optional":false,"default":[0,1]},)j"
      R"j({"name":"eps","type":"float?","kind":"float","optional":true,"default":null},)j"
      R"j({"name":"mode","type":"str","kind":"str","optional":false,"default":"fast"},)j"
      R"j({"name":"dtype","type":"DType","kind":"DType","optional":false,"default":"f32"},)j"
      R"j({"name":"key","type":"RngKey","kind":"RngKey","optional":false}],"results":[)j"
      R"j({"name":"y","type":"Tensor","kind":"Tensor","optional":false},)j"
      R"j({"name":"kept","type":"Tensor","kind":"Tensor","optional":false}],"shown":1,"internal":false,)j"
      R"j("view":false,"dynamic":false,"composed":false,"inplace":false,"random":true,"gradient":false,)j"
      R"j("autocast":"full","adapt":"none","dtypes":["bf16","f32","f64"],"kernels":["cpu"]})j";
  EXPECT_EQ(describe(described), want);
}

TEST(Describe, WhatDTypesHold) {
  const auto dtypes = nlohmann::json::parse(describe(std::span<const OpBase* const>()))["dtypes"];
  ASSERT_EQ(dtypes.size(), size_t{kNumDTypes});
  for (const auto& t : dtypes) {
    const DType dtype = parse_dtype(t["name"].get<std::string>());
    EXPECT_EQ(t["bits"], 8 * size_of(dtype));
    EXPECT_EQ(t.contains("eps"), is_floating(dtype));
    EXPECT_EQ(t.contains("min"), is_integral(dtype));
  }
  EXPECT_EQ(dtypes[0].dump(), R"({"bits":8,"max":255,"min":0,"name":"u8"})");
  EXPECT_EQ(dtypes[4]["max"], "9223372036854775807");
  EXPECT_EQ(int_limits(DType::i16).min, -32768);
  const FloatLimits f32 = float_limits(DType::f32), f64 = float_limits(DType::f64);
  using F32 = std::numeric_limits<float>;
  using F64 = std::numeric_limits<double>;
  EXPECT_EQ(std::vector<double>({f32.eps, f32.max, f32.smallest_normal}),
            std::vector<double>({F32::epsilon(), F32::max(), F32::min()}));
  EXPECT_EQ(std::vector<double>({f64.eps, f64.max, f64.smallest_normal}),
            std::vector<double>({F64::epsilon(), F64::max(), F64::min()}));
  for (const DType t : {DType::f16, DType::bf16}) {
    // The largest number is one, and what comes after it by its last digit is none.
    const FloatLimits f = float_limits(t);
    const auto rounded = [&](double v) {
      return t == DType::f16 ? static_cast<float>(Half(static_cast<float>(v)))
                             : static_cast<float>(BFloat16(static_cast<float>(v)));
    };
    EXPECT_EQ(rounded(f.max), f.max);
    EXPECT_TRUE(std::isinf(rounded(f.max * (1 + f.eps / 2))));
    EXPECT_EQ(rounded(1 + f.eps), 1 + f.eps);
    EXPECT_NE(rounded(1 + f.eps / 2), 1 + f.eps / 2);
    EXPECT_EQ(rounded(f.smallest_normal * (1 + f.eps)), f.smallest_normal * (1 + f.eps));
  }
  EXPECT_THROW(float_limits(DType::i32), DTypeError);
  EXPECT_THROW(int_limits(DType::boolean), DTypeError);
}

TEST(Describe, EveryRecordIsThere) {
  const auto json = nlohmann::json::parse(describe(OpBase::all()));
  EXPECT_EQ(json["version"], 1);
  const auto& ops = json["ops"];
  const std::vector<const OpBase*> all = OpBase::all();
  ASSERT_EQ(ops.size(), all.size());
  std::set<std::string> names;
  for (size_t i = 0; i < all.size(); ++i) {
    const OpBase& op = *all[i];
    EXPECT_EQ(ops[i]["name"], op.name());
    EXPECT_EQ(ops[i]["args"].size(), op.schema().args.size()) << op.name();
    EXPECT_EQ(ops[i]["results"].size(), op.schema().results.size()) << op.name();
    EXPECT_GE(ops[i]["shown"], 1) << op.name();
    EXPECT_LE(ops[i]["shown"], op.schema().results.size()) << op.name();
    EXPECT_TRUE(names.insert(std::string(op.name())).second) << op.name();
  }
  for (const OpBase* op : all)
    for (const std::string_view alias : op->aliases())
      EXPECT_TRUE(names.insert(std::string(alias)).second) << alias << ", an alias of " << op->name() << ", is taken";
}

TEST(Describe, TypesOfSchemas) {
  for (int k = 0; k < kNumSchemaKinds; ++k) {
    for (const bool optional : {false, true}) {
      const SchemaType type{static_cast<SchemaType::Kind>(k), optional};
      const Schema s = parse_schema(cat("f(", type.text(), " x) -> Tensor"));
      EXPECT_EQ(s.args[0].type, type) << type.text();
      EXPECT_EQ(type.text().ends_with('?'), optional);
    }
  }
  for (const char* type : {"float[]", "Tensors", "tensor", "int[", "bool[]?", "Tensor??"})
    EXPECT_THROW(parse_schema(cat("f(", type, " x) -> Tensor")), ValueError) << type;
}

// The list of the Node binding, and what it lacked.
TEST(Describe, ResultsThatOnlyGradientRulesRead) {
  const std::map<std::string_view, size_t> wanted = {
      {"layer_norm", 1},     {"rms_norm", 1},         {"group_norm", 1},
      {"linear_gelu", 1},    {"gelu_mlp", 1},         {"linear_cross_entropy", 1},
      {"add_rms_norm", 2},   {"packed_attention", 1}, {"scaled_dot_product_attention", 1},
      {"add_layer_norm", 2}, {"varlen_attention", 1}, {"batch_norm_running", 1},
      {"instance_norm", 1},  {"recurrence", 2},       {"slstm_step", 3},
      {"recurrent_step", 2}, {"slstm_recurrence", 3}, {"test_described", 1},
      {"ring_attention", 1}, {"gather_linear", 1}};
  for (const OpBase* op : OpBase::all()) {
    const auto at = wanted.find(op->name());
    EXPECT_EQ(op->shown(), at == wanted.end() ? op->schema().results.size() : at->second) << op->name();
  }
}

TEST(Describe, GradientRulesAreInternal) {
  int internal = 0;
  for (const OpBase* op : OpBase::all()) {
    if (op->name().ends_with("_backward")) {
      EXPECT_TRUE(op->internal()) << op->name();
    }
    internal += op->internal();
  }
  EXPECT_GE(internal, 37);
  EXPECT_FALSE(OpBase::find("softmax")->internal());
}

// The methods that Python's _tensor.py listed.
TEST(Describe, FormsInPlace) {
  const char* const names[] = {"add",
                               "sub",
                               "mul",
                               "pow",
                               "remainder",
                               "fmod",
                               "floor_divide",
                               "abs",
                               "neg",
                               "exp",
                               "exp2",
                               "expm1",
                               "log",
                               "log2",
                               "log10",
                               "log1p",
                               "sqrt",
                               "rsqrt",
                               "square",
                               "reciprocal",
                               "sin",
                               "cos",
                               "tan",
                               "asin",
                               "acos",
                               "atan",
                               "sinh",
                               "cosh",
                               "asinh",
                               "acosh",
                               "atanh",
                               "erf",
                               "erfc",
                               "floor",
                               "ceil",
                               "round",
                               "trunc",
                               "frac",
                               "sign",
                               "sigmoid",
                               "tanh",
                               "relu",
                               "masked_fill",
                               "index_add",
                               "scatter_add",
                               "lerp",
                               "masked_scatter",
                               "addcmul",
                               "addcdiv",
                               "tril",
                               "triu",
                               "nan_to_num",
                               "logical_not",
                               "logical_and",
                               "logical_or",
                               "logical_xor",
                               "bitwise_and",
                               "bitwise_or",
                               "bitwise_xor",
                               "bitwise_not",
                               "eq",
                               "ne",
                               "lt",
                               "le",
                               "gt",
                               "ge",
                               "deg2rad",
                               "rad2deg",
                               "float_power",
                               "mvlgamma",
                               "nextafter",
                               "sgn",
                               "igamma",
                               "igammac",
                               "addbmm",
                               "addmm",
                               "addmv",
                               "addr",
                               "baddbmm",
                               "index_copy",
                               "index_fill",
                               "index_reduce",
                               "cumsum",
                               "cumprod"};
  for (const char* name : names) {
    const OpBase* op = OpBase::find(name);
    ASSERT_NE(op, nullptr) << name;
    EXPECT_TRUE(op->has_inplace()) << name;
  }
}

TEST(Describe, InPlaceByCopying) {
  const Tensor x = from_span<float>(std::vector<float>{1, 5, 3}, {3}),
               y = from_span<float>(std::vector<float>{2, 5, 1}, {3});
  const OpBase& ge = *OpBase::find("ge");
  ASSERT_FALSE(ge.can_inplace());
  const Tensor got = std::get<Tensor>(ge.inplace_boxed(std::vector<Value>{x, y})[0]);
  EXPECT_EQ(got.storage(), x.storage());
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 1}));  // in x's dtype
  // Its gradient is the plain form's, though a rule reads what is written over.
  const Tensor a = full({2, 2}, 3.0), b = full({2, 2}, 2.0).set_requires_grad();
  Tensor leaf = full({2, 2}, 1.0).set_requires_grad(), self = leaf * 2.0;
  OpBase::find("float_power")->inplace_boxed(std::vector<Value>{self, a});
  self.sum().backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>(4, 24)));  // d (2x)^3
  // And where only what stands beside it wants one.
  Tensor base = full({2}, 2.0), exponent = full({2}, 3.0).set_requires_grad();
  OpBase::find("float_power")->inplace_boxed(std::vector<Value>{base, exponent});
  base.sum().backward();
  EXPECT_NEAR(exponent.grad().to_vector<float>()[1], 8 * std::log(2), 1e-5);
  EXPECT_THROW(ge.inplace_boxed(std::vector<Value>{leaf, b}), AutogradError);
  EXPECT_THROW(OpBase::find("softmax")->inplace_boxed(std::vector<Value>{x, int64_t{0}}), ValueError);
}

struct Draw {
  const char* op;
  std::vector<Value> args;  // None for the key
  void (*function)();       // the same by its C++ function
  uint64_t blocks;          // what the Node binding's table said
};
uint64_t moved(const std::function<void()>& f) {
  manual_seed(3);
  f();
  return default_generator().state().offset;
}

TEST(Describe, WhatRandomOpsDraw) {
  const Tensor x = full({2, 9}, 0.5), q = full({1, 2, 3, 4}, 0.1);
  const Value none, cpu = Device::cpu(), f32 = DType::f32, f64 = DType::f64, i64 = DType::i64;
  const Draw draws[] = {
      {"uniform",
       {Dims{3, 7}, 0.0, 1.0, none, f32, cpu},
       [] {
         rand({3, 7});
       },
       6},
      {"uniform",
       {Dims{3, 7}, 0.0, 1.0, none, f64, cpu},
       [] {
         rand({3, 7}, DType::f64);
       },
       11},
      {"uniform", {Dims{0}, 0.0, 1.0, none}, [] { rand({0}); }, 0},
      {"normal", {Dims{9}, 0.0, 1.0, none, f32, cpu}, [] { randn({9}); }, 3},
      {"trunc_normal",
       {Dims{9}, 0.0, 1.0, -1.0, 1.0, none, f32, cpu},
       [] {
         trunc_normal_(empty({Shape{9}, DType::f32, Device::cpu(), std::nullopt}), 0, 1, -1, 1);
       },
       5},
      {"randint", {int64_t{0}, int64_t{5}, Dims{9}, none, i64, cpu}, [] { randint(0, 5, {9}); }, 5},
      {"randperm", {int64_t{9}, none, cpu}, [] { randperm(9); }, 5},
      {"bernoulli",
       {x, none},
       [] {
         bernoulli(full({2, 9}, 0.5));
       },
       5},
      {"multinomial",
       {x, int64_t{3}, true, none},
       [] {
         multinomial(full({2, 9}, 0.5), 3, true);
       },
       6},
      {"multinomial",
       {x, int64_t{3}, false, none},
       [] {
         multinomial(full({2, 9}, 0.5), 3);
       },
       18},
      {"exponential", {Dims{9}, 2.0, none, f32, cpu}, [] { exponential({9}, 2); }, 5},
      {"cauchy", {Dims{9}, 0.0, 1.0, none, f32, cpu}, [] { cauchy({9}); }, 5},
      {"geometric", {Dims{9}, 0.5, none, i64, cpu}, [] { geometric({9}, 0.5, DType::i64); }, 5},
      {"log_normal", {Dims{9}, 0.0, 1.0, none, f32, cpu}, [] { log_normal({9}, 0, 1); }, 3},
      {"log_normal", {Dims{9}, 0.0, 1.0, none, f64, cpu}, [] { log_normal({9}, 0, 1, DType::f64); }, 5},
      {"random_unstructured_mask",
       {x, Scalar(0.5), none},
       [] {
         random_unstructured_mask(full({2, 9}, 0.5), 0.5);
       },
       5},
      {"random_structured_mask",
       {x, Scalar(1), int64_t{1}, none},
       [] {
         random_structured_mask(full({2, 9}, 0.5), 1, 1);
       },
       3},
      {"dropout",
       {x, 0.5, none},
       [] {
         dropout(full({2, 9}, 0.5), 0.5);
       },
       5},
      {"feature_dropout",
       {x, 0.5, none},
       [] {
         feature_dropout(full({2, 9}, 0.5), 0.5);
       },
       5},
      {"alpha_dropout",
       {x, 0.5, none},
       [] {
         alpha_dropout(full({2, 9}, 0.5), 0.5);
       },
       5},
      {"feature_alpha_dropout",
       {x, 0.5, none},
       [] {
         feature_alpha_dropout(full({2, 9}, 0.5), 0.5);
       },
       5},
      {"rrelu",
       {x, 0.1, 0.3, none},
       [] {
         rrelu(full({2, 9}, 0.5), 0.1, 0.3, true);
       },
       5},
      {"gumbel_softmax",
       {x, 1.0, false, int64_t{-1}, none},
       [] {
         gumbel_softmax(full({2, 9}, 0.5));
       },
       5},
      {"standard_gamma",
       {x, none},
       [] {
         standard_gamma(full({2, 9}, 0.5));
       },
       5},
      {"poisson",
       {x, none},
       [] {
         poisson(full({2, 9}, 0.5));
       },
       5},
      {"dirichlet",
       {x, none},
       [] {
         dirichlet(full({2, 9}, 0.5));
       },
       5},
      {"binomial",
       {x, x, none},
       [] {
         binomial(full({2, 9}, 0.5), full({2, 9}, 0.5));
       },
       5},
  };
  std::set<std::string_view> seen{"test_described", "scaled_dot_product_attention"};
  for (const Draw& d : draws) {
    seen.insert(d.op);
    const OpBase& op = *OpBase::find(d.op);
    EXPECT_EQ(moved(d.function), d.blocks) << d.op;
    EXPECT_EQ(moved([&] {
                std::vector<Value> args = d.args;
                draw_missing_keys(op, args);
                op.call_boxed(args);
              }),
              d.blocks)
        << d.op;
  }
  AttentionOptions options;
  options.dropout_p = 0.5;
  EXPECT_EQ(moved([&] { scaled_dot_product_attention(q, q, q, {}, options); }), 5u);  // 2 * 3 * 3 weights
  EXPECT_EQ(moved([&] { scaled_dot_product_attention(q, q, q); }), 0u);
  for (const OpBase* op : OpBase::all()) {
    // A key with a default is drawn by the op itself, where it needs one (gru).
    const bool wanted = std::any_of(op->schema().args.begin(), op->schema().args.end(), [](const SchemaArg& a) {
      return a.type.kind == SchemaType::key && !a.default_value;
    });
    if (wanted && !op->internal()) {
      EXPECT_TRUE(seen.contains(op->name())) << op->name();
    }
  }
}

TEST(Describe, AKeyThatIsThereStays) {
  const OpBase& op = *OpBase::find("dropout");
  std::vector<Value> args{full({8}, 1.0), 0.5, RngKey{7, 9}};
  EXPECT_EQ(moved([&] { draw_missing_keys(op, args); }), 0u);
  EXPECT_EQ(std::get<RngKey>(args[2]), (RngKey{7, 9}));
}

}  // namespace
}  // namespace strata
