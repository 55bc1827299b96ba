#pragma once
// What records of families share: activations, rotary positions, windows, and the keys and names of Llama, which most
// later decoders took over.

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/models/family.h"

namespace strata::parts {

using Json = nlohmann::ordered_json;

/// The activation under a key of config.json, of which `absent` is the name where there is none. Throws ValueError for
/// one that is not had.
nn::Activation read_activation(const ConfigReader& config, const JsonKey& key, std::string_view absent);
/// The one of that name, which stands under the key in some spelling.
nn::Activation activation_of(const ConfigReader& config, const JsonKey& key, std::string_view name);
/// The name that is written.
std::string_view activation_name(nn::Activation activation);

/// Where a family's configuration has its rotary positions.
struct RotaryKeys {
  int64_t head_size = 0;
  int64_t context = 0;
  double base = 10000;           ///< where none is said
  double part = 1;               ///< of a head that turns, where none is said
  int64_t original_context = 0;  ///< where none is said beside them; 0: what they say, else context
  JsonKey base_key = "rope_theta";
  JsonKey part_key = "partial_rotary_factor";
};
/// rope_scaling (transformers 4) or rope_parameters (5), of which one may be there, with the keys beside them.
nn::RotarySpec read_rotary(const ConfigReader& config, const RotaryKeys& keys);
/// The same of an object found already, or of none: one kind of layers of several.
nn::RotarySpec read_rotary(const ConfigReader& config, const std::optional<ConfigReader>& own, const RotaryKeys& keys);
/// As transformers 4 spells it, which 5 reads too: base and part under their keys, the rest in "rope_scaling".
void write_rotary(Json& config, const nn::RotarySpec& rotary, const RotaryKeys& keys);
/// The object "rope_scaling" alone; null without scaling.
Json rotary_scaling(const nn::RotarySpec& rotary);

/// Puts `window` on the layers that "layer_types" calls sliding_attention, or, where there is no such list, on those
/// for which `usual` is true.
void read_windows(const ConfigReader& config, ModelSpec& spec, std::optional<int64_t> window,
                  const std::vector<bool>& usual);
/// Qwen's: said by use_sliding_window, sliding_window, max_window_layers and layer_types.
void read_qwen_windows(const ConfigReader& config, ModelSpec& spec);
void write_qwen_windows(Json& config, const ModelSpec& spec);
/// What Gemma 2 and 3 share: norms around branches whose factor is 1 + weight, query_pre_attn_scalar, embeddings times
/// sqrt(dim). Writing has windows and the soft cap of logits too.
void read_gemma(const ConfigReader& config, ModelSpec& spec);
void write_gemma(Json& config, const ModelSpec& spec);
/// The scale of scores that GGUF's readers take for Gemma 2 and 3: of the head's size, but of dim / heads in their
/// largest models, which they know by the number of layers.
double gemma_gguf_scale(const ModelSpec& spec);
/// The list "layer_types" of a spec, and its window; null where no layer has one.
Json layer_types(const ModelSpec& spec);
Json window_of(const ModelSpec& spec);

/// What Llama's keys are where a file has them not.
struct LlamaUsual {
  int64_t vocab, dim, width, layers, heads;
  std::optional<int64_t> kv_heads;   ///< none: as many as heads
  std::optional<int64_t> head_size;  ///< none: dim / heads
  int64_t context;
  double eps = 1e-6;
  double base = 10000;
  bool tied = false;
  std::string_view activation = "silu";
  JsonKey activation_key = "hidden_act";
};
/// A decoder with Llama's keys: RMSNorm before each branch, gated feed-forward parts, no biases, one rotary spec, no
/// windows. Also checks keys that all of them may have (is_decoder, is_encoder_decoder).
ModelSpec read_llama(const ConfigReader& config, const LlamaUsual& usual);
/// The keys that read_llama reads, with model_type and architectures of `family` before them.
Json write_llama(const Family& family, const ModelSpec& spec, const LlamaUsual& usual);

/// Keys of how routers of experts are trained, which change no result.
void ignore_router_training(const ConfigReader& config);
/// What DeepSeek-V2 and V3 share: attention over a compressed cache, layers of which the first are dense, shared
/// experts.
struct DeepseekUsual {
  int64_t first_dense, routed, shared, expert_width;
  std::optional<int64_t> per_token, groups, top_groups;
  double scale;
};
void read_deepseek(const ConfigReader& config, ModelSpec& spec, const DeepseekUsual& usual);
void write_deepseek(Json& config, const ModelSpec& spec);

/// Views of the packed projections of attention: rows of queries, keys and values.
struct PackedRows {
  WeightView q, k, v;
  int64_t q_rows, k_rows, v_rows;
};
PackedRows packed_rows(const nn::AttentionSpec& attention);

/// How the files of a decoder with Llama's names differ.
struct LlamaNames {
  bool gguf_pairs = false;    ///< GGUF has queries and keys in the order of gguf_rotary_rows
  bool joined = false;        ///< qkv_proj and gate_up_proj are one tensor each (Phi-3)
  double gguf_plus = 0;       ///< of norms
  bool gguf_experts = false;  ///< GGUF's names of experts are known
  std::string_view experts_block = "mlp", expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
};
std::vector<WeightRow> llama_weights(const ModelSpec& spec, const LlamaNames& names = {});

}  // namespace strata::parts
