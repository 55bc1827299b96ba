// Gemma 3 (arXiv:2503.19786), the language model: Gemma 2 with norms of queries and keys instead of soft caps, and
// rotary positions of their own for layers with a window.

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& gemma3();

namespace {

const parts::LlamaUsual kUsual{.vocab = 262208,
                               .dim = 2304,
                               .width = 9216,
                               .layers = 26,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_size = 256,
                               .context = 131072,
                               .tied = true,
                               .activation = "gelu_pytorch_tanh",
                               .activation_key = {"hidden_activation", "hidden_act"}};

parts::RotaryKeys rotary_keys(const ModelSpec& s, bool window) {
  parts::RotaryKeys keys{.head_size = s.layers.front().attention.head_size, .context = s.context, .base = 1e6};
  if (!window) return keys;
  keys.base = 1e4;
  keys.base_key = "rope_local_base_freq";
  return keys;
}

// Of transformers 4 the scaling is that of layers without a window; 5 has an object for each kind.
void read_rotary(const ConfigReader& c, ModelSpec& s) {
  const auto scaling = c.object("rope_scaling"), kinds = c.object("rope_parameters");
  if (scaling && kinds) c.refuse("rope_parameters", "stands beside 'rope_scaling': one of them is taken");
  const auto full = kinds ? kinds->object("full_attention") : scaling;
  const auto window = kinds ? kinds->object("sliding_attention") : std::nullopt;
  s.rotary = {parts::read_rotary(c, full, rotary_keys(s, false)), parts::read_rotary(c, window, rotary_keys(s, true))};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  read_rotary(c, s);
  parts::read_gemma(c, s);
  c.expect_none("attn_logit_softcapping");
  s.logit_soft_cap = c.maybe_number("final_logit_softcapping").value_or(0);
  const int64_t pattern = c.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  std::vector<bool> usual;
  for (size_t i = 1; i <= s.layers.size(); ++i) usual.push_back(static_cast<int64_t>(i) % pattern != 0);
  parts::read_windows(c, s, c.maybe_size("sliding_window", 4096), usual);
  for (nn::LayerSpec& l : s.layers) {
    nn::AttentionSpec& a = l.attention;
    a.rotary = a.window > 0 ? 1 : 0;
    a.query_key_norm = l.norm;
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(gemma3(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s, false));
  j["rope_local_base_freq"] = s.rotary.at(1).base;
  parts::write_gemma(j, s);
  return j.dump(2);
}

}  // namespace

const Family& gemma3() {
  static const Family family{
      .name = "gemma3",
      .title = "Gemma 3 (text)",
      .model_types = {"gemma3_text"},
      .architectures = {"Gemma3ForCausalLM"},
      .gguf = {.architectures = {"gemma3"}, .window_period = 6, .scale = parts::gemma_gguf_scale},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_plus = 1}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
                  "max_position_embeddings": 256, "sliding_window": 12, "sliding_window_pattern": 3,
                  "query_pre_attn_scalar": 32})"},
          {"linear", R"({"model_type": "gemma3_text", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
                  "max_position_embeddings": 256, "sliding_window": 12, "query_pre_attn_scalar": 16,
                  "final_logit_softcapping": 6.0,
                  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                  "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50000.0},
                  "sliding_attention": {"rope_type": "default", "rope_theta": 2000.0}}})"},
      }};
  return family;
}

}  // namespace strata::records
