#include "strata/nn/transformer.h"

#include "strata/nn/hooks.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/mlp.h"
#include "strata/ops/norm/norm.h"

namespace strata::nn {

std::pair<Tensor, Tensor> add_norm(const LayerNorm& norm, const Residual& r) {
  if (!r.stream.defined()) return {norm(r.branch), r.branch};
  auto [normed, sum] = add_layer_norm(r.branch, r.stream, norm.weight, norm.bias, norm.eps());
  return {std::move(normed), std::move(sum)};
}

std::pair<Tensor, Tensor> add_norm(const RMSNorm& norm, const Residual& r) {
  if (!r.stream.defined()) return {norm(r.branch), r.branch};
  auto [normed, sum] = add_rms_norm(r.branch, r.stream, norm.weight, norm.eps());
  return {std::move(normed), std::move(sum)};
}

GptMlp::GptMlp(int64_t dim, int64_t ffn_dim)
    : Module("GptMlp"),
      up(register_module("up", Linear(dim, ffn_dim))),
      down(register_module("down", Linear(ffn_dim, dim))) {}

Tensor GptMlp::forward(const Tensor& x) const {
  if (has_forward_hooks(up) || has_forward_hooks(down)) [[unlikely]]
    return down(gelu(up(x), "tanh"));
  return gelu_feed_forward(x, up.weight, up.bias, down.weight, down.bias);
}

LlamaMlp::LlamaMlp(int64_t dim, int64_t ffn_dim)
    : Module("LlamaMlp"),
      gate_up(register_module("gate_up", Linear(dim, 2 * ffn_dim, false))),
      down(register_module("down", Linear(ffn_dim, dim, false))) {}

Tensor LlamaMlp::forward(const Tensor& x) const {
  return down(swiglu(gate_up(x)));
}

template <class Norm, class Mlp>
DecoderBlock<Norm, Mlp>::DecoderBlock(std::string_view kind, const BlockOptions& o,
                                      const SelfAttentionOptions& attention, int64_t ffn_dim)
    : Module(kind),
      norm1(register_module("norm1", Norm(o.dim, o.norm_eps))),
      attn(register_module("attn", SelfAttention(o.dim, o.heads, attention))),
      norm2(register_module("norm2", Norm(o.dim, o.norm_eps))),
      mlp(register_module("mlp", Mlp(o.dim, ffn_dim))),
      dropout(register_module("dropout", Dropout(o.dropout))) {}

template <class Norm, class Mlp>
Residual DecoderBlock<Norm, Mlp>::step(const Residual& r, KvCache* cache) const {
  const auto [normed, stream] = add_norm(norm1, r);
  const auto [normed2, stream2] = add_norm(norm2, {dropout(attn(normed, cache)), stream});
  return {dropout(mlp(normed2)), stream2};
}

template <class Norm, class Mlp>
Tensor DecoderBlock<Norm, Mlp>::forward(const Tensor& x, KvCache* cache) const {
  const Residual r = step({x, {}}, cache);
  return r.stream + r.branch;
}

template class DecoderBlock<LayerNorm, GptMlp>;
template class DecoderBlock<RMSNorm, LlamaMlp>;

GptBlock::GptBlock(const BlockOptions& o)
    : DecoderBlock("GptBlock", o, {.kv_heads = o.kv_heads, .dropout = o.dropout},
                   o.ffn_dim > 0 ? o.ffn_dim : 4 * o.dim) {}

LlamaBlock::LlamaBlock(const BlockOptions& o)
    : DecoderBlock("LlamaBlock", o,
                   {.kv_heads = o.kv_heads, .bias = false, .dropout = o.dropout, .rope_base = o.rope_base},
                   o.ffn_dim > 0 ? o.ffn_dim : (8 * o.dim / 3 + 63) / 64 * 64) {}

}  // namespace strata::nn
