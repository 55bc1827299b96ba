#include "strata/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/nn/convert.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/tensor_parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

const ModelSpec& checked(const ModelSpec& spec) {
  check_spec(spec);
  check(spec.kind == ModelKind::decoder, "LanguageModel", "wants the spec of a decoder");
  return spec;
}

// Frequencies that follow the length of the text have no longest one.
bool is_open(const ModelSpec& spec) {
  return spec.learned_positions == 0 && std::ranges::any_of(spec.rotary, [](const nn::RotarySpec& r) {
           return r.scaling == nn::RotarySpec::Scaling::dynamic;
         });
}

double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::bf16) return static_cast<float>(BFloat16(single));
  if (dtype == DType::f16) return static_cast<float>(Half(single));
  return dtype == DType::f32 ? single : value;
}

}  // namespace

LanguageModel::LanguageModel(const ModelSpec& spec)
    : Module("LanguageModel"),
      token_embedding(register_module("token_embedding", nn::Embedding(checked(spec).vocab, spec.dim))),
      position_embedding(spec.learned_positions > 0
                             ? std::optional<nn::Embedding>(register_module(
                                   "position_embedding", nn::Embedding(spec.learned_positions, spec.dim)))
                             : std::nullopt),
      dropout(register_module("dropout", nn::Dropout(spec.embedding_dropout))),
      blocks(register_module("blocks", nn::ModuleList<nn::TransformerBlock>())),
      spec_(spec) {
  for (const nn::LayerSpec& layer : spec.layers) blocks.push_back(nn::TransformerBlock(spec.dim, layer));
  if (spec.final_norm) norm = register_module("norm", nn::Norm(spec.dim, *spec.final_norm));
  for (const nn::RotarySpec& r : spec.rotary) rotary_.emplace_back(r);
  make_head();
  initialise();
}

void LanguageModel::initialise() {
  parts_.reset();
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(spec_.layers.size()));
  for (const auto& [name, p] : named_parameters()) {
    const bool writes_residual = name.ends_with("attn.out.weight") || name.ends_with("mlp.down.weight") ||
                                 name.ends_with("experts.down") || name.ends_with("experts.shared_down.weight");
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
  if (!spec_.tied) head_map_ = register_module("head", nn::Linear(spec_.dim, spec_.vocab, false));
  head_ = head_map_ ? head_map_->weight : token_embedding.weight;
  if (spec_.head_bias) head_bias_ = new_parameter("head_bias", {spec_.vocab});
}

Tensor LanguageModel::embed(const Tensor& tokens, const Tensor& positions) const {
  Tensor x;
  {
    memory::ModuleScope at("token_embedding");
    x = token_embedding(tokens);
    // The factor is rounded as the weights are, as in the library that they come from.
    if (spec_.embedding_scale != 1) x = x * rounded(spec_.embedding_scale, x.dtype());
    if (autocast_enabled()) x = x.to(autocast_dtype());
  }
  if (position_embedding) {
    Tensor rows = positions.defined() ? (*position_embedding)(positions + spec_.position_offset)
                                      : position_embedding->weight.narrow(0, spec_.position_offset, tokens.size(1));
    if (rows.dtype() != x.dtype()) rows = rows.to(x.dtype());
    x = x + rows;
  }
  return dropout(x);
}

// The first recomputed_ blocks are computed again in backward.
nn::Residual LanguageModel::through(const Tensor& x, const nn::Places& places, ModelCache* cache, size_t first,
                                    size_t last) const {
  nn::Residual r{x, {}};
  for (size_t i = first; i < last; ++i) {
    const auto step = [this, i, &places](const nn::Residual& in, nn::KvCache* kept) {
      memory::ModuleScope at(cat("blocks.", i));
      return blocks[i].step(in, places, kept);
    };
    if (cache) {
      r = step(r, &cache->layers[i]);
    } else if (static_cast<int64_t>(i) < recomputed_) {
      r = checkpoint(
          [this, i, places](const Tensor& branch, const Tensor& stream) {
            memory::ModuleScope at(cat("blocks.", i));
            return blocks[i].step({branch, stream}, places);
          },
          r.branch, r.stream);
    } else {
      r = step(r, nullptr);
    }
  }
  return r;
}

Tensor LanguageModel::run(const Tensor& x, const nn::Places& places, ModelCache* cache) const {
  const nn::Residual r = through(x, places, cache, 0, blocks.size());
  return norm ? nn::add_norm(*norm, r).first : r.sum();
}

void LanguageModel::check_room(const Tensor& tokens, int64_t filled, int64_t room) const {
  check<ShapeError>(tokens.dim() == 2, kind(), "tokens are [B, T], got ", tokens);
  check<ShapeError>(filled + tokens.size(1) <= room, kind(), tokens.size(1), " tokens after ", filled,
                    " do not fit the context of ", room);
}

Tensor LanguageModel::hidden(const Tensor& tokens, const Tensor& padding) const {
  if (!padding.defined()) return hidden_at(tokens, {}, {});
  check<ShapeError>(padding.dtype() == DType::boolean && padding.shape() == tokens.shape(), kind(),
                    "padding is boolean of the tokens' shape ", tokens.shape(), ", got ", padding);
  const Tensor real = logical_not(padding);
  return hidden_at(tokens, clamp(cumsum(real.to(DType::i64), 1) - 1, 0, std::nullopt), real.unsqueeze(1).unsqueeze(1));
}

Tensor LanguageModel::hidden_at(const Tensor& tokens, const Tensor& positions, const Tensor& seen) const {
  check_room(tokens, 0, is_open(spec_) ? std::numeric_limits<int64_t>::max() : context());
  const int64_t time = tokens.size(1);
  nn::Places places;
  places.seen = seen;
  places.turns_by_row = positions.defined();
  const Tensor x = embed(tokens, positions);
  for (const nn::RotaryTables& r : rotary_)
    places.turns.push_back(positions.defined() ? r.at(positions, time, x) : r.rows(0, time, time, x));
  return run(x, places, nullptr);
}

Tensor LanguageModel::hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts) const {
  const NoGrad guard;
  const DeviceScope there(cache.lengths.device());
  auto [places, positions] = places_of(kind(), tokens, cache, counts);
  const int64_t time = tokens.size(1);
  const Tensor x = embed(tokens, positions);
  for (const nn::RotaryTables& r : rotary_)
    places.turns.push_back(places.first ? r.rows(0, time, cache.capacity, x) : r.at(positions, cache.capacity, x));
  const Tensor y = run(x, places, &cache);
  advance(cache, time, counts);
  return y;
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  memory::ModuleScope at("head");
  const Tensor x = distributed::whole_for(hidden, head_);
  Tensor y;
  if (head_map_ && nn::has_forward_hooks(*head_map_)) {
    y = (*head_map_)(x);
    if (head_bias_.defined()) y = y + head_bias_;
  } else {
    y = linear(x, head_, head_bias_);
  }
  if (spec_.logit_scale != 1) y = y * spec_.logit_scale;
  if (spec_.logit_soft_cap > 0) y = (y * (1 / spec_.logit_soft_cap)).tanh() * spec_.logit_soft_cap;
  return y;
}

Tensor LanguageModel::forward(const Tensor& tokens, const Tensor& padding) const {
  return logits(hidden(tokens, padding));
}

Tensor LanguageModel::head_loss(const Tensor& hidden, const Tensor& targets, const std::string& reduction) const {
  memory::ModuleScope at("loss");
  const Tensor wanted = targets.reshape({-1});
  const bool plain = !head_bias_.defined() && spec_.logit_scale == 1 && spec_.logit_soft_cap == 0;
  if (!plain || (head_map_ && nn::has_forward_hooks(*head_map_)))
    return cross_entropy(logits(hidden).view({-1, spec_.vocab}), wanted, {.reduction = reduction});
  const Tensor rows = distributed::whole_for(hidden, head_).view({-1, spec_.dim});
  return head_cross_entropy(rows, head_, wanted, {.reduction = reduction});
}

Tensor LanguageModel::loss(const Tensor& tokens, const Tensor& targets) const {
  check<ShapeError>(tokens.shape() == targets.shape(), kind(), "tokens are ", tokens, ", targets ", targets);
  return head_loss(hidden(tokens), targets, "mean");
}

Tensor LanguageModel::part(const Tensor& in, bool embeds, int64_t first, int64_t last, const Tensor& targets) const {
  const auto all = static_cast<int64_t>(blocks.size());
  check(0 <= first && first <= last && last <= all, kind(), "there are no blocks ", first, " to ", last, " among ", all);
  if (embeds) {
    check_room(in, 0, is_open(spec_) ? std::numeric_limits<int64_t>::max() : context());
  } else {
    check<ShapeError>(in.dim() == 3 && in.size(2) == spec_.dim, kind(), "x is [B, T, ", spec_.dim, "], got ", in);
  }
  const int64_t time = in.size(1);
  const Tensor x = embeds ? embed(in, {}) : in;
  nn::Places places;
  for (const nn::RotaryTables& r : rotary_) places.turns.push_back(r.rows(0, time, time, x));
  const nn::Residual r = through(x, places, nullptr, static_cast<size_t>(first), static_cast<size_t>(last));
  if (!targets.defined()) return r.sum();
  check<ShapeError>(targets.dim() == 2 && targets.size(0) == in.size(0) && targets.size(1) == time, kind(),
                    "what comes in is ", in, ", targets are ", targets);
  return head_loss(norm ? nn::add_norm(*norm, r).first : r.sum(), targets, "mean");
}

Tensor LanguageModel::packed_loss(const Tensor& tokens, const Tensor& targets, const Tensor& positions,
                                  const Tensor& documents) const {
  for (const Tensor* t : {&targets, &positions, &documents})
    check<ShapeError>(tokens.dim() == 2 && t->shape() == tokens.shape(), kind(), "tokens are ", tokens,
                      ", what goes with them is ", *t);
  // [B, 1, T, T]: whether a query and a key are of one text.
  const Tensor seen = (documents.unsqueeze(2) == documents.unsqueeze(1)).unsqueeze(1);
  return head_loss(hidden_at(tokens, positions, seen), targets, "mean");
}

Tensor LanguageModel::log_probabilities(const Tensor& tokens, const Tensor& targets) const {
  check<ShapeError>(tokens.shape() == targets.shape(), kind(), "tokens are ", tokens, ", targets ", targets);
  return -head_loss(hidden(tokens), targets, "none").view(tokens.shape()).sum({1});
}

void LanguageModel::set_recomputed_blocks(int64_t count) {
  const auto all = static_cast<int64_t>(spec_.layers.size());
  check(count >= 0 && count <= all, kind(), "cannot compute ", count, " of ", all, " blocks again");
  recomputed_ = count;
}

void LanguageModel::read_source(ModelCache&, const Tensor&, const Tensor&) const {
  throw ValueError(kind(), "this model has no encoder, and reads no source");
}

ModelCache LanguageModel::make_cache(int64_t batch, int64_t capacity, int64_t source) const {
  check(source == 0, kind(), "this model has no encoder, and reads no source");
  check(batch > 0 && capacity >= 0, kind(), "a cache wants texts and room, got ", batch, " and ", capacity);
  const DType dtype = autocast_enabled() ? autocast_dtype() : token_embedding.weight.dtype();
  ModelCache cache;
  cache.capacity = capacity > 0 ? capacity : context();
  check(cache.capacity <= context() || is_open(spec_), kind(), "a cache of ", cache.capacity,
        " positions is longer than the context of ", context());
  const DeviceScope on(device());
  cache.lengths = zeros({batch}, DType::i64);
  for (const auto& block : blocks) cache.layers.push_back(block.attn.make_cache(batch, cache.capacity, dtype));
  return cache;
}

std::shared_ptr<LanguageModel> make_model(const ModelConfig& config) {
  return std::make_shared<LanguageModel>(model_spec(config));
}

}  // namespace strata
