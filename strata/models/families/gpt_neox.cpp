// GPT-NeoX and Pythia (Black et al., arXiv:2204.06745): attention and the feed-forward part read the same stream, and a
// part of each head turns.

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& gpt_neox();

namespace {

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size,
          .context = s.context,
          .part = 0.25,
          .base_key = {"rotary_emb_base", "rope_theta"},
          .part_key = {"rotary_pct", "partial_rotary_factor"}};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s;
  s.vocab = c.size("vocab_size", 50432);
  s.dim = c.size("hidden_size", 6144);
  s.context = c.size("max_position_embeddings", 2048);
  const int64_t layers = c.size("num_hidden_layers", 44), heads = c.size("num_attention_heads", 64);
  if (s.dim % heads != 0) c.refuse("num_attention_heads", cat("does not divide hidden_size ", s.dim));
  if (layers > 4096) c.refuse("num_hidden_layers", "is above 4096");
  nn::LayerSpec l;
  l.norm = {.eps = c.number("layer_norm_eps", 1e-5)};
  const bool bias = c.flag("attention_bias", true);
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = s.dim / heads,
                 .value_size = s.dim / heads,
                 .bias = bias,
                 .out_bias = bias,
                 .rotary = 0,
                 .dropout = c.number("attention_dropout", 0)};
  l.feed_forward = {.width = c.size("intermediate_size", 24576),
                    .activation = parts::read_activation(c, "hidden_act", "gelu")};
  l.placement = c.flag("use_parallel_residual", true) ? nn::NormPlacement::parallel_norms : nn::NormPlacement::before;
  l.dropout = s.embedding_dropout = c.number("hidden_dropout", 0);
  s.layers.assign(static_cast<size_t>(layers), l);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  s.final_norm = l.norm;
  s.tied = c.flag("tie_word_embeddings", false);
  c.ignore("is_decoder");
  c.expect("is_encoder_decoder", false);
  return s;
}

std::string config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  parts::Json j;
  j["model_type"] = "gpt_neox";
  j["architectures"] = {"GPTNeoXForCausalLM"};
  j["vocab_size"] = s.vocab;
  j["hidden_size"] = s.dim;
  j["intermediate_size"] = l.feed_forward.width;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["max_position_embeddings"] = s.context;
  j["hidden_act"] = parts::activation_name(l.feed_forward.activation);
  j["layer_norm_eps"] = l.norm.eps;
  j["attention_bias"] = l.attention.bias;
  j["attention_dropout"] = l.attention.dropout;
  j["hidden_dropout"] = l.dropout;
  j["use_parallel_residual"] = l.placement == nn::NormPlacement::parallel_norms;
  j["tie_word_embeddings"] = s.tied;
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  return j.dump(2);
}

std::vector<WeightRow> weights(const ModelSpec& s) {
  std::vector<WeightRow> rows;
  const auto same = [&](const std::string& ours, const std::string& theirs, const std::string& gguf,
                        const Shape& shape) { rows.push_back(weight_row(ours, theirs, shape, {}, gguf)); };
  const auto linear = [&](const std::string& ours, const std::string& theirs, const std::string& gguf, int64_t in,
                          int64_t out, bool bias) {
    same(ours + ".weight", theirs + ".weight", gguf + ".weight", {out, in});
    if (bias) same(ours + ".bias", theirs + ".bias", gguf + ".bias", {out});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs, const std::string& gguf) {
    for (const char* kind : {".weight", ".bias"}) same(ours + kind, theirs + kind, gguf + kind, {s.dim});
  };
  same("token_embedding.weight", "gpt_neox.embed_in.weight", "token_embd.weight", {s.vocab, s.dim});
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const nn::AttentionSpec& a = s.layers[i].attention;
    const std::string ours = cat("blocks.", i, '.'), theirs = cat("gpt_neox.layers.", i, '.'),
                      gguf = cat("blk.", i, '.');
    norm(ours + "norm1", theirs + "input_layernorm", gguf + "attn_norm");
    norm(ours + "norm2", theirs + "post_attention_layernorm", gguf + "ffn_norm");
    // Each head's queries, keys and values lie together; a GGUF file has all queries first, as here.
    WeightRow weight = weight_row(ours + "attn.qkv.weight", theirs + "attention.query_key_value.weight",
                                  {3 * s.dim, s.dim}, {}, gguf + "attn_qkv.weight");
    weight.view = WeightView().view({3, a.heads, a.head_size, s.dim}).permute({1, 0, 2, 3});
    rows.push_back(weight);
    if (a.bias) {
      WeightRow bias = weight_row(ours + "attn.qkv.bias", theirs + "attention.query_key_value.bias", {3 * s.dim}, {},
                                  gguf + "attn_qkv.bias");
      bias.view = WeightView().view({3, a.heads, a.head_size}).permute({1, 0, 2});
      rows.push_back(bias);
    }
    linear(ours + "attn.out", theirs + "attention.dense", gguf + "attn_output", s.dim, s.dim, a.out_bias);
    const int64_t width = s.layers[i].feed_forward.width;
    linear(ours + "mlp.up", theirs + "mlp.dense_h_to_4h", gguf + "ffn_up", s.dim, width, true);
    linear(ours + "mlp.down", theirs + "mlp.dense_4h_to_h", gguf + "ffn_down", width, s.dim, true);
  }
  norm("norm", "gpt_neox.final_layer_norm", "output_norm");
  same(s.tied ? "token_embedding.weight" : "head.weight", "embed_out.weight", "output.weight", {s.vocab, s.dim});
  rows.back().other_name = "lm_head.weight";
  rows.back().repeats = s.tied;
  return rows;
}

}  // namespace

const Family& gpt_neox() {
  static const Family family{
      .name = "gpt_neox",
      .title = "GPT-NeoX and Pythia",
      .model_types = {"gpt_neox"},
      .architectures = {"GPTNeoXForCausalLM"},
      .gguf = {.architectures = {"gptneox"}},
      .spec = spec,
      .config = config,
      .weights = weights,
      .base_prefix = "gpt_neox.",
      .buffers = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "gpt_neox", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 256,
                  "rotary_pct": 0.25})"},
          {"sequential", R"({"model_type": "gpt_neox", "vocab_size": 96, "hidden_size": 64,
                  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "max_position_embeddings": 256, "rotary_pct": 1.0, "rotary_emb_base": 5000,
                  "use_parallel_residual": false, "hidden_act": "gelu_fast", "attention_bias": false})"},
      }};
  return family;
}

}  // namespace strata::records
