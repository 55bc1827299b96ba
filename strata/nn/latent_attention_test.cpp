// DeepSeek's attention: over the compressed cache, and by keys and values that are made of it.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/nn/attention.h"
#include "strata/nn/hooks.h"
#include "strata/nn/lora.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {
namespace {

constexpr int64_t kDim = 24, kKeys = 20;

AttentionSpec spec_of(int64_t q_rank) {
  AttentionSpec s{.heads = 3, .kv_heads = 3, .head_size = 10, .value_size = 7, .bias = false, .out_bias = false};
  s.latent = LatentSpec{.q_rank = q_rank, .kv_rank = 8, .rope_size = 4};
  return s;
}

struct Filled {
  KvCache cache;
  Places places;
};
// A cache of two texts of other lengths, whose next `queries` tokens are asked.
Filled filled(const SelfAttention& a, int64_t queries, DType dtype = DType::f32) {
  Filled f{a.make_cache(2, kKeys, dtype), {}};
  f.cache.k.copy_(randn(f.cache.k.shape()));
  f.cache.v.copy_(randn(f.cache.v.shape()));
  f.places.starts = f.places.queries = from_span<int64_t>(std::vector<int64_t>{kKeys - queries, 5}, {2});
  f.places.reach = kKeys;
  return f;
}

// What runs in place of kv_up's own forward makes it be called.
Tensor by_keys_and_values(const SelfAttention& a, const Tensor& x, Filled f) {
  ModuleHookHandle called =
      register_forward_hook(*a.kv_up, [](const Module&, const Tensor&, const Tensor& y) { return y; });
  const KvCache own{f.cache.k.clone(), f.cache.v.clone()};
  f.cache = own;
  const Tensor y = a.forward(x, f.places, &f.cache);
  called.remove();
  return y;
}

double apart(const Tensor& a, const Tensor& b) {
  return (max(abs(a - b)) / max(abs(b))).item();
}

TEST(LatentAttention, OverTheCompressedCacheIsTheSame) {
  manual_seed(4);
  const NoGrad guard;
  for (const int64_t q_rank : {0, 6})
    for (const int64_t queries : {1, 2, 3})
      for (const bool more : {false, true}) {
        AttentionSpec spec = spec_of(q_rank);
        if (more) spec.scale = 0.7, spec.soft_cap = 2.5;
        const SelfAttention a(kDim, spec);
        const Tensor x = randn({2, queries, kDim});
        const Filled f = filled(a, queries);
        const Tensor want = by_keys_and_values(a, x, f);
        KvCache cache{f.cache.k.clone(), f.cache.v.clone()};
        const Tensor got = a.forward(x, f.places, &cache);
        EXPECT_EQ(got.shape(), (Shape{2, queries, kDim}));
        EXPECT_LT(apart(got, want), 1e-5) << q_rank << ' ' << queries << ' ' << more;
      }
}

TEST(LatentAttention, FollowsAnAdapterOfTheUpProjection) {
  manual_seed(5);
  const NoGrad guard;
  const SelfAttention a(kDim, spec_of(0));
  const Tensor x = randn({2, 1, kDim});
  const Filled f = filled(a, 1);
  const auto run = [&] {
    KvCache cache{f.cache.k.clone(), f.cache.v.clone()};
    return a.forward(x, f.places, &cache);
  };
  const Tensor plain = run();
  add_lora(a, {.rank = 2, .alpha = 4, .targets = {"kv_up"}});
  for (const auto& [name, p] : a.named_parameters())
    if (name.ends_with(".B")) Tensor(p).copy_(randn(p.shape()));
  const Tensor adapted = run();
  EXPECT_GT(apart(adapted, plain), 1e-2);
  merge_lora(a);
  EXPECT_LT(apart(run(), adapted), 1e-4);
}

}  // namespace
}  // namespace strata::nn
