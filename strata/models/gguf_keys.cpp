#include "strata/models/gguf_keys_inl.h"

namespace strata {

using Kind = KeyRow::Kind;
const std::vector<KeyRow>& gguf_keys() {
  static const std::vector<KeyRow> rows = {
      {"vocab_size", {"vocab_size"}},
      {"context_length", {"max_position_embeddings", "n_positions"}, Kind::integer, true},
      {"embedding_length", {"hidden_size", "n_embd", "d_model"}, Kind::integer, true},
      {"block_count", {"num_hidden_layers", "n_layer", "num_layers"}, Kind::integer, true},
      {"decoder_block_count", {"num_decoder_layers"}},
      {"decoder_start_token_id", {"decoder_start_token_id"}, Kind::integer, false, false, "0"},
      {"feed_forward_length", {"intermediate_size", "n_inner", "d_ff"}, Kind::integer, false, false, {}, true},
      {"attention.head_count", {"num_attention_heads", "n_head", "num_heads"}, Kind::integer, true},
      {"attention.relative_buckets_count", {"relative_attention_num_buckets"}, Kind::integer, true},
      {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, Kind::number, true},
      {"attention.layer_norm_epsilon", {"layer_norm_eps", "layer_norm_epsilon"}, Kind::number, true},
      {"attention.q_lora_rank", {"q_lora_rank"}, Kind::integer, false, false, "null"},
      {"attention.kv_lora_rank", {"kv_lora_rank"}, Kind::integer, true},
      {"attention.value_length_mla", {"v_head_dim"}, Kind::integer, true},
      {"rope.freq_base", {"rope_theta", "rotary_emb_base"}, Kind::number, false, false, "10000.0"},
      {"rope.freq_base_swa", {"rope_local_base_freq"}, Kind::number},
      {"attn_logit_softcapping", {"attn_logit_softcapping"}, Kind::number, false, true},
      {"final_logit_softcapping", {"final_logit_softcapping"}, Kind::number, false, true},
      {"use_parallel_residual", {"use_parallel_residual"}, Kind::flag, true},
      {"leading_dense_block_count", {"first_k_dense_replace"}, Kind::integer, false, false, "0"},
      {"expert_count", {"num_local_experts", "num_experts", "n_routed_experts"}, Kind::integer, true},
      {"expert_used_count", {"num_experts_per_tok"}, Kind::integer, true},
      {"expert_feed_forward_length", {"moe_intermediate_size"}, Kind::integer, true},
      {"expert_shared_count", {"n_shared_experts"}, Kind::integer, true},
      {"expert_weights_scale", {"routed_scaling_factor"}, Kind::number, false, false, "1.0"},
      {"expert_weights_norm", {"norm_topk_prob"}, Kind::flag, false, false, "false"},
      {"expert_group_count", {"n_group"}, Kind::integer, false, false, "1"},
      {"expert_group_used_count", {"topk_group"}, Kind::integer, false, false, "1"},
  };
  return rows;
}

}  // namespace strata
