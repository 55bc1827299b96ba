// Qwen3 with experts (arXiv:2505.09388).

#include <algorithm>

#include "strata/io/gguf.h"
#include "strata/models/family_parts_inl.h"

namespace strata::records {

const Family& qwen3_moe();

namespace {

const parts::LlamaUsual kUsual{
    .vocab = 151936, .dim = 2048, .width = 6144, .layers = 24, .heads = 32, .kv_heads = 4, .context = 32768};

parts::RotaryKeys rotary_keys(const ModelSpec& s) {
  return {.head_size = s.layers.front().attention.head_size, .context = s.context};
}

ModelSpec spec(const ConfigReader& c) {
  ModelSpec s = parts::read_llama(c, kUsual);
  s.rotary = {parts::read_rotary(c, rotary_keys(s))};
  parts::ignore_router_training(c);
  c.ignore("max_window_layers");  // of models without experts
  const bool bias = c.flag("attention_bias", false), slides = c.flag("use_sliding_window", false);
  const auto window = c.maybe_size("sliding_window", 4096);
  const nn::ExpertsSpec experts{.count = c.size({"num_experts", "num_local_experts"}, 128),
                                .per_token = c.size("num_experts_per_tok", 8),
                                .width = c.size("moe_intermediate_size", 768),
                                .normalise = c.flag("norm_topk_prob", false)};
  const int64_t step = c.size("decoder_sparse_step", 1);
  const auto plain = c.integers("mlp_only_layers").value_or(std::vector<int64_t>{});
  for (size_t i = 0; i < s.layers.size(); ++i) {
    nn::LayerSpec& l = s.layers[i];
    l.attention.bias = l.attention.out_bias = bias;
    l.attention.query_key_norm = l.norm;
    if (slides) l.attention.window = window.value_or(0);
    const auto number = static_cast<int64_t>(i);
    if (std::ranges::find(plain, number) == plain.end() && (number + 1) % step == 0) {
      l.feed_forward.experts = experts;
      l.feed_forward.width = 0;
    }
  }
  return s;
}

std::string config(const ModelSpec& s) {
  parts::Json j = parts::write_llama(qwen3_moe(), s, kUsual);
  parts::write_rotary(j, s.rotary.at(0), rotary_keys(s));
  j["attention_bias"] = s.layers.front().attention.bias;
  j["use_sliding_window"] = !parts::window_of(s).is_null();
  j["sliding_window"] = parts::window_of(s);
  parts::Json plain = parts::Json::array();
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const nn::FeedForwardSpec& f = s.layers[i].feed_forward;
    if (!f.experts) {
      plain.push_back(i);
      j["intermediate_size"] = f.width;
      continue;
    }
    j["num_experts"] = f.experts->count;
    j["num_experts_per_tok"] = f.experts->per_token;
    j["moe_intermediate_size"] = f.experts->width;
    j["norm_topk_prob"] = f.experts->normalise;
  }
  if (plain.empty()) j.erase("intermediate_size");
  j["mlp_only_layers"] = plain;
  return j.dump(2);
}

}  // namespace

const Family& qwen3_moe() {
  static const Family family{
      .name = "qwen3_moe",
      .title = "Qwen3 with experts",
      .model_types = {"qwen3_moe"},
      .architectures = {"Qwen3MoeForCausalLM"},
      .gguf = {.architectures = {"qwen3moe"},
               .config = [](const io::GgufMetadata&) { return std::string(R"({"norm_topk_prob": true})"); }},
      .spec = spec,
      .config = config,
      .weights = [](const ModelSpec& s) { return parts::llama_weights(s, {.gguf_experts = true}); },
      .base_prefix = "model.",
      .buffers = {".rotary_emb.inv_freq"},
      .samples = {
          {"plain", R"({"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
                  "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": true,
                  "max_position_embeddings": 256})"},
          {"mixed", R"({"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80,
                  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "num_experts": 4,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 40, "decoder_sparse_step": 2,
                  "mlp_only_layers": [3], "max_position_embeddings": 256, "tie_word_embeddings": true})"},
      }};
  return family;
}

}  // namespace strata::records
