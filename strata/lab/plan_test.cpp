#include "strata/lab/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/samples.h"
#include "strata/lab/growth.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;

Tensor zeros_of(const Shape& shape, DType dtype = DType::f32) {
  return Contents{Contents::uniform, 0, 0, {}}.make(shape, dtype);
}

std::vector<Shape> shapes(std::span<const Value> args) {
  std::vector<Shape> r;
  visit(args, [&](const Tensor& t) {
    if (t.defined()) r.push_back(t.shape());
  });
  return r;
}

Args grown(const char* name, Args args, double elements, Growth::Round round = Growth::Round::powers) {
  const OpBase& op = *OpBase::find(name);
  for (size_t i = args.size(); i < op.schema().args.size(); ++i)
    args.push_back(op.schema().args[i].default_value.value_or(Value()));
  const Growth growth(op, std::move(args));
  EXPECT_TRUE(growth.possible()) << name;
  return growth.sized(elements, round);
}

TEST(Growth, SizesThatAProductSharesGrowTogether) {
  const std::vector<Shape> s = shapes(grown("matmul", {zeros_of({3, 5}), zeros_of({5, 3})}, 4096));
  EXPECT_EQ(s[0][1], s[1][0]);
  for (const Shape& one : s) EXPECT_GT(one.product(), 512);
  // The outer sizes, equal by chance, are two groups: each alone is a power of two.
  EXPECT_EQ(s[0][0] & (s[0][0] - 1), 0);
}

TEST(Growth, AKernelStaysInsideItsImage) {
  const std::vector<Shape> s =
      shapes(grown("conv2d", {zeros_of({2, 3, 7, 7}), zeros_of({4, 3, 3, 3}), zeros_of({4})}, 1 << 16));
  EXPECT_EQ(s[1][2], 3);
  EXPECT_EQ(s[1][3], 3);
  EXPECT_EQ(s[0][1], s[1][1]);
  EXPECT_EQ(s[1][0], s[2][0]);
  EXPECT_GT(s[0][2], 16);
}

TEST(Growth, GatesKeepFourTimesTheHiddenSize) {
  const Args cell{zeros_of({2, 3}),  TensorList{zeros_of({2, 5}), zeros_of({2, 5})},
                  zeros_of({20, 3}), zeros_of({20, 5}),
                  zeros_of({20}),    zeros_of({20})};
  const std::vector<Shape> s = shapes(grown("lstm_cell", cell, 1 << 14));
  EXPECT_GT(s[1][1], 5);
  EXPECT_EQ(s[3][0], 4 * s[1][1]);
  EXPECT_EQ(s[4][0], 4 * s[1][1]);
}

TEST(Growth, OddSizesAreOdd) {
  const std::vector<Shape> s = shapes(grown("softmax", {zeros_of({3, 5}), int64_t{-1}}, 4096, Growth::Round::odd));
  EXPECT_EQ(s[0][0] % 2, 1);
  EXPECT_EQ(s[0][1] % 2, 1);
  EXPECT_GT(s[0].product(), 512);
}

TEST(Growth, LargeSamplesShrink) {
  const std::vector<Shape> s = shapes(grown("softmax", {zeros_of({2048, 1024}), int64_t{-1}}, 4096));
  EXPECT_LE(s[0].product(), 4096);
}

TEST(Contents, AreLikeTheSample) {
  Samples s(DType::f32);
  const Contents c = Contents::like(s.uniform({100}, 0.5, 2));
  EXPECT_EQ(c.kind, Contents::uniform);
  EXPECT_GE(c.low, 0.5);
  EXPECT_LE(c.high, 2);
  for (const double v : values(c.make({1000}, DType::f32))) EXPECT_TRUE(v >= c.low && v <= c.high) << v;

  const Contents offsets = Contents::like(from_span<int64_t>(std::vector<int64_t>{0, 2, 2, 6}, {4}));
  EXPECT_EQ(offsets.kind, Contents::ascending);
  const std::vector<double> v = values(offsets.grown(10).make({8}, DType::i64));
  EXPECT_TRUE(std::is_sorted(v.begin(), v.end()));
  EXPECT_EQ(v.front(), 0);
  EXPECT_EQ(v.back(), 60);

  const Contents matrix = Contents::like(from_span<float>(std::vector<float>{2, 1, 1, 2}, {2, 2}));
  EXPECT_EQ(matrix.kind, Contents::positive);
  EXPECT_NO_THROW(OpBase::find("linalg_cholesky")->call_boxed(Args{matrix.make({64, 64}, DType::f64)}));
}

TEST(Contents, PlacesOfMaximaAreInOrderAndNoneTwice) {
  const Contents c{.kind = Contents::spread, .low = 0, .high = 39, .of = {}, .dims = 2};
  const std::vector<double> v = values(c.make({3, 4, 5}, DType::i64));  // 40 places for each list of 20
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_EQ(std::floor(v[i] / 2), static_cast<double>(i % 20)) << i;
  }
  EXPECT_EQ(c.json()["dims"], 2);
}

TEST(Contents, BoundsAreBothThere) {
  const Contents c{.kind = Contents::uniform, .low = 2, .high = 900, .of = {}};
  const std::vector<double> v = values(c.make({7}, DType::i64, true));
  EXPECT_EQ(v.front(), 900);
  EXPECT_EQ(v.back(), 2);
  const Contents both{.kind = Contents::uniform, .low = -4, .high = 2, .of = {}};
  EXPECT_EQ(both.from_the_front().low, 0);
  EXPECT_EQ(both.from_the_front().high, 3);
}

// Small plans: what they hold is the same, and the sizes are asked for on the meta device.
PlanOptions quick() {
  PlanOptions o;
  o.small = 1 << 7;
  o.middle = 1 << 10;
  o.large = 1 << 14;
  return o;
}

// The sanitizers make it slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kEvery = 10;
#else
constexpr size_t kEvery = 1;
#endif

bool infers(const OpBase& op, const Args& args) {
  return std::isfinite(result_bytes(op, args));
}

TEST(Plan, EveryCaseOfEveryRecordInfersAndEveryOptionIsVariedOrNamed) {
  size_t ops = 0, planned = 0, cases = 0, grown_ops = 0;
  for (const OpBase* op : OpBase::all()) {
    if (op->name().starts_with("test_")) continue;  // some here write where they must not
    if (op->internal() || ++ops % kEvery != 0) continue;
    const Plan p = plan(*op, quick());
    ++planned;
    cases += p.cases.size();
    EXPECT_EQ(p.problem.empty(), op->has_samples()) << op->name() << ": " << p.problem;
    if (p.cases.empty()) continue;
    grown_ops += p.cases.front().size != "sample";
    // What needs values tells nothing there: neither of the sample nor of what was made of it.
    const bool dry = infers(*op, p.cases.front().args);
    std::set<std::string> seen;
    for (const Case& c : p.cases) {
      if (dry && c.size != "sample" && c.varied.find('=') == std::string::npos) {
        EXPECT_TRUE(infers(*op, c.args)) << op->name() << " " << c.size << " " << c.varied << ": " << text_of(c.args);
      }
      EXPECT_TRUE(seen.insert(c.size + " " + c.varied).second) << op->name() << " twice " << c.size << " " << c.varied;
    }
    for (size_t i = 0; i < op->schema().args.size(); ++i) {
      const SchemaArg& arg = op->schema().args[i];
      const bool tensor = arg.type.kind == SchemaType::tensor || arg.type.kind == SchemaType::tensors;
      if (tensor && !arg.type.optional && !arg.default_value) continue;
      const auto differs = [&](const Case& c) {
        const Value &a = c.args[i], &b = p.cases.front().args[i];
        return a.index() != b.index() || text_of(a) != text_of(b);
      };
      const bool named = std::any_of(p.not_varied.begin(), p.not_varied.end(),
                                     [&](const auto& one) { return one.first == arg.name && !one.second.empty(); });
      EXPECT_TRUE(named || std::any_of(p.cases.begin(), p.cases.end(), differs))
          << op->name() << " never varies " << arg.name << " and does not say why";
    }
  }
  EXPECT_GT(ops, 450u);
  EXPECT_GT(cases, 12 * planned);
  EXPECT_GT(grown_ops, planned * 95 / 100);
}

TEST(Plan, TheMiddleCasesRun) {
  for (const char* name : {"softmax", "gather", "embedding", "cross_entropy", "linalg_cholesky", "searchsorted"}) {
    const OpBase& op = *OpBase::find(name);
    for (const Case& c : plan(op, quick()).cases)
      EXPECT_NO_THROW(op.call_boxed(made(c))) << name << " " << c.size << " " << c.varied;
  }
}

// An index that a library does not take ends a process's use of a card there: none may be in a plan.
TEST(Plan, IndicesAreInTheirDimensionCountedFromTheFront) {
  for (const char* name : {"index_copy", "index_fill"}) {
    const OpBase& op = *OpBase::find(name);
    for (const Case& c : plan(op, quick()).cases) {
      const Args args = made(c);
      const Tensor& x = std::get<Tensor>(args[0]);
      const int64_t dim = std::get<int64_t>(args[1]), size = x.dim() == 0 ? 1 : x.shape()[(dim + x.dim()) % x.dim()];
      for (const double v : values(std::get<Tensor>(args[2])))
        EXPECT_TRUE(v >= 0 && v < static_cast<double>(size)) << name << " " << c.size << " " << c.varied;
    }
  }
}

TEST(Plan, PlacesOfAnUnpoolingAreInItsPlaneAndNoneTwice) {
  for (const int64_t dims : {1, 2, 3}) {
    const OpBase& op = *OpBase::find("max_unpool" + std::to_string(dims) + "d");
    const Plan p = plan(op, quick());
    EXPECT_GT(p.cases.size(), 8u);
    for (const Case& c : p.cases) {
      const Args args = made(c);
      const std::vector<Value> results = op.call_boxed(args);
      const Shape got = std::get<Tensor>(results[0]).shape(), at = std::get<Tensor>(args[1]).shape();
      int64_t plane = 1, list = 1;
      for (int64_t d = 0; d < dims; ++d) {
        plane *= got[got.size() - 1 - d];
        list *= at[at.size() - 1 - d];
      }
      const std::vector<double> v = values(std::get<Tensor>(args[1]));
      for (size_t i = 0; i < v.size(); ++i) {
        EXPECT_TRUE(v[i] >= 0 && v[i] < static_cast<double>(plane)) << op.name() << " " << c.varied;
        EXPECT_TRUE(i % static_cast<size_t>(list) == 0 || v[i] > v[i - 1]) << op.name() << " " << c.varied;
      }
    }
  }
}

TEST(Plan, HasSizesDtypesLayoutsAndOptions) {
  const Plan p = plan(*OpBase::find("conv2d"), quick());
  const auto has = [&](const std::string& size, const std::string& varied) {
    return std::any_of(p.cases.begin(), p.cases.end(),
                       [&](const Case& c) { return c.size == size && c.varied == varied; });
  };
  for (const char* size : {"small", "middle", "large", "odd"}) EXPECT_TRUE(has(size, "")) << size;
  for (const char* varied : {"dtype=bf16", "transposed", "every_second", "channels_last", "bias=None"})
    EXPECT_TRUE(has("middle", varied)) << varied;
  EXPECT_TRUE(p.cases.front().gradient);
}

TEST(Plan, LinesHaveShapesAndNoLargeData) {
  const OpBase& op = *OpBase::find("embedding");
  const std::string text = to_json_lines(op, plan(op, PlanOptions()));
  EXPECT_LT(text.size(), 100000u);
  std::istringstream lines(text);
  std::string line;
  size_t cases = 0;
  while (std::getline(lines, line)) {
    const auto j = nlohmann::json::parse(line);
    EXPECT_EQ(j["op"], "embedding");
    if (!j.contains("args")) continue;
    ++cases;
    EXPECT_EQ(j["args"].size(), op.schema().args.size());
    const auto& weight = j["args"][1]["tensor"];
    EXPECT_EQ(weight["shape"].size(), 2u);
    EXPECT_TRUE(weight["values"].contains("kind")) << line;
  }
  EXPECT_GT(cases, 10u);
}

TEST(Plan, ReasonsForOptionsThatStay) {
  const Plan p = plan(*OpBase::find("normal"), quick());
  const auto said = [&](const char* option) {
    return std::any_of(p.not_varied.begin(), p.not_varied.end(), [&](const auto& one) { return one.first == option; });
  };
  EXPECT_TRUE(said("key"));
  EXPECT_TRUE(said("device"));
}

}  // namespace
}  // namespace strata::lab
