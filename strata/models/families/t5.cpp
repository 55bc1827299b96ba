// T5, T5 v1.1 and Flan-T5 (Raffel et al., arXiv:1910.10683).

#include <cmath>

#include "strata/models/encoder_decoder_parts_inl.h"

namespace strata::records {

const Family& t5();

namespace {

constexpr const char* kFeedForward = "feed_forward_proj";
constexpr std::string_view kGated = "gated-";

// "relu", "gated-gelu", ..; in files of transformers 4 what that means stands beside it once more.
nn::FeedForwardSpec feed_forward(const ConfigReader& c) {
  std::string name = c.text(kFeedForward, "relu");
  nn::FeedForwardSpec f{.width = c.size("d_ff", 2048), .bias = false};
  f.gated = name.starts_with(kGated);
  if (f.gated) name.erase(0, kGated.size());
  // The name that T5 v1.1 has for gelu by tanh.
  if (f.gated && name == "gelu") name = "gelu_new";
  f.activation = parts::activation_of(c, kFeedForward, name);
  if (c.flag("is_gated_act", f.gated) != f.gated) c.refuse("is_gated_act", cat("differs from ", kFeedForward));
  if (parts::read_activation(c, "dense_act_fn", name) != f.activation)
    c.refuse("dense_act_fn", cat("differs from ", kFeedForward));
  return f;
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s, part;
  s.kind = ModelKind::encoder_decoder;
  part.vocab = c.size("vocab_size", 32128);
  part.dim = c.size({"d_model", "hidden_size"}, 512);
  part.context = c.size("n_positions", 512);
  const int64_t heads = c.size({"num_heads", "num_attention_heads"}, 8), size = c.size({"d_kv", "head_dim"}, 64);
  const int64_t layers = c.size({"num_layers", "num_hidden_layers"}, 6);
  const int64_t written = c.maybe_size("num_decoder_layers").value_or(layers);
  if (layers > 4096) c.refuse({"num_layers", "num_hidden_layers"}, "is above 4096");
  if (written > 4096) c.refuse("num_decoder_layers", "is above 4096");
  nn::LayerSpec l;
  l.norm = {.kind = nn::NormSpec::Kind::rms, .eps = c.number("layer_norm_epsilon", 1e-6)};
  l.dropout = part.embedding_dropout = c.number("dropout_rate", 0.1);
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = size,
                 .value_size = size,
                 .causal = false,
                 .bias = false,
                 .out_bias = false,
                 .scale = 1,
                 .dropout = l.dropout};
  l.feed_forward = feed_forward(c);
  l.feed_forward.dropout = l.dropout;
  part.final_norm = l.norm;
  part.relative = RelativeSpec{.buckets = c.size("relative_attention_num_buckets", 32),
                               .distance = c.size("relative_attention_max_distance", 128)};
  if (part.relative->buckets < 4 || part.relative->buckets % 2 != 0)
    c.refuse("relative_attention_num_buckets", "is to be even, and at least 4");
  if (part.relative->distance <= part.relative->buckets / 2)
    c.refuse("relative_attention_max_distance", "is to be above half of relative_attention_num_buckets");
  s.parts = {part, part};
  s.parts[0].kind = ModelKind::encoder;
  s.parts[0].layers.assign(static_cast<size_t>(layers), l);
  l.attention.causal = true;
  s.parts[1].layers.assign(static_cast<size_t>(written), l);
  // A model of its own output layer says tie_word_embeddings: false in files of transformers 4; 5 writes true there,
  // and scale_decoder_outputs: false.
  const bool tied = c.flag("tie_word_embeddings", true), scaled = c.flag("scale_decoder_outputs", tied);
  if (scaled && !tied) c.refuse("scale_decoder_outputs", "stands beside tie_word_embeddings: false");
  s.parts[1].tied = scaled;
  if (scaled) s.parts[1].logit_scale = 1 / std::sqrt(static_cast<double>(part.dim));
  c.expect("is_encoder_decoder", true);
  c.expect("is_decoder", false);
  c.expect("add_cross_attention", false);
  c.ignore("output_past");
  return s;
}

std::string config(const ModelSpec& s) {
  const ModelSpec &reads = s.parts[0], &writes = s.parts[1];
  const nn::LayerSpec& l = reads.layers.front();
  const nn::FeedForwardSpec& f = l.feed_forward;
  const std::string_view name =
      f.gated && f.activation == nn::Activation::gelu_tanh ? "gelu" : parts::activation_name(f.activation);
  parts::Json j;
  j["model_type"] = "t5";
  j["architectures"] = {"T5ForConditionalGeneration"};
  j["vocab_size"] = reads.vocab;
  j["d_model"] = reads.dim;
  j["d_kv"] = l.attention.head_size;
  j["d_ff"] = f.width;
  j["num_heads"] = l.attention.heads;
  j["num_layers"] = reads.layers.size();
  j["num_decoder_layers"] = writes.layers.size();
  j["n_positions"] = reads.context;
  j["feed_forward_proj"] = cat(f.gated ? kGated : "", name);
  j["layer_norm_epsilon"] = l.norm.eps;
  j["dropout_rate"] = l.dropout;
  j["relative_attention_num_buckets"] = reads.relative->buckets;
  j["relative_attention_max_distance"] = reads.relative->distance;
  j["tie_word_embeddings"] = writes.tied;
  j["is_encoder_decoder"] = true;
  j["decoder_start_token_id"] = 0;
  return j.dump(2);
}

// What readers of GGUF take for granted.
std::string gguf_config(const io::GgufMetadata&) {
  return R"({"relative_attention_max_distance": 128})";
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  std::vector<WeightRow> rows;
  const ModelSpec &reads = s.parts[0], &writes = s.parts[1];
  const Shape table{reads.vocab, reads.dim};
  rows.push_back(weight_row("token_embedding.weight", "shared.weight", table, {}, "token_embd.weight"));
  for (const char* again : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    rows.push_back(weight_row("token_embedding.weight", again, table));
    rows.back().repeats = true;
  }
  const auto part = [&](const ModelSpec& p, const std::string& ours, const std::string& gguf, bool crosses) {
    const std::string& theirs = ours;
    const std::string feed = crosses ? "layer.2." : "layer.1.", dense = feed + "DenseReluDense.";
    const bool gated = p.layers.front().feed_forward.gated;
    rows.push_back(
        weight_row(ours + "_relative.weight", theirs + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                   {p.relative->buckets, p.layers.front().attention.heads}, {}, gguf + ".blk.0.attn_rel_b.weight"));
    parts::add_stack(rows, p, ours + ".",
                     {.layer = theirs + ".block.{}.",
                      .self = "layer.0.SelfAttention.",
                      .cross = crosses ? "layer.1.EncDecAttention." : "",
                      .out = "o",
                      .norm1 = "layer.0.layer_norm",
                      .norm2 = "layer.1.layer_norm",
                      .norm3 = feed + "layer_norm",
                      .up = dense + (gated ? "wi_1" : "wi"),
                      .gate = dense + "wi_0",
                      .down = dense + "wo",
                      .gguf = gguf + ".blk.{}."});
    parts::add_norm(rows, *p.final_norm, ours + "_norm", theirs + ".final_layer_norm", p.dim, gguf + ".output_norm");
  };
  part(reads, "encoder", "enc", false);
  part(writes, "decoder", "dec", true);
  rows.push_back(weight_row(writes.tied ? "token_embedding.weight" : "head.weight", "lm_head.weight", table, {},
                            writes.tied ? "" : "output.weight"));
  rows.back().repeats = writes.tied;
  // transformers 5 leaves out an output layer that is the embedding, scaled or not.
  if (!writes.tied) rows.back().other_name = "shared.weight";
  return rows;
}

}  // namespace

const Family& t5() {
  static const Family family{
      .name = "t5",
      .title = "T5, T5 v1.1, Flan-T5",
      .kind = ModelKind::encoder_decoder,
      .model_types = {"t5"},
      .architectures = {"T5ForConditionalGeneration", "T5WithLMHeadModel"},
      .gguf = {.architectures = {"t5"}, .config = gguf_config},
      .spec = spec,
      .config = config,
      .weights = weights,
      // Of a version that had positions there, and read them nowhere.
      .buffers = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      .samples = {
          {"plain", R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 96,
                  "d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
                  "decoder_start_token_id": 0, "is_encoder_decoder": true})"},
          {"gated", R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 96,
                  "d_model": 64, "d_kv": 12, "d_ff": 96, "num_layers": 3, "num_heads": 2,
                  "feed_forward_proj": "gated-gelu", "is_gated_act": true, "dense_act_fn": "gelu_new",
                  "relative_attention_num_buckets": 16, "relative_attention_max_distance": 40,
                  "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false, "decoder_start_token_id": 0,
                  "is_encoder_decoder": true})"},
      }};
  return family;
}

}  // namespace strata::records
