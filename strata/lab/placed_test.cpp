#include "strata/lab/placed.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::lab {
namespace {

// Fewer placements than the command tries, so that all records take seconds; under sanitizers, which are some ten times
// slower, fewer still.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMost = 1;
#else
constexpr int kMost = 6;
#endif

TEST(Placed, NoPlacementChangesAnyRecordsResult) {
  int calls = 0, gradients = 0;
  for (const OpBase* op : OpBase::all()) {
    if (op->file().ends_with("_test.cpp")) continue;  // what tests planted
    const PlacedReport r = verify_placed(*op, {.ranks = 4, .most = kMost, .max_failures = 1});
    EXPECT_TRUE(r.ok()) << r.op << " (" << r.rule << "): " << (r.ok() ? "" : r.failures[0]);
    calls += r.calls;
    gradients += r.gradients;
  }
  EXPECT_GT(calls, 1600 * kMost);
  EXPECT_GT(gradients, 800 * kMost);
}

using Unary = Tensor(const Tensor&);
Op<Unary>::Record planted(std::string_view schema, ShardRule rule) {
  return {
      .schema = schema,
      .shard = rule,
      .internal = true,
      .doc = "x minus the mean of its rows.",
      .infer = [](const Tensor& x) { return like(x); },
      .kernels = {.everywhere = [](Tensor& y, const Tensor& x) { y.copy_(x - mean(x, {1}, true)); }},
      .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() - mean(b.gy(), {1}, true)); },
      .samples =
          [](Samples& s) {
            s.add(s.tensor({4, 8}));
          },
  };
}

TEST(Placed, AWrongRuleIsCaught) {
  static const Op<Unary> right(planted("planted_right(Tensor x) -> Tensor", "m n! -> m n!"));
  // Each row's mean would be that of a part of it: shapes agree, numbers do not.
  static const Op<Unary> wrong(planted("planted_wrong(Tensor x) -> Tensor", "m n -> m n"));
  static const Op<Unary> none(planted("planted_none(Tensor x) -> Tensor", {}));
  const PlacedReport good = verify_placed(right), bad = verify_placed(wrong), missing = verify_placed(none);
  EXPECT_TRUE(good.ok()) << good.failures[0];
  EXPECT_GT(good.gradients, 5);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.failures[0].find("of whole arguments"), std::string::npos) << bad.failures[0];
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(table({good, bad}).find("FAILED"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json({good, bad}));
  EXPECT_EQ(json[1]["op"], "planted_wrong");
  EXPECT_FALSE(json[1]["failures"].empty());
  EXPECT_THROW(verify_placed(right, {.ranks = 1}), ValueError);
}

}  // namespace
}  // namespace strata::lab
