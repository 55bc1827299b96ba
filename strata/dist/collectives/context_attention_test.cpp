// Attention over positions in parts, between processes: values and gradients against one process's.

#include "strata/dist/collectives/context_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/core/op_base.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/context_blocks_inl.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/context_parallel.h"
#include "strata/dist/lane_test_util.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

// What every rank has alike: queries, keys, values, and the gradient of the result.
struct Whole {
  Tensor q, k, v, gout;
  Whole(int64_t heads, int64_t kv_heads, int64_t time, int64_t d, int64_t dv, DType dtype = DType::f32) {
    const auto of = [&](int64_t h, int64_t size, double turn) {
      return (sin(arange(0, 2 * h * time * size, 1).to(DType::f64) * turn) * 1.5).view({2, h, time, size}).to(dtype);
    };
    q = of(heads, d, 0.71), k = of(kv_heads, d, 0.37), v = of(kv_heads, dv, 0.93), gout = of(heads, dv, 0.53);
  }
};

double farthest(const Tensor& a, const Tensor& b) {
  return (a.detach().to(DType::f64) - b.detach().to(DType::f64)).abs().max().item();
}

// The part of this rank, of results and of gradients, beside the whole's.
void expect_part_of_whole(const Whole& w, const AttentionOptions& options, const ContextParallel& cp, double bound) {
  Tensor q = w.q.detach(), k = w.k.detach(), v = w.v.detach();
  for (Tensor* t : {&q, &k, &v}) t->set_requires_grad(true);
  const RngKey numbers = default_generator().state();
  const Tensor y = scaled_dot_product_attention(q, k, v, {}, options);
  (y * w.gout).sum().backward();

  Tensor own_q = context_part(w.q, 2, cp).detach(), own_k = context_part(w.k, 2, cp).detach(),
         own_v = context_part(w.v, 2, cp).detach();
  for (Tensor* t : {&own_q, &own_k, &own_v}) t->set_requires_grad(true);
  const RngKey after = default_generator().state();
  default_generator().set_state(numbers);
  const Tensor own_gout = context_part(w.gout, 2, cp);
  Tensor own;
  {
    const DeviceScope elsewhere(Device::meta());  // where its tensors are decides, not where new ones are made
    own = context_attention(own_q, own_k, own_v, options, cp);
    if (options.dropout_p > 0) {
      EXPECT_EQ(default_generator().state(), after);
    }
    (own * own_gout).sum().backward();
  }
  EXPECT_LT(farthest(own, context_part(y, 2, cp)), bound);
  EXPECT_LT(farthest(own_q.grad(), context_part(q.grad(), 2, cp)), bound);
  EXPECT_LT(farthest(own_k.grad(), context_part(k.grad(), 2, cp)), bound);
  EXPECT_LT(farthest(own_v.grad(), context_part(v.grad(), 2, cp)), bound);
}

void expect_all_kinds(int ranks) {
  for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses}) {
    const ContextParallel cp{.group = "world", .kind = kind};
    const int64_t time = 4 * ranks;
    for (const AttentionOptions& o : {AttentionOptions{.is_causal = true}, AttentionOptions{},
                                      AttentionOptions{.is_causal = true, .scale = 0.4, .logit_soft_cap = 2.0},
                                      AttentionOptions{.is_causal = true, .window = 5}, AttentionOptions{.window = 3}})
      expect_part_of_whole(Whole(4, kind == ContextKind::ring ? 1 : 2, time, 8, 6), o, cp, 1e-5);
    expect_part_of_whole(Whole(4, 4, time, 8, 8, DType::f64), {.is_causal = true}, cp, 1e-12);
    expect_part_of_whole(Whole(4, 2, time, 8, 8, DType::bf16), {.is_causal = true}, cp, 0.1);
  }
}

TEST(ContextAttention, IsTheWholesBetweenProcesses) {
  on_processes(2, [](int) { expect_all_kinds(2); });
}

TEST(ContextAttention, IsTheWholesOnFourRanks) {
  run_as_ranks(Mesh("cp=4"), [](int) { expect_all_kinds(4); });
}

// The same calls as a card makes them: queued on a lane beside the caller's stream.
TEST(ContextAttention, IsTheWholesBetweenPlayedCards) {
  on_processes(2, [](int) {
    play_cards();
    expect_all_kinds(2);
  });
}

TEST(ContextAttention, LseHasAGradient) {
  run_as_ranks(Mesh("cp=2"), [](int) {
    const ContextParallel cp;
    const Whole w(2, 2, 8, 4, 4);
    const OpBase* const whole = OpBase::find("scaled_dot_product_attention");
    const OpBase* const ring = OpBase::find("ring_attention");
    ASSERT_TRUE(whole != nullptr && ring != nullptr);
    const Tensor weight = cos(arange(0, 2 * 2 * 8, 1).to(DType::f32) * 0.3).view({2, 2, 8});
    const auto gradients = [&](const OpBase& op, const Tensor& weights, bool parts) {
      TensorList t{w.q.detach(), w.k.detach(), w.v.detach()};
      for (Tensor& x : t) x = (parts ? context_part(x, 2, cp) : x).detach().set_requires_grad(true);
      std::vector<Value> args{t[0], t[1], t[2]};
      if (!parts) args.emplace_back(Tensor());
      args.emplace_back(true);
      const std::vector<Value> results = op.call_boxed(args);
      (std::get<Tensor>(results[1]) * weights).sum().backward();
      return TensorList{t[0].grad(), t[1].grad()};
    };
    const TensorList all = gradients(*whole, weight, false);
    const TensorList own = gradients(*ring, context_part(weight, 2, cp), true);
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(farthest(own[i], context_part(all[i], 2, cp)), 1e-5);
  });
}

TEST(ContextAttention, GradientsHaveGradients) {
  run_as_ranks(Mesh("cp=2"), [](int) {
    for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses})
      for (const AttentionOptions& o : {AttentionOptions{.is_causal = true, .logit_soft_cap = 2.0},
                                        AttentionOptions{.is_causal = true, .window = 3}}) {
        const ContextParallel cp{.kind = kind};
        const Whole w(2, 2, 8, 4, 4, DType::f64);
        const auto second = [&](bool parts) {
          const auto mine = [&](const Tensor& t) { return (parts ? context_part(t, 2, cp) : t).detach(); };
          TensorList t{mine(w.q), mine(w.k), mine(w.v)};
          for (Tensor& x : t) x.set_requires_grad(true);
          const Tensor y = parts ? context_attention(t[0], t[1], t[2], o, cp)
                                 : scaled_dot_product_attention(t[0], t[1], t[2], {}, o);
          const TensorList first = grad({(y * mine(w.gout)).sum()}, t, {}, /*create_graph=*/true);
          Tensor total = first[0].pow(2).sum();
          for (size_t i = 1; i < 3; ++i) total = total + first[i].pow(2).sum();
          return grad({total}, t);
        };
        const TensorList want = second(false), got = second(true);
        for (size_t i = 0; i < 3; ++i) EXPECT_LT(farthest(got[i], context_part(want[i], 2, cp)), 1e-10) << i;
      }
    Tensor q = ones({1, 1, 4, 4}).set_requires_grad(true);
    const Tensor y = ring_attention(q, q, q, {.dropout_p = 0.5}, "cp");
    EXPECT_THROW(grad({y.sum()}, {q}, {}, /*create_graph=*/true), AutogradError);
  });
}

// Dropped weights are one process's, whatever the ranks: results and gradients are.
void expect_dropout_of_the_whole(int ranks) {
  manual_seed(11);
  for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses}) {
    const ContextParallel cp{.group = "world", .kind = kind};
    // Chunks of 3 and 4 positions: numbers that come by fours, and such that do not.
    for (const int64_t time : {6 * ranks, 8 * ranks})
      for (const AttentionOptions& o :
           {AttentionOptions{.is_causal = true, .dropout_p = 0.3}, AttentionOptions{.dropout_p = 0.3},
            AttentionOptions{.is_causal = true, .window = 5, .dropout_p = 0.6}})
        expect_part_of_whole(Whole(4, kind == ContextKind::ring ? 1 : 2, time, 8, 6), o, cp, 1e-5);
    expect_part_of_whole(Whole(4, 4, 6 * ranks, 8, 8, DType::f64), {.is_causal = true, .dropout_p = 0.5}, cp, 1e-12);
  }
}

TEST(ContextAttention, DropsTheWholesWeightsAlone) {
  run_as_ranks(Mesh("cp=1"), [](int) { expect_dropout_of_the_whole(1); });
}

TEST(ContextAttention, DropsTheWholesWeightsOnTwoRanks) {
  on_processes(2, [](int) { expect_dropout_of_the_whole(2); });
}

TEST(ContextAttention, DropsTheWholesWeightsOnFourRanks) {
  on_processes(4, [](int) { expect_dropout_of_the_whole(4); });
}

// Equal weights and values of 1: a result is the part that was kept, divided by its probability.
TEST(ContextAttention, DropsAsManyWeightsAsItSays) {
  run_as_ranks(Mesh("cp=2"), [](int) {
    for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses}) {
      const Tensor q = zeros({1, 2, 64, 4}), v = ones({1, 2, 64, 4});
      manual_seed(5);
      const Tensor y = context_attention(q, q, v, {.dropout_p = 0.25}, {.kind = kind});
      EXPECT_NEAR(y.mean().item(), 1, 0.03);
      EXPECT_GT(farthest(y, ones({1, 2, 64, 4})), 0.05);
      const Tensor all = all_gather(y, 0, "cp");
      EXPECT_GT(farthest(all.narrow(0, 0, 1), all.narrow(0, 1, 1)), 0.01);
    }
  });
}

TEST(ContextAttention, EveryPairOnceAndAsMuchOnEveryRank) {
  for (const int64_t n : {1, 2, 3, 4, 8})
    for (const bool causal : {false, true})
      for (const auto& [window, by_chunks] :
           {std::pair<int64_t, bool>(0, false), {0, true}, {1, false}, {5, false}, {40, true}}) {
        const int64_t length = 6, half = 3;
        const auto position = [&](int64_t rank, int64_t i) {
          if (n == 1) return i;
          return i < half ? rank * half + i : (2 * n - 1 - rank) * half + i - half;
        };
        std::set<std::pair<int64_t, int64_t>> seen;
        std::set<int64_t> calls;
        for (int64_t own = 0; own < n; ++own) {
          int64_t pairs = 0;
          for (int64_t other = 0; other < n; ++other)
            for (const auto& b : detail::context_blocks(n, own, other, length, causal, window, by_chunks)) {
              pairs += b.queries * b.keys;
              for (int64_t i = 0; i < b.queries; ++i)
                for (int64_t j = 0; j < b.keys; ++j) {
                  const bool distances = n == 1 || window > 0;
                  if (b.causal && j > i) continue;
                  if (window > 0 && std::abs(i + (distances ? b.offset : 0) - j) >= window) continue;
                  EXPECT_TRUE(seen.emplace(position(own, b.q + i), position(other, b.k + j)).second);
                }
            }
          calls.insert(pairs);
        }
        std::set<std::pair<int64_t, int64_t>> wanted;
        for (int64_t i = 0; i < n * length; ++i)
          for (int64_t j = 0; j < n * length; ++j)
            if ((!causal || j <= i) && (window == 0 || std::abs(i - j) < window)) wanted.emplace(i, j);
        EXPECT_EQ(seen, wanted) << n << ' ' << causal << ' ' << window;
        if (window == 0 && !by_chunks) {
          EXPECT_EQ(calls.size(), 1U);
        }
      }
}

TEST(ContextAttention, PartsComeTogetherInOrder) {
  run_as_ranks(Mesh("cp=3"), [](int rank) {
    for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses}) {
      const ContextParallel cp{.kind = kind};
      Tensor x = arange(0, 24, 1).to(DType::f32).view({2, 12}).set_requires_grad(true);
      const Tensor own = context_part(x, -1, cp);
      EXPECT_EQ(own.shape(), Shape({2, 4}));
      EXPECT_EQ(own.detach().select(0, 0).to_vector<float>(),
                kind == ContextKind::ring
                    ? std::vector<float>({2.f * static_cast<float>(rank), 2.f * static_cast<float>(rank) + 1,
                                          10.f - 2 * static_cast<float>(rank), 11.f - 2 * static_cast<float>(rank)})
                    : std::vector<float>({4.f * static_cast<float>(rank), 4.f * static_cast<float>(rank) + 1,
                                          4.f * static_cast<float>(rank) + 2, 4.f * static_cast<float>(rank) + 3}));
      const Tensor whole = context_whole(own, 1, cp);
      EXPECT_TRUE(equal(whole, x));
      (whole * x.detach()).sum().backward();  // in each of three ranks
      EXPECT_LT(farthest(all_reduce(x.grad(), "sum", "cp"), x * 3), 1e-6);
    }
  });
}

// Of sharded tensors the rules find the exchange by themselves: positions in parts in, heads in parts in between.
TEST(ContextAttention, RulesExchangePositionsForHeads) {
  run_as_ranks(Mesh("cp=2"), [](int) {
    const Whole w(4, 2, 8, 8, 8);
    const Tensor packed = cat({w.q.transpose(1, 2).reshape({2, 8, 32}), w.k.transpose(1, 2).reshape({2, 8, 16}),
                               w.v.transpose(1, 2).reshape({2, 8, 16})},
                              2)
                              .narrow(0, 0, 1);
    Tensor one = packed.detach().set_requires_grad(true), all = packed.detach().set_requires_grad(true);
    const Tensor wanted = packed_attention(one, 4, 2, {.is_causal = true});
    wanted.pow(2).sum().backward();
    const Tensor parts = distribute(all, "S(1)", "cp");
    barrier("cp");
    double before = 0;
    for (const CollectiveEntry& e : recorder().entries()) before = std::max(before, e.begun);
    barrier("cp");
    const Tensor y = packed_attention(parts, 4, 2, {.is_causal = true});
    barrier("cp");
    int exchanges = 0;  // of both ranks, which are threads with one recorder
    for (const CollectiveEntry& e : recorder().entries()) {
      if (e.begun <= before || e.what.find("barrier") == 0) continue;
      EXPECT_EQ(e.what.find("exchange S(1) to S(2,unit=8,segments=32+16+16)"), 0U) << e.what;
      ++exchanges;
    }
    EXPECT_EQ(exchanges, 2);
    barrier("cp");
    EXPECT_EQ(placements_of(y), "S(2,unit=8)");
    EXPECT_LT(farthest(full_tensor(y), wanted), 1e-5);
    y.pow(2).sum().backward();
    EXPECT_LT(farthest(full_tensor(all.grad()), one.grad()), 1e-5);
  });
}

TEST(ContextAttention, SaysWhatDoesNotFit) {
  run_as_ranks(Mesh("cp=2"), [](int) {
    const auto throws = [](const char* piece, const std::function<void()>& f) {
      try {
        f();
        ADD_FAILURE() << "no error with " << piece;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
      }
    };
    const ContextParallel ring, ulysses{.kind = ContextKind::ulysses};
    const Tensor q = ones({1, 3, 4, 4}), odd = ones({1, 1, 3, 4});
    throws("a multiple of 4", [&] { context_part(ones({2, 6}), 1, ring); });
    throws("a multiple of 2", [&] { context_part(ones({2, 5}), 1, ulysses); });
    throws("two chunks", [&] { ring_attention(odd, odd, odd, {}, "cp"); });
    throws("do not divide the 3 heads of q", [&] { ulysses_attention(q, q, q, {}, "cp"); });
    throws("alibi_slopes", [&] { context_attention(q, q, q, {.alibi_slopes = ones({3})}, ring); });
    throws("query_offset", [&] { context_attention(q, q, q, {.query_offset = 1}, ulysses); });
    throws("wanted ring or ulysses", [] { context_kind("star"); });
  });
}

}  // namespace
}  // namespace strata::distributed
