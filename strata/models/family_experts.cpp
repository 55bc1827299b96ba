// What configurations of decoders with experts share.

#include <cmath>

#include "strata/models/family_parts_inl.h"

namespace strata::parts {
namespace {

double mscale(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

RotaryKeys rotary_keys(const ModelSpec& s, int64_t rope_size) {
  return {.head_size = rope_size, .context = s.context};
}

}  // namespace

void ignore_router_training(const ConfigReader& c) {
  for (const char* key :
       {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux", "ep_size"})
    c.ignore(key);
}

void read_deepseek(const ConfigReader& c, ModelSpec& s, const DeepseekUsual& u) {
  ignore_router_training(c);
  c.expect("moe_layer_freq", 1.0);
  const int64_t rope = c.size("qk_rope_head_dim", 64), plain = c.size("qk_nope_head_dim", 128);
  c.ignore("qk_head_dim");  // their sum
  const nn::LatentSpec latent{.q_rank = c.maybe_size("q_lora_rank", 1536).value_or(0),
                              .kv_rank = c.size("kv_lora_rank", 512),
                              .rope_size = rope};
  s.rotary = {read_rotary(c, rotary_keys(s, rope))};
  s.rotary[0].interleaved = c.flag("rope_interleave", true);
  const auto scaling = c.object("rope_scaling") ? c.object("rope_scaling") : c.object("rope_parameters");
  double scale = 1 / std::sqrt(static_cast<double>(plain + rope));
  const double all = scaling ? scaling->maybe_number("mscale_all_dim").value_or(0) : 0;
  const bool scaled = s.rotary[0].scaling != nn::RotarySpec::Scaling::none && all != 0;
  if (scaled) scale *= std::pow(mscale(s.rotary[0].factor, all), 2);
  const bool bias = c.flag("attention_bias", false);
  if (bias && latent.q_rank == 0) c.refuse("attention_bias", "is not taken without q_lora_rank");
  const nn::ExpertsSpec experts{.count = c.size({"n_routed_experts", "num_experts", "num_local_experts"}, u.routed),
                                .per_token = c.size("num_experts_per_tok", u.per_token),
                                .width = c.size("moe_intermediate_size", u.expert_width),
                                .shared_width = 0,
                                .groups = c.maybe_size("n_group", u.groups).value_or(1),
                                .top_groups = c.maybe_size("topk_group", u.top_groups).value_or(1),
                                .scale = c.number("routed_scaling_factor", u.scale),
                                .precise_router = true};
  const auto shared = c.maybe_size("n_shared_experts", u.shared);
  const int64_t first = c.has("first_k_dense_replace") ? c.integer("first_k_dense_replace") : u.first_dense;
  for (size_t i = 0; i < s.layers.size(); ++i) {
    nn::LayerSpec& l = s.layers[i];
    nn::AttentionSpec& a = l.attention;
    a.kv_heads = a.heads;
    a.head_size = plain + rope;
    a.value_size = c.size("v_head_dim", 128);
    a.bias = a.out_bias = bias;
    a.query_key_norm = nn::NormSpec{.kind = nn::NormSpec::Kind::rms, .eps = 1e-6};
    if (scaled) a.scale = scale;
    a.latent = latent;
    if (static_cast<int64_t>(i) < first) continue;
    l.feed_forward.experts = experts;
    l.feed_forward.experts->shared_width = experts.width * shared.value_or(0);
    l.feed_forward.width = 0;
  }
}

void write_deepseek(Json& j, const ModelSpec& s) {
  const nn::AttentionSpec& a = s.layers.front().attention;
  const nn::LatentSpec& l = a.latent.value();
  const nn::RotarySpec& r = s.rotary.at(0);
  j.erase("head_dim");
  write_rotary(j, r, rotary_keys(s, l.rope_size));
  if (a.scale) {
    const double m = std::sqrt(*a.scale * std::sqrt(static_cast<double>(a.head_size)));
    j["rope_scaling"]["mscale_all_dim"] = std::round((m - 1) / (0.1 * std::log(r.factor)) * 1e6) / 1e6;
  }
  j["qk_rope_head_dim"] = l.rope_size;
  j["qk_nope_head_dim"] = a.head_size - l.rope_size;
  j["v_head_dim"] = a.value_size;
  j["q_lora_rank"] = l.q_rank > 0 ? Json(l.q_rank) : Json();
  j["kv_lora_rank"] = l.kv_rank;
  j["attention_bias"] = a.bias;
  size_t first = 0;
  while (first < s.layers.size() && !s.layers[first].feed_forward.experts) ++first;
  j["first_k_dense_replace"] = first;
  if (first == 0) j.erase("intermediate_size");
  if (first == s.layers.size()) return;
  const nn::ExpertsSpec& e = *s.layers[first].feed_forward.experts;
  j["n_routed_experts"] = e.count;
  j["num_experts_per_tok"] = e.per_token;
  j["moe_intermediate_size"] = e.width;
  j["n_shared_experts"] = e.shared_width / e.width;
  j["n_group"] = e.groups;
  j["topk_group"] = e.top_groups;
  j["routed_scaling_factor"] = e.scale;
}

}  // namespace strata::parts
