// Gemma 2 (arXiv:2408.00118): norms around each branch, soft caps, every other layer with a window.

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& gemma2();

namespace {

const parts::LlamaUsual kUsual{.vocab = 256000,
                               .dim = 2304,
                               .width = 9216,
                               .layers = 26,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_size = 256,
                               .context = 8192,
                               .tied = true,
                               .activation = "gelu_pytorch_tanh",
                               .activation_key = {"hidden_activation", "hidden_act"}};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  parts::read_gemma(c, s);
  const double cap = c.maybe_number("attn_logit_softcapping", 50).value_or(0);
  for (nn::LayerSpec& l : s.layers) l.attention.soft_cap = cap;
  s.logit_soft_cap = c.maybe_number("final_logit_softcapping", 30).value_or(0);
  std::vector<bool> even;
  for (size_t i = 0; i < s.layers.size(); ++i) even.push_back(i % 2 == 0);
  parts::read_windows(c, s, c.maybe_size("sliding_window", 4096), even);
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(gemma2(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  parts::write_gemma(j, s);
  const double cap = s.layers.front().attention.soft_cap;
  j["attn_logit_softcapping"] = cap > 0 ? parts::Json(cap) : parts::Json();
  return j.dump(2);
}

}  // namespace

const Family& gemma2() {
  static const Family family{
      .name = "gemma2",
      .title = "Gemma 2",
      .model_types = {"gemma2"},
      .architectures = {"Gemma2ForCausalLM"},
      .gguf = {.architectures = {"gemma2"}, .window_period = 2, .usual_window = 4096, .scale = parts::gemma_gguf_scale},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_plus = 1}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "gemma2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
                  "max_position_embeddings": 256, "sliding_window": 12, "query_pre_attn_scalar": 32,
                  "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0})"},
          {"uncapped", R"({"model_type": "gemma2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
                  "max_position_embeddings": 256, "sliding_window": 12, "query_pre_attn_scalar": 16,
                  "attn_logit_softcapping": null, "final_logit_softcapping": null})"},
      }};
  return family;
}

}  // namespace strata::records
