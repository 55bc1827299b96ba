#include "strata/models/encoder_decoder.h"

#include <cmath>
#include <limits>

#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/join/join.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr const char* kOp = "EncoderDecoder";

const ModelSpec& checked(const ModelSpec& spec) {
  check_spec(spec);
  check(spec.kind == ModelKind::encoder_decoder && spec.parts.size() == 2, kOp, "wants the spec of an encoder-decoder");
  for (const ModelSpec& part : spec.parts)
    check(part.rotary.empty() && !part.embedding_norm && part.position_offset == 0 && part.token_types == 0 &&
              part.embedding_scale == 1 && !part.head_bias && part.logit_soft_cap == 0,
          kOp, "a part has what is not had here:\n", to_string(part));
  check(spec.parts[0].audio || spec.parts[0].learned_positions == 0, kOp, "has no learned positions of what it reads");
  return spec;
}

// Position p has sin(p f) and, in its second half, cos(p f), for frequencies f from 1 down to 1 / 10000.
Tensor sines(int64_t places, int64_t dim) {
  const int64_t half = dim / 2;
  const double step = std::log(10000.0) / static_cast<double>(half - 1);
  const Tensor frequencies = exp(arange(half, DType::f32) * -step);
  const Tensor angles = arange(places, DType::f32).unsqueeze(1) * frequencies.unsqueeze(0);
  return cat({sin(angles), cos(angles)}, 1).to(default_dtype());
}

std::optional<nn::RelativePositions> relative_of(const ModelSpec& part, bool both_ways) {
  if (!part.relative) return {};
  return nn::RelativePositions(part.relative->buckets, part.relative->distance, part.layers.front().attention.heads,
                               both_ways);
}

// Where places are seen, [B, 1, 1, S]; undefined: everywhere.
Tensor seen_of(const Tensor& padding, int64_t batch, int64_t places) {
  if (!padding.defined()) return {};
  check<ShapeError>(padding.dtype() == DType::boolean && padding.shape() == Shape({batch, places}), kOp,
                    "padding is boolean [", batch, ", ", places, "], got ", padding);
  return logical_not(padding).view({batch, 1, 1, places});
}

}  // namespace

EncoderDecoder::EncoderDecoder(const ModelSpec& spec)
    : Module(kOp),
      token_embedding(
          register_module("token_embedding", nn::Embedding(checked(spec).parts[1].vocab, spec.parts[1].dim))),
      spec_(spec) {
  const ModelSpec &reads = spec.parts[0], &writes = spec.parts[1];
  const int64_t dim = writes.dim;
  const auto add = [&](auto& member, const char* name, auto made) {
    if (made) member = register_module(name, *made);
  };
  const auto norm = [&](const ModelSpec& part) {
    return part.final_norm ? std::optional(nn::Norm(dim, *part.final_norm)) : std::nullopt;
  };
  if (reads.audio) {
    conv1 = register_module("conv1", nn::Conv1d(reads.audio->bins, dim, 3, {.padding = {1}}));
    conv2 = register_module("conv2", nn::Conv1d(dim, dim, 3, {.stride = {2}, .padding = {1}}));
    encoder_positions = register_buffer("encoder_positions", sines(reads.context, dim));
  }
  add(encoder_relative, "encoder_relative", relative_of(reads, true));
  encoder = register_module("encoder", nn::ModuleList<nn::TransformerBlock>());
  for (const nn::LayerSpec& layer : reads.layers) encoder.push_back(nn::TransformerBlock(dim, layer));
  add(encoder_norm, "encoder_norm", norm(reads));
  if (writes.learned_positions > 0)
    position_embedding = register_module("position_embedding", nn::Embedding(writes.learned_positions, dim));
  add(decoder_relative, "decoder_relative", relative_of(writes, false));
  decoder = register_module("decoder", nn::ModuleList<nn::CrossBlock>());
  for (const nn::LayerSpec& layer : writes.layers) decoder.push_back(nn::CrossBlock(dim, layer));
  add(decoder_norm, "decoder_norm", norm(writes));
  encoder_dropout = register_module("encoder_dropout", nn::Dropout(reads.embedding_dropout));
  decoder_dropout = register_module("decoder_dropout", nn::Dropout(writes.embedding_dropout));
  if (!writes.tied) head = register_module("head", nn::Linear(dim, writes.vocab, false));
}

int64_t EncoderDecoder::source_places(const Tensor& source) const {
  const ModelSpec& reads = spec_.parts[0];
  if (!reads_sound()) {
    check<ShapeError>(source.dim() == 2 && source.size(1) > 0, kOp, "tokens that are read are [B, S], got ", source);
    check<DTypeError>(source.dtype() == DType::i64, kOp, "tokens are i64, got ", source);
    return source.size(1);
  }
  check<ShapeError>(source.dim() == 3 && source.size(1) == reads.audio->bins && source.size(2) == 2 * reads.context,
                    kOp, "sound is [B, ", reads.audio->bins, ", ", 2 * reads.context, "], got ", source);
  check<DTypeError>(is_floating(source.dtype()), kOp, "frames of sound are floating, got ", source);
  return reads.context;
}

// Vectors of what is read, before the encoder's blocks.
Tensor EncoderDecoder::read(const Tensor& source) const {
  source_places(source);
  if (!reads_sound()) {
    const Tensor x = token_embedding(source);
    return autocast_enabled() ? x.to(autocast_dtype()) : x;
  }
  const Tensor x = gelu((*conv2)(gelu((*conv1)(source)))).transpose(1, 2);
  return x + encoder_positions.to(x.dtype());
}

Tensor EncoderDecoder::encode(const Tensor& source, const Tensor& padding) const {
  check(!padding.defined() || !reads_sound(), kOp, "sound has no padding");
  const DeviceScope there(source.device());
  const Tensor x = read(source);
  const int64_t places = x.size(1);
  nn::Places at;
  at.seen = seen_of(padding, x.size(0), places);
  if (encoder_relative) {
    const Tensor bias = encoder_relative->between(places, places);
    at.seen = at.seen.defined() ? where(at.seen, bias, -std::numeric_limits<double>::infinity()) : bias;
  }
  nn::Residual r{encoder_dropout(x), {}};
  for (size_t i = 0; i < encoder.size(); ++i) {
    memory::ModuleScope scope(cat("encoder.", i));
    r = encoder[i].step(r, at);
  }
  const Tensor y = encoder_norm ? nn::add_norm(*encoder_norm, r).first : r.sum();
  return encoder_relative ? encoder_dropout(y) : y;  // as T5 has it, and Whisper not
}

Tensor EncoderDecoder::run(const Tensor& x, const nn::Places& places, const std::vector<nn::KvCache>& source,
                           const Tensor& seen, ModelCache* cache, std::vector<Tensor>* readers) const {
  nn::Residual r{decoder_dropout(x), {}};
  for (size_t i = 0; i < decoder.size(); ++i) {
    memory::ModuleScope scope(cat("decoder.", i));
    r = decoder[i].step(r, {source[i], seen, readers ? &(*readers)[i] : nullptr}, places,
                        cache ? &cache->layers[i] : nullptr);
  }
  const Tensor y = decoder_norm ? nn::add_norm(*decoder_norm, r).first : r.sum();
  return decoder_relative ? decoder_dropout(y) : y;
}

Tensor EncoderDecoder::hidden(const Tensor& tokens, const Tensor& encoded, const Tensor& padding) const {
  std::vector<nn::KvCache> keys;
  return hidden(tokens, encoded, padding, keys, nullptr);
}

// Leaves the keys of what was encoded in `keys`, and what each layer's attention to them read in `readers`.
Tensor EncoderDecoder::hidden(const Tensor& tokens, const Tensor& encoded, const Tensor& padding,
                              std::vector<nn::KvCache>& keys, std::vector<Tensor>* readers) const {
  check<ShapeError>(tokens.dim() == 2, kOp, "tokens are [B, T], got ", tokens);
  check<ShapeError>(encoded.dim() == 3 && encoded.size(0) == tokens.size(0) && encoded.size(2) == spec_.parts[1].dim,
                    kOp, "what the encoder gave is [", tokens.size(0), ", S, ", spec_.parts[1].dim, "], got ", encoded);
  const int64_t time = tokens.size(1);
  check<ShapeError>(!position_embedding || time <= context(), kOp, time, " tokens do not fit the context of ",
                    context());
  const DeviceScope there(tokens.device());
  Tensor x = token_embedding(tokens);
  if (position_embedding) x = x + position_embedding->weight.narrow(0, 0, time);
  if (autocast_enabled()) x = x.to(autocast_dtype());
  nn::Places places;
  if (decoder_relative) places.seen = decoder_relative->between(time, time);
  for (const nn::CrossBlock& block : decoder) keys.push_back(block.cross.keys(encoded));
  return run(x, places, keys, seen_of(padding, encoded.size(0), encoded.size(1)), nullptr, readers);
}

Tensor EncoderDecoder::source_weights(const Tensor& tokens, const Tensor& encoded,
                                      std::span<const std::pair<int64_t, int64_t>> heads) const {
  const NoGrad guard;
  const auto layers = static_cast<int64_t>(decoder.size());
  for (const auto& [layer, head] : heads) {
    check<IndexError>(layer >= 0 && layer < layers, kOp, "there is no layer ", layer, " of ", layers);
    const int64_t all = spec_.parts[1].layers[static_cast<size_t>(layer)].attention.heads;
    check<IndexError>(head >= 0 && head < all, kOp, "there is no head ", head, " of ", all, " in layer ", layer);
  }
  std::vector<nn::KvCache> keys;
  std::vector<Tensor> readers(decoder.size());
  hidden(tokens, encoded, {}, keys, &readers);
  std::vector<Tensor> by_layer(decoder.size()), all;
  for (const auto& [layer, head] : heads) {
    const auto i = static_cast<size_t>(layer);
    if (!by_layer[i].defined()) by_layer[i] = decoder[i].cross.weights(readers[i], keys[i]).to(DType::f32);
    all.push_back(by_layer[i].narrow(1, head, 1));
  }
  check(!all.empty(), kOp, "there are no heads to ask");
  return cat(all, 1);
}

Tensor EncoderDecoder::logits(const Tensor& hidden) const {
  const double scale = spec_.parts[1].logit_scale;
  const Tensor x = scale != 1 ? hidden * scale : hidden;
  return head ? (*head)(x) : linear(x, token_embedding.weight);
}

Tensor EncoderDecoder::forward(const Tensor& source, const Tensor& tokens, const Tensor& padding) const {
  return logits(hidden(tokens, encode(source, padding), padding));
}

Tensor EncoderDecoder::loss(const Tensor& source, const Tensor& tokens, const Tensor& targets,
                            const Tensor& padding) const {
  check<ShapeError>(tokens.shape() == targets.shape(), kOp, "tokens are ", tokens, ", targets ", targets);
  const Tensor all = forward(source, tokens, padding);
  return cross_entropy(all.view({-1, vocab()}), targets.reshape({-1}));
}

ModelCache EncoderDecoder::make_cache(int64_t batch, int64_t capacity, int64_t source) const {
  check(batch > 0 && capacity >= 0 && source > 0, kOp, "a cache wants texts, room and places of a source, got ", batch,
        ", ", capacity, " and ", source);
  check(!position_embedding || capacity <= context(), kOp, "a cache of ", capacity,
        " positions is longer than the context of ", context());
  const DType dtype = autocast_enabled() ? autocast_dtype() : token_embedding.weight.dtype();
  ModelCache cache;
  cache.capacity = capacity > 0 ? capacity : context();
  const DeviceScope on(device());
  cache.lengths = zeros({batch}, DType::i64);
  for (const nn::CrossBlock& block : decoder) {
    cache.layers.push_back(block.attn.make_cache(batch, cache.capacity, dtype));
    cache.source.push_back(block.attn.make_cache(batch, source, dtype));
  }
  cache.source_seen = zeros({batch, 1, 1, source}, DType::boolean);
  return cache;
}

void EncoderDecoder::read_source(ModelCache& cache, const Tensor& encoded, const Tensor& padding) const {
  const NoGrad guard;
  const int64_t batch = cache.lengths.size(0), room = cache.source_seen.size(3);
  check<ShapeError>(encoded.dim() == 3 && encoded.size(0) == batch && encoded.size(1) <= room && encoded.size(1) > 0 &&
                        encoded.size(2) == spec_.parts[1].dim,
                    kOp, "the cache takes what an encoder gave as [", batch, ", up to ", room, ", ", spec_.parts[1].dim,
                    "], got ", encoded);
  const int64_t places = encoded.size(1);
  const Tensor seen = seen_of(padding, batch, places);
  const DeviceScope there(device());
  cache.source_seen.fill_(0);
  narrow(cache.source_seen, 3, 0, places).copy_(seen.defined() ? seen : ones({batch, 1, 1, places}, DType::boolean));
  for (size_t i = 0; i < decoder.size(); ++i) {
    const nn::KvCache made = decoder[i].cross.keys(encoded);
    narrow(cache.source[i].k, 2, 0, places).copy_(made.k);
    narrow(cache.source[i].v, 2, 0, places).copy_(made.v);
  }
}

Tensor EncoderDecoder::hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts) const {
  const NoGrad guard;
  const DeviceScope there(cache.lengths.device());
  auto [places, positions] = places_of(kOp, tokens, cache, counts);
  const int64_t time = tokens.size(1);
  Tensor x = token_embedding(tokens);
  if (position_embedding) x = x + (*position_embedding)(positions);
  if (autocast_enabled()) x = x.to(autocast_dtype());
  if (decoder_relative)
    places.seen =
        places.first ? decoder_relative->between(time, time) : decoder_relative->before(positions, places.reach);
  const Tensor y = run(x, places, cache.source, cache.source_seen, &cache);
  advance(cache, time, counts);
  return y;
}

}  // namespace strata
