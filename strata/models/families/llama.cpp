// Llama 2 and 3 (Touvron et al., arXiv:2307.09288; Dubey et al., arXiv:2407.21783).

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& llama();

namespace {

const parts::LlamaUsual kUsual{.vocab = 32000, .dim = 4096, .width = 11008, .layers = 32, .heads = 32, .context = 2048};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  const bool attention = c.flag("attention_bias", false), feed_forward = c.flag("mlp_bias", false);
  for (nn::LayerSpec& l : s.layers) {
    l.attention.bias = l.attention.out_bias = attention;
    l.feed_forward.bias = feed_forward;
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(llama(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  j["attention_bias"] = s.layers.front().attention.bias;
  j["mlp_bias"] = s.layers.front().feed_forward.bias;
  return j.dump(2);
}

}  // namespace

const Family& llama() {
  static const Family family{
      .name = "llama",
      .title = "Llama 2 and 3",
      .model_types = {"llama"},
      .architectures = {"LlamaForCausalLM"},
      .gguf = {.architectures = {"llama"}},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_pairs = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})"},
          {"tied-biased", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 48, "intermediate_size": 80,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "attention_bias": true,
                  "mlp_bias": true, "max_position_embeddings": 256, "tie_word_embeddings": true})"},
          {"linear", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256,
                  "rope_scaling": {"type": "linear", "factor": 4.0}})"},
          {"dynamic", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
                  "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})"},
          {"llama3", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1,
                  "max_position_embeddings": 512, "rope_parameters": {"rope_theta": 50000.0, "rope_type": "llama3",
                  "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}})"},
          {"yarn", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "max_position_embeddings": 256, "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn",
                  "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2}})"},
      }};
  return family;
}

}  // namespace strata::records
