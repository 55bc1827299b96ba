#include "strata/nn/encoder_decoder.h"

#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata::nn {
namespace {

bool is_gelu(std::string_view kind, const std::string& activation) {
  check(activation == "relu" || activation == "gelu", kind, "activation is 'relu' or 'gelu', got '", activation, "'");
  return activation == "gelu";
}

// x + part(norm(x)), or norm(x + part(x)).
template <class Part>
Tensor residual(const Tensor& x, const LayerNorm& norm, const Dropout& dropout, bool norm_first, Part part) {
  return norm_first ? x + dropout(part(norm(x))) : norm(x + dropout(part(x)));
}

template <class Layer>
Tensor feed_forward(const Layer& layer, const Tensor& x, bool use_gelu) {
  const Tensor hidden = layer.linear1(x);
  return layer.linear2(layer.dropout(use_gelu ? gelu(hidden) : relu(hidden)));
}

MultiheadAttention attention_of(const TransformerOptions& o) {
  return MultiheadAttention(o.d_model, o.nhead, {.dropout = o.dropout, .batch_first = o.batch_first});
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerOptions& o)
    : Module("TransformerEncoderLayer"),
      self_attn(register_module("self_attn", attention_of(o))),
      linear1(register_module("linear1", Linear(o.d_model, o.dim_feedforward))),
      linear2(register_module("linear2", Linear(o.dim_feedforward, o.d_model))),
      norm1(register_module("norm1", LayerNorm(o.d_model, o.layer_norm_eps))),
      norm2(register_module("norm2", LayerNorm(o.d_model, o.layer_norm_eps))),
      dropout(register_module("dropout", Dropout(o.dropout))),
      dropout1(register_module("dropout1", Dropout(o.dropout))),
      dropout2(register_module("dropout2", Dropout(o.dropout))),
      norm_first_(o.norm_first),
      gelu_(is_gelu("TransformerEncoderLayer", o.activation)) {}

Tensor TransformerEncoderLayer::forward(const Tensor& x, const AttentionMasks& masks) const {
  const Tensor y =
      residual(x, norm1, dropout1, norm_first_, [&](const Tensor& t) { return self_attn(t, t, t, masks); });
  return residual(y, norm2, dropout2, norm_first_, [&](const Tensor& t) { return feed_forward(*this, t, gelu_); });
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerOptions& o)
    : Module("TransformerDecoderLayer"),
      self_attn(register_module("self_attn", attention_of(o))),
      multihead_attn(register_module("multihead_attn", attention_of(o))),
      linear1(register_module("linear1", Linear(o.d_model, o.dim_feedforward))),
      linear2(register_module("linear2", Linear(o.dim_feedforward, o.d_model))),
      norm1(register_module("norm1", LayerNorm(o.d_model, o.layer_norm_eps))),
      norm2(register_module("norm2", LayerNorm(o.d_model, o.layer_norm_eps))),
      norm3(register_module("norm3", LayerNorm(o.d_model, o.layer_norm_eps))),
      dropout(register_module("dropout", Dropout(o.dropout))),
      dropout1(register_module("dropout1", Dropout(o.dropout))),
      dropout2(register_module("dropout2", Dropout(o.dropout))),
      dropout3(register_module("dropout3", Dropout(o.dropout))),
      norm_first_(o.norm_first),
      gelu_(is_gelu("TransformerDecoderLayer", o.activation)) {}

Tensor TransformerDecoderLayer::forward(const Tensor& x, const Tensor& memory, const AttentionMasks& masks,
                                        const AttentionMasks& memory_masks) const {
  Tensor y = residual(x, norm1, dropout1, norm_first_, [&](const Tensor& t) { return self_attn(t, t, t, masks); });
  y = residual(y, norm2, dropout2, norm_first_,
               [&](const Tensor& t) { return multihead_attn(t, memory, memory, memory_masks); });
  return residual(y, norm3, dropout3, norm_first_, [&](const Tensor& t) { return feed_forward(*this, t, gelu_); });
}

TransformerEncoder::TransformerEncoder(const TransformerOptions& o, bool with_norm)
    : Module("TransformerEncoder"), layers(register_module("layers", ModuleList<TransformerEncoderLayer>())) {
  check(o.num_encoder_layers >= 0, "TransformerEncoder", "layers are at least 0, got ", o.num_encoder_layers);
  for (int64_t i = 0; i < o.num_encoder_layers; ++i) layers.push_back(TransformerEncoderLayer(o));
  if (with_norm) norm = register_module("norm", LayerNorm(o.d_model, o.layer_norm_eps));
}

Tensor TransformerEncoder::forward(const Tensor& x, const AttentionMasks& masks) const {
  Tensor y = x;
  for (const TransformerEncoderLayer& layer : layers) y = layer(y, masks);
  return norm ? (*norm)(y) : y;
}

TransformerDecoder::TransformerDecoder(const TransformerOptions& o, bool with_norm)
    : Module("TransformerDecoder"), layers(register_module("layers", ModuleList<TransformerDecoderLayer>())) {
  check(o.num_decoder_layers >= 0, "TransformerDecoder", "layers are at least 0, got ", o.num_decoder_layers);
  for (int64_t i = 0; i < o.num_decoder_layers; ++i) layers.push_back(TransformerDecoderLayer(o));
  if (with_norm) norm = register_module("norm", LayerNorm(o.d_model, o.layer_norm_eps));
}

Tensor TransformerDecoder::forward(const Tensor& x, const Tensor& memory, const AttentionMasks& masks,
                                   const AttentionMasks& memory_masks) const {
  Tensor y = x;
  for (const TransformerDecoderLayer& layer : layers) y = layer(y, memory, masks, memory_masks);
  return norm ? (*norm)(y) : y;
}

Transformer::Transformer(const TransformerOptions& options)
    : Module("Transformer"),
      encoder(register_module("encoder", TransformerEncoder(options))),
      decoder(register_module("decoder", TransformerDecoder(options))) {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const AttentionMasks& src_masks,
                            const AttentionMasks& tgt_masks, const AttentionMasks& memory_masks) const {
  return decoder(tgt, encoder(src, src_masks), tgt_masks, memory_masks);
}

}  // namespace strata::nn
