// Phi-3 (arXiv:2404.14219): Llama with joined projections, a part of each head turning, and LongRoPE
// (arXiv:2402.13753).

#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& phi3();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 32064, .dim = 3072, .width = 8192, .layers = 32, .heads = 32, .context = 4096, .eps = 1e-5};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context, .original_context = 4096};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  const nn::RotarySpec rotary = parts::read_rotary(c, rotary_keys(s));
  using Scaling = nn::RotarySpec::Scaling;
  if (rotary.scaling != Scaling::none && rotary.scaling != Scaling::longrope)
    c.refuse({"rope_scaling", "rope_parameters"}, "is taken as default or longrope");
  c.ignore("original_max_position_embeddings");
  c.ignore("embd_pdrop");
  c.expect("attention_bias", false);
  s.rotary = {rotary};
  const auto window = c.maybe_size("sliding_window");
  for (nn::LayerSpec& l : s.layers) {
    l.attention.window = window.value_or(0);
    l.dropout = c.number("resid_pdrop", 0);
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(phi3(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  if (s.rotary.at(0).original_context > 0) j["original_max_position_embeddings"] = s.rotary.at(0).original_context;
  j["sliding_window"] = parts::window_of(s);
  j["resid_pdrop"] = s.layers.front().dropout;
  return j.dump(2);
}

}  // namespace

const Family& phi3() {
  static const Family family{
      .name = "phi3",
      .title = "Phi-3",
      .model_types = {"phi3"},
      .architectures = {"Phi3ForCausalLM"},
      .gguf = {.architectures = {"phi3"}},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.joined = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"window",
           R"({"model_type": "phi3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 3, "max_position_embeddings": 256, "sliding_window": 12, "pad_token_id": null})"},
          {"longrope",
           R"({"model_type": "phi3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                  "num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 256,
                  "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75, "pad_token_id": null,
                  "rope_scaling": {"type": "longrope",
                  "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0], "long_factor": [1.2, 1.5, 2.5, 4.0, 6.0, 8.0]}})"},
      }};
  return family;
}

}  // namespace strata::records
