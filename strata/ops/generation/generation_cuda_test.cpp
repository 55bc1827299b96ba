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
