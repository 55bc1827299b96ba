// Generation's ops on a CUDA device against the CPU's.

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/compare_test_util.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/generation/generation.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

Tensor there(const Tensor& t) {
  return t.defined() ? t.to(Device::cuda()) : t;
}
TokenFilters there(const TokenFilters& f) {
  return {there(f.temperature), there(f.top_k), there(f.top_p), there(f.min_p), there(f.typical_p)};
}
Tensor number(double v) {
  return full({}, v, DType::f32);
}

TEST(CudaGeneration, DrawsTheCpusTokens) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(1);
  const int64_t rows = 64;
  const Tensor seeds = arange(rows, DType::i64), positions = full({rows}, 3, DType::i64);
  const std::vector<TokenFilters> filters = {
      {},
      {.temperature = number(0)},
      {.top_k = full({}, 50, DType::i64)},
      {.top_p = number(0.9)},
      {.min_p = number(0.05)},
      {.typical_p = number(0.8)},
      {number(0.7), full({}, 200, DType::i64), number(0.95), number(0.01), number(0.9)}};
  for (const int64_t columns : {1, 31, 2049, 50257})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const TokenFilters& f : filters) {
        const Tensor logits = (randn({rows, columns}) * 3.0).to(dtype);
        const auto [ids, logprobs] = sample_tokens(logits, seeds, positions, f);
        const auto [far, far_logprobs] = sample_tokens(there(logits), there(seeds), there(positions), there(f));
        const std::vector<int64_t> want = ids.to_vector<int64_t>(), got = far.to(Device::cpu()).to_vector<int64_t>();
        // Exponentials differ in their last bits: a number may fall on the other side of a border, once in a million.
        int64_t different = 0;
        for (size_t i = 0; i < want.size(); ++i) different += want[i] != got[i];
        EXPECT_LE(different, 1) << columns << cat(" ", dtype);
        if (different == 0) EXPECT_LE(difference(far_logprobs, logprobs), 1e-5) << columns << cat(" ", dtype);
      }
}

TEST(CudaGeneration, RefusesLater) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Tensor logits = there(zeros({2, 5})), rows = there(zeros({2}, DType::i64));
  EXPECT_THROW(
      {
        sample_tokens(logits, rows, rows, {.top_p = there(number(2))});
        cuda::synchronize();
      },
      ValueError);
  EXPECT_THROW(
      {
        sample_tokens(there(full({2, 5}, std::numeric_limits<double>::quiet_NaN())), rows, rows);
        cuda::synchronize();
      },
      ValueError);
}

TEST(CudaGeneration, PenaltiesAndTheCacheAreTheCpus) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(2);
  const Tensor logits = randn({3, 1000}), history = randint(0, 1000, {3, 700}, DType::i64),
               lengths = from_span<int64_t>(std::vector<int64_t>{700, 0, 333}, {3}),
               prompts = from_span<int64_t>(std::vector<int64_t>{10, 0, 400}, {3});
  const Tensor here = penalise_logits(logits, history, lengths, prompts, {number(1.2), number(0.1), number(0.3)});
  const Tensor far = penalise_logits(there(logits), there(history), there(lengths), there(prompts),
                                     {there(number(1.2)), there(number(0.1)), there(number(0.3))});
  EXPECT_LE(difference(far, here), 1e-6);
  const Tensor ids = randint(-1, 1000, {3, 300}, DType::i64), values = randn({3, 300});
  EXPECT_LE(difference(bias_logits(there(logits), there(ids), there(values)), bias_logits(logits, ids, values)), 1e-6);

  const Tensor cache = randn({3, 2, 50, 16}), starts = from_span<int64_t>(std::vector<int64_t>{0, 44, 20}, {3});
  for (const int64_t fresh : {1, 6})
    for (const int64_t window : {0, 9}) {
      const Tensor x = randn({3, 2, fresh, 16}), q = randn({3, 4, fresh, 16});
      const Tensor keys = cache_write(cache, x, starts);
      EXPECT_EQ(cache_write(there(cache), there(x), there(starts)).to(Device::cpu()).to_vector<float>(),
                keys.to_vector<float>());
      EXPECT_LE(difference(cache_attention(there(q), there(keys), there(cache), there(starts), {.window = window}),
                           cache_attention(q, keys, cache, starts, {.window = window})),
                1e-4)
          << fresh << " " << window;
    }
}

TEST(CudaGeneration, OneQueryOverLongCaches) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(5);
  struct Case {
    int64_t batch, heads, kv_heads, d, dv, capacity;
  };
  for (const Case& c : {Case{1, 32, 8, 128, 128, 3000}, Case{3, 32, 8, 64, 64, 700}, Case{40, 8, 2, 128, 128, 300},
                        Case{2, 12, 12, 64, 64, 1030}, Case{1, 71, 1, 64, 64, 513}, Case{2, 6, 2, 256, 128, 400},
                        Case{1, 4, 4, 32, 32, 130}, Case{2, 8, 1, 48, 80, 90}, Case{1, 6, 1, 37, 37, 65}}) {
    std::vector<int64_t> places(static_cast<size_t>(c.batch));
    for (size_t b = 0; b < places.size(); ++b)
      places[b] = b % 3 == 0 ? c.capacity - 1 : static_cast<int64_t>(b * 53) % c.capacity;
    const Tensor starts = from_span<int64_t>(places, {c.batch});
    for (const DType t : {DType::bf16, DType::f16, DType::f32})
      for (const bool all : {false, true}) {
        const Tensor q = (randn({c.batch, c.heads, 1, c.d}) * 2.0).to(t),
                     k = randn({c.batch, c.kv_heads, c.capacity, c.d}).to(t),
                     v = randn({c.batch, c.kv_heads, c.capacity, c.dv}).to(t);
        CacheAttentionOptions o, far;
        if (all) {
          o.scale = 0.1, o.window = 129, o.logit_soft_cap = 20, o.sinks = randn({c.heads}).to(t);
          far = o, far.sinks = there(o.sinks);
        }
        const auto wide = [](const Tensor& x) { return x.to(Device::cpu()).to(DType::f32); };
        CacheAttentionOptions plain = o;
        if (all) plain.sinks = wide(o.sinks);
        EXPECT_LE(difference(wide(cache_attention(there(q), there(k), there(v), there(starts), all ? far : o)),
                             cache_attention(wide(q), wide(k), wide(v), starts, plain)),
                  t == DType::f32   ? 1e-5
                  : t == DType::f16 ? 3e-3
                                    : 2e-2)
            << c.heads << " heads of " << c.d << ", " << c.capacity << cat(" places, ", t)
            << (all ? ", all options" : "");
      }
  }
}

TEST(CudaGeneration, AStepIsReplayedAtOtherLengths) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(3);
  Tensor cache = there(zeros({2, 2, 16, 8})), starts = there(zeros({2}, DType::i64)), x = there(randn({2, 2, 1, 8}));
  const Tensor q = there(randn({2, 2, 1, 8}));
  Tensor y;
  const auto step = [&] {
    cache_write_(cache, x, starts);
    y = cache_attention(q, cache, cache, starts, {.window = 4});
  };
  step();
  cuda::Graph graph;
  graph.capture(step);
  for (const int64_t at : {1, 2, 9}) {
    starts.copy_(full({2}, at, DType::i64));
    x.copy_(randn({2, 2, 1, 8}));
    graph.replay();
    const Tensor keys = cache.to(Device::cpu());
    EXPECT_LE(difference(y, cache_attention(q.to(Device::cpu()), keys, keys, full({2}, at, DType::i64), {.window = 4})),
              1e-4)
        << at;
  }
}

}  // namespace
}  // namespace strata
