#include "strata/models/text_encoder.h"

#include <limits>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr const char* kOp = "TextEncoder";

const ModelSpec& checked(const ModelSpec& spec) {
  check_spec(spec);
  check(spec.kind == ModelKind::encoder && spec.vocab > 0, kOp, "wants the spec of an encoder of text");
  return spec;
}

template <class M, class... A>
std::optional<M> made_if(bool wanted, A&&... args) {
  return wanted ? std::optional<M>(M(std::forward<A>(args)...)) : std::nullopt;
}

}  // namespace

TextEncoder::TextEncoder(const ModelSpec& spec)
    : Module(kOp),
      token_embedding(register_module("token_embedding", nn::Embedding(checked(spec).vocab, spec.dim))),
      dropout(register_module("dropout", nn::Dropout(spec.embedding_dropout))),
      blocks(register_module("blocks", nn::ModuleList<nn::TransformerBlock>())),
      spec_(spec) {
  const auto add = [&](auto& member, const char* name, auto made) {
    if (made) member = register_module(name, *made);
  };
  add(position_embedding, "position_embedding",
      made_if<nn::Embedding>(spec.learned_positions > 0, spec.learned_positions, spec.dim));
  add(type_embedding, "type_embedding", made_if<nn::Embedding>(spec.token_types > 0, spec.token_types, spec.dim));
  if (spec.embedding_norm) embedding_norm = register_module("embedding_norm", nn::Norm(spec.dim, *spec.embedding_norm));
  for (const nn::LayerSpec& layer : spec.layers) blocks.push_back(nn::TransformerBlock(spec.dim, layer));
  if (spec.final_norm) norm = register_module("norm", nn::Norm(spec.dim, *spec.final_norm));
  add(pooler, "pooler", made_if<nn::Linear>(spec.pooler, spec.dim, spec.dim));
  if (!spec.encoder_head) return;
  const EncoderHeadSpec& h = *spec.encoder_head;
  add(head_dense, "head_dense", made_if<nn::Linear>(h.dense, spec.dim, spec.dim));
  if (h.norm) head_norm = register_module("head_norm", nn::Norm(spec.dim, *h.norm));
  const bool tokens = h.kind == EncoderHeadSpec::Kind::tokens;
  const int64_t width = tokens ? spec.vocab : h.labels;
  head =
      tokens && spec.tied ? token_embedding.weight : register_module("head", nn::Linear(spec.dim, width, false)).weight;
  head_bias = register_parameter("head_bias", zeros({width}));
}

Tensor TextEncoder::hidden(const Tensor& tokens, const Tensor& padding, const Tensor& types) const {
  check<ShapeError>(tokens.dim() == 2, kOp, "tokens are [B, T], got ", tokens);
  check<ShapeError>(!padding.defined() || (padding.shape() == tokens.shape() && padding.dtype() == DType::boolean), kOp,
                    "padding is ", padding, ", tokens ", tokens);
  check<ShapeError>(!types.defined() || types.shape() == tokens.shape(), kOp, "types are ", types, ", tokens ", tokens);
  check(!types.defined() || type_embedding, kOp, "this model knows no types of tokens");
  const int64_t time = tokens.size(1);
  check<ShapeError>(time <= spec_.context, kOp, time, " tokens do not fit the context of ", spec_.context);
  const DeviceScope there(tokens.device());
  Tensor x = token_embedding(tokens);
  if (type_embedding) x = x + (types.defined() ? (*type_embedding)(types) : type_embedding->weight.select(0, 0));
  if (position_embedding) {
    if (spec_.positions_skip_padding && padding.defined()) {
      const Tensor real = logical_not(padding).to(DType::i64);
      // What is padding stands before the first position, as in the library that the weights come from.
      x = x + (*position_embedding)(cumsum(real, 1) * real + (spec_.position_offset - 1));
    } else {
      x = x + position_embedding->weight.narrow(0, spec_.position_offset, time);
    }
  }
  if (embedding_norm) x = (*embedding_norm)(x);
  nn::Places places;
  if (padding.defined()) places.seen = logical_not(padding).view({tokens.size(0), 1, 1, time});
  nn::Residual r{dropout(x), {}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    memory::ModuleScope at(cat("blocks.", i));
    r = blocks[i].step(r, places);
  }
  return norm ? nn::add_norm(*norm, r).first : r.sum();
}

Tensor TextEncoder::pooled(const Tensor& hidden) const {
  check(pooler.has_value(), kOp, "this model has no pooler");
  return tanh((*pooler)(hidden.select(1, 0)));
}

Tensor TextEncoder::logits(const Tensor& hidden) const {
  check(spec_.encoder_head.has_value(), kOp, "this model has no head");
  const EncoderHeadSpec& h = *spec_.encoder_head;
  Tensor x = h.kind == EncoderHeadSpec::Kind::tokens ? hidden : h.pooled ? pooled(hidden) : hidden.select(1, 0);
  if (head_dense) x = nn::activate((*head_dense)(x), h.activation);
  if (head_norm) x = (*head_norm)(x);
  return linear(x, head, head_bias);
}

Tensor TextEncoder::forward(const Tensor& tokens, const Tensor& padding, const Tensor& types) const {
  const Tensor h = hidden(tokens, padding, types);
  return spec_.encoder_head ? logits(h) : h;
}

Tensor text_embeddings(const Tensor& hidden, const Tensor& padding, const EmbeddingOptions& options) {
  constexpr const char* kName = "text_embeddings";
  check<ShapeError>(hidden.dim() == 3, kName, "hidden states are [B, T, dim], got ", hidden);
  const int64_t batch = hidden.size(0), time = hidden.size(1), dim = hidden.size(2);
  check<ShapeError>(time > 0, kName, "there are no places to pool");
  check<ShapeError>(!padding.defined() || padding.shape() == Shape({batch, time}), kName, "padding is ", padding,
                    ", hidden states ", hidden);
  const DeviceScope there(hidden.device());
  const Tensor real = padding.defined() ? logical_not(padding) : full({batch, time}, true, DType::boolean);
  const Tensor counts = real.to(DType::f32);
  Tensor x;
  switch (options.pooling) {
    case Pooling::first:
      x = hidden.select(1, 0);
      break;
    case Pooling::last: {
      // The last token's place, also where padding stands before the text.
      const Tensor last = argmax(counts * arange(1, time + 1, 1, DType::f32), 1);
      x = gather(hidden, 1, last.view({batch, 1, 1}).expand({batch, 1, dim})).select(1, 0);
      break;
    }
    case Pooling::max:
      x = amax(where(real.unsqueeze(2), hidden, -std::numeric_limits<double>::infinity()), {1});
      break;
    case Pooling::mean:
    case Pooling::weighted_mean:
    case Pooling::root_mean: {
      const Tensor weights = options.pooling == Pooling::weighted_mean ? counts * cumsum(counts, 1) : counts;
      const Tensor total = sum(weights, {1}, true) + 0.0;
      const Tensor all = sum(hidden * weights.unsqueeze(2).to(hidden.dtype()), {1});
      const Tensor least = maximum(total, full({}, 1e-9));
      x = all / (options.pooling == Pooling::root_mean ? sqrt(least) : least).to(hidden.dtype());
      break;
    }
  }
  if (!options.normalize) return x;
  const Tensor length = sqrt(sum(square(x.to(DType::f32)), {1}, true));
  return x / maximum(length, full({}, 1e-12)).to(x.dtype());
}

}  // namespace strata
