// Qwen2 and 2.5: Llama with biases of queries, keys and values (arXiv:2407.10671).

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& qwen2();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 151936, .dim = 4096, .width = 22016, .layers = 32, .heads = 32, .kv_heads = 32, .context = 32768};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  for (nn::LayerSpec& l : s.layers) l.attention.bias = true;
  parts::read_qwen_windows(c, s);
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(qwen2(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  parts::write_qwen_windows(j, s);
  return j.dump(2);
}

}  // namespace

const Family& qwen2() {
  static const Family family{
      .name = "qwen2",
      .title = "Qwen2 and 2.5",
      .model_types = {"qwen2"},
      .architectures = {"Qwen2ForCausalLM"},
      .gguf = {.architectures = {"qwen2"}},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain",
           R"({"model_type": "qwen2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 3, "num_key_value_heads": 2, "max_position_embeddings": 256,
                  "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
          {"window",
           R"({"model_type": "qwen2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 4, "num_key_value_heads": 4, "max_position_embeddings": 256,
                  "use_sliding_window": true, "sliding_window": 10, "max_window_layers": 2})"},
          {"yarn",
           R"({"model_type": "qwen2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 256,
                  "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}})"},
      }};
  return family;
}

}  // namespace strata::records
