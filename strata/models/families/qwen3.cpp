// Qwen3: Llama with norms of queries and keys (arXiv:2505.09388).

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& qwen3();

namespace {

const parts::LlamaUsual kUsual{.vocab = 151936,
                               .dim = 4096,
                               .width = 22016,
                               .layers = 32,
                               .heads = 32,
                               .kv_heads = 32,
                               .head_size = 128,
                               .context = 32768};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  const bool bias = c.flag("attention_bias", false);
  for (nn::LayerSpec& l : s.layers) {
    l.attention.bias = l.attention.out_bias = bias;
    l.attention.query_key_norm = l.norm;
  }
  parts::read_qwen_windows(c, s);
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(qwen3(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  j["attention_bias"] = s.layers.front().attention.bias;
  parts::write_qwen_windows(j, s);
  return j.dump(2);
}

}  // namespace

const Family& qwen3() {
  static const Family family{
      .name = "qwen3",
      .title = "Qwen3",
      .model_types = {"qwen3"},
      .architectures = {"Qwen3ForCausalLM"},
      .gguf = {.architectures = {"qwen3"}},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain",
           R"({"model_type": "qwen3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 256,
                  "rope_theta": 1000000.0})"},
          {"window",
           R"({"model_type": "qwen3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
                  "attention_bias": true, "tie_word_embeddings": true, "use_sliding_window": true, "sliding_window": 10,
                  "layer_types": ["full_attention", "sliding_attention"]})"},
      }};
  return family;
}

}  // namespace strata::records
