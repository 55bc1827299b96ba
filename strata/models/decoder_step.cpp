#include "strata/models/decoder_step_inl.h"

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/nn/hooks.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/nn/packed.h"
#include "strata/ops/decoder/decoder_inl.h"

namespace strata::detail {
namespace {

// A layer's matrix, where nothing runs around the layer (as adapters do) and it has no bias. A packed layer runs
// instead of its own forward.
std::optional<decoder::Matrix> matrix_of(const nn::Linear& linear) {
  if (linear.bias.defined() || nn::detail::has_hooks_around(linear)) return std::nullopt;
  if (nn::is_packed(linear)) {
    std::vector<PackedWeight> rows = nn::packed_weights(linear);
    if (rows.size() != 1) return std::nullopt;
    return decoder::Matrix{{}, std::move(rows.front())};
  }
  if (nn::has_forward_hooks(linear) || !linear.weight.defined()) return std::nullopt;
  return decoder::Matrix{linear.weight};
}

bool is_plain(const nn::Norm& norm) {
  const nn::NormSpec& spec = norm.spec();
  return spec.kind == nn::NormSpec::Kind::rms && !spec.one_plus && !nn::has_forward_hooks(norm);
}

// What Llama's layers are.
bool is_plain(const nn::LayerSpec& spec) {
  const nn::AttentionSpec& a = spec.attention;
  const nn::FeedForwardSpec& f = spec.feed_forward;
  return spec.placement == nn::NormPlacement::before && !spec.layer_scale && a.head_size == a.value_size &&
         a.window == 0 && a.causal && !a.query_key_norm && !a.scale && a.soft_cap == 0 && a.rotary == 0 && !a.latent &&
         f.gated && f.activation == nn::Activation::silu && !f.experts;
}

std::optional<decoder::LayerTensors> tensors_of(const nn::TransformerBlock& block, const nn::KvCache& cache) {
  if (!is_plain(block.spec()) || !is_plain(block.norm1) || !is_plain(*block.norm2) || nn::has_forward_hooks(block) ||
      nn::has_forward_hooks(block.attn) || nn::has_forward_hooks(block.mlp) || nn::has_forward_hooks(block.dropout))
    return std::nullopt;
  auto qkv = matrix_of(block.attn.qkv), out = matrix_of(block.attn.out), gate_up = matrix_of(*block.mlp.gate_up),
       down = matrix_of(*block.mlp.down);
  if (!qkv || !out || !gate_up || !down) return std::nullopt;
  return decoder::LayerTensors{.norm1 = block.norm1.weight,
                               .norm2 = block.norm2->weight,
                               .qkv = *std::move(qkv),
                               .out = *std::move(out),
                               .gate_up = *std::move(gate_up),
                               .down = *std::move(down),
                               .k = cache.k,
                               .v = cache.v};
}

}  // namespace

std::optional<Tensor> decoder_step(const nn::ModuleList<nn::TransformerBlock>& blocks, const ModelSpec& spec,
                                   const Tensor& x, const nn::Places& places, const ModelCache& cache) {
  // Calls that are watched are seen one by one.
  if (!x.device().is_cuda() || x.numel() != spec.dim || places.first || places.seen.defined() || t_mode.unusual != 0 ||
      grad_enabled() || autocast_enabled() || spec.layers.empty() || places.turns.size() != 1 ||
      places.turns[0].interleaved || spec.rotary[0].dims != spec.layers[0].attention.head_size)
    return std::nullopt;
  const nn::AttentionSpec& attention = spec.layers[0].attention;
  decoder::StepTensors step{.layers = {},
                            .heads = attention.heads,
                            .kv_heads = attention.kv_heads,
                            .eps = spec.layers[0].norm.eps,
                            .x = x,
                            .cos = places.turns[0].cos,
                            .sin = places.turns[0].sin,
                            .place = places.queries,
                            .starts = places.starts,
                            .running = places.counts};
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    const nn::LayerSpec& own = blocks[i].spec();
    if (own.attention.heads != step.heads || own.attention.kv_heads != step.kv_heads || own.norm.eps != step.eps ||
        (blocks[i].is_training() && (own.dropout > 0 || own.feed_forward.dropout > 0)))
      return std::nullopt;
    std::optional<decoder::LayerTensors> layer = tensors_of(blocks[i], cache.layers[i]);
    if (!layer) return std::nullopt;
    step.layers.push_back(*std::move(layer));
  }
  return decoder::step(step);
}

}  // namespace strata::detail
