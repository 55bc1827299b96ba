#include <cmath>
#include <utility>

#include "strata/core/error.h"
#include "strata/models/family_parts_inl.h"

namespace strata::parts {
namespace {

using nn::Activation;
using nn::RotarySpec;
using Scaling = RotarySpec::Scaling;

// Names of one function; the first is written.
constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"gelu", Activation::gelu},
    {"gelu_python", Activation::gelu},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_python_tanh", Activation::gelu_tanh},
    {"quick_gelu", Activation::gelu_quick},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"relu", Activation::relu},
    {"tanh", Activation::tanh},
    {"sigmoid", Activation::sigmoid},
};

constexpr std::pair<std::string_view, Scaling> kScalings[] = {
    {"default", Scaling::none},  {"linear", Scaling::linear}, {"dynamic", Scaling::dynamic},
    {"llama3", Scaling::llama3}, {"yarn", Scaling::yarn},     {"longrope", Scaling::longrope},
    {"su", Scaling::longrope},
};

template <class Table>
std::string names_of(const Table& table) {
  std::string text;
  for (const auto& [name, value] : table) text += cat(text.empty() ? "" : ", ", name);
  return text;
}

// A number that may stand in either of two objects; where in both, the same.
double number_of(const ConfigReader& config, const std::optional<ConfigReader>& own, const JsonKey& outer,
                 const JsonKey& inner, double absent) {
  const auto outside = config.maybe_number(outer), inside = own ? own->maybe_number(inner) : std::nullopt;
  if (outside && inside && *outside != *inside)
    config.refuse(outer, cat("stands in ", own->source(), " as well, and differs"));
  return inside ? *inside : outside.value_or(absent);
}

double yarn_scale(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(const ConfigReader& own, RotarySpec& r) {
  const auto attention = own.maybe_number("attention_factor");
  const double scale = own.maybe_number("mscale").value_or(0), all = own.maybe_number("mscale_all_dim").value_or(0);
  const double made =
      scale != 0 && all != 0 ? yarn_scale(r.factor, scale) / yarn_scale(r.factor, all) : yarn_scale(r.factor, 1);
  r.attention_factor = attention.value_or(made);
  const auto number = [&](const char* key, double absent) {
    const double x = own.maybe_number(key).value_or(0);
    return x == 0 ? absent : x;
  };
  r.beta_fast = number("beta_fast", 32);
  r.beta_slow = number("beta_slow", 1);
  r.truncate = own.flag("truncate", true);
}

void read_longrope(const ConfigReader& own, RotarySpec& r, double factor) {
  const auto original = static_cast<double>(r.original_context);
  const double made = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  r.attention_factor = own.maybe_number("attention_factor").value_or(made);
  r.short_factors = own.numbers("short_factor").value_or(std::vector<double>{});
  r.long_factors = own.numbers("long_factor").value_or(std::vector<double>{});
  const auto pairs = static_cast<size_t>(r.dims / 2);
  if (r.short_factors.size() != pairs) own.refuse("short_factor", cat("is to have ", pairs, " numbers"));
  if (r.long_factors.size() != pairs) own.refuse("long_factor", cat("is to have ", pairs, " numbers"));
}

}  // namespace

Activation read_activation(const ConfigReader& config, const JsonKey& key, std::string_view absent) {
  return activation_of(config, key, config.text(key, absent));
}

Activation activation_of(const ConfigReader& config, const JsonKey& key, std::string_view name) {
  for (const auto& [known, activation] : kActivations)
    if (known == name) return activation;
  config.refuse(key, cat("is taken as one of ", names_of(kActivations)));
}

std::string_view activation_name(Activation activation) {
  for (const auto& [name, known] : kActivations)
    if (known == activation) return name;
  throw ValueError("activation_name", "there is no such activation");
}

RotarySpec read_rotary(const ConfigReader& config, const RotaryKeys& keys) {
  const auto scaling = config.object("rope_scaling"), parameters = config.object("rope_parameters");
  if (scaling && parameters) config.refuse("rope_parameters", "stands beside 'rope_scaling': one of them is taken");
  return read_rotary(config, scaling ? scaling : parameters, keys);
}

RotarySpec read_rotary(const ConfigReader& config, const std::optional<ConfigReader>& own, const RotaryKeys& keys) {
  RotarySpec r;
  r.base = number_of(config, own, keys.base_key, "rope_theta", keys.base);
  const double part = number_of(config, own, keys.part_key, "partial_rotary_factor", keys.part);
  r.dims = static_cast<int64_t>(static_cast<double>(keys.head_size) * part);
  if (!(part > 0 && part <= 1) || r.dims % 2 != 0 || r.dims == 0)
    config.refuse(keys.part_key, cat("gives ", part, " of ", keys.head_size, " elements, which is no number of pairs"));
  if (!own) return r;
  const JsonKey type{"rope_type", "type"};
  const std::string name = own->text(type, "default");
  const auto* found = std::ranges::find(kScalings, name, &std::pair<std::string_view, Scaling>::first);
  if (found == std::end(kScalings)) own->refuse(type, cat("is taken as one of ", names_of(kScalings)));
  r.scaling = found->second;
  if (r.scaling == Scaling::none) return r;

  const bool has_original =
      r.scaling == Scaling::llama3 || r.scaling == Scaling::yarn || r.scaling == Scaling::longrope;
  if (has_original) {
    const auto outside = config.maybe_size("original_max_position_embeddings");
    const auto inside = own->maybe_size("original_max_position_embeddings");
    const auto beside = outside                     ? outside
                        : keys.original_context > 0 ? std::optional(keys.original_context)
                                                    : std::nullopt;
    if (beside && inside && *beside != *inside)
      own->refuse("original_max_position_embeddings", cat("differs from the ", *beside, " beside it"));
    r.original_context = beside ? *beside : inside.value_or(keys.context);
  }
  if (r.scaling == Scaling::dynamic) r.context = keys.context;
  const auto factor = own->maybe_number("factor");
  const double ratio = has_original ? static_cast<double>(keys.context) / static_cast<double>(r.original_context) : 0;
  if (r.scaling == Scaling::longrope) {
    read_longrope(*own, r, factor.value_or(ratio));
    return r;
  }
  if (!factor && r.scaling != Scaling::yarn) own->refuse("factor", "is missing");
  r.factor = factor.value_or(ratio);
  if (!(r.factor > 0)) own->refuse("factor", "is to be above 0");
  if (r.scaling == Scaling::yarn) read_yarn(*own, r);
  if (r.scaling == Scaling::llama3) {
    r.low_frequency = own->number("low_freq_factor");
    r.high_frequency = own->number("high_freq_factor");
    if (!(r.high_frequency > r.low_frequency && r.low_frequency > 0))
      own->refuse("high_freq_factor", "is to be above low_freq_factor, and that above 0");
  }
  return r;
}

Json rotary_scaling(const RotarySpec& r) {
  if (r.scaling == Scaling::none) return nullptr;
  Json j;
  for (const auto& [name, scaling] : kScalings)
    if (scaling == r.scaling && !j.contains("rope_type")) j["rope_type"] = name;
  if (r.scaling != Scaling::longrope) j["factor"] = r.factor;
  if (r.original_context > 0) j["original_max_position_embeddings"] = r.original_context;
  if (r.scaling == Scaling::llama3) {
    j["low_freq_factor"] = r.low_frequency;
    j["high_freq_factor"] = r.high_frequency;
  }
  if (r.scaling == Scaling::yarn || r.scaling == Scaling::longrope) j["attention_factor"] = r.attention_factor;
  if (r.scaling == Scaling::yarn) {
    j["beta_fast"] = r.beta_fast;
    j["beta_slow"] = r.beta_slow;
    j["truncate"] = r.truncate;
  }
  if (r.scaling == Scaling::longrope) {
    j["short_factor"] = r.short_factors;
    j["long_factor"] = r.long_factors;
  }
  return j;
}

void write_rotary(Json& config, const RotarySpec& r, const RotaryKeys& keys) {
  config[std::string(keys.base_key.names.front())] = r.base;
  const double part = static_cast<double>(r.dims) / static_cast<double>(keys.head_size);
  if (part != keys.part) config[std::string(keys.part_key.names.front())] = part;
  const Json scaling = rotary_scaling(r);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
}

void read_windows(const ConfigReader& config, ModelSpec& spec, std::optional<int64_t> window,
                  const std::vector<bool>& usual) {
  const auto types = config.texts("layer_types");
  if (types && types->size() != spec.layers.size())
    config.refuse("layer_types", cat("is to have a name for each of ", spec.layers.size(), " layers"));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    bool slides = usual[i];
    if (types) {
      const std::string& type = (*types)[i];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention")
        config.refuse("layer_types", cat("has '", type, "': full_attention and sliding_attention are taken"));
      if (slides && !window) config.refuse("sliding_window", "is missing, but layer_types names layers that have one");
    }
    if (slides) spec.layers[i].attention.window = window.value_or(0);
  }
}

void read_qwen_windows(const ConfigReader& config, ModelSpec& spec) {
  const bool used = config.flag("use_sliding_window", false);
  const auto window = config.maybe_size("sliding_window", 4096);
  const int64_t full = config.integer("max_window_layers", 28);
  std::vector<bool> usual;
  for (size_t i = 0; i < spec.layers.size(); ++i) usual.push_back(static_cast<int64_t>(i) >= full);
  read_windows(config, spec, used ? window : std::nullopt, usual);
}

void write_qwen_windows(Json& config, const ModelSpec& spec) {
  size_t full = 0;
  while (full < spec.layers.size() && spec.layers[full].attention.window == 0) ++full;
  const Json window = window_of(spec);
  config["use_sliding_window"] = !window.is_null();
  config["sliding_window"] = window;
  config["max_window_layers"] = full;
  config["layer_types"] = layer_types(spec);
}

void read_gemma(const ConfigReader& config, ModelSpec& spec) {
  config.expect("use_bidirectional_attention", false);
  const bool bias = config.flag("attention_bias", false);
  const double scalar = config.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) config.refuse("query_pre_attn_scalar", "is to be above 0");
  for (nn::LayerSpec& l : spec.layers) {
    l.placement = nn::NormPlacement::sandwich;
    l.norm.one_plus = true;
    l.attention.bias = l.attention.out_bias = bias;
    l.attention.scale = 1 / std::sqrt(scalar);
  }
  spec.final_norm->one_plus = true;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.dim));
}

void write_gemma(Json& config, const ModelSpec& spec) {
  const nn::AttentionSpec& a = spec.layers.front().attention;
  config["attention_bias"] = a.bias;
  const double scalar = 1 / std::pow(a.scale.value_or(1), 2), whole = std::round(scalar);
  if (std::abs(scalar - whole) < 1e-9 * whole)
    config["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
  else
    config["query_pre_attn_scalar"] = scalar;
  config["sliding_window"] = window_of(spec);
  config["layer_types"] = layer_types(spec);
  config["final_logit_softcapping"] = spec.logit_soft_cap > 0 ? Json(spec.logit_soft_cap) : Json();
}

double gemma_gguf_scale(const ModelSpec& spec) {
  constexpr size_t kLargest2 = 46, kLargest3 = 62;  // layers of the two models of 27B
  const nn::AttentionSpec& a = spec.layers.front().attention;
  const size_t layers = spec.layers.size();
  const bool largest = a.query_key_norm ? layers == kLargest3 : layers == kLargest2;
  return 1 / std::sqrt(static_cast<double>(largest ? spec.dim / a.heads : a.head_size));
}

Json layer_types(const ModelSpec& spec) {
  Json types = Json::array();
  for (const nn::LayerSpec& l : spec.layers)
    types.push_back(l.attention.window > 0 ? "sliding_attention" : "full_attention");
  return types;
}

Json window_of(const ModelSpec& spec) {
  for (const nn::LayerSpec& l : spec.layers)
    if (l.attention.window > 0) return l.attention.window;
  return nullptr;
}

ModelSpec read_llama(const ConfigReader& c, const LlamaUsual& u) {
  ModelSpec s;
  s.vocab = c.size("vocab_size", u.vocab);
  s.dim = c.size("hidden_size", u.dim);
  s.context = c.size("max_position_embeddings", u.context);
  const int64_t layers = c.size("num_hidden_layers", u.layers), heads = c.size("num_attention_heads", u.heads);
  const int64_t kv_heads = c.maybe_size("num_key_value_heads", u.kv_heads).value_or(heads);
  const auto head_size = c.maybe_size("head_dim", u.head_size);
  if (heads % kv_heads != 0) c.refuse("num_key_value_heads", cat("does not divide num_attention_heads ", heads));
  if (!head_size && s.dim % heads != 0) c.refuse("num_attention_heads", cat("does not divide hidden_size ", s.dim));
  if (layers > 4096) c.refuse("num_hidden_layers", "is above 4096");
  const int64_t d = head_size.value_or(s.dim / heads);
  nn::LayerSpec l;
  l.norm = {.kind = nn::NormSpec::Kind::rms, .eps = c.number("rms_norm_eps", u.eps)};
  l.attention = {.heads = heads,
                 .kv_heads = kv_heads,
                 .head_size = d,
                 .value_size = d,
                 .bias = false,
                 .out_bias = false,
                 .rotary = 0,
                 .dropout = c.maybe_number("attention_dropout").value_or(0)};
  l.feed_forward = {.width = c.size("intermediate_size", u.width),
                    .activation = read_activation(c, u.activation_key, u.activation),
                    .gated = true,
                    .bias = false};
  s.layers.assign(static_cast<size_t>(layers), l);
  s.final_norm = l.norm;
  s.tied = c.flag("tie_word_embeddings", u.tied);
  c.ignore("is_decoder");
  c.expect("is_encoder_decoder", false);
  c.expect("add_cross_attention", false);
  return s;
}

Json write_llama(const Family& family, const ModelSpec& s, const LlamaUsual& u) {
  const nn::LayerSpec& l = s.layers.front();
  Json j;
  j["model_type"] = family.model_types.front();
  j["architectures"] = {family.architectures.front()};
  j["vocab_size"] = s.vocab;
  j["hidden_size"] = s.dim;
  j["intermediate_size"] = l.feed_forward.width;
  j["num_hidden_layers"] = s.layers.size();
  j["num_attention_heads"] = l.attention.heads;
  j["num_key_value_heads"] = l.attention.kv_heads;
  j["head_dim"] = l.attention.head_size;
  j[std::string(u.activation_key.names.front())] = activation_name(l.feed_forward.activation);
  j["max_position_embeddings"] = s.context;
  j["rms_norm_eps"] = l.norm.eps;
  j["attention_dropout"] = l.attention.dropout;
  j["tie_word_embeddings"] = s.tied;
  return j;
}

}  // namespace strata::parts
