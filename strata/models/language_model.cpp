#include "strata/models/language_model.h"

#include <cmath>

#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/nn/convert.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"

namespace strata {
namespace {

nn::BlockOptions block_options(const ModelConfig& c) {
  return {.dim = c.dim,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .ffn_dim = c.ffn_dim,
          .dropout = c.dropout,
          .norm_eps = c.norm_eps,
          .rope_base = c.rope_theta};
}

// The first `again` of them are computed again in backward.
template <class Blocks>
nn::Residual run_blocks(const Blocks& blocks, const Tensor& x, ModelCache* cache, int64_t again) {
  nn::Residual r{x, {}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto step = [&blocks, i](const nn::Residual& in, nn::KvCache* kept) {
      memory::ModuleScope at(cat("blocks.", i));
      return blocks[i].step(in, kept);
    };
    if (cache) {
      r = step(r, &cache->layers[i]);
    } else if (static_cast<int64_t>(i) < again) {
      r = checkpoint(
          [step](const Tensor& branch, const Tensor& stream) {
            return step({branch, stream}, nullptr);
          },
          r.branch, r.stream);
    } else {
      r = step(r, nullptr);
    }
  }
  return r;
}

}  // namespace

LanguageModel::LanguageModel(std::string_view kind, const ModelConfig& config)
    : Module(kind),
      token_embedding(
          register_module("token_embedding", nn::Embedding(std::max<int64_t>(config.vocab, 1), config.dim))),
      config_(config) {
  check(config.vocab > 0, "make_model", "model.vocab is ", config.vocab,
        ": it must be set, or come from the tokenizer");
}

void LanguageModel::initialise() {
  parts_.reset();
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers));
  for (const auto& [name, p] : named_parameters()) {
    const bool writes_residual = name.ends_with("attn.out.weight") || name.ends_with("mlp.down.weight");
    if (p.dim() >= 2)
      nn::init::normal_(p, 0, writes_residual ? residual_std : 0.02);
    else if (name.ends_with("bias"))
      nn::init::zeros_(p);
  }
}

std::set<std::string> LanguageModel::table_names() const {
  std::set<std::string> names = nn::table_names(*this);
  for (const auto& [name, p] : named_parameters())
    if (p.same_as(head_)) names.insert(name);
  return names;
}

void LanguageModel::make_head() {
  if (config_.tied_embeddings) {
    head_ = token_embedding.weight;
  } else {
    head_ = register_module("head", nn::Linear(config_.dim, config_.vocab, false)).weight;
  }
}

Tensor LanguageModel::embed(const Tensor& tokens, const ModelCache* cache) const {
  check<ShapeError>(tokens.dim() == 2, kind(), "tokens are [B, T], got ", tokens);
  const int64_t filled = cache ? cache->length : 0;
  check<ShapeError>(filled + tokens.size(1) <= config_.context, kind(), tokens.size(1), " tokens after ", filled,
                    " do not fit the context of ", config_.context);
  memory::ModuleScope at("token_embedding");
  const Tensor x = token_embedding(tokens);
  return autocast_enabled() ? x.to(autocast_dtype()) : x;
}

Tensor LanguageModel::logits(const Tensor& x) const {
  memory::ModuleScope at("head");
  return linear(x, head_);
}

Tensor LanguageModel::forward(const Tensor& tokens) const {
  return logits(hidden(tokens, nullptr));
}

Tensor LanguageModel::loss(const Tensor& tokens, const Tensor& targets) const {
  check<ShapeError>(tokens.shape() == targets.shape(), kind(), "tokens are ", tokens, ", targets ", targets);
  const Tensor x = hidden(tokens, nullptr);
  memory::ModuleScope at("loss");
  const Tensor rows = x.view({-1, config_.dim}), wanted = targets.reshape({-1});
  return head_cross_entropy(rows, head_, wanted);
}

void LanguageModel::set_recomputed_blocks(int64_t blocks) {
  check(blocks >= 0 && blocks <= config_.layers, kind(), "cannot compute ", blocks, " of ", config_.layers,
        " blocks again");
  recomputed_ = blocks;
}

ModelCache LanguageModel::make_cache(int64_t batch) const {
  const int64_t kv_heads = config_.kv_heads > 0 ? config_.kv_heads : config_.heads;
  const DType dtype = autocast_enabled() ? autocast_dtype() : token_embedding.weight.dtype();
  ModelCache cache;
  DeviceScope on(device());
  for (int64_t i = 0; i < config_.layers; ++i)
    cache.layers.push_back(nn::KvCache::create(batch, kv_heads, config_.context, config_.dim / config_.heads, dtype));
  return cache;
}

Tensor LanguageModel::next_logits(const Tensor& tokens, ModelCache& cache) const {
  NoGrad guard;
  const Tensor x = hidden(tokens, &cache);
  cache.length += tokens.size(1);
  return logits(x.select(1, x.size(1) - 1));
}

Gpt::Gpt(const ModelConfig& config)
    : LanguageModel("Gpt", config),
      position_embedding(register_module("position_embedding", nn::Embedding(config.context, config.dim))),
      dropout(register_module("dropout", nn::Dropout(config.dropout))),
      blocks(register_module("blocks", nn::ModuleList<nn::GptBlock>())),
      norm(register_module("norm", nn::LayerNorm(config.dim, config.norm_eps))) {
  for (int64_t i = 0; i < config.layers; ++i) blocks.push_back(nn::GptBlock(block_options(config)));
  make_head();
  initialise();
}

Tensor Gpt::hidden(const Tensor& tokens, ModelCache* cache) const {
  const Tensor x = embed(tokens, cache);
  Tensor positions = position_embedding.weight.narrow(0, cache ? cache->length : 0, tokens.size(1));
  if (positions.dtype() != x.dtype()) positions = positions.to(x.dtype());
  return nn::add_norm(norm, run_blocks(blocks, dropout(x + positions), cache, recomputed_blocks())).first;
}

Llama::Llama(const ModelConfig& config)
    : LanguageModel("Llama", config),
      blocks(register_module("blocks", nn::ModuleList<nn::LlamaBlock>())),
      norm(register_module("norm", nn::RMSNorm(config.dim, config.norm_eps))) {
  for (int64_t i = 0; i < config.layers; ++i) blocks.push_back(nn::LlamaBlock(block_options(config)));
  make_head();
  initialise();
}

Tensor Llama::hidden(const Tensor& tokens, ModelCache* cache) const {
  return nn::add_norm(norm, run_blocks(blocks, embed(tokens, cache), cache, recomputed_blocks())).first;
}

std::shared_ptr<LanguageModel> make_model(const ModelConfig& config) {
  if (config.family == "gpt") return std::make_shared<Gpt>(config);
  check(config.family == "llama", "make_model", "model.family is gpt or llama, got '", config.family, "'");
  return std::make_shared<Llama>(config);
}

}  // namespace strata
