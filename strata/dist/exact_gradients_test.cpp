// Gradients of micro-batches, added in the same tree by any number of ranks: against loops, and against each other bit
// for bit.

#include "strata/dist/exact_gradients.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/local_transport_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/dist/sum_tree_inl.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

TEST(SumTree, IsTheSameWhoeverHoldsThePlaces) {
  for (int64_t count = 1; count <= 24; ++count) {
    const SumTree tree(count);
    // The sum of numbers as text: "((01)2)".
    const auto text = [](const std::vector<std::string>& of, const std::vector<int64_t>& times) {
      std::vector<std::string> held;
      for (size_t i = 0; i < of.size(); ++i) {
        held.push_back(of[i]);
        for (int64_t n = times[i]; n > 0; --n) {
          const std::string newest = held.back();
          held.pop_back();
          held.back() = "(" + held.back() + newest + ")";
        }
      }
      EXPECT_EQ(held.size(), 1U);
      return held[0];
    };
    const auto places = [](Places p) {
      std::vector<std::string> all;
      for (int64_t i = 0; i < p.count; ++i) all.push_back(cat(" ", p.begin + i));
      return all;
    };
    const std::string want = text(places({0, count}), tree.additions({0, count}));
    for (int64_t ranks = 1; ranks <= count; ++ranks) {
      if (count % ranks != 0) continue;
      std::vector<Places> all;
      std::vector<std::string> sums;
      for (int64_t r = 0; r < ranks; ++r) {
        const Places own{r * count / ranks, count / ranks};
        int64_t seen = own.begin;
        for (const Places& node : tree.nodes_within(own)) {
          EXPECT_EQ(node.begin, seen);
          seen += node.count;
          all.push_back(node);
          sums.push_back(text(places(node), tree.additions(node)));
        }
        EXPECT_EQ(seen, own.begin + own.count);
        // Of powers of two each rank has one node, and adds with as many sums as it has levels.
        if (std::has_single_bit(static_cast<uint64_t>(count))) {
          EXPECT_EQ(tree.nodes_within(own).size(), 1U);
          EXPECT_EQ(tree.most_held(own), std::max<int64_t>(std::countr_zero(static_cast<uint64_t>(own.count)), 1));
        }
      }
      EXPECT_EQ(text(sums, tree.additions({0, count}, all)), want) << count << " places of " << ranks;
    }
  }
  EXPECT_THROW(SumTree(0), ValueError);
  EXPECT_THROW(SumTree(4).additions({0, 4}, {{0, 2}, {2, 1}}), ValueError);
}

// In one pass over memory, as pair by pair.
TEST(SumTree, IsAddedInOnePass) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const int64_t count : {1, 2, 5, 7, 8}) {
      constexpr int64_t kElements = 40'000;  // of several threads, and no whole number of stretches
      Generator g(static_cast<uint64_t>(count));
      TensorList parts, wide;
      std::vector<const void*> at;
      for (int64_t i = 0; i < count; ++i) {
        parts.push_back(randn({kElements}, DType::f32, g).to(dtype));
        wide.push_back(dtype == DType::bf16 ? parts.back().to(DType::f32) : parts.back().clone());
        at.push_back(parts.back().raw_data());
      }
      const std::vector<int64_t> additions = SumTree(count).additions({0, count});
      size_t held = 0;
      for (size_t p = 0; p < wide.size(); ++p) {
        wide[held++] = wide[p];
        for (int64_t left = additions[p]; left > 0; --left) {
          --held;
          wide[held - 1] = wide[held - 1] + wide[held];
        }
      }
      const Tensor want = wide[0].to(dtype), into = empty({{kElements}, dtype, Device::cpu(), std::nullopt});
      add_in_tree(dtype, at, additions, into.raw_data(), kElements);
      EXPECT_EQ(into.to(DType::f64).to_vector<double>(), want.to(DType::f64).to_vector<double>()) << name_of(dtype) << count;
      add_in_tree(dtype, at, additions, parts[0].raw_data(), kElements);  // over the first part
      EXPECT_EQ(parts[0].to(DType::f64).to_vector<double>(), want.to(DType::f64).to_vector<double>()) << name_of(dtype);
    }
  }
  float x[2] = {1, 2};
  const void* const two[2] = {x, x + 1};
  const auto add = [&](std::vector<int64_t> additions, DType dtype = DType::f32) {
    add_in_tree(dtype, two, additions, x, 1);
  };
  EXPECT_THROW(add({0}), ValueError);
  EXPECT_THROW(add({0, 0}), ValueError);
  EXPECT_THROW(add({1, 0}), ValueError);
  EXPECT_THROW(add({0, 2}), ValueError);
  EXPECT_THROW(add({0, -1}), ValueError);
  EXPECT_THROW(add({0, 1}, DType::i32), DTypeError);
  add({0, 1});
  EXPECT_EQ(x[0], 3);
}

using Bits = std::map<std::string, std::vector<double>>;

// Parameters of several dtypes; what is "shy" gets a gradient from some micro-batches, "idle" from none, and "frozen"
// wants none.
struct Net {
  explicit Net(uint64_t seed, bool cut = false) {
    Generator g(seed);
    const auto make = [&](const char* name, const Shape& shape, DType dtype, bool trained = true) {
      Tensor t = randn(shape, DType::f32, g).to(dtype);
      t.set_requires_grad(trained);
      all.emplace_back(name, t);
      return t;
    };
    a = make("a", {6, 13}, DType::f32), b = make("b", {13, 5}, DType::f32), low = make("low", {5}, DType::bf16);
    wide = make("wide", {3}, DType::f64), shy = make("shy", {7}, DType::f32), idle = make("idle", {4}, DType::f32);
    frozen = make("frozen", {2}, DType::f32, false);
    if (!cut) return;
    // Along another axis, unevenly.
    for (Tensor* t : {&a, &b}) {
      Tensor part = distribute(t->detach(), t == &a ? "S(1)" : "S(0)", "tp");
      part.set_requires_grad();
      for (auto& [name, own] : all)
        if (own.same_as(*t)) own = part;
      *t = part;
    }
  }
  void backward(int64_t micro) const {
    Generator g(static_cast<uint64_t>(1000 + micro));
    const Tensor x = randn({3, 6}, DType::f32, g);
    Tensor loss = mean(square(matmul(relu(matmul(x, a)), b) * low.to(DType::f32)));
    loss = loss + sum(square(wide)).to(DType::f32) * static_cast<double>(micro + 1);
    if (micro % 3 == 1) loss = loss + sum(shy * randn({7}, DType::f32, g));
    if (micro % 4 == 2) loss = loss - sum(shy) * 0.0;  // gradients that are -0
    loss.backward();
  }
  Bits gradients() const {
    Bits all_bits;
    for (const auto& [name, t] : all) {
      if (!t.grad().defined()) continue;
      if (t.grad().dtype() != t.dtype() || t.grad().shape() != t.shape()) throw std::runtime_error(name);
      all_bits[name] = t.grad().to(DType::f64).to_vector<double>();
    }
    return all_bits;
  }
  Tensor a, b, low, wide, shy, idle, frozen;
  ExactGradients::Parameters all;
};

bool same_bits(const Bits& a, const Bits& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.size() == y.second.size() &&
                  std::equal(x.second.begin(), x.second.end(), y.second.begin(), [](double p, double q) {
                    return std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q);
                  });
         });
}

struct Way {
  int64_t bucket_bytes = int64_t{25} << 20;
  bool under_backward = false;
  bool cut = false;
};

// What ranks' gradients are after two steps; all ranks must have the same.
Bits summed(int ranks, int64_t micro_batches, const Way& way = {}) {
  std::vector<Bits> of(static_cast<size_t>(way.cut ? 2 * ranks : ranks));
  run_as_ranks(Mesh(cat("dp=", ranks, way.cut ? " tp=2" : "")), [&](int rank) {
    const int place = way.cut ? rank / 2 : rank;
    Net net(static_cast<uint64_t>(place + 1), way.cut);  // rank 0's weights win
    Group* const group = ranks > 1 ? &distributed::group("dp") : nullptr;
    ExactGradients exact(net.all, group, micro_batches, {.bucket_bytes = way.bucket_bytes});
    if (exact.first() != place * micro_batches / ranks || exact.count() != micro_batches / ranks)
      throw std::runtime_error("another share of the micro-batches");
    for (int step = 0; step < 2; ++step) {
      if (step == 1) {  // a step that was begun and given up
        net.backward(77);
        exact.add();
      }
      exact.begin();
      for (int64_t m = exact.first(); m < exact.first() + exact.count(); ++m) {
        const bool travels = way.under_backward && m + 1 == exact.first() + exact.count();
        if (travels) exact.reduce_next();
        net.backward(m);
        if (travels && ranks > 1 && net.a.grad().defined()) throw std::runtime_error("the gradient did not travel");
        exact.add();
        if (net.a.grad().defined()) throw std::runtime_error("the gradient was not taken");
      }
      exact.finish();
    }
    of[static_cast<size_t>(rank)] = net.gradients();
  });
  for (const Bits& b : of)
    if (!same_bits(b, of[0])) throw std::runtime_error("ranks have other sums");
  return of[0];
}

TEST(ExactGradients, AnyNumberOfRanksHasTheBitsOfOne) {
  for (const auto& [micro_batches, all_ranks] : std::vector<std::pair<int64_t, std::vector<int>>>{
           {8, {2, 4, 8}}, {6, {2, 3, 6}}, {12, {2, 3, 4, 6}}, {4, {2, 4}}, {5, {5}}}) {
    const Bits one = summed(1, micro_batches);
    ASSERT_EQ(one.size(), 5U);  // neither idle nor frozen
    for (const int ranks : all_ranks)
      EXPECT_TRUE(same_bits(summed(ranks, micro_batches), one)) << ranks << " ranks, " << micro_batches;
  }
  // However they travel.
  const Bits one = summed(1, 8);
  for (const int64_t bytes : {1, 12, 100, 1000})
    for (const bool under : {false, true})
      EXPECT_TRUE(same_bits(summed(4, 8, {.bucket_bytes = bytes, .under_backward = under}), one)) << bytes << under;
  for (const int ranks : {1, 2, 8})
    EXPECT_TRUE(same_bits(summed(ranks, 8, {.bucket_bytes = 64, .under_backward = true}), one)) << ranks;
  const Bits six = summed(1, 6);  // of which a rank has several sums at the end
  for (const int ranks : {2, 3})
    EXPECT_TRUE(same_bits(summed(ranks, 6, {.bucket_bytes = 64, .under_backward = true}), six)) << ranks;
}

// Of parameters that lie in parts along another axis.
TEST(ExactGradients, OfPartsToo) {
  const Bits one = summed(1, 8, {.cut = true}), whole = summed(1, 8);
  ASSERT_EQ(one.size(), 5U);
  for (size_t i = 0; i < whole.at("a").size(); ++i) EXPECT_NEAR(one.at("a")[i], whole.at("a")[i], 1e-5);
  for (const int ranks : {2, 4})
    for (const bool under : {false, true})
      EXPECT_TRUE(same_bits(summed(ranks, 8, {.bucket_bytes = 100, .under_backward = under, .cut = true}), one)) << ranks;
}

// In the last pass, and while that runs: what comes last has not come yet when the first stretch travels.
TEST(ExactGradients, TravelUnderBackward) {
  run_as_ranks(Mesh("dp=2"), [&](int) {
    Net net(1);
    ExactGradients exact(net.all, &distributed::group("dp"), 2, {.bucket_bytes = 64});
    exact.reduce_next();
    bool b_gone = false, a_there = false;
    const HookHandle last = register_post_accumulate_grad_hook(net.a, [&](const Tensor& a) {
      b_gone = !net.b.grad().defined();  // taken away: it is in the sums
      a_there = !a.grad().defined();     // and so is this one, by the hook before
    });
    net.backward(exact.first());
    if (!b_gone || !a_there) throw std::runtime_error("gradients stay until the pass has ended");
    exact.add();
    exact.finish();
    // Twice in one pass is an error, and the step can begin anew.
    exact.begin();
    exact.reduce_next();
    net.backward(exact.first());
    std::string said;
    try {
      net.backward(exact.first());
    } catch (const Error& e) {
      said = e.what();
    }
    if (said.find("came twice in one micro-batch") == said.npos) throw std::runtime_error("'" + said + "'");
  });
}

// The sums themselves, by loops: f32 additions in the tree of four, rounded to bf16 once.
TEST(ExactGradients, AreAddedInF32InPairsAndRoundedOnce) {
  std::vector<std::vector<float>> of_a, of_low;
  for (int64_t m = 0; m < 4; ++m) {
    Net net(1);
    net.backward(m);
    of_a.push_back(net.a.grad().to_vector<float>());
    of_low.push_back(net.low.grad().to(DType::f32).to_vector<float>());
  }
  const auto tree = [](const std::vector<std::vector<float>>& g, size_t i) {
    return (g[0][i] + g[1][i]) + (g[2][i] + g[3][i]);
  };
  const Bits got = summed(2, 4);
  bool other_order = false;
  for (size_t i = 0; i < of_a[0].size(); ++i) {
    EXPECT_EQ(got.at("a")[i], tree(of_a, i)) << i;
    other_order = other_order || tree(of_a, i) != ((of_a[0][i] + of_a[1][i]) + of_a[2][i]) + of_a[3][i];
  }
  EXPECT_TRUE(other_order) << "these gradients do not tell orders apart";
  for (size_t i = 0; i < of_low[0].size(); ++i)
    EXPECT_EQ(got.at("low")[i], static_cast<double>(static_cast<float>(BFloat16(tree(of_low, i))))) << i;
}

TEST(ExactGradients, WhatDoesNotGoTogetherIsRefused) {
  const auto error = [](const std::function<void()>& body) -> std::string {
    try {
      body();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing";
  };
  Net net(1);
  EXPECT_NE(error([&] { ExactGradients(net.all, nullptr, 0); }).find("0 micro-batches"), std::string::npos);
  EXPECT_NE(error([&] { ExactGradients(net.all, nullptr, 1, {.bucket_bytes = 0}); }).find("bucket_bytes"),
            std::string::npos);
  ExactGradients exact(net.all, nullptr, 2);
  net.backward(0);
  exact.add();
  EXPECT_NE(error([&] { exact.finish(); }).find("and 1 have come"), std::string::npos);
  exact.add();
  EXPECT_NE(error([&] { exact.add(); }).find("all have come"), std::string::npos);
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    Net own(1);
    const std::string odd = error([&] { ExactGradients(own.all, &group("dp"), 3); });
    if (odd.find("3 micro-batches, which 2 ranks do not share evenly") == odd.npos) throw std::runtime_error(odd);
    // Another list on one rank, by name.
    if (rank == 1) own.all.pop_back(), own.all.pop_back();
    const std::string lists = error([&] { ExactGradients(own.all, &group("dp"), 2); });
    if (lists.find("idle") == lists.npos) throw std::runtime_error(lists);
  });
  EXPECT_EQ(ExactGradients::sums_held(1), 1);
  EXPECT_EQ(ExactGradients::sums_held(16), 4);
  EXPECT_EQ(ExactGradients::sums_held(16, 4), 2);
  EXPECT_EQ(ExactGradients::sums_held(16, 16), 1);
  EXPECT_EQ(ExactGradients::sums_held(6, 3), 2);
  EXPECT_THROW(ExactGradients::sums_held(6, 4), ValueError);
  EXPECT_EQ(ExactGradients::sums_kept(4, 4), 0);
  EXPECT_EQ(ExactGradients::sums_kept(8, 4), 1);
  EXPECT_EQ(ExactGradients::sums_kept(16, 4), 2);
  EXPECT_EQ(ExactGradients::sums_kept(16, 1), 4);
  EXPECT_THROW(ExactGradients::sums_kept(6, 4), ValueError);
}

}  // namespace
}  // namespace strata::distributed
