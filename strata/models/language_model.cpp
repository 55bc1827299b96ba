#include "strata/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/dist/group.h"
#include "strata/memory/allocator.h"
#include "strata/models/decoder_step_inl.h"
#include "strata/nn/convert.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/nn/tensor_parallel.h"
#include "strata/nn/tiled.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/join/join.h"
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

// [B, 1, T, T]: whether a query and a key are of one text.
Tensor seen_within(const Tensor& documents) {
  return (documents.unsqueeze(2) == documents.unsqueeze(1)).unsqueeze(1);
}

// A loss with what layers add to it.
Tensor with(const Tensor& loss, const Tensor& more) {
  return more.defined() ? loss + more.to(loss.dtype()) : loss;
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

Tensor LanguageModel::embed(const Tensor& tokens, const Tensor& positions, bool parts) const {
  Tensor x;
  {
    memory::ModuleScope at("token_embedding");
    x = token_embedding(tokens);
    // The factor is rounded as the weights are, as in the library that they come from.
    if (spec_.embedding_scale != 1) x = x * rounded(spec_.embedding_scale, x.dtype());
    if (autocast_enabled()) x = x.to(autocast_dtype());
  }
  if (position_embedding) {
    const bool shared = parts && parts_of_;
    Tensor rows = positions.defined()
                      ? (*position_embedding)(positions + spec_.position_offset)
                      : position_embedding->weight.narrow(0, spec_.position_offset,
                                                          shared ? whole_time(tokens.size(1)) : tokens.size(1));
    if (shared) rows = distributed::context_part(rows, 0, *parts_of_);
    if (rows.dtype() != x.dtype()) rows = rows.to(x.dtype());
    x = x + rows;
  }
  return dropout(x);
}

// The first recomputed_ blocks are computed again in backward.
nn::Residual LanguageModel::run(nn::Residual r, const nn::Places& places, ModelCache* cache, size_t begin,
                                size_t end) const {
  for (size_t i = begin; i < end; ++i) {
    const auto step = [this, i, &places](const nn::Residual& in, nn::KvCache* kept) {
      memory::ModuleScope at(cat("blocks.", i));
      return blocks[i].step(in, places, kept);
    };
    if (cache) {
      r = step(r, &cache->layers[i]);
    } else if (static_cast<int64_t>(i) < recomputed_) {
      const Tensor before = r.loss;
      r = r.settled();
      r = checkpoint(
          [this, i, places](const Tensor& branch, const Tensor& stream) {
            memory::ModuleScope at(cat("blocks.", i));
            return blocks[i].step({branch, stream}, places).settled();
          },
          r.branch, r.stream);
      if (before.defined()) r.loss = with(before, r.loss);
    } else {
      r = step(r, nullptr);
    }
  }
  return r.settled();
}

Tensor LanguageModel::end_blocks(const nn::Residual& r) const {
  return norm ? nn::add_norm(*norm, r).first : r.sum();
}

int64_t LanguageModel::whole_time(int64_t time) const {
  return parts_of_ ? time * distributed::group(parts_of_->group).size() : time;
}

void LanguageModel::check_room(const Tensor& tokens) const {
  check<ShapeError>(tokens.dim() == 2, kind(), "tokens are [B, T], got ", tokens);
  const int64_t room = is_open(spec_) ? std::numeric_limits<int64_t>::max() : context(),
                all = whole_time(tokens.size(1));
  check<ShapeError>(all <= room, kind(), all, " tokens", parts_of_ ? " of all ranks" : " after 0",
                    " do not fit the context of ", room);
  if (parts_of_) distributed::check_context(all, *parts_of_);
}

Tensor LanguageModel::hidden(const Tensor& tokens, const Tensor& padding) const {
  if (!padding.defined()) return hidden_at(tokens, {}, {});
  check(!parts_of_, kind(), "rows with padding are not for positions in parts (set_context_parallel)");
  check<ShapeError>(padding.dtype() == DType::boolean && padding.shape() == tokens.shape(), kind(),
                    "padding is boolean of the tokens' shape ", tokens.shape(), ", got ", padding);
  const Tensor real = logical_not(padding);
  return hidden_at(tokens, clamp(cumsum(real.to(DType::i64), 1) - 1, 0, std::nullopt), real.unsqueeze(1).unsqueeze(1));
}

Tensor LanguageModel::hidden_at(const Tensor& tokens, const Tensor& positions, const Tensor& seen, Tensor* loss) const {
  check_room(tokens);
  const Tensor x = embed(tokens, positions, true);
  const nn::Residual r = run({x, {}}, places_at(tokens.size(1), positions, seen, x), nullptr, 0, blocks.size());
  if (loss) *loss = r.loss;
  return end_blocks(r);
}

nn::Places LanguageModel::places_at(int64_t time, const Tensor& positions, const Tensor& seen,
                                    const Tensor& like) const {
  nn::Places places;
  places.seen = seen;
  places.turns_by_row = positions.defined();
  places.context = parts_of_;
  const int64_t all = whole_time(time);
  for (const nn::RotaryTables& r : rotary_) {
    nn::Turns turns = positions.defined() ? r.at(positions, time, like) : r.rows(0, all, all, like);
    if (parts_of_)
      for (Tensor* t : {&turns.cos, &turns.sin}) *t = distributed::context_part(*t, 0, *parts_of_);
    places.turns.push_back(turns);
  }
  return places;
}

Tensor LanguageModel::hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts) const {
  const NoGrad guard;
  const DeviceScope there(cache.lengths.device());
  auto [places, positions] = places_of(kind(), tokens, cache, counts);
  const int64_t time = tokens.size(1);
  const Tensor x = embed(tokens, positions, false);
  for (const nn::RotaryTables& r : rotary_)
    places.turns.push_back(places.first ? r.rows(0, time, cache.capacity, x) : r.at(positions, cache.capacity, x));
  const std::optional<Tensor> at_once = detail::decoder_step(blocks, spec_, x, places, cache);
  const Tensor y = end_blocks(at_once ? nn::Residual{*at_once, {}} : run({x, {}}, places, &cache, 0, blocks.size()));
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
  if (!plain || (head_map_ && nn::has_forward_hooks(*head_map_))) {
    if (tile_ > 0 && tile_ < wanted.numel()) {
      const Tensor each = tiled(
          0, tile_,
          [this](const Tensor& rows, const Tensor& targets) {
            return cross_entropy(logits(rows), targets, {.reduction = "none"});
          },
          hidden.reshape({-1, spec_.dim}), wanted);
      if (reduction == "none") return each;
      const Tensor learned = (wanted != CrossEntropyOptions().ignore_index).to(each.dtype());
      return reduction == "sum" ? each.sum() : each.sum() / learned.sum();
    }
    return cross_entropy(logits(hidden).view({-1, spec_.vocab}), wanted, {.reduction = reduction});
  }
  const Tensor rows = distributed::whole_for(hidden, head_).view({-1, spec_.dim});
  // A card's way is by tiles of its own as it is.
  return tile_ > 0 ? linear_cross_entropy(rows, head_, wanted, {.reduction = reduction})
                   : head_cross_entropy(rows, head_, wanted, {.reduction = reduction});
}

Tensor LanguageModel::loss(const Tensor& tokens, const Tensor& targets) const {
  check<ShapeError>(tokens.shape() == targets.shape(), kind(), "tokens are ", tokens, ", targets ", targets);
  Tensor more;
  const Tensor h = hidden_at(tokens, {}, {}, &more);
  return with(head_loss(h, targets, "mean"), more);
}

Tensor LanguageModel::part(const Tensor& in, bool embeds, int64_t first, int64_t last, const Tensor& targets,
                           bool halves, Tensor* added) const {
  const auto all = static_cast<int64_t>(blocks.size());
  check(0 <= first && first <= last && last <= all, kind(), "there are no blocks ", first, " to ", last, " among ",
        all);
  const bool cuts = (!embeds || !targets.defined()) && spec_.layers[0].placement == nn::NormPlacement::ladder;
  check(!cuts, kind(), "a part of a ladder would need what its last half added beside x: it has no parts");
  nn::Residual begin;
  if (embeds) {
    check_room(in);
    begin.branch = embed(in, {}, true);
  } else {
    const int64_t dims = halves ? 4 : 3;
    check<ShapeError>(in.dim() == dims && in.size(-1) == spec_.dim && (!halves || in.size(0) == 2), kind(), "x is ",
                      halves ? "[2, B, T, " : "[B, T, ", spec_.dim, "], got ", in);
    const TensorList given = halves ? unbind(in) : TensorList{in};
    begin.branch = given[0];
    // Of a model that begins, or whose blocks end in a norm, all of x is in the first.
    if (halves && first > 0 && spec_.layers[static_cast<size_t>(first - 1)].placement != nn::NormPlacement::after)
      begin.stream = given[1];
  }
  const int64_t rows = begin.branch.size(0), time = begin.branch.size(1);
  const nn::Residual r =
      run(begin, places_at(time, {}, {}, begin.branch), nullptr, static_cast<size_t>(first), static_cast<size_t>(last));
  check(targets.defined() || added || !r.loss.defined(), kind(), "blocks ", first, " to ", last,
        " add their experts' balance_loss or z_loss to a loss that others make, and nobody takes it");
  if (added) *added = targets.defined() ? Tensor() : r.loss;
  if (!targets.defined())
    return halves ? stack({r.branch, r.stream.defined() ? r.stream : zeros_like(r.branch.detach())}) : r.sum();
  check<ShapeError>(targets.dim() == 2 && targets.size(0) == rows && targets.size(1) == time, kind(),
                    "what comes in is ", in, ", targets are ", targets);
  return with(head_loss(end_blocks(r), targets, "mean"), r.loss);
}

Tensor LanguageModel::packed_loss(const Tensor& tokens, const Tensor& targets, const Tensor& positions,
                                  const Tensor& documents) const {
  check_rows({tokens, targets, positions, documents});
  Tensor more;
  const Tensor h = hidden_at(tokens, positions, seen_within(documents), &more);
  return with(head_loss(h, targets, "mean"), more);
}

void LanguageModel::check_rows(const Rows& rows) const {
  check(!parts_of_, kind(), "packed rows are not for positions in parts (set_context_parallel)");
  for (const Tensor* t : {&rows.targets, &rows.positions, &rows.documents})
    check<ShapeError>(rows.tokens.dim() == 2 && t->shape() == rows.tokens.shape(), kind(), "tokens are ", rows.tokens,
                      ", what goes with them is ", *t);
}

nn::Residual LanguageModel::begin_pass(const Rows& rows) const {
  if (rows.documents.defined())
    check_rows(rows);
  else
    check<ShapeError>(rows.tokens.shape() == rows.targets.shape(), kind(), "tokens are ", rows.tokens, ", targets ",
                      rows.targets);
  check_room(rows.tokens);
  return {embed(rows.tokens, rows.positions, true), {}};
}

nn::Residual LanguageModel::pass_blocks(const nn::Residual& r, const Rows& rows, int64_t begin, int64_t end) const {
  check(0 <= begin && begin <= end && end <= static_cast<int64_t>(blocks.size()), kind(), "has ", blocks.size(),
        " blocks, not [", begin, ", ", end, ")");
  const Tensor seen = rows.documents.defined() ? seen_within(rows.documents) : Tensor();
  return run(r, places_at(rows.tokens.size(1), rows.positions, seen, r.branch), nullptr, static_cast<size_t>(begin),
             static_cast<size_t>(end));
}

Tensor LanguageModel::end_pass(const nn::Residual& r, const Rows& rows) const {
  return with(head_loss(end_blocks(r), rows.targets, "mean"), r.loss);
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

void LanguageModel::set_tile(int64_t tokens) {
  check(tokens >= 0, kind(), "a tile has ", tokens, " tokens");
  tile_ = tokens;
  for (nn::TransformerBlock& block : blocks) block.mlp.set_tile(tokens);
}

void LanguageModel::set_gate_again(bool yes) {
  for (nn::TransformerBlock& block : blocks) block.mlp.set_gate_again(yes);
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

void share_experts(LanguageModel& model, const std::string& axis, const std::string& batch) {
  for (nn::TransformerBlock& block : model.blocks) {
    if (!block.mlp.experts || nn::detail::is_elsewhere(block.mlp.experts->gate_up)) continue;
    if (!axis.empty()) block.mlp.experts->spread(axis);
    if (!batch.empty()) block.mlp.experts->balance_over(batch);
  }
}

std::shared_ptr<LanguageModel> make_model(const ModelConfig& config) {
  return std::make_shared<LanguageModel>(model_spec(config));
}

}  // namespace strata
