// The plans of calls with sharded arguments: what tells calls apart, when one is found, how many are kept.

#include "strata/core/placed_plans_inl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "strata/core/op.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using strata::detail::PlacedPlan;
using strata::detail::PlacedPlans;
using Words = std::vector<uint64_t>;

void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
// How many plans `call` found, and how many it made and kept.
struct Counts {
  uint64_t found;
  int64_t made;
};
template <class F>
Counts counts(F&& call) {
  PlacedPlans& plans = PlacedPlans::mine();
  const uint64_t found = plans.found();
  const auto kept = static_cast<int64_t>(plans.size());
  call();
  return {plans.found() - found, static_cast<int64_t>(plans.size()) - kept};
}

TEST(PlacedPlans, WordsOfDifferentValuesDiffer) {
  const std::vector<Value> values{
      {},
      int64_t{0},
      int64_t{1},
      int64_t{-1},
      0.0,
      -0.0,
      1.0,
      std::numeric_limits<double>::quiet_NaN(),
      false,
      true,
      Scalar(0),
      Scalar(1),
      Scalar(1.0),
      Scalar(true),
      std::string(),
      std::string("mean"),
      std::string("meam"),
      std::string("mean\0", 5),
      std::string("a text of more than one word"),
      Dims{},
      Dims{0},
      Dims{1, 2},
      Dims{2, 1},
      DType::f32,
      DType::bf16,
      Device::cpu(),
      Device::cuda(0),
      Device::cuda(1),
  };
  std::set<Words> all;
  for (const Value& v : values) {
    Words words;
    strata::detail::append_words(words, v);
    EXPECT_TRUE(all.insert(words).second) << "value " << all.size();
  }
  // Only that there is one tells of a key: numbers change with every call, plans do not.
  Words one, other;
  strata::detail::append_words(one, Value(RngKey{1, 2}));
  strata::detail::append_words(other, Value(RngKey{3, 4}));
  EXPECT_EQ(one, other);
}

TEST(PlacedPlans, WordsOfTensorsThatLieOtherwiseDiffer) {
  run_as_ranks(Mesh("a=2 b=2"), [](int rank) {
    const Tensor x = ones({8, 4}), wide = ones({8, 8}).narrow(1, 0, 4);
    std::vector<Tensor> all{
        Tensor(), x, x.to(DType::f64), wide, ones({4, 8}), ones({32}), x.transpose(0, 1).contiguous().transpose(0, 1)};
    for (const char* text :
         {"R R", "R S(0)", "S(0) R", "S(0) S(0)", "S(0) S(1)", "S(1) S(0)", "S(0,unit=2) R", "S(0,unit=4) R",
          "S(0,segments=4+4) R", "S(0,segments=6+2) R", "P(sum) R", "P(avg) R", "R P(sum)", "P(max) S(0)"})
      all.push_back(distribute(x, text));
    all.push_back(distribute(x, "S(0)", "a"));
    all.push_back(distribute(x, "S(0)", "b"));
    all.push_back(distribute(x, "S(0)", "world"));
    std::set<Words> seen;
    for (const Tensor& t : all) {
      Words words;
      const MeshPlace* mesh = nullptr;
      strata::detail::append_words(words, t, mesh);
      is(seen.insert(words).second, cat("rank ", rank, ": tensor ", seen.size(), " has the words of another"));
    }
    // Two tensors of one layout that was made twice are alike.
    Words one, other;
    const MeshPlace* mesh = nullptr;
    const Tensor s = distribute(x, "S(0) R"), t = distribute(x, "S(0) R");
    strata::detail::append_words(one, s, mesh);
    is(mesh == layout_of(s)->mesh.get(), "the mesh is the first one's");
    strata::detail::append_words(other, s, mesh);
    Words third;
    strata::detail::append_words(third, t, mesh);
    is(other == third && other != one, "a mesh is written once");
  });
}

TEST(PlacedPlans, CallsAlikeShareOneAndOthersDoNot) {
  run_as_ranks(Mesh("a=2"), [](int) {
    const NoGrad guard;
    const Tensor x = distribute(ones({4, 6}), "S(0)"), y = distribute(full({4, 6}, 2.0), "S(0)");
    const auto expect = [](const char* what, Counts c, uint64_t found, int64_t made) {
      is(c.found == found && c.made == made, cat(what, ": ", c.found, " found, ", c.made, " made"));
    };
    expect("the first", counts([&] { add(x, y); }), 0, 1);
    expect("the same tensors", counts([&] { add(x, y); }), 1, 0);
    expect("others that lie alike", counts([&] { add(y, distribute(ones({4, 6}), "S(0)")); }), 1, 0);
    expect("another op", counts([&] { mul(x, y); }), 0, 1);
    expect("other placements", counts([&] { add(x, distribute(ones({4, 6}), "S(1)")); }), 0, 1);
    expect("the other way round", counts([&] { add(distribute(ones({4, 6}), "S(1)"), x); }), 0, 1);
    expect("another shape", counts([&] {
             add(distribute(ones({6, 4}), "S(0)"), distribute(ones({6, 4}), "S(0)"));
           }),
           0, 1);
    expect("another dtype", counts([&] { add(x.to(DType::f64), y.to(DType::f64)); }), 1, 2);  // of the casts one
    expect("a view", counts([&] { x.view({4, 2, 3}); }), 0, 1);
    expect("a view again", counts([&] { y.view({4, 2, 3}); }), 1, 0);
    expect("another view", counts([&] { x.view({4, 3, 2}); }), 0, 1);
    expect("a sum", counts([&] { sum(x, {1}); }), 0, 1);
    expect("over another dimension", counts([&] { sum(x, {0}); }), 0, 1);
  });
}

TEST(PlacedPlans, AViewOfAKeptPlanIsOneOfItsHandle) {
  run_as_ranks(Mesh("a=2"), [](int) {
    Tensor x = distribute(zeros({4, 6}), "S(0)");
    for (int turn = 0; turn < 3; ++turn) {
      Tensor rows = x.view({4, 2, 3});
      rows.add_(1.0);
      is(rows.storage() == x.storage(), "shares the handle's storage");
      is(full_tensor(x).to_vector<float>() == std::vector<float>(24, static_cast<float>(turn + 1)), "writes through");
    }
    // With gradients, behind plans that were made without.
    Tensor w = distribute(ones({4, 6}), "S(0)");
    w.set_requires_grad();
    for (int turn = 0; turn < 2; ++turn) {
      w.set_grad({});
      sum(w.view({4, 2, 3}) * 3.0).backward();
      is(full_tensor(w.grad()).to_vector<float>() == std::vector<float>(24, 3), "has its gradient");
    }
  });
}

TEST(PlacedPlans, RandomNumbersAreEachCallsOwn) {
  run_as_ranks(Mesh("a=2"), [](int) {
    const NoGrad guard;
    const Tensor x = distribute(ones({64, 64}), "S(0)");
    const Tensor whole = ones({64, 64});
    std::vector<float> before;
    for (uint64_t offset = 0; offset < 4; ++offset) {
      const RngKey key{3, 4096 * offset};
      const std::vector<float> got = full_tensor(dropout(x, 0.5, key)).to_vector<float>();
      is(got == dropout(whole, 0.5, key).to_vector<float>(), "those of the whole");
      is(got != before, "other numbers in each call");
      before = got;
    }
  });
}

TEST(PlacedPlans, WhatARuleRefusesIsRefusedEachTime) {
  run_as_ranks(Mesh("a=2"), [](int) {
    const Tensor x = distribute(ones({4, 6}), "S(0)");
    for (int turn = 0; turn < 2; ++turn) {
      try {
        linear(x, distribute(ones({3, 5}), "R"));
        is(false, "a product of sizes that differ was taken");
      } catch (const ShapeError&) {
      }
    }
  });
}

TEST(PlacedPlans, OnlySoManyAreKept) {
  PlacedPlans plans;
  const auto plan = std::make_shared<const PlacedPlan>();
  constexpr uint64_t kAll = 5 * PlacedPlans::kMost;
  for (uint64_t i = 0; i < kAll; ++i) {
    plans.keep({i, 7}, plan);
    ASSERT_LE(plans.size(), 2 * PlacedPlans::kMost);
    ASSERT_EQ(plans.find(Words{0, 7}), plan) << "what is used all the time is kept, plan " << i;
  }
  EXPECT_EQ(plans.find(Words{kAll - 1, 7}), plan);
  EXPECT_EQ(plans.find(Words{1, 7}), nullptr);
  EXPECT_EQ(plans.find(Words{kAll - 1, 8}), nullptr);
  EXPECT_EQ(plan.use_count(), static_cast<long>(plans.size()) + 1);
  plans.clear();
  EXPECT_EQ(plan.use_count(), 1);
}

}  // namespace
}  // namespace strata::distributed
