// Sharded tensors, on ranks that are threads: how they lie, how they come to lie otherwise, and what calls do with
// them.

#include <gtest/gtest.h>

#include <cmath>

#include "strata/autograd/anomaly.h"
#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/hooks.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/op.h"
#include "strata/core/recording.h"
#include "strata/core/sharding.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using Numbers = std::vector<double>;

// 0, 1, 2, ... in a shape.
Tensor counted(const Shape& shape) {
  return arange(shape.product()).to(DType::f64).view(shape);
}
Numbers numbers(const Tensor& t) {
  return t.to_vector<double>();
}
// Text for an expectation: what it says is compared on every rank.
void same(const Tensor& got, const Tensor& want, const std::string& what) {
  if (got.shape() != want.shape() || numbers(got) != numbers(want))
    throw std::runtime_error(what + ": " + got.to_string() + ", wanted " + want.to_string());
}
void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
std::string ranks_error(const Mesh& mesh, const std::function<void()>& body) {
  try {
    run_as_ranks(mesh, [&](int) { body(); });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

TEST(Placements, TextIsReadAndWritten) {
  const std::string text = "R S(0) S(1,unit=64) S(0,segments=8+4+4) S(2,unit=2,segments=4+2) S(0,part) P(sum) P(max)";
  EXPECT_EQ(text_of(parse_placements(text)), text);
  EXPECT_TRUE(parse_placements("").empty());
  for (const char* wrong : {"Q", "S", "S(", "S()", "S(9)", "S(-1)", "S(0", "S(0,)", "S(0,unit=0)", "S(0,segments=)",
                            "P", "P()", "P(median)", "RR", "R,R", "S(99999999999999999999)", "S(0,segments=1+)"})
    EXPECT_THROW(parse_placements(wrong), ValueError) << wrong;
}

TEST(Placements, PartsAreAsEqualAsUnitsAllow) {
  const auto mesh = std::make_shared<const MeshPlace>(MeshPlace{{{"a", 3, 0}}});
  const auto lengths = [&](const std::string& text, int64_t size) {
    const Layout l{mesh, parse_placements(text)};
    Numbers n;
    for (int r = 0; r < 3; ++r) n.push_back(static_cast<double>(l.local_shape({size}, {r})[0]));
    return n;
  };
  EXPECT_EQ(lengths("S(0)", 7), Numbers({3, 2, 2}));
  EXPECT_EQ(lengths("S(0)", 2), Numbers({1, 1, 0}));
  EXPECT_EQ(lengths("S(0,unit=2)", 8), Numbers({4, 2, 2}));
  EXPECT_EQ(lengths("S(0,segments=4+2+1)", 7), Numbers({4, 2, 1}));
  EXPECT_EQ(lengths("R", 7), Numbers({7, 7, 7}));
  // Two axes cut one dimension one after the other.
  const auto two = std::make_shared<const MeshPlace>(MeshPlace{{{"a", 2, 1}, {"b", 2, 0}}});
  const Layout l{two, parse_placements("S(0) S(0)")};
  const std::vector<Stretch> part = l.stretches(0, 7, {1, 0});
  ASSERT_EQ(part.size(), 1u);
  EXPECT_EQ(part[0].begin, 4);
  EXPECT_EQ(part[0].length, 2);
  EXPECT_THROW((Layout{two, parse_placements("S(0) S(0,unit=2)")}.check({8}, "test")), ValueError);
  // What the first has left, one row behind the other: rank 1 of "a" has 3, 4 of the first segment, 7 of the second.
  const Layout rest{two, parse_placements("S(0,segments=5+3) S(0,part)")};
  rest.check({8}, "test");
  const auto text = [&](const std::vector<int>& places) {
    std::string s;
    for (const Stretch& p : rest.stretches(0, 8, places)) s += strata::cat(p.begin, '+', p.length, ' ');
    return s;
  };
  EXPECT_EQ(text({0, 0}), "0+3 ");
  EXPECT_EQ(text({0, 1}), "5+2 ");
  EXPECT_EQ(text({1, 0}), "3+2 ");
  EXPECT_EQ(text({1, 1}), "7+1 ");
  EXPECT_EQ(rest.local_shape({8, 2}, {1, 0}), (Shape{2, 2}));
  EXPECT_THROW((Layout{two, parse_placements("S(0,unit=2) S(0,unit=2,part)")}.check({8}, "test")), ValueError);
  EXPECT_THROW((Layout{two, parse_placements("R S(0,segments=4+4,part)")}.check({8}, "test")), ValueError);
}

TEST(Placements, EveryWayLeadsToEveryOther) {
  const Tensor x = counted({7, 6, 3}), seg = counted({12, 6});
  run_as_ranks(Mesh("a=2 b=2"), [&](int) {
    const std::vector<std::string> one{"R", "S(0)", "S(1)", "S(2)", "P(sum)", "P(avg)", "P(max)", "S(1,unit=3)"};
    std::vector<std::string> ways;
    for (const std::string& a : one)
      for (const std::string& b : one)
        if (!((a == "S(1)" && b == "S(1,unit=3)") || (b == "S(1)" && a == "S(1,unit=3)"))) ways.push_back(a + " " + b);
    for (const std::string& from : ways)
      for (const std::string& to : ways) {
        const Tensor moved = redistribute(distribute(x, from), to);
        is(placements_of(moved) == to, to);
        is(local(moved).shape() == layout_of(moved)->local_shape(x.shape()), "local shape of " + to);
        same(full_tensor(moved), x, from + " to " + to);
      }
  });
  // Of what one axis has left, however it cuts.
  run_as_ranks(Mesh("a=2 b=2"), [&](int) {
    const std::vector<std::string> ways{"R R", "S(0) S(0)", "S(0,segments=6+4+2) S(0,part)", "S(0,unit=3) S(0,part)",
                                        "R S(0,part)", "S(1) S(0,part)", "P(sum) S(0,part)"};
    for (const std::string& from : ways)
      for (const std::string& to : ways) {
        const Tensor moved = redistribute(distribute(seg, from), to);
        is(placements_of(moved) == to, to);
        same(full_tensor(moved), seg, from + " to " + to);
      }
    // Ops take such handles, too.
    const Tensor h = distribute(seg, "S(0,unit=3) S(0,part)");
    same(full_tensor(h * 2.0 + h), seg * 3.0, "elementwise");
    same(full_tensor(reshape(h, {3, 4, 6})), reshape(seg, {3, 4, 6}), "view");
    same(full_tensor(sum(h, {0})), sum(seg, {0}), "sum");
  });
  run_as_ranks(Mesh("a=4"), [&](int) {
    const std::vector<std::string> ways{"R",           "S(0)",       "S(1)", "P(sum)", "S(0,segments=6+3+3)",
                                        "S(0,unit=3)", "S(0,unit=2)"};
    for (const std::string& from : ways)
      for (const std::string& to : ways)
        same(full_tensor(redistribute(distribute(seg, from), to)), seg, from + " to " + to);
  });
}

TEST(Placements, FusedWeightsAreCutSegmentBySegment) {
  const Tensor w = counted({8, 1});
  run_as_ranks(Mesh("tp=2"), [&](int rank) {
    const Tensor part = local(distribute(w, "S(0,segments=4+2+2)"));
    is(numbers(part) == (rank == 0 ? Numbers({0, 1, 4, 6}) : Numbers({2, 3, 5, 7})), part.to_string());
  });
}

TEST(Placements, ProductsNeedNoCommunicationWhereTheRuleSaysSo) {
  const Tensor x = counted({4, 6}), up = counted({8, 6}) * 0.01, down = counted({6, 8}) * 0.01, bias = counted({6});
  const Tensor want = linear(relu(linear(x, up)), down, bias);
  run_as_ranks(Mesh("tp=2"), [&](int) {
    const Tensor xs = distribute(x, "R"), u = distribute(up, "S(0)"), d = distribute(down, "S(1)");
    const Tensor hidden = relu(linear(xs, u));
    is(placements_of(hidden) == "S(1)", placements_of(hidden));
    const Tensor y = linear(hidden, d, bias);
    is(placements_of(y) == "P(sum)", placements_of(y));
    const Tensor all = full_tensor(y);
    is((all - want).abs().max().item() < 1e-9, all.to_string());
  });
}

TEST(Placements, GradientsOfLeavesLieAsTheLeavesDo) {
  const Tensor x = counted({6, 4}) * 0.1, w = counted({5, 4}) * 0.1;
  Tensor wl = w.detach().set_requires_grad();
  sum(square(linear(x, wl))).backward();
  const Tensor want = wl.grad();
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    for (const char* way : {"R R", "R S(0)", "S(0) R", "S(1) S(0)", "R P(sum)"}) {
      Tensor ws = distribute(w, way).detach().set_requires_grad();
      for (int pass = 1; pass <= 2; ++pass) {
        const Tensor loss = sum(square(linear(distribute(x, "S(0) R"), ws)));
        is(std::isfinite(loss.item()), "a loss is read like any number");
        loss.backward();
        const std::string lies = placements_of(ws.grad()), wanted = std::string(way) == "R P(sum)" ? "R R" : way;
        is(lies == wanted, cat(way, ": the gradient lies as ", lies));
        is((full_tensor(ws.grad()) - want * pass).abs().max().item() < 1e-9, way);
      }
    }
    // A plain leaf, which every rank has, gets the whole gradient.
    Tensor plain = w.detach().set_requires_grad();
    sum(square(linear(distribute(x, "S(0) S(0)"), plain))).backward();
    is(!is_placed(plain.grad()), "a plain leaf's gradient is plain");
    is((plain.grad() - want).abs().max().item() < 1e-9, "plain");
  });
}

// What nobody else sees becomes the gradient, without a copy, as with plain tensors.
TEST(Placements, GradientsOfLeavesAreTakenOver) {
  run_as_ranks(Mesh("tp=2"), [&](int) {
    const Tensor w = distribute(counted({6, 4}), "S(0)").detach().set_requires_grad();
    const Tensor x = distribute(counted({3, 4}), "R");
    const Tensor y = linear(x, w);
    const Recording seen = record([&] { y.backward(ones_like(y)); });
    is(w.grad().defined() && placements_of(w.grad()) == "S(0)", "there is a gradient");
    for (const RecordedCall& c : seen.calls)
      is(c.op->name() != "clone" && c.op->name() != "contiguous", cat("the gradient went through ", c.op->name()));
  });
}

TEST(Placements, RedistributingIsDifferentiable) {
  const Tensor x = counted({5, 4});
  run_as_ranks(Mesh("a=2"), [&](int) {
    for (const char* to : {"R", "S(0)", "S(1)", "P(sum)"}) {
      Tensor leaf = x.detach().set_requires_grad();
      sum(square(full_tensor(redistribute(distribute(leaf, "S(0)"), to)))).backward();
      same(leaf.grad(), x * 2, to);
    }
  });
}

TEST(Placements, CheckpointsAndHooksSeeTheHandle) {
  const Tensor x = counted({4, 4}) * 0.125;
  run_as_ranks(Mesh("a=2"), [&](int) {
    const auto f = [](const Tensor& in) { return tanh(matmul(in, in)); };
    Tensor plain = distribute(x, "S(0)").detach().set_requires_grad(),
           again = distribute(x, "S(0)").detach().set_requires_grad();
    sum(f(plain)).backward();
    sum(checkpoint(f, again)).backward();
    same(full_tensor(again.grad()), full_tensor(plain.grad()), "checkpoint");
    std::string seen;
    Tensor hooked = distribute(x, "S(1)").detach().set_requires_grad();
    const Tensor y = hooked * 2.0;
    register_hook(y, [&](const Tensor& g) {
      seen = cat(g.shape(), is_placed(g) ? " placed" : " plain");
      return g * 3.0;
    });
    sum(square(y)).backward();
    is(seen == "[4, 4] placed", seen);
    same(full_tensor(hooked.grad()), x * 24, "the hook's gradient");
  });
}

TEST(Placements, WritesInPlaceReachTheParts) {
  const Tensor x = counted({6, 2});
  run_as_ranks(Mesh("a=2"), [&](int) {
    for (const char* way : {"R", "S(0)", "S(1)", "P(sum)"}) {
      Tensor y = distribute(x, way);
      const Tensor rows = y.narrow(0, 0, 6);
      const uint32_t version = y.version();
      y.add_(distribute(x, "S(0)")).mul_(2.0);
      is(y.version() > version, "a write counts");
      is(placements_of(y) == way, placements_of(y));
      same(full_tensor(y), x * 4, way);
      if (std::string(way) == "S(1)") same(full_tensor(rows), x * 4, "a view shows what was written");
    }
    Tensor y = distribute(x, "S(1)");
    y.narrow(0, 2, 2).zero_();
    Tensor want = x.clone();
    want.narrow(0, 2, 2).zero_();
    same(full_tensor(y), want, "a write through a view");
    // What was saved for backward and overwritten since is an error here too.
    Tensor leaf = distribute(x, "S(0)").detach().set_requires_grad();
    Tensor a = leaf + leaf;
    const Tensor s = sum(a * a);
    a.add_(1.0);
    bool threw = false;
    try {
      s.backward();
    } catch (const AutogradError&) {
      threw = true;
    }
    is(threw, "an overwritten saved tensor is an error");
  });
}

TEST(Placements, RandomNumbersBelongToGlobalElements) {
  const Tensor x = ones({8, 6}, DType::f64);
  const RngKey key{7, 3};
  const Tensor want = dropout(x, 0.5, key);
  run_as_ranks(Mesh("a=2 b=2"), [&](int) {
    for (const char* way : {"R R", "S(0) R", "S(0) S(0)", "S(1) S(0)", "R S(1)", "P(sum) S(0)"})
      same(full_tensor(dropout(distribute(x, way), 0.5, key)), want, way);
  });
}

TEST(Placements, AVocabularyIsLookedUpWhereItLies) {
  const Tensor table = counted({7, 3});
  const Tensor ids = from_span<int64_t>(std::vector<int64_t>{6, 0, 3, 3, 1, 5}, {2, 3});
  Tensor leaf = table.detach().set_requires_grad();
  sum(square(embedding(ids, leaf, 3))).backward();
  const Tensor want = embedding(ids, table);
  run_as_ranks(Mesh("tp=3"), [&](int) {
    Tensor w = distribute(table, "S(0)").detach().set_requires_grad();
    const Tensor y = embedding(ids, w, 3);
    is(placements_of(y) == "P(sum)", placements_of(y));
    same(full_tensor(y), want, "rows");
    sum(square(y)).backward();
    is(placements_of(w.grad()) == "S(0)", placements_of(w.grad()));
    same(full_tensor(w.grad()), leaf.grad(), "gradient");
  });
  EXPECT_NE(ranks_error(Mesh("tp=2"), [&] { embedding(ids + 1, distribute(table, "S(0)")); }).find("out of range"),
            std::string::npos);
}

TEST(Placements, ViewsOfHeadsCutWholeHeads) {
  const Tensor x = counted({2, 3, 12});
  run_as_ranks(Mesh("tp=2"), [&](int) {
    const Tensor y = distribute(x, "S(2,unit=3)").view({2, 3, 4, 3});
    is(placements_of(y) == "S(2)", placements_of(y));
    const Tensor back = y.view({2, 3, 12});
    is(placements_of(back) == "S(2,unit=3)", placements_of(back));
    same(full_tensor(back), x, "heads");
    same(full_tensor(distribute(x, "S(2)").view({6, 4, 3})), x.view({6, 4, 3}), "plain cut that falls on heads");
    same(full_tensor(distribute(x, "S(0)").transpose(0, 1).reshape({6, 12})), x.transpose(0, 1).reshape({6, 12}),
         "copied");
  });
}

// A decoder of one layer, in plain ops that know nothing of ranks.
struct Decoder {
  static constexpr int64_t kVocabulary = 21, kWidth = 16, kHeads = 4, kTime = 6;
  std::vector<std::pair<std::string, Tensor>> weights;  // and how each lies on "dp=2 tp=2"

  Decoder() : numbers_(7) {
    const auto add = [&](const char* lies, const Shape& shape) {
      weights.emplace_back(lies, normal(shape, 0, 0.2, DType::f64, numbers_));
    };
    add("R S(0)", {kVocabulary, kWidth});                          // embedding
    add("R S(0,segments=16+16+16,unit=4)", {3 * kWidth, kWidth});  // fused q, k, v by heads
    add("R S(1)", {kWidth, kWidth});                               // attention's projection
    add("R S(0)", {4 * kWidth, kWidth});                           // feed-forward, up
    add("R S(1)", {kWidth, 4 * kWidth});                           // and down
    add("R R", {kWidth});                                          // norm
    add("R S(0)", {kVocabulary, kWidth});                          // head
  }
  Tensor loss(const Tensor& ids, const Tensor& targets, int64_t batch) const {
    const auto w = [&](size_t i) { return weights[i].second; };
    Tensor x = embedding(ids, w(0));
    const Tensor qkv = linear(rms_norm(x, {kWidth}, w(5)), w(1));
    TensorList each;
    for (const Tensor& part : split(qkv, kWidth, 2))
      each.push_back(part.view({batch, kTime, kHeads, kWidth / kHeads}).transpose(1, 2));
    const Tensor seen = scaled_dot_product_attention(each[0], each[1], each[2], {}, {.is_causal = true});
    x = x + linear(seen.transpose(1, 2).reshape({batch, kTime, kWidth}), w(2));
    x = x + linear(gelu(linear(rms_norm(x, {kWidth}, w(5)), w(3))), w(4));
    const Tensor logits = linear(x, w(6));
    return cross_entropy(logits.reshape({batch * kTime, kVocabulary}), targets.reshape({batch * kTime}));
  }
  // 40 steps of gradient descent; `place` says where a batch lies.
  Numbers train(const std::function<Tensor(const Tensor&)>& place) {
    Numbers losses;
    for (auto& [lies, w] : weights) w.set_requires_grad();
    for (int step = 0; step < 40; ++step) {
      const int64_t batch = 4;
      const Tensor ids = randint(0, kVocabulary, {batch, kTime}, DType::i64, numbers_);
      const Tensor value = loss(place(ids), place((ids * 5 + 1) % kVocabulary), batch);
      losses.push_back(value.item());
      value.backward();
      const NoGrad guard;
      for (auto& [lies, w] : weights) {
        w.sub_(w.grad() * 0.5);
        w.set_grad({});
      }
    }
    return losses;
  }

 private:
  Generator numbers_;
};

TEST(Placements, ADecoderTrainsInParallelFromPlacementsAlone) {
  const Numbers want = Decoder().train([](const Tensor& t) { return t; });
  EXPECT_LT(want.back(), want.front() - 0.5);
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    Decoder d;
    for (auto& [lies, w] : d.weights) w = distribute(w, lies);
    const Numbers got = d.train([](const Tensor& t) { return distribute(t, "S(0) R"); });
    for (size_t i = 0; i < want.size(); ++i)
      is(std::abs(got[i] - want[i]) < 1e-9, cat("step ", i, ": ", got[i], ", ", want[i]));
    is(local(d.weights[3].second).shape() == Shape({2 * Decoder::kWidth, Decoder::kWidth}), "weights stay cut");
  });
}

TEST(Placements, AutocastAndAnomaliesKnowHandles) {
  const Tensor x = (counted({4, 16}) * 0.01).to(DType::f32), w = (counted({8, 16}) * 0.01).to(DType::f32);
  const auto gradient = [](const Tensor& in, const Tensor& weight) {
    Tensor leaf = weight.detach().set_requires_grad();
    const AutocastScope low;
    sum(square(linear(in, leaf).to(DType::f32))).backward();
    return leaf.grad();
  };
  const Tensor want = gradient(x, w);
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    const Tensor got = gradient(distribute(x, "S(0) R"), distribute(w, "R S(0)"));
    is(got.dtype() == want.dtype(), "dtype");
    is((full_tensor(got) - want).abs().max().item() <= 0.02 * want.abs().max().item(), "bf16");
  });
  const std::string text = ranks_error(Mesh("a=2"), [&] {
    const AnomalyScope watch;
    log(distribute(x - 1.0, "S(0)"));
  });
  EXPECT_NE(text.find("holds a NaN"), std::string::npos) << text;
}

TEST(Placements, WhatEveryRankMustDoItselfIsRefused) {
  const Mesh mesh("a=2");
  const auto error = [&](const std::function<void()>& f) { return ranks_error(mesh, f); };
  const Tensor x = counted({4, 2});
  EXPECT_NE(error([&] { all_reduce(distribute(x, "S(0)"), "sum", "a"); }).find("each rank's own tensor"),
            std::string::npos);
  EXPECT_NE(error([&] { distribute(x, "S(0)").data<double>(); }).find("local_part() gives this rank's"),
            std::string::npos);
  EXPECT_NE(error([&] { distribute(x, "S(0) R"); }).find("there are 1 axes"), std::string::npos);
  EXPECT_NE(error([&] { distribute(x, "S(2)"); }).find("no dimension 2"), std::string::npos);
  EXPECT_NE(error([&] { distribute(x, "S(0)", "sideways"); }).find("sideways"), std::string::npos);
  EXPECT_NE(error([&] { from_local(counted({3, 2}), "S(0)", {4, 2}); }).find("wanted [2, 2]"), std::string::npos);
  EXPECT_NE(error([&] { distribute(distribute(x, "S(0)"), "R"); }).find("sharded already"), std::string::npos);
  EXPECT_NE(ranks_error(Mesh("a=2 b=2"), [&] { distribute(x, "S(0)", "a") + distribute(x, "S(0)", "b"); })
                .find("different axes"),
            std::string::npos);
  // Errors of shapes speak of the whole.
  EXPECT_NE(error([&] {
              distribute(x, "S(0)") + distribute(counted({3, 2}), "S(0)");
            }).find("[4, 2]"),
            std::string::npos);
}

TEST(Placements, OneRankHasPlainTensors) {
  const Tensor x = counted({4, 2});
  EXPECT_FALSE(is_placed(distribute(x, "S(0)")));
  EXPECT_EQ(placements_of(distribute(x, "S(1)")), "");
  EXPECT_TRUE(full_tensor(x).same_as(x));
  EXPECT_THROW(layout_of(x), ValueError);
}

TEST(Placements, PartsBecomeOneTensor) {
  run_as_ranks(Mesh("a=3"), [&](int rank) {
    const Tensor part = full({rank == 0 ? 2 : 1, 2}, static_cast<double>(rank), DType::f64);
    const Tensor whole = from_local(part, "S(0)", {4, 2});
    is(whole.shape() == Shape({4, 2}), "shape");
    is(numbers(sum(whole, {1})) == Numbers({0, 0, 2, 4}), "sums of rows");
    is(local(whole).storage() == part.storage(), "the memory is shared");
  });
}

TEST(Placements, OneRanksErrorEndsAll) {
  const std::string text = ranks_error(Mesh("a=3"), [] {
    if (rank() == 1) throw ValueError("test", "rank 1 gives up");
    all_reduce(ones({2}), "sum", "a");
  });
  EXPECT_NE(text.find("rank 1 gives up"), std::string::npos) << text;
}

// ---- rules ----

TEST(ShardRules, EveryRecordHasOneThatCanBeRead) {
  for (const OpBase* op : OpBase::all()) {
    if (op->name().starts_with("rows_")) continue;  // the next test's
    const ShardRule& rule = strata::detail::rule_of(*op);
    EXPECT_FALSE(rule.empty()) << op->name() << ": .shard = \"whole\" is the least that a record says";
    if (rule.function || rule.empty()) continue;
    size_t tensors = 0;
    for (const SchemaArg& a : op->schema().args)
      tensors += a.type.kind == SchemaType::tensor || a.type.kind == SchemaType::tensors;
    std::optional<std::pair<size_t, size_t>> patterns;
    EXPECT_NO_THROW(patterns = strata::detail::patterns_of(rule)) << op->name();
    if (patterns) {
      EXPECT_EQ(patterns->first, tensors) << op->name() << ": " << rule.text;
      EXPECT_EQ(patterns->second, op->schema().results.size()) << op->name() << ": " << rule.text;
    } else {
      EXPECT_TRUE(strata::detail::is_shared_rule(rule.text)) << op->name() << ": " << rule.text;
    }
  }
}

TEST(ShardRules, TextThatIsNoneIsRefused) {
  EXPECT_FALSE(strata::detail::is_shared_rule("m k, n k"));
  for (const char* wrong : {"m K -> m", "m kk -> m", "... ... -> ...", "m -> m | m, n -> m", "m? -> m"})
    EXPECT_THROW(strata::detail::patterns_of(ShardRule(wrong)), ValueError) << wrong;
}

// An op of a user's with a rule by text, one by a function, one that is wrong, and none.
using Unary = Tensor(const Tensor&);
Op<Unary>::Record row_sums(std::string_view schema, ShardRule rule) {
  return {
      .schema = schema,
      .shard = rule,
      .internal = true,
      .doc = "Sums of rows.",
      .infer = [](const Tensor& x) { return like(x).with_shape({x.size(0)}); },
      .kernels = {.everywhere = [](Tensor& y, const Tensor& x) { y.copy_(sum(x, {1})); }},
  };
}

TEST(ShardRules, OwnOpsBringTheirs) {
  static const Op<Unary> by_text(row_sums("rows_by_text(Tensor x) -> Tensor", "m n -> m"));
  static const Op<Unary> by_function(row_sums("rows_by_function(Tensor x) -> Tensor", [](Sharding& s) {
    auto p = s.whole();
    p.args[0] = p.results[0] = Placement::sharded(0);
    s.add(std::move(p));
  }));
  static const Op<Unary> wrong(row_sums("rows_wrong(Tensor x) -> Tensor", "m n -> n"));
  static const Op<Unary> none(row_sums("rows_none(Tensor x) -> Tensor", {}));
  static const Op<Unary> unknown(row_sums("rows_unknown(Tensor x) -> Tensor", "sideways"));
  const Tensor x = counted({4, 6});
  const Tensor want = sum(x, {1});
  run_as_ranks(Mesh("a=2"), [&](int) {
    for (const char* way : {"R", "S(0)", "S(1)", "P(sum)"}) {
      same(full_tensor(by_text(distribute(x, way))), want, way);
      same(full_tensor(by_function(distribute(x, way))), want, way);
    }
    is(placements_of(by_text(distribute(x, "S(1)"))) == "P(sum)", "a letter that vanishes");
    is(placements_of(by_text(distribute(x, "S(0)"))) == "S(0)", "a letter that stays");
    is(placements_of(by_function(distribute(x, "S(1)"))) == "R" ||
           placements_of(by_function(distribute(x, "S(1)"))) == "S(0)",
       "what a function does not offer is moved");
  });
  const Mesh mesh("a=2");
  EXPECT_NE(ranks_error(mesh, [&] { wrong(distribute(x, "S(0)")); }).find("shard rule is wrong"), std::string::npos);
  EXPECT_NE(ranks_error(mesh, [&] { none(distribute(x, "S(0)")); }).find("has no shard rule"), std::string::npos);
  EXPECT_NE(ranks_error(mesh, [&] { unknown(distribute(x, "S(0)")); }).find("no shard rule 'sideways'"),
            std::string::npos);
  EXPECT_TRUE(strata::detail::rule_of(none).empty());
}

}  // namespace
}  // namespace strata::distributed
