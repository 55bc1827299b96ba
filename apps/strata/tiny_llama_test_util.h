#pragma once
// A folder with a Llama of one layer, for tests of commands.

#include <string>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/ops/ops.h"

namespace strata::cli {

/// Writes config.json and model.safetensors into `folder`, which is there; the weights are drawn by the default
/// generator.
inline void write_tiny_llama(const std::string& folder, int64_t vocab, int64_t context) {
  io::write_file(folder + "/config.json",
                 cat(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": )", vocab,
                     R"(, "hidden_size": 16,
              "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "max_position_embeddings": )",
                     context, R"(, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": false, "hidden_act": "silu"})"));
  io::TensorMap weights;
  const auto add = [&](const std::string& name, const Shape& shape) {
    weights[name] = shape.size() == 1 ? ones(shape) : randn(shape) * 0.5;
  };
  add("model.embed_tokens.weight", {vocab, 16});
  add("lm_head.weight", {vocab, 16});
  add("model.norm.weight", {16});
  const std::string layer = "model.layers.0.";
  add(layer + "input_layernorm.weight", {16});
  add(layer + "post_attention_layernorm.weight", {16});
  add(layer + "self_attn.q_proj.weight", {16, 16});
  add(layer + "self_attn.k_proj.weight", {8, 16});
  add(layer + "self_attn.v_proj.weight", {8, 16});
  add(layer + "self_attn.o_proj.weight", {16, 16});
  add(layer + "mlp.gate_proj.weight", {24, 16});
  add(layer + "mlp.up_proj.weight", {24, 16});
  add(layer + "mlp.down_proj.weight", {16, 24});
  io::save_safetensors(folder + "/model.safetensors", weights);
}

}  // namespace strata::cli
