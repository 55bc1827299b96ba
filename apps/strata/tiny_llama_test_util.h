#pragma once
// A folder with a small Llama, for tests of commands.

#include <cmath>
#include <string>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/ops/ops.h"

namespace strata::cli {

/// Writes config.json and model.safetensors into `folder`, which is there; the weights are drawn by the default
/// generator. `width` is that of the hidden states, half as much more the feed-forward's.
inline void write_tiny_llama(const std::string& folder, int64_t vocab, int64_t context, int64_t width = 16,
                             int64_t layers = 1) {
  const int64_t half = width / 2, wide = width + half;
  io::write_file(folder + "/config.json",
                 cat(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": )", vocab,
                     R"(, "hidden_size": )", width, R"(, "intermediate_size": )", wide, R"(, "num_hidden_layers": )",
                     layers, R"(, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": )",
                     context, R"(, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": false, "hidden_act": "silu"})"));
  io::TensorMap weights;
  const auto add = [&](const std::string& name, const Shape& shape) {
    weights[name] = shape.size() == 1 ? ones(shape) : randn(shape) * (2 / std::sqrt(static_cast<double>(width)));
  };
  add("model.embed_tokens.weight", {vocab, width});
  add("lm_head.weight", {vocab, width});
  add("model.norm.weight", {width});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = cat("model.layers.", i, ".");
    add(layer + "input_layernorm.weight", {width});
    add(layer + "post_attention_layernorm.weight", {width});
    add(layer + "self_attn.q_proj.weight", {width, width});
    add(layer + "self_attn.k_proj.weight", {half, width});
    add(layer + "self_attn.v_proj.weight", {half, width});
    add(layer + "self_attn.o_proj.weight", {width, width});
    add(layer + "mlp.gate_proj.weight", {wide, width});
    add(layer + "mlp.up_proj.weight", {wide, width});
    add(layer + "mlp.down_proj.weight", {width, wide});
  }
  io::save_safetensors(folder + "/model.safetensors", weights);
}

}  // namespace strata::cli
