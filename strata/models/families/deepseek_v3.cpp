// DeepSeek-V3 (arXiv:2412.19437): a compressed cache of keys and values, shared experts, routing balanced by a number
// of each expert.

#include "strata/io/gguf.h"
#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& deepseek_v3();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 129280, .dim = 7168, .width = 18432, .layers = 61, .heads = 128, .kv_heads = 128, .context = 4096};
const parts::DeepseekUsual kDeepseek{.first_dense = 3,
                                     .routed = 256,
                                     .shared = 1,
                                     .expert_width = 2048,
                                     .per_token = 8,
                                     .groups = 8,
                                     .top_groups = 4,
                                     .scale = 2.5};

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  parts::read_deepseek(c, s, kDeepseek);
  c.expect("scoring_func", "sigmoid");
  c.expect("topk_method", "noaux_tc");
  c.ignore({"num_nextn_predict_layers", "num_mtp_layers"});  // which transformers does not make
  const bool normalise = c.flag("norm_topk_prob", true);
  for (nn::LayerSpec& l : s.layers) {
    if (!l.feed_forward.experts) continue;
    nn::ExpertsSpec& e = *l.feed_forward.experts;
    e.scoring = nn::ExpertsSpec::Scoring::sigmoid;
    e.groups_by_two = e.correction_bias = true;
    e.normalise = normalise;
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(deepseek_v3(), s, kUsual);
  parts::write_deepseek(j, s);
  j["rope_interleave"] = s.rotary.at(0).interleaved;
  const auto& experts = s.layers.back().feed_forward.experts;
  if (experts) j["norm_topk_prob"] = experts->normalise;
  return j.dump(2);
}

bool chooses_by_sigmoid(const io::GgufMetadata& m) {
  constexpr std::string_view kKey = "deepseek2.expert_gating_func";
  return m.contains(kKey) && m.integer(kKey) == 2;
}

}  // namespace

const Family& deepseek_v3() {
  static const Family family{
      .name = "deepseek_v3",
      .title = "DeepSeek-V3",
      .model_types = {"deepseek_v3"},
      .architectures = {"DeepseekV3ForCausalLM"},
      .gguf = {.architectures = {"deepseek2"}, .fits = chooses_by_sigmoid, .pairs_only = true},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_experts = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq", "model.layers.61."},
      .samples = {
          {"plain", R"({"model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                  "v_head_dim": 12, "kv_lora_rank": 24, "moe_intermediate_size": 24,
                  "num_hidden_layers": 3, "q_lora_rank": 20, "first_k_dense_replace": 1, "n_routed_experts": 8,
                  "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
                  "max_position_embeddings": 256, "num_nextn_predict_layers": 0})"},
          {"halves", R"({"model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                  "v_head_dim": 12, "kv_lora_rank": 24, "moe_intermediate_size": 24,
                  "num_hidden_layers": 2, "q_lora_rank": null, "first_k_dense_replace": 1, "n_routed_experts": 4,
                  "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
                  "norm_topk_prob": false, "routed_scaling_factor": 1.5, "rope_interleave": false,
                  "max_position_embeddings": 256, "num_nextn_predict_layers": 0,
                  "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 1.0,
                  "mscale_all_dim": 1.0}})"},
      }};
  return family;
}

}  // namespace strata::records
