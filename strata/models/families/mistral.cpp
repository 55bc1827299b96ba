// Mistral 7B: Llama with a window (Jiang et al., arXiv:2310.06825).

#include "strata/io/gguf.h"
#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& mistral();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 32000, .dim = 4096, .width = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  const auto window = c.maybe_size("sliding_window", 4096);
  for (nn::LayerSpec& l : s.layers) l.attention.window = window.value_or(0);
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(mistral(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  j["sliding_window"] = parts::window_of(s);
  return j.dump(2);
}

}  // namespace

const Family& mistral() {
  static const Family family{
      .name = "mistral",
      .title = "Mistral 7B",
      .model_types = {"mistral"},
      .architectures = {"MistralForCausalLM"},
      .gguf = {.architectures = {"llama"},
               .fits =
                   [](const io::GgufMetadata& m) {
                     return m.contains("llama.attention.sliding_window") && !m.contains("llama.expert_count");
                   }},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_pairs = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"window",
           R"({"model_type": "mistral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 3, "num_key_value_heads": 2, "max_position_embeddings": 256, "sliding_window": 12,
                  "rope_theta": 1000000.0})"},
          {"whole",
           R"({"model_type": "mistral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 2, "head_dim": 24, "num_key_value_heads": 4, "max_position_embeddings": 256,
                  "sliding_window": null})"},
      }};
  return family;
}

}  // namespace strata::records
