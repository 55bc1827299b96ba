// Mixtral (Jiang et al., arXiv:2401.04088): Mistral with experts.

#include "strata/io/gguf.h"
#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& mixtral();

namespace {

const parts::LlamaUsual kUsual{.vocab = 32000,
                               .dim = 4096,
                               .width = 14336,
                               .layers = 32,
                               .heads = 32,
                               .kv_heads = 8,
                               .context = 131072,
                               .eps = 1e-5};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context, .base = 1e6};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  parts::ignore_router_training(c);
  const auto window = c.maybe_size("sliding_window");
  nn::ExpertsSpec experts{.count = c.size({"num_local_experts", "num_experts"}, 8),
                          .per_token = c.size("num_experts_per_tok", 2),
                          .normalise = true};
  for (nn::LayerSpec& l : s.layers) {
    l.attention.window = window.value_or(0);
    experts.width = l.feed_forward.width;
    l.feed_forward.experts = experts;
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(mixtral(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  const nn::ExpertsSpec& e = s.layers.front().feed_forward.experts.value();
  j["num_local_experts"] = e.count;
  j["num_experts_per_tok"] = e.per_token;
  j["sliding_window"] = parts::window_of(s);
  return j.dump(2);
}

}  // namespace

const Family& mixtral() {
  static const Family family{
      .name = "mixtral",
      .title = "Mixtral",
      .model_types = {"mixtral"},
      .architectures = {"MixtralForCausalLM"},
      .gguf = {.architectures = {"llama"},
               .fits = [](const io::GgufMetadata& m) { return m.contains("llama.expert_count"); }},
      .spec = spec,
      .config = config,
      .weights =
          [](const ModelSpec& s) {
            return parts::llama_weights(s, {.gguf_pairs = true,
                                            .gguf_experts = true,
                                            .experts_block = "block_sparse_moe",
                                            .expert_gate = "w1",
                                            .expert_up = "w3",
                                            .expert_down = "w2"});
          },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
                  "max_position_embeddings": 256})"},
          {"window", R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 32,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": 6,
                  "num_experts_per_tok": 3, "max_position_embeddings": 256, "sliding_window": 12,
                  "rope_theta": 10000.0})"},
      }};
  return family;
}

}  // namespace strata::records
