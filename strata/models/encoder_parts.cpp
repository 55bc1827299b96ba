#include "strata/models/encoder_parts_inl.h"

namespace strata::parts {

int64_t read_labels(const ConfigReader& config) {
  const auto said = config.maybe_size("num_labels");
  const auto named = config.members("id2label");
  config.ignore("label2id");
  if (said && named && *said != *named) config.refuse("num_labels", cat("differs from the ", *named, " of id2label"));
  const int64_t labels = said ? *said : named.value_or(2);
  if (labels < 1) config.refuse("id2label", "names no label");
  return labels;
}

void write_labels(Json& config, int64_t labels) {
  Json names = Json::object();
  for (int64_t i = 0; i < labels; ++i) names[cat(i)] = cat("LABEL_", i);
  config["id2label"] = names;
}

EncoderClass encoder_class(const ConfigReader& config, const std::vector<std::string_view>& classes) {
  const std::vector<std::string> said = config.texts("architectures").value_or(std::vector<std::string>{});
  if (said.empty()) return EncoderClass::model;
  for (size_t i = 0; i < classes.size(); ++i)
    if (said.front() == classes[i]) return static_cast<EncoderClass>(i);
  config.refuse("architectures", "is a class of this family that is not taken");
}

ModelSpec read_bert(const ConfigReader& c, EncoderClass kind) {
  ModelSpec s;
  s.kind = ModelKind::encoder;
  s.vocab = c.size("vocab_size", 30522);
  s.dim = c.size("hidden_size", 768);
  s.context = s.learned_positions = c.size("max_position_embeddings", 512);
  s.token_types = c.size("type_vocab_size", 2);
  const int64_t layers = c.size("num_hidden_layers", 12), heads = c.size("num_attention_heads", 12);
  if (s.dim % heads != 0) c.refuse("num_attention_heads", cat("does not divide hidden_size ", s.dim));
  if (layers > 4096) c.refuse("num_hidden_layers", "is above 4096");
  nn::LayerSpec l;
  l.placement = nn::NormPlacement::after;
  l.norm = {.eps = c.number("layer_norm_eps", 1e-12)};
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = s.dim / heads,
                 .value_size = s.dim / heads,
                 .causal = false,
                 .dropout = c.number("attention_probs_dropout_prob", 0.1)};
  l.feed_forward = {.width = c.size("intermediate_size", 3072), .activation = read_activation(c, "hidden_act", "gelu")};
  l.dropout = s.embedding_dropout = c.number("hidden_dropout_prob", 0.1);
  s.layers.assign(static_cast<size_t>(layers), l);
  s.embedding_norm = l.norm;
  s.tied = kind == EncoderClass::tokens && c.flag("tie_word_embeddings", true);
  c.ignore("tie_word_embeddings");
  c.ignore("classifier_dropout");
  c.expect("position_embedding_type", "absolute");
  c.expect("is_decoder", false);
  c.expect("add_cross_attention", false);
  c.expect("is_encoder_decoder", false);
  if (kind == EncoderClass::labels)
    s.encoder_head = {.kind = EncoderHeadSpec::Kind::labels, .labels = read_labels(c)};
  else
    for (const char* key : {"num_labels", "id2label", "label2id"}) c.ignore(key);
  return s;
}

Json write_bert(std::string_view model_type, std::string_view architecture, const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  Json j;
  j["model_type"] = model_type;
  j["architectures"] = {architecture};
  j["vocab_size"] = s.vocab;
  j["hidden_size"] = s.dim;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["intermediate_size"] = l.feed_forward.width;
  j["hidden_act"] = activation_name(l.feed_forward.activation);
  j["hidden_dropout_prob"] = l.dropout;
  j["attention_probs_dropout_prob"] = l.attention.dropout;
  j["max_position_embeddings"] = s.learned_positions;
  j["type_vocab_size"] = s.token_types;
  j["layer_norm_eps"] = l.norm.eps;
  if (s.encoder_head && s.encoder_head->kind == EncoderHeadSpec::Kind::tokens) j["tie_word_embeddings"] = s.tied;
  if (s.encoder_head && s.encoder_head->kind == EncoderHeadSpec::Kind::labels) write_labels(j, s.encoder_head->labels);
  return j;
}

std::vector<WeightRow> encoder_weights(const ModelSpec& s, const EncoderNames& n) {
  std::vector<WeightRow> rows;
  const auto same = [&](const std::string& ours, const std::string& theirs, const Shape& shape) {
    rows.push_back(weight_row(ours, theirs, shape));
  };
  const auto linear = [&](const std::string& ours, const std::string& theirs, int64_t in, int64_t out) {
    same(ours + ".weight", theirs + ".weight", {out, in});
    same(ours + ".bias", theirs + ".bias", {out});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    same(ours + ".weight", theirs + ".weight", {s.dim});
    same(ours + ".bias", theirs + ".bias", {s.dim});
  };
  const std::string embeddings = n.prefix + n.embeddings;
  same("token_embedding.weight", embeddings + "word_embeddings.weight", {s.vocab, s.dim});
  same("position_embedding.weight", embeddings + "position_embeddings.weight", {s.learned_positions, s.dim});
  if (s.token_types > 0)
    same("type_embedding.weight", embeddings + "token_type_embeddings.weight", {s.token_types, s.dim});
  norm("embedding_norm", embeddings + "LayerNorm");
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const nn::LayerSpec& l = s.layers[i];
    const std::string ours = cat("blocks.", i, '.');
    std::string theirs = n.prefix + n.layer;
    theirs.replace(theirs.find("{}"), 2, cat(i));
    const PackedRows packed = packed_rows(l.attention);
    for (const auto& [name, view, count] :
         {std::tuple(n.q, packed.q, packed.q_rows), std::tuple(n.k, packed.k, packed.k_rows),
          std::tuple(n.v, packed.v, packed.v_rows)}) {
      rows.push_back(weight_row(ours + "attn.qkv.weight", theirs + name + ".weight", {count, s.dim}, view));
      rows.push_back(weight_row(ours + "attn.qkv.bias", theirs + name + ".bias", {count}, view));
    }
    linear(ours + "attn.out", theirs + n.out, s.dim, s.dim);
    norm(ours + "norm1", theirs + n.norm1);
    linear(ours + "mlp.up", theirs + n.up, s.dim, l.feed_forward.width);
    linear(ours + "mlp.down", theirs + n.down, l.feed_forward.width, s.dim);
    norm(ours + "norm2", theirs + n.norm2);
  }
  if (s.pooler) linear("pooler", n.prefix + n.pooler, s.dim, s.dim);
  if (!s.encoder_head) return rows;
  const EncoderHeadSpec& h = *s.encoder_head;
  if (h.kind == EncoderHeadSpec::Kind::labels) {
    if (h.dense) linear("head_dense", n.label_dense, s.dim, s.dim);
    same("head.weight", n.label_head + ".weight", {h.labels, s.dim});
    same("head_bias", n.label_head + ".bias", {h.labels});
    return rows;
  }
  linear("head_dense", n.token_dense, s.dim, s.dim);
  norm("head_norm", n.token_norm);
  if (!s.tied) same("head.weight", n.token_head + ".weight", {s.vocab, s.dim});
  same("head_bias", n.token_bias, {s.vocab});
  return rows;
}

}  // namespace strata::parts
