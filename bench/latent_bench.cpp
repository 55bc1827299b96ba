// A step of DeepSeek's attention over a long cache: queries mapped to the compressed space, against keys and values of
// all heads made of it for each step.
//     latent_bench [DIM] [HEADS] [KV RANK] [ROPE SIZE] [HEAD SIZE] [VALUE SIZE]      (DeepSeek-V2-Lite's)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/nn/attention.h"
#include "strata/nn/hooks.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"

namespace {

using namespace strata;

double median_ms(const nn::SelfAttention& a, const Tensor& x, const nn::Places& places, nn::KvCache& cache) {
  std::vector<double> ms;
  for (int i = 0; i < 23; ++i) {
    const auto from = std::chrono::steady_clock::now();
    (void)a.forward(x, places, &cache);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - from;
    if (i >= 3) ms.push_back(took.count());
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t usual) { return argc > i ? std::atoll(argv[i]) : usual; };
  const int64_t dim = number(1, 2048), heads = number(2, 16);
  nn::AttentionSpec spec{.heads = heads, .kv_heads = heads, .bias = false, .out_bias = false};
  spec.latent = nn::LatentSpec{.kv_rank = number(3, 512), .rope_size = number(4, 64)};
  spec.head_size = number(5, 192), spec.value_size = number(6, 128);
  manual_seed(1);
  const NoGrad guard;
  const nn::SelfAttention attention(dim, spec);
  std::printf("dim %lld, %lld heads, rank %lld, f32\n", static_cast<long long>(dim), static_cast<long long>(heads),
              static_cast<long long>(spec.latent->kv_rank));
  std::printf("| rows | keys | made anew | over the compressed cache | times |\n|---|---|---|---|---|\n");
  for (const int64_t rows : {1, 8})
    for (const int64_t keys : {128, 1024, 4096}) {
      nn::KvCache cache = attention.make_cache(rows, keys, DType::f32);
      cache.k.copy_(randn(cache.k.shape()));
      cache.v.copy_(randn(cache.v.shape()));
      nn::Places places;
      places.starts = places.queries = full({rows}, static_cast<double>(keys - 1), DType::i64);
      places.reach = keys;
      const Tensor x = randn({rows, 1, dim});
      const double after = median_ms(attention, x, places, cache);
      // What runs around kv_up makes it be called.
      nn::ModuleHookHandle hook = nn::register_forward_hook(
          *attention.kv_up, [](const nn::Module&, const Tensor&, const Tensor& y) { return y; });
      const double before = median_ms(attention, x, places, cache);
      hook.remove();
      std::printf("| %lld | %lld | %.3f ms | %.3f ms | %.1f |\n", static_cast<long long>(rows),
                  static_cast<long long>(keys), before, after, before / after);
    }
  return 0;
}
