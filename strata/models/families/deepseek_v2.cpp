// DeepSeek-V2 (arXiv:2405.04434): a compressed cache of keys and values, shared experts, routing that is limited to
// groups.

#include "strata/io/gguf.h"
#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& deepseek_v2();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 102400, .dim = 4096, .width = 11008, .layers = 32, .heads = 32, .context = 2048};
const parts::DeepseekUsual kDeepseek{.first_dense = 0, .routed = 64, .shared = 2, .expert_width = 1407, .scale = 1};

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  parts::read_deepseek(c, s, kDeepseek);
  c.expect("mlp_bias", false);
  c.expect("scoring_func", "softmax");
  c.expect("norm_topk_prob", false);  // which transformers passes over
  const std::string method = c.text("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    c.refuse("topk_method", "is taken as greedy or group_limited_greedy");
  if (method == "greedy")
    for (nn::LayerSpec& l : s.layers)
      if (l.feed_forward.experts) l.feed_forward.experts->groups = l.feed_forward.experts->top_groups = 1;
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(deepseek_v2(), s, kUsual);
  parts::write_deepseek(j, s);
  const auto& experts = s.layers.back().feed_forward.experts;
  j["topk_method"] = experts && experts->groups > 1 ? "group_limited_greedy" : "greedy";
  return j.dump(2);
}

// Its files do not say how experts are chosen.
std::string gguf_config(const io::GgufMetadata& m) {
  const bool groups = m.contains("deepseek2.expert_group_count") && m.integer("deepseek2.expert_group_count") > 1;
  return parts::Json{{"topk_method", groups ? "group_limited_greedy" : "greedy"}}.dump();
}

}  // namespace

const Family& deepseek_v2() {
  static const Family family{
      .name = "deepseek_v2",
      .title = "DeepSeek-V2",
      .model_types = {"deepseek_v2"},
      .architectures = {"DeepseekV2ForCausalLM"},
      .gguf = {.architectures = {"deepseek2"}, .config = gguf_config, .pairs_only = true},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_experts = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "deepseek_v2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                  "v_head_dim": 12, "kv_lora_rank": 24, "moe_intermediate_size": 24,
                  "num_hidden_layers": 3, "q_lora_rank": 20, "first_k_dense_replace": 1, "n_routed_experts": 8,
                  "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
                  "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0,
                  "max_position_embeddings": 256})"},
          {"yarn", R"({"model_type": "deepseek_v2", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                  "v_head_dim": 12, "kv_lora_rank": 24, "moe_intermediate_size": 24,
                  "num_hidden_layers": 2, "q_lora_rank": null, "first_k_dense_replace": 0, "n_routed_experts": 4,
                  "n_shared_experts": 1, "num_experts_per_tok": 2, "max_position_embeddings": 256,
                  "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 0.707,
                  "mscale_all_dim": 0.9, "beta_fast": 32, "beta_slow": 1}})"},
      }};
  return family;
}

}  // namespace strata::records
