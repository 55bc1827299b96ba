// Steps of generation on a card, all layers in one launch, beside the layers one by one: skips where there is no card
// that has the kernel.

#include <functional>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/models/language_model.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/lora.h"
#include "strata/nn/packed.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

constexpr int64_t kLayers = 4, kCapacity = 160;

bool has_kernel() {
  return cuda::device_count() > 0 && cuda::properties(0).major == 9;
}

std::shared_ptr<LanguageModel> model_of(int64_t dim, int64_t heads, int64_t kv_heads, int64_t width,
                                        const std::string& format) {
  manual_seed(5);
  const ModelConfig shape{.family = "llama",
                          .layers = kLayers,
                          .dim = dim,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .context = kCapacity,
                          .vocab = 512,
                          .ffn_dim = width};
  std::shared_ptr<LanguageModel> model = make_model(shape);
  model->eval();
  model->to(DType::bf16);
  if (format == "int4")
    nn::quantize(*model, format, {.rounding = {.block_columns = 128, .symmetric = false, .scale_dtype = DType::bf16}});
  if (format == "e4m3") nn::quantize(*model, format, {.rounding = {.block_rows = 128, .block_columns = 128}});
  model->to(Device::cuda(0));
  return model;
}

ModelCache cache_of(const LanguageModel& model, int64_t filled) {
  const NoGrad guard;
  ModelCache cache = model.make_cache(1, kCapacity);
  if (filled > 0)
    model.next_logits((arange(filled) * 7 % 509).to(DType::i64).view({1, filled}).to(Device::cuda(0)), cache);
  return cache;
}

Tensor token_of(int64_t i) {
  return full({1, 1}, Scalar(i * 31 % 509), DType::i64).to(Device::cuda(0));
}

double apart(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()).to(DType::f32), y = b.to(Device::cpu()).to(DType::f32);
  return (x - y).abs().max().item<float>() / y.abs().max().item<float>();
}

struct Case {
  const char* format;
  int64_t dim, heads, kv_heads, width, filled;
};

TEST(DecoderStepCuda, IsTheLayersOneByOne) {
  if (!has_kernel()) GTEST_SKIP() << "no card of compute capability 9";
  const DeviceScope there(Device::cuda(0));
  for (const Case& c :
       {Case{"bf16", 512, 8, 2, 1416, 1}, Case{"bf16", 1024, 8, 8, 2048, 63}, Case{"bf16", 384, 6, 1, 520, 90},
        Case{"e4m3", 1024, 16, 4, 2048, 31}, Case{"int4", 2048, 32, 8, 4096, 33}}) {
    SCOPED_TRACE(cat(c.format, " ", c.dim, " after ", c.filled));
    const std::shared_ptr<LanguageModel> model = model_of(c.dim, c.heads, c.kv_heads, c.width, c.format);
    ModelCache fused = cache_of(*model, c.filled), again = cache_of(*model, c.filled),
               plain = cache_of(*model, c.filled);
    for (int64_t i = 0; i < 40; ++i) {
      const Tensor token = token_of(i);
      const Tensor y = model->next_logits(token, fused);
      EXPECT_TRUE(equal(y, model->next_logits(token, again))) << "the same bits twice, step " << i;
      nn::ModuleHookHandle watched =
          nn::register_forward_hook(model->blocks[0].mlp, [](const nn::Module&, const Tensor&, const Tensor&) {});
      const Tensor want = model->next_logits(token, plain);
      watched.remove();
      ASSERT_LT(apart(y, want), 0.04) << "step " << i;
    }
    for (size_t l = 0; l < fused.layers.size(); ++l) {
      EXPECT_LT(apart(fused.layers[l].k, plain.layers[l].k), 0.04) << l;
      EXPECT_LT(apart(fused.layers[l].v, plain.layers[l].v), 0.04) << l;
    }
  }
}

TEST(DecoderStepCuda, InAGraphHasItsBitsAndFewKernels) {
  if (!has_kernel()) GTEST_SKIP() << "no card of compute capability 9";
  const DeviceScope there(Device::cuda(0));
  const NoGrad guard;
  const std::shared_ptr<LanguageModel> model = model_of(512, 8, 2, 1416, "bf16");
  ModelCache eager = cache_of(*model, 5), replayed = cache_of(*model, 5), plain = cache_of(*model, 5);
  for (ModelCache* c : {&eager, &replayed, &plain}) c->host_counts = false;
  Tensor token = token_of(0), y;
  model->next_logits(token, eager);
  model->next_logits(token, replayed);
  cuda::Graph graph, unfused;
  graph.capture([&] { y = model->next_logits(token, replayed); });
  for (int64_t i = 1; i < 20; ++i) {
    token.copy_(token_of(i));
    graph.replay();
    EXPECT_TRUE(equal(y, model->next_logits(token_of(i), eager))) << i;
  }
  nn::ModuleHookHandle watched =
      nn::register_forward_hook(model->blocks[0], [](const nn::Module&, const Tensor&, const Tensor&) {});
  model->next_logits(token, plain);
  unfused.capture([&] { model->next_logits(token, plain); });
  EXPECT_LT(graph.nodes() + 8 * kLayers, unfused.nodes());
}

// Adapters are added to what a packed layer gives: no kernel of the whole step may leave them out.
TEST(DecoderStepCuda, AdaptersOfPackedLayersCount) {
  if (!has_kernel()) GTEST_SKIP() << "no card of compute capability 9";
  const DeviceScope there(Device::cuda(0));
  const NoGrad guard;
  const std::shared_ptr<LanguageModel> model = model_of(1024, 16, 4, 2048, "e4m3");
  ModelCache without = cache_of(*model, 5), with = cache_of(*model, 5);
  const Tensor plain = model->next_logits(token_of(1), without);
  const nn::Linear& down = *model->blocks[1].mlp.down;
  const nn::Lora lora(down, {{.of = {"down", 0, 1024}, .rank = 4, .alpha = 8}}, {});
  for (const auto& [name, p] : lora.named_parameters())
    if (name.ends_with("B")) nn::init::constant_(p, 0.5);
  const Tensor adapted = model->next_logits(token_of(1), with);
  EXPECT_GT(apart(adapted, plain), 0.05);
}

TEST(DecoderStepCuda, ATextThatRestsKeepsItsCacheAndAFullOneIsRefused) {
  if (!has_kernel()) GTEST_SKIP() << "no card of compute capability 9";
  const DeviceScope there(Device::cuda(0));
  const NoGrad guard;
  const std::shared_ptr<LanguageModel> model = model_of(512, 8, 2, 1416, "bf16");
  ModelCache cache = cache_of(*model, 9);
  cache.host_counts = false;
  const Tensor rests = zeros({1}, DType::i64), runs = ones({1}, DType::i64);
  std::vector<Tensor> before;
  for (const nn::KvCache& l : cache.layers) before.push_back(l.k.clone()), before.push_back(l.v.clone());
  model->next_logits(token_of(3), cache, rests);
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    EXPECT_TRUE(equal(cache.layers[l].k, before[2 * l]));
    EXPECT_TRUE(equal(cache.layers[l].v, before[2 * l + 1]));
  }
  EXPECT_EQ(cache.lengths.item<int64_t>(), 9);
  cache.lengths.fill_(kCapacity);
  model->next_logits(token_of(3), cache, rests);
  cuda::synchronize(0);
  EXPECT_THROW(
      {
        model->next_logits(token_of(3), cache, runs);
        cuda::synchronize(0);
      },
      IndexError);
}

}  // namespace
}  // namespace strata
