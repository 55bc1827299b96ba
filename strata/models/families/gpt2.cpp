// GPT-2 (Radford et al. 2019).

#include <cmath>

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& gpt2();

namespace {

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s;
  s.vocab = c.size("vocab_size", 50257);
  s.dim = c.size({"n_embd", "hidden_size"}, 768);
  s.context = s.learned_positions = c.size({"n_positions", "max_position_embeddings", "n_ctx"}, 1024);
  const int64_t layers = c.size({"n_layer", "num_hidden_layers"}, 12);
  const int64_t heads = c.size({"n_head", "num_attention_heads"}, 12);
  if (s.dim % heads != 0) c.refuse({"n_head", "num_attention_heads"}, cat("does not divide n_embd ", s.dim));
  if (layers > 4096) c.refuse({"n_layer", "num_hidden_layers"}, "is above 4096");
  nn::LayerSpec l;
  l.norm = {.eps = c.number("layer_norm_epsilon", 1e-5)};
  l.attention = {.heads = heads,
                 .kv_heads = heads,
                 .head_size = s.dim / heads,
                 .value_size = s.dim / heads,
                 .dropout = c.number("attn_pdrop", 0.1)};
  l.feed_forward = {.width = c.maybe_size("n_inner").value_or(4 * s.dim),
                    .activation = parts::read_activation(c, "activation_function", "gelu_new")};
  l.dropout = c.number("resid_pdrop", 0.1);
  if (!c.flag("scale_attn_weights", true)) l.attention.scale = 1;
  const bool by_layer = c.flag("scale_attn_by_inverse_layer_idx", false);
  const double scale = l.attention.scale.value_or(1 / std::sqrt(static_cast<double>(l.attention.head_size)));
  for (int64_t i = 0; i < layers; ++i) {
    if (by_layer && i > 0) l.attention.scale = scale / static_cast<double>(i + 1);
    s.layers.push_back(l);
  }
  s.final_norm = l.norm;
  s.embedding_dropout = c.number("embd_pdrop", 0.1);
  s.tied = c.flag("tie_word_embeddings", true);
  c.ignore("reorder_and_upcast_attn");  // the order of two products, and a precision that is had anyway
  c.ignore("is_decoder");
  for (const char* key :
       {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"})
    c.ignore(key);  // of a head for classes
  c.expect("add_cross_attention", false);
  c.expect("is_encoder_decoder", false);
  return s;
}

std::string config(const ModelSpec& s) {
  const nn::LayerSpec& l = s.layers.front();
  const auto& second = s.layers[s.layers.size() > 1 ? 1 : 0].attention;
  parts::Json j;
  j["model_type"] = "gpt2";
  j["architectures"] = {"GPT2LMHeadModel"};
  j["vocab_size"] = s.vocab;
  j["n_embd"] = s.dim;
  j["n_positions"] = s.context;
  j["n_layer"] = s.layers.size();
  j["n_head"] = l.attention.heads;
  j["n_inner"] = l.feed_forward.width;
  j["activation_function"] = parts::activation_name(l.feed_forward.activation);
  j["layer_norm_epsilon"] = l.norm.eps;
  j["resid_pdrop"] = l.dropout;
  j["embd_pdrop"] = s.embedding_dropout;
  j["attn_pdrop"] = l.attention.dropout;
  j["scale_attn_weights"] = !l.attention.scale.has_value();
  j["scale_attn_by_inverse_layer_idx"] = second.scale != l.attention.scale;
  j["tie_word_embeddings"] = s.tied;
  return j.dump(2);
}

// Matrices lie as [in, out] in its own files.
std::vector<WeightRow> weights(const ModelSpec& s) {
  std::vector<WeightRow> rows;
  const auto same = [&](const std::string& ours, const std::string& theirs, const std::string& gguf,
                        const Shape& shape) { rows.push_back(weight_row(ours, theirs, shape, {}, gguf)); };
  const auto linear = [&](const std::string& ours, const std::string& theirs, const std::string& gguf, int64_t in,
                          int64_t out) {
    WeightRow row = weight_row(ours + ".weight", theirs + ".weight", {in, out}, {}, gguf + ".weight");
    row.view = WeightView().transposed();
    rows.push_back(row);
    same(ours + ".bias", theirs + ".bias", gguf + ".bias", {out});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs, const std::string& gguf) {
    for (const char* kind : {".weight", ".bias"}) same(ours + kind, theirs + kind, gguf + kind, {s.dim});
  };
  same("token_embedding.weight", "transformer.wte.weight", "token_embd.weight", {s.vocab, s.dim});
  same("position_embedding.weight", "transformer.wpe.weight", "position_embd.weight", {s.learned_positions, s.dim});
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const std::string ours = cat("blocks.", i, '.'), theirs = cat("transformer.h.", i, '.'), gguf = cat("blk.", i, '.');
    const int64_t width = s.layers[i].feed_forward.width;
    norm(ours + "norm1", theirs + "ln_1", gguf + "attn_norm");
    linear(ours + "attn.qkv", theirs + "attn.c_attn", gguf + "attn_qkv", s.dim, 3 * s.dim);
    linear(ours + "attn.out", theirs + "attn.c_proj", gguf + "attn_output", s.dim, s.dim);
    norm(ours + "norm2", theirs + "ln_2", gguf + "ffn_norm");
    linear(ours + "mlp.up", theirs + "mlp.c_fc", gguf + "ffn_up", s.dim, width);
    linear(ours + "mlp.down", theirs + "mlp.c_proj", gguf + "ffn_down", width, s.dim);
  }
  norm("norm", "transformer.ln_f", "output_norm");
  same(s.tied ? "token_embedding.weight" : "head.weight", "lm_head.weight", "output.weight", {s.vocab, s.dim});
  rows.back().repeats = s.tied;
  return rows;
}

}  // namespace

const Family& gpt2() {
  static const Family family{
      .name = "gpt2",
      .title = "GPT-2",
      .model_types = {"gpt2"},
      .architectures = {"GPT2LMHeadModel"},
      .gguf = {.architectures = {"gpt2"}},
      .spec = spec,
      .config = config,
      .weights = weights,
      .base_prefix = "transformer.",
      .buffers = {".attn.bias", ".attn.masked_bias"},
      .samples = {
          {"plain", R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_positions": 256, "n_layer": 3,
                  "n_head": 4})"},
          {"scaled", R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 48, "n_positions": 256, "n_layer": 2,
                  "n_head": 3, "n_inner": 80, "activation_function": "relu", "scale_attn_by_inverse_layer_idx": true,
                  "tie_word_embeddings": false})"},
      }};
  return family;
}

}  // namespace strata::records
