#include "strata/models/spec.h"

#include <cmath>
#include <string_view>

#include "strata/core/error.h"
#include "strata/nn/transformer.h"

namespace strata {
namespace {

constexpr const char* kOp = "ModelSpec";

void check_size(std::string_view field, int64_t value, int64_t least = 1) {
  check(value >= least && value < (int64_t{1} << 31), kOp, field, " is ", value, ", wanted ", least, " to 2^31 - 1");
}

void check_number(std::string_view field, double value, bool positive = false) {
  check(std::isfinite(value) && (!positive || value > 0), kOp, field, " is ", value);
}

void check_chance(std::string_view field, double value) {
  check(value >= 0 && value <= 1, kOp, field, " is a probability, got ", value);
}

void check_norm(const nn::NormSpec& norm) {
  check(std::isfinite(norm.eps) && norm.eps >= 0, kOp, "eps of a norm is ", norm.eps);
}

void check_attention(const nn::AttentionSpec& a, size_t rotary) {
  check_size("attention.heads", a.heads);
  check_size("attention.kv_heads", a.kv_heads);
  check_size("attention.head_size", a.head_size);
  check_size("attention.value_size", a.value_size);
  check_size("attention.window", a.window, 0);
  check(a.heads % a.kv_heads == 0, kOp, "attention.kv_heads ", a.kv_heads, " does not divide heads ", a.heads);
  check_size("attention's width", a.heads * a.head_size);
  check_size("attention's width of values", a.heads * a.value_size);
  check(a.rotary >= -1 && a.rotary < static_cast<int64_t>(rotary), kOp, "attention.rotary is ", a.rotary,
        ", there are ", rotary);
  if (a.scale) check_number("attention.scale", *a.scale);
  check(std::isfinite(a.soft_cap) && a.soft_cap >= 0, kOp, "attention.soft_cap is ", a.soft_cap);
  check_chance("attention.dropout", a.dropout);
  if (a.query_key_norm) check_norm(*a.query_key_norm);
  check(a.key_bias || (a.rotary < 0 && !a.query_key_norm && a.soft_cap == 0 && !a.latent), kOp,
        "attention without key_bias has no rotary positions, norms, soft cap or latent");
  if (!a.latent) return;
  check_size("latent.q_rank", a.latent->q_rank, 0);
  check_size("latent.kv_rank", a.latent->kv_rank);
  check_size("latent.rope_size", a.latent->rope_size);
  check(a.latent->rope_size < a.head_size && a.kv_heads == a.heads, kOp, "a latent's rope_size ", a.latent->rope_size,
        " is to be below head_size ", a.head_size, ", and kv_heads to be heads");
}

void check_experts(const nn::ExpertsSpec& e) {
  check_size("experts.count", e.count);
  check_size("experts.per_token", e.per_token);
  check_size("experts.width", e.width);
  check_size("experts.shared_width", e.shared_width, 0);
  check_size("experts.groups", e.groups);
  check_size("experts.top_groups", e.top_groups);
  check(e.count <= 65536 && e.per_token <= e.count, kOp, "experts.per_token is ", e.per_token, " of ", e.count);
  check(e.count % e.groups == 0 && e.top_groups <= e.groups, kOp, e.top_groups, " of ", e.groups, " groups of ",
        e.count, " experts");
  check(e.per_token <= e.count / e.groups * e.top_groups, kOp, "experts.per_token ", e.per_token,
        " is more than the taken groups have");
  check(!e.groups_by_two || e.groups == 1 || e.count / e.groups >= 2, kOp, "groups of one expert have no two best");
  check_number("experts.scale", e.scale);
  for (const double x : {e.capacity, e.balance_loss, e.z_loss})
    check(std::isfinite(x) && x >= 0, kOp, "experts.capacity, balance_loss and z_loss are 0 or more, got ", x);
}

// Fields that are not at their defaults, as "name value, ..".
class Fields {
 public:
  template <class T>
  void add(std::string_view name, const T& value, const T& usual) {
    if (value == usual) return;
    if (!text_.empty()) text_ += ", ";
    if constexpr (std::is_same_v<T, bool>)
      text_ += value ? cat(name) : cat("no ", name);
    else
      text_ += cat(name, ' ', value);
  }
  void add(std::string_view name, const std::string& value) {
    if (!value.empty()) add(name, value, std::string());
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string_view name_of(nn::Activation a) {
  switch (a) {
    case nn::Activation::gelu:
      return "gelu";
    case nn::Activation::gelu_tanh:
      return "gelu_tanh";
    case nn::Activation::gelu_quick:
      return "gelu_quick";
    case nn::Activation::silu:
      return "silu";
    case nn::Activation::relu:
      return "relu";
    case nn::Activation::tanh:
      return "tanh";
    case nn::Activation::sigmoid:
      return "sigmoid";
  }
  return "?";
}

std::string_view name_of(nn::NormPlacement p) {
  switch (p) {
    case nn::NormPlacement::before:
      return "before";
    case nn::NormPlacement::after:
      return "after";
    case nn::NormPlacement::branch:
      return "branch";
    case nn::NormPlacement::sandwich:
      return "sandwich";
    case nn::NormPlacement::parallel:
      return "parallel";
    case nn::NormPlacement::parallel_norms:
      return "parallel_norms";
    case nn::NormPlacement::ladder:
      return "ladder";
  }
  return "?";
}

std::string_view name_of(nn::RotarySpec::Scaling s) {
  switch (s) {
    case nn::RotarySpec::Scaling::none:
      return "none";
    case nn::RotarySpec::Scaling::linear:
      return "linear";
    case nn::RotarySpec::Scaling::dynamic:
      return "dynamic";
    case nn::RotarySpec::Scaling::llama3:
      return "llama3";
    case nn::RotarySpec::Scaling::yarn:
      return "yarn";
    case nn::RotarySpec::Scaling::longrope:
      return "longrope";
  }
  return "?";
}

std::string_view name_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::decoder:
      return "decoder";
    case ModelKind::encoder:
      return "encoder";
    case ModelKind::image_encoder:
      return "image encoder";
    case ModelKind::encoder_decoder:
      return "encoder-decoder";
    case ModelKind::pair:
      return "pair";
  }
  return "?";
}

std::string text_of(const nn::NormSpec& n) {
  const bool rms = n.kind == nn::NormSpec::Kind::rms;
  return cat(rms ? "RMS" : "layer", " eps ", n.eps, n.one_plus ? " 1 + weight" : "", rms || n.bias ? "" : " no bias");
}

std::string text_of(const nn::LayerSpec& l) {
  const nn::LayerSpec usual;
  const nn::AttentionSpec &a = l.attention, plain;
  Fields f;
  f.add("heads", a.heads, int64_t{0});
  f.add("kv_heads", a.kv_heads, a.heads);
  f.add("head_size", a.head_size, int64_t{0});
  f.add("value_size", a.value_size, a.head_size);
  f.add("window", a.window, plain.window);
  f.add("causal", a.causal, plain.causal);
  f.add("attention bias", a.bias, plain.bias);
  f.add("key bias", a.key_bias, plain.key_bias);
  f.add("attention out bias", a.out_bias, plain.out_bias);
  f.add("scale", a.scale.value_or(0), 0.0);
  f.add("soft_cap", a.soft_cap, plain.soft_cap);
  f.add("rotary", a.rotary, plain.rotary);
  f.add("attention dropout", a.dropout, plain.dropout);
  if (a.query_key_norm)
    f.add(a.norm_whole_width ? "whole query and key norm" : "query and key norm", text_of(*a.query_key_norm));
  if (a.latent)
    f.add("latent", cat("q_rank ", a.latent->q_rank, " kv_rank ", a.latent->kv_rank, " rope ", a.latent->rope_size));
  const nn::FeedForwardSpec& g = l.feed_forward;
  f.add("feed-forward", cat(g.width, g.gated ? " gated " : " ", name_of(g.activation), g.bias ? "" : " no bias"));
  if (g.experts) {
    const nn::ExpertsSpec& e = *g.experts;
    const bool sigmoid = e.scoring == nn::ExpertsSpec::Scoring::sigmoid;
    f.add("experts",
          cat(e.per_token, " of ", e.count, ", width ", e.width, ", shared ", e.shared_width, ", groups ", e.top_groups,
              " of ", e.groups, e.groups_by_two ? " by two" : "", sigmoid ? ", sigmoid" : ", softmax",
              e.correction_bias ? ", corrected" : "", e.normalise ? ", normalised" : "", ", scale ", e.scale,
              e.precise_router ? ", precise router" : ""));
    f.add("capacity", e.capacity, 0.0);
    f.add("reroute", e.reroute, false);
    f.add("balance loss", e.balance_loss, 0.0);
    f.add("z loss", e.z_loss, 0.0);
  }
  f.add("feed-forward dropout", g.dropout, usual.feed_forward.dropout);
  f.add("norms", cat(name_of(l.placement), ", ", text_of(l.norm)));
  f.add("dropout", l.dropout, usual.dropout);
  f.add("layer_scale", l.layer_scale, usual.layer_scale);
  return f.text();
}

std::string text_of(const nn::RotarySpec& r) {
  const nn::RotarySpec usual;
  Fields f;
  f.add("dims", r.dims, usual.dims);
  f.add("base", r.base, 0.0);
  f.add("interleaved", r.interleaved, usual.interleaved);
  if (r.scaling == nn::RotarySpec::Scaling::none) return f.text();
  f.add("scaling", std::string(name_of(r.scaling)));
  f.add("factor", r.factor, usual.factor);
  f.add("attention_factor", r.attention_factor, usual.attention_factor);
  f.add("context", r.context, usual.context);
  f.add("original_context", r.original_context, usual.original_context);
  f.add("low_frequency", r.low_frequency, usual.low_frequency);
  f.add("high_frequency", r.high_frequency, usual.high_frequency);
  f.add("beta_fast", r.beta_fast, usual.beta_fast);
  f.add("beta_slow", r.beta_slow, usual.beta_slow);
  f.add("truncate", r.truncate, usual.truncate);
  return f.text();
}

}  // namespace

void check_spec(const ModelSpec& s) {
  if (!s.parts.empty()) {
    check(s.parts.size() == 2, kOp, "a model of parts has two, got ", s.parts.size());
    for (const ModelSpec& part : s.parts) {
      check(part.parts.empty(), kOp, "a part has no parts");
      check_spec(part);
    }
    if (s.kind == ModelKind::pair) {
      check(s.pair.has_value(), kOp, "a pair has no PairSpec");
      check_size("pair.projection", s.pair->projection);
    }
    if (s.kind == ModelKind::encoder_decoder)
      check(s.parts[0].kind == ModelKind::encoder && s.parts[1].kind == ModelKind::decoder &&
                s.parts[0].dim == s.parts[1].dim && !s.parts[0].image && !s.parts[1].image && !s.parts[1].audio &&
                (s.parts[0].audio || s.parts[0].vocab == s.parts[1].vocab),
            kOp, "an encoder-decoder's parts are an encoder and a decoder of one dim and vocabulary");
    return;
  }
  check_size("dim", s.dim);
  if (s.image) {
    const ImageSpec& i = *s.image;
    check_size("image.channels", i.channels);
    check_size("image.patch", i.patch);
    check(i.height >= i.patch && i.width >= i.patch && i.height < (1 << 24) && i.width < (1 << 24), kOp, "an image of ",
          i.height, " x ", i.width, " has no patches of ", i.patch);
    check_size("image.register_tokens", i.register_tokens, 0);
    check(s.learned_positions == (i.height / i.patch) * (i.width / i.patch) + i.class_token, kOp, s.learned_positions,
          " positions are not those of the image's patches");
  } else {
    if (s.audio) check_size("audio.bins", s.audio->bins);
    if (!s.audio) check_size("vocab", s.vocab);
    check_size("context", s.context);
    check(!s.audio || (s.learned_positions == s.context && s.dim % 2 == 0 && s.dim >= 4), kOp,
          "sound has a position for each place of its context, and an even dim");
  }
  if (s.relative) {
    check_size("relative.buckets", s.relative->buckets, 4);
    check_size("relative.distance", s.relative->distance, s.relative->buckets / 2 + 1);
    check(s.relative->buckets % 2 == 0, kOp, "relative.buckets is ", s.relative->buckets, ", which is odd");
    for (const nn::LayerSpec& l : s.layers)
      check(l.attention.heads == s.layers.front().attention.heads, kOp,
            "layers that share relative positions have as many heads");
  }
  check_size("the number of layers", static_cast<int64_t>(s.layers.size()));
  check_size("learned_positions", s.learned_positions, 0);
  check_size("position_offset", s.position_offset, 0);
  check_size("token_types", s.token_types, 0);
  check(s.learned_positions == 0 || s.image || s.position_offset + s.context <= s.learned_positions, kOp, "context ",
        s.context, " from position ", s.position_offset, " on does not fit ", s.learned_positions,
        " learned positions");
  for (const nn::RotarySpec& r : s.rotary) {
    check_size("rotary.dims", r.dims, 2);
    check_size("rotary.context", r.context, 0);
    check_size("rotary.original_context", r.original_context, 0);
    for (const double x : {r.base, r.factor, r.attention_factor}) check_number("a number of rotary", x, true);
    for (const double x : {r.low_frequency, r.high_frequency, r.beta_fast, r.beta_slow})
      check_number("a number of rotary", x);
  }
  for (const nn::LayerSpec& l : s.layers) {
    check_attention(l.attention, s.rotary.size());
    if (l.attention.rotary >= 0)
      check(s.rotary[static_cast<size_t>(l.attention.rotary)].dims <= l.attention.head_size, kOp,
            "rotary.dims is larger than head_size ", l.attention.head_size);
    if (l.feed_forward.experts)
      check_experts(*l.feed_forward.experts);
    else
      check_size("feed_forward.width", l.feed_forward.width);
    check_norm(l.norm);
    const bool ladder = l.placement == nn::NormPlacement::ladder;
    check(!ladder || (s.kind == ModelKind::decoder && s.layers[0].placement == l.placement), kOp,
          "a ladder's layers are a decoder's, and the first is one of them");
    check_chance("feed_forward.dropout", l.feed_forward.dropout);
    check_chance("dropout", l.dropout);
  }
  if (s.embedding_norm) check_norm(*s.embedding_norm);
  if (s.final_norm) check_norm(*s.final_norm);
  check_number("embedding_scale", s.embedding_scale);
  check_chance("embedding_dropout", s.embedding_dropout);
  check(std::isfinite(s.logit_soft_cap) && s.logit_soft_cap >= 0, kOp, "logit_soft_cap is ", s.logit_soft_cap);
  check_number("logit_scale", s.logit_scale);
  if (!s.encoder_head) return;
  const EncoderHeadSpec& h = *s.encoder_head;
  if (h.kind == EncoderHeadSpec::Kind::labels) check_size("encoder_head.labels", h.labels);
  check(!h.pooled || s.pooler, kOp, "a head of the pooled vector wants a pooler");
  if (h.norm) check_norm(*h.norm);
}

std::string to_string(const ModelSpec& s) {
  const ModelSpec usual;
  std::string text = cat(name_of(s.kind), '\n');
  for (const ModelSpec& part : s.parts) text += to_string(part);
  if (s.pair) text += cat("  pair: vectors of ", s.pair->projection, ", end token ", s.pair->end_token, '\n');
  const auto line = [&](std::string_view name, const auto& value, const auto& plain) {
    if (!(value == plain)) text += cat("  ", name, ": ", value, '\n');
  };
  line("vocab", s.vocab, usual.vocab);
  line("dim", s.dim, usual.dim);
  line("context", s.context, usual.context);
  line("learned positions", s.learned_positions, usual.learned_positions);
  line("position offset", s.position_offset, usual.position_offset);
  line("token types", s.token_types, usual.token_types);
  for (const nn::RotarySpec& r : s.rotary) text += cat("  rotary: ", text_of(r), '\n');
  if (s.embedding_norm) text += cat("  embedding norm: ", text_of(*s.embedding_norm), '\n');
  line("embedding scale", s.embedding_scale, usual.embedding_scale);
  line("embedding dropout", s.embedding_dropout, usual.embedding_dropout);
  for (size_t i = 0; i < s.layers.size();) {
    size_t end = i + 1;
    while (end < s.layers.size() && s.layers[end] == s.layers[i]) ++end;
    text += end == i + 1 ? cat("  layer ", i) : cat("  layers ", i, " to ", end - 1);
    text += cat(": ", text_of(s.layers[i]), '\n');
    i = end;
  }
  if (s.final_norm) text += cat("  final norm: ", text_of(*s.final_norm), '\n');
  if (s.image)
    text += cat("  image: ", s.image->channels, " x ", s.image->height, " x ", s.image->width, ", patches of ",
                s.image->patch, s.image->class_token ? ", class token" : "", ", register tokens ",
                s.image->register_tokens, '\n');
  if (s.audio) text += cat("  audio: frames of ", s.audio->bins, " numbers\n");
  if (s.relative)
    text += cat("  relative positions: ", s.relative->buckets, " buckets to ", s.relative->distance, '\n');
  if (s.vocab > 0 && s.kind == ModelKind::decoder)
    text += cat("  head: ", s.tied ? "the token embedding" : "its own", s.head_bias ? ", bias" : "", '\n');
  if (s.positions_skip_padding) text += "  positions: without padding\n";
  if (s.pooler) text += "  pooler\n";
  if (s.encoder_head) {
    const EncoderHeadSpec& h = *s.encoder_head;
    text += cat(
        "  encoder head: ", h.kind == EncoderHeadSpec::Kind::tokens ? std::string("tokens") : cat(h.labels, " labels"),
        h.pooled ? " of the pooled vector" : "", h.dense ? cat(", dense ", name_of(h.activation)) : std::string(),
        h.norm ? cat(", ", text_of(*h.norm)) : std::string(), '\n');
  }
  line("logit soft cap", s.logit_soft_cap, usual.logit_soft_cap);
  line("logit scale", s.logit_scale, usual.logit_scale);
  return text;
}

std::string unfit_experts(const ModelConfig& c) {
  if (c.experts == 0)
    return c.expert_capacity > 0 || c.shared_dim > 0 || c.z_loss > 0
               ? "model.expert_capacity, model.shared_dim and model.z_loss want model.experts"
               : "";
  if (c.experts_per_token > c.experts)
    return cat("model.experts_per_token = ", c.experts_per_token, " is more than model.experts = ", c.experts);
  if (c.router != "softmax" && c.router != "sigmoid")
    return cat("model.router is softmax or sigmoid, got '", c.router, "'");
  if (c.expert_overflow != "drop" && c.expert_overflow != "reroute")
    return cat("model.expert_overflow is drop or reroute, got '", c.expert_overflow, "'");
  return "";
}

ModelSpec model_spec(const ModelConfig& c) {
  check(c.family == "gpt" || c.family == "llama", "make_model", "model.family is gpt or llama, got '", c.family, "'");
  check(c.vocab > 0, "make_model", "model.vocab is ", c.vocab, ": it must be set, or come from the tokenizer");
  if (const std::string why = unfit_experts(c); !why.empty()) throw ValueError("make_model", why);
  const bool gpt = c.family == "gpt";
  const nn::BlockOptions sizes{.dim = c.dim,
                               .heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .ffn_dim = c.ffn_dim,
                               .dropout = c.dropout,
                               .norm_eps = c.norm_eps};
  check(c.residual == "plain" || c.residual == "ladder", "make_model", "model.residual is plain or ladder, got '",
        c.residual, "'");
  nn::LayerSpec layer = gpt ? nn::gpt_layer(sizes) : nn::llama_layer(sizes);
  if (c.residual == "ladder") layer.placement = nn::NormPlacement::ladder;
  if (c.experts > 0) {
    using Scoring = nn::ExpertsSpec::Scoring;
    layer.feed_forward.experts = nn::ExpertsSpec{.count = c.experts,
                                                 .per_token = c.experts_per_token,
                                                 .width = layer.feed_forward.width,
                                                 .shared_width = c.shared_dim,
                                                 .scoring = c.router == "sigmoid" ? Scoring::sigmoid : Scoring::softmax,
                                                 .normalise = true,
                                                 .precise_router = true,
                                                 .capacity = c.expert_capacity,
                                                 .reroute = c.expert_overflow == "reroute",
                                                 .balance_loss = c.balance_loss,
                                                 .z_loss = c.z_loss};
  }
  ModelSpec spec;
  spec.vocab = c.vocab;
  spec.dim = c.dim;
  spec.context = c.context;
  spec.layers.assign(static_cast<size_t>(std::max<int64_t>(c.layers, 0)), layer);
  spec.learned_positions = gpt ? c.context : 0;
  if (!gpt) spec.rotary.push_back({.dims = c.dim / c.heads, .base = c.rope_theta});
  spec.embedding_dropout = gpt ? c.dropout : 0;
  spec.final_norm = layer.norm;
  spec.tied = c.tied_embeddings;
  check_spec(spec);
  return spec;
}

}  // namespace strata
