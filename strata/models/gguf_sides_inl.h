#pragma once
// What reading and writing what GGUF files say of a model share: names, numbers that stand in f32, and the two sides.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/models/gguf_facts_inl.h"
#include "strata/models/gguf_form.h"

namespace strata::gguf {

using Json = nlohmann::ordered_json;

inline constexpr std::string_view kOp = "GGUF", kArchitecture = "general.architecture",
                                  kEmbedding = "token_embd.weight", kHead = "output.weight";
inline constexpr std::string_view kFreqs = "rope_freqs.weight", kLong = "rope_factors_long.weight",
                                  kShort = "rope_factors_short.weight";
inline constexpr int64_t kMaxFactors = 1 << 16;  // pairs of a head: far beyond any

// Beside gguf_keys(): what is said otherwise on either side.
inline constexpr std::string_view kHeadsKv = "attention.head_count_kv", kKeyLength = "attention.key_length",
                                  kValueLength = "attention.value_length", kKeyMla = "attention.key_length_mla",
                                  kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern",
                                  kScale = "attention.scale", kGating = "expert_gating_func",
                                  kRotaryDims = "rope.dimension_count", kScaling = "rope.scaling.type",
                                  kFactor = "rope.scaling.factor", kOriginal = "rope.scaling.original_context_length",
                                  kAttention = "rope.scaling.attn_factor",
                                  kYarnAttention = "rope.scaling.yarn_attn_factor",
                                  kBetaFast = "rope.scaling.yarn_beta_fast", kBetaSlow = "rope.scaling.yarn_beta_slow",
                                  kLogMultiplier = "rope.scaling.yarn_log_multiplier",
                                  kRmsEps = "attention.layer_norm_rms_epsilon";
inline const std::vector<std::string_view> kBases = {"rope_theta", "rotary_emb_base"}, kHeadSize = {"head_dim", "d_kv"};

/// The f64 that the shortest text of an f32 says: 1e-05, not 9.99999974737875e-06.
inline double shortest(double stored) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(stored)).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return static_cast<float>(value) == static_cast<float>(stored) ? value : stored;
}

inline bool near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

/// What attention is multiplied by under YaRN where no key says a factor of it.
inline double yarn_attention(double factor) {
  return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
}

/// The name under which the family writes a key; the first where it writes none.
inline std::string name_in(const Json& config, const std::vector<std::string_view>& names) {
  for (const std::string_view name : names)
    if (config.contains(name)) return std::string(name);
  return std::string(names.front());
}

/// A config.json of the family as it writes one: which names it uses.
inline Json usual_config(const Family& family) {
  const ConfigReader sample(family.samples.front().config, "sample");
  return Json::parse(family.config(family.spec(sample)));
}

/// Which layers have a window where no key tells.
inline bool has_usual_window(const GgufForm& form, size_t layer) {
  const auto period = static_cast<size_t>(form.window_period);
  return period == 0 || layer % period < period - 1;
}

/// What a file says as the family's config.json, and what that does not hold.
struct FileConfig {
  Json config;
  std::optional<double> scale;  ///< of scores, which is told apart from what the family's config.json calls it
  std::set<std::string> known;  ///< keys that were read
};
/// Throws ValueError naming the key that is missing or makes no sense.
FileConfig read_config(const Family& family, const GgufFacts& facts);
/// The metadata and factors that say what a spec is; whether they do is the caller's to check. Throws ValueError for
/// what there is no key for.
GgufFacts write_facts(const Family& family, const ModelSpec& spec);

}  // namespace strata::gguf
