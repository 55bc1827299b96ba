#include "strata/models/gguf_facts_inl.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/weight_files.h"
#include "strata/models/gguf_keys_inl.h"
#include "strata/nn/rotary.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using nn::RotarySpec;
using Scaling = RotarySpec::Scaling;

constexpr std::string_view kOp = "GGUF", kArchitecture = "general.architecture", kEmbedding = "token_embd.weight",
                           kHead = "output.weight";
constexpr std::string_view kFreqs = "rope_freqs.weight", kLong = "rope_factors_long.weight",
                           kShort = "rope_factors_short.weight";
constexpr int64_t kMaxFactors = 1 << 16;  // pairs of a head: far beyond any

using Kind = KeyRow::Kind;

// Beside gguf_keys(): what is said otherwise on either side.
constexpr std::string_view kHeadsKv = "attention.head_count_kv", kKeyLength = "attention.key_length",
                           kValueLength = "attention.value_length", kKeyMla = "attention.key_length_mla",
                           kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern",
                           kScale = "attention.scale", kGating = "expert_gating_func",
                           kRotaryDims = "rope.dimension_count", kScaling = "rope.scaling.type",
                           kFactor = "rope.scaling.factor", kOriginal = "rope.scaling.original_context_length",
                           kAttention = "rope.scaling.attn_factor", kYarnAttention = "rope.scaling.yarn_attn_factor",
                           kBetaFast = "rope.scaling.yarn_beta_fast", kBetaSlow = "rope.scaling.yarn_beta_slow",
                           kLogMultiplier = "rope.scaling.yarn_log_multiplier",
                           kRmsEps = "attention.layer_norm_rms_epsilon";
// Keys that decide no number of a forward.
constexpr std::string_view kPassedOver[] = {"rope.scaling.finetuned", "tensor_data_layout"};
const std::vector<std::string_view> kBases = {"rope_theta", "rotary_emb_base"}, kHeadSize = {"head_dim", "d_kv"};

// The f64 that the shortest text of an f32 says: 1e-05, not 9.99999974737875e-06.
double shortest(double stored) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(stored)).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return static_cast<float>(value) == static_cast<float>(stored) ? value : stored;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

// What attention is multiplied by under YaRN where no key says a factor of it.
double yarn_attention(double factor) {
  return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
}

// The name under which the family writes a key; the first where it writes none.
std::string name_in(const Json& config, const std::vector<std::string_view>& names) {
  for (const std::string_view name : names)
    if (config.contains(name)) return std::string(name);
  return std::string(names.front());
}

// A config.json of the family as it writes one: which names it uses.
Json usual_config(const Family& family) {
  const ConfigReader sample(family.samples.front().config, "sample");
  return Json::parse(family.config(family.spec(sample)));
}

// Which layers have a window where no key tells.
bool has_usual_window(const GgufForm& form, size_t layer) {
  const auto period = static_cast<size_t>(form.window_period);
  return period == 0 || layer % period < period - 1;
}

// llama3's scaling that has these divisors, where it is one: with the wavelengths that its models have, and an original
// context that is a power of two. Files hold the divisors alone.
std::optional<RotarySpec> as_llama3(RotarySpec r, const std::vector<float>& divisors) {
  const std::vector<double> plain = nn::rotary_frequencies(r, 1);
  if (plain.size() != divisors.size()) return {};
  r.scaling = Scaling::llama3;
  r.factor = 1;
  for (const float d : divisors) r.factor = std::max(r.factor, shortest(d));
  for (int64_t context = 32; context <= int64_t{1} << 20; context *= 2) {
    r.original_context = context;
    const std::vector<double> scaled = nn::rotary_frequencies(r, 1);
    bool same = true;
    for (size_t i = 0; i < plain.size(); ++i) same = same && near(plain[i] / scaled[i], divisors[i]);
    if (same) return r;
  }
  return {};
}

// What a file says, as the family's config.json.
class Reader {
 public:
  Reader(const Family& family, const GgufFacts& facts)
      : family_(family),
        facts_(facts),
        m_(facts.metadata),
        prefix_(cat(m_.text(kArchitecture), ".")),
        usual_(usual_config(family)) {}

  Json config() {
    if (family_.gguf.config) c_ = Json::parse(family_.gguf.config(m_));
    const Json further = c_;
    c_["model_type"] = family_.model_types.front();
    c_["vocab_size"] = facts_.vocab;
    c_["tie_word_embeddings"] = !facts_.tensors.contains(kHead);
    for (const KeyRow& row : gguf_keys()) read(row, further);
    heads();
    positions();
    windows();
    if (usual_.contains("attention_bias"))
      c_["attention_bias"] = any_of({"attn_q.bias", "attn_qkv.bias", "attn_q_a.bias", "attn_output.bias"});
    if (usual_.contains("mlp_bias")) c_["mlp_bias"] = any_of({"ffn_down.bias"});
    if (usual_.contains("mlp_only_layers")) plain_layers();
    // Readers have relu, or with gates gelu by tanh.
    if (usual_.contains("feed_forward_proj"))
      c_["feed_forward_proj"] = facts_.tensors.contains("enc.blk.0.ffn_gate.weight") ? "gated-gelu" : "relu";
    return c_;
  }

  // The scale of scores, which is told apart from what the family's config.json calls it.
  std::optional<double> scale() {
    if (!family_.gguf.scale || !has(kScale)) return {};
    return number(kScale);
  }

  // Keys that were read.
  const std::set<std::string>& known() const { return known_; }

 private:
  bool has(std::string_view key) {
    const std::string whole = prefix_ + std::string(key);
    if (!m_.contains(whole)) return false;
    known_.insert(whole);
    return true;
  }
  int64_t integer(std::string_view key) const { return m_.integer(prefix_ + std::string(key)); }
  double number(std::string_view key) const { return shortest(m_.number(prefix_ + std::string(key))); }

  void read(const KeyRow& row, const Json& further) {
    const std::string name = name_in(usual_, row.config), key = prefix_ + std::string(row.gguf);
    const bool ours = usual_.contains(name);
    if (!m_.contains(key)) {
      check(!ours || !row.required, kOp, "key ", key, " is missing");
      if (ours && !row.absent.empty() && !further.contains(name)) c_[name] = Json::parse(row.absent);
      return;
    }
    if (!ours && !row.always) return;  // refused at the end unless the family says the same
    known_.insert(key);
    Json value = row.kind == Kind::integer ? Json(m_.integer(key))
                 : row.kind == Kind::number
                     ? Json(shortest(m_.number(key)))
                     : Json(m_.at(key).type() == io::GgufType::boolean ? m_.boolean(key) : m_.integer(key) != 0);
    if (row.zero_is_null && value == 0) value = nullptr;
    check(!c_.contains(name) || further.contains(name) || c_[name] == value, kOp, key, " is ", value.dump(),
          ", by its tensors ", name, " is ", c_.contains(name) ? c_[name].dump() : "");
    c_[name] = value;
  }

  bool latent() const { return usual_.contains("kv_lora_rank"); }

  void heads() {
    const int64_t heads = integer("attention.head_count"), dim = integer("embedding_length");
    check(heads > 0, kOp, prefix_, "attention.head_count is ", heads);
    if (latent()) {
      check(has(kKeyMla), kOp, "key ", prefix_, kKeyMla, " is missing: older files, with keys and values in one ",
            "matrix, are not taken");
      check(has(kRotaryDims), kOp, "key ", prefix_, kRotaryDims, " is missing");
      const int64_t turned = integer(kRotaryDims);
      c_["num_key_value_heads"] = heads;
      c_["qk_rope_head_dim"] = turned;
      c_["qk_nope_head_dim"] = integer(kKeyMla) - turned;
      return;
    }
    if (usual_.contains("num_key_value_heads")) c_["num_key_value_heads"] = has(kHeadsKv) ? integer(kHeadsKv) : heads;
    size_ = has(kKeyLength) ? integer(kKeyLength) : dim / heads;
    const std::string name = name_in(usual_, kHeadSize);
    if (usual_.contains(name)) c_[name] = size_;
    check(size_ > 0 && (usual_.contains(name) || size_ == dim / heads), kOp, prefix_, kKeyLength, " is ", size_);
    check(!has(kValueLength) || integer(kValueLength) == size_, kOp, prefix_, kValueLength, " is not that of keys, ",
          size_);
  }

  void positions() {
    if (!usual_.contains(name_in(usual_, kBases))) return;  // learned ones
    if (!latent()) {
      const int64_t dims = has(kRotaryDims) ? integer(kRotaryDims) : size_;
      double part = static_cast<double>(dims) / static_cast<double>(size_);
      // So that it gives these dims again, rounded down.
      if (part * static_cast<double>(size_) < static_cast<double>(dims)) part = std::nextafter(part, 2.0);
      c_["partial_rotary_factor"] = part;
    }
    const std::string type = has(kScaling) ? m_.text(prefix_ + std::string(kScaling)) : "none";
    const bool has_factor = has(kFactor), has_original = has(kOriginal);
    const double factor = has_factor ? number(kFactor) : 1;
    if (facts_.factors.contains(kLong) || facts_.factors.contains(kShort))
      longrope();
    else if (facts_.factors.contains(kFreqs))
      divisors(type, factor);
    else if (type == "linear" && factor != 1)
      c_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
    else if (type == "yarn")
      yarn(factor, has_original);
    else
      check(type == "none" || type == "linear", kOp, prefix_, kScaling, " is ", io::quote(type),
            "; none, linear and yarn are taken, and longrope where rope_factors_long.weight is there");
  }

  void yarn(double factor, bool has_original) {
    Json s{{"rope_type", "yarn"}, {"factor", factor}};
    if (has_original) s["original_max_position_embeddings"] = integer(kOriginal);
    double usual = yarn_attention(factor);
    if (latent() && has(kLogMultiplier)) {
      s["mscale_all_dim"] = std::round(number(kLogMultiplier) * 1e7) / 1e6;  // a tenth of it stands there
      usual = 1;
    }
    if (has(kAttention))
      s["attention_factor"] = usual * number(kAttention);
    else if (has(kYarnAttention))
      s["attention_factor"] = number(kYarnAttention);
    else if (s.contains("mscale_all_dim"))
      s["attention_factor"] = usual;
    if (has(kBetaFast)) s["beta_fast"] = number(kBetaFast);
    if (has(kBetaSlow)) s["beta_slow"] = number(kBetaSlow);
    c_["rope_scaling"] = s;
  }

  static std::vector<double> numbers(const std::vector<float>& from) {
    std::vector<double> to;
    for (const float f : from) to.push_back(shortest(f));
    return to;
  }

  void longrope() {
    for (const std::string_view name : {kLong, kShort})
      check(facts_.factors.contains(name), kOp, name, " is missing beside the other one");
    check(has(kOriginal), kOp, "key ", prefix_, kOriginal, " is missing");
    Json s{{"rope_type", "longrope"},
           {"short_factor", numbers(facts_.factors.find(kShort)->second)},
           {"long_factor", numbers(facts_.factors.find(kLong)->second)}};
    s["original_max_position_embeddings"] = c_["original_max_position_embeddings"] = integer(kOriginal);
    if (has(kAttention)) s["attention_factor"] = number(kAttention);
    c_["rope_scaling"] = s;
  }

  // Divisors of frequencies, at any length: llama3's, else LongRoPE with one list.
  void divisors(const std::string& type, double factor) {
    const std::vector<float>& given = facts_.factors.find(kFreqs)->second;
    check(type == "none" || (type == "linear" && factor == 1), kOp, kFreqs, " stands beside ", prefix_, kScaling);
    const std::string base = name_in(usual_, kBases);
    RotarySpec plain{.dims = static_cast<int64_t>(given.size()) * 2,
                     .base = c_.contains(base) ? c_[base].get<double>() : 10000};
    if (const auto found = as_llama3(plain, given)) {
      c_["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", found->factor},
                            {"low_freq_factor", found->low_frequency},
                            {"high_freq_factor", found->high_frequency},
                            {"original_max_position_embeddings", found->original_context}};
      return;
    }
    c_["original_max_position_embeddings"] = integer("context_length");
    c_["rope_scaling"] = {{"rope_type", "longrope"},
                          {"short_factor", numbers(given)},
                          {"long_factor", numbers(given)},
                          {"attention_factor", 1.0},
                          {"original_max_position_embeddings", integer("context_length")}};
  }

  void windows() {
    if (!usual_.contains("sliding_window")) return;
    const int64_t window = has(kWindow) ? integer(kWindow) : family_.gguf.usual_window;
    const auto layers = static_cast<size_t>(integer("block_count"));
    std::vector<bool> slides;
    if (has(kPattern) && m_.at(prefix_ + std::string(kPattern)).type() == io::GgufType::array) {
      slides = m_.at(prefix_ + std::string(kPattern)).booleans();
      check(slides.size() >= layers, kOp, prefix_, kPattern, " has ", slides.size(), " entries for ", layers,
            " layers");
    } else {
      GgufForm form = family_.gguf;
      if (has(kPattern)) form.window_period = integer(kPattern);
      check(form.window_period >= 0, kOp, prefix_, kPattern, " is ", form.window_period);
      check(layers <= 4096, kOp, prefix_, "block_count is ", layers);
      for (size_t i = 0; i < layers; ++i) slides.push_back(has_usual_window(form, i));
    }
    slides.resize(layers);
    bool any = false, all = true;
    Json types = Json::array();
    for (const bool s : slides) {
      any = any || (s && window > 0), all = all && s;
      types.push_back(s && window > 0 ? "sliding_attention" : "full_attention");
    }
    c_["sliding_window"] = any ? Json(window) : Json();
    if (usual_.contains("use_sliding_window")) c_["use_sliding_window"] = any;
    if (usual_.contains("layer_types"))
      c_["layer_types"] = types;
    else
      check(!any || all, kOp, "some layers have a window and some not, which ", family_.title, " cannot have");
  }

  bool any_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names)
      if (facts_.tensors.contains(cat("blk.0.", name))) return true;
    return false;
  }

  // Layers whose feed-forward part has no router.
  void plain_layers() {
    Json plain = Json::array();
    for (int64_t i = 0; i < std::min<int64_t>(integer("block_count"), 4096); ++i)
      if (!facts_.tensors.contains(cat("blk.", i, ".ffn_gate_inp.weight"))) plain.push_back(i);
    c_["mlp_only_layers"] = plain;
  }

  const Family& family_;
  const GgufFacts& facts_;
  const io::GgufMetadata& m_;
  std::string prefix_;
  Json usual_, c_ = Json::object();
  int64_t size_ = 0;  // of a head
  std::set<std::string> known_;
};

// The metadata and factors that say what a spec is; whether they do is the caller's to check.
class Writer {
 public:
  Writer(const Family& family, const ModelSpec& spec)
      : family_(family),
        whole_(spec),
        spec_(spec.kind == ModelKind::encoder_decoder ? spec.parts[0] : spec),
        config_(Json::parse(write_config(family, spec))) {
    check(!family.gguf.architectures.empty(), kOp, "GGUF files have no name for models of ", family.title);
    const std::string architecture(family.gguf.architectures.front());
    prefix_ = architecture + ".";
    facts_.metadata = io::GgufMetadata(cat("of ", family.name));
    facts_.metadata.set(std::string(kArchitecture), io::GgufValue::of(architecture));
    facts_.vocab = spec_.vocab;
  }

  GgufFacts facts() {
    for (const KeyRow& row : gguf_keys()) write(row);
    const nn::AttentionSpec& a = spec_.layers.front().attention;
    if (a.latent) {
      set(kHeadsKv, int64_t{1});
      set(kKeyLength, a.latent->kv_rank + a.latent->rope_size);
      set(kValueLength, a.latent->kv_rank);
      set(kKeyMla, a.head_size);
    } else {
      if (config_.contains("num_key_value_heads")) set(kHeadsKv, a.kv_heads);
      if (config_.contains(name_in(config_, kHeadSize))) {
        set(kKeyLength, a.head_size);
        set(kValueLength, a.value_size);
      }
    }
    if (family_.gguf.scale) {
      const double scale = a.scale.value_or(1 / std::sqrt(static_cast<double>(a.head_size)));
      if (!near(scale, family_.gguf.scale(spec_))) set(kScale, scale);
    }
    for (const nn::LayerSpec& l : spec_.layers)
      if (const auto& e = l.feed_forward.experts)
        set(kGating, int64_t{e->scoring == nn::ExpertsSpec::Scoring::sigmoid ? 2 : 1});
    // T5's files say its one epsilon by both names.
    if (spec_.relative) set(kRmsEps, config_["layer_norm_epsilon"].get<double>());
    positions();
    windows();
    for (const WeightRow& row : family_.weights(whole_))
      if (!row.gguf.empty() && !row.repeats) facts_.tensors.insert(row.gguf);
    for (const auto& [name, factors] : facts_.factors) facts_.tensors.insert(name);
    return facts_;
  }

 private:
  void set(std::string_view key, int64_t value) {
    facts_.metadata.set(prefix_ + std::string(key), io::GgufValue::of(static_cast<uint32_t>(value)));
  }
  void set(std::string_view key, double value) {
    facts_.metadata.set(prefix_ + std::string(key), io::GgufValue::of(static_cast<float>(value)));
  }
  void set(std::string_view key, std::string_view value) {
    facts_.metadata.set(prefix_ + std::string(key), io::GgufValue::of(std::string(value)));
  }

  void write(const KeyRow& row) {
    const std::string name = name_in(config_, row.config);
    if (!config_.contains(name)) return;
    const Json& value = config_[name];
    if (value.is_null()) {
      if (row.zero_is_null) set(row.gguf, 0.0);
      return;
    }
    if (row.kind == Kind::flag)
      facts_.metadata.set(prefix_ + std::string(row.gguf), io::GgufValue::of(value.get<bool>()));
    else if (row.kind == Kind::number)
      set(row.gguf, value.get<double>());
    else
      set(row.gguf, value.get<int64_t>());
  }

  void positions() {
    if (spec_.rotary.empty()) return;
    const RotarySpec& r = spec_.rotary.front();
    check(r.interleaved == family_.gguf.pairs_only, kOp,
          "readers of GGUF turn neighbours in this architecture, and this model turns halves");
    for (size_t i = 1; i < spec_.rotary.size(); ++i)
      check(spec_.rotary[i].scaling == Scaling::none, kOp, "positions of layers with a window are scaled");
    set(kRotaryDims, r.dims);
    switch (r.scaling) {
      case Scaling::none:
        return;
      case Scaling::dynamic:
        throw ValueError(kOp, "there is no key for positions whose scaling follows the length (dynamic)");
      case Scaling::linear:
        set(kScaling, "linear");
        set(kFactor, r.factor);
        return;
      case Scaling::yarn:
        yarn(r);
        return;
      case Scaling::llama3: {
        RotarySpec plain = r;
        plain.scaling = Scaling::none;
        const auto before = nn::rotary_frequencies(plain, 1), after = nn::rotary_frequencies(r, 1);
        std::vector<float>& divisors = facts_.factors[std::string(kFreqs)];
        for (size_t i = 0; i < before.size(); ++i) divisors.push_back(static_cast<float>(before[i] / after[i]));
        return;
      }
      case Scaling::longrope:
        set(kScaling, "longrope");
        set(kOriginal, r.original_context);
        set(kAttention, r.attention_factor);
        facts_.factors[std::string(kLong)].assign(r.long_factors.begin(), r.long_factors.end());
        facts_.factors[std::string(kShort)].assign(r.short_factors.begin(), r.short_factors.end());
        return;
    }
  }

  void yarn(const RotarySpec& r) {
    check(r.truncate, kOp, "there is no key for YaRN with a ramp between broken numbers (truncate false)");
    set(kScaling, "yarn");
    set(kFactor, r.factor);
    set(kOriginal, r.original_context);
    double usual = yarn_attention(r.factor);
    const Json& scaling = config_["rope_scaling"];
    if (scaling.contains("mscale_all_dim")) {
      set(kLogMultiplier, 0.1 * scaling["mscale_all_dim"].get<double>());
      usual = 1;
    }
    if (!near(r.attention_factor, usual)) set(kAttention, r.attention_factor / usual);
    const RotarySpec absent;
    if (r.beta_fast != absent.beta_fast) set(kBetaFast, r.beta_fast);
    if (r.beta_slow != absent.beta_slow) set(kBetaSlow, r.beta_slow);
  }

  void windows() {
    int64_t window = 0;
    bool usual = true;
    std::vector<bool> slides;
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const int64_t own = spec_.layers[i].attention.window;
      check(own == 0 || window == 0 || own == window, kOp, "layers have windows of ", window, " and of ", own);
      if (own > 0) window = own;
      slides.push_back(own > 0);
      usual = usual && slides.back() == has_usual_window(family_.gguf, i);
    }
    if (window == 0) {
      if (family_.gguf.usual_window > 0) set(kWindow, int64_t{0});
      return;
    }
    set(kWindow, window);
    if (!usual) facts_.metadata.set(prefix_ + std::string(kPattern), io::GgufValue::of(slides));
  }

  const Family& family_;
  const ModelSpec &whole_, &spec_;  // spec_: of an encoder-decoder its first part, whose blocks the other's are like
  Json config_;
  std::string prefix_;
  GgufFacts facts_;
};

// Throws where the file has a key of the architecture that was not read, or that says otherwise than the spec.
void check_keys(const GgufFacts& facts, const Family& family, const ModelSpec& spec,
                const std::set<std::string>& known) {
  const std::string prefix = cat(facts.metadata.text(kArchitecture), ".");
  const io::GgufMetadata ours = Writer(family, spec).facts().metadata;
  for (const auto& [key, value] : facts.metadata.entries()) {
    if (!key.starts_with(prefix)) continue;
    // Another name of the architecture has the same keys.
    const std::string_view own = std::string_view(key).substr(prefix.size());
    const io::GgufValue* const said = ours.find(cat(family.gguf.architectures.front(), ".", own));
    check(said || known.contains(key) || std::ranges::find(kPassedOver, own) != std::end(kPassedOver), kOp, "key ", key,
          " of the metadata is not known of ", family.title);
    if (!said || value.type() == io::GgufType::array || value.type() == io::GgufType::string) continue;
    const bool flag = said->type() == io::GgufType::boolean;
    const auto number = [](const io::GgufValue& v) {
      return v.type() == io::GgufType::boolean ? static_cast<double>(v.boolean()) : v.number();
    };
    check(near(number(value), number(*said)), kOp, "key ", key, " is ", number(value), ", by other keys it would be ",
          flag ? static_cast<double>(said->boolean()) : number(*said));
  }
}

// `other` where it computes what `spec` does: up to the last bits of what a file holds in f32, and dropout, which no
// file holds, they are one.
ModelSpec aligned(const ModelSpec& spec, ModelSpec other) {
  other.embedding_dropout = spec.embedding_dropout;
  for (size_t i = 0; i < std::min(spec.layers.size(), other.layers.size()); ++i) {
    nn::LayerSpec& l = other.layers[i];
    const nn::LayerSpec& wanted = spec.layers[i];
    l.dropout = wanted.dropout;
    l.attention.dropout = wanted.attention.dropout;
    l.feed_forward.dropout = wanted.feed_forward.dropout;
    if (l.attention.scale && wanted.attention.scale && near(*l.attention.scale, *wanted.attention.scale))
      l.attention.scale = wanted.attention.scale;
  }
  for (size_t i = 0; i < std::min(spec.rotary.size(), other.rotary.size()); ++i) {
    const RotarySpec &a = spec.rotary[i], &b = other.rotary[i];
    bool same = a.dims == b.dims && a.interleaved == b.interleaved && near(a.attention_factor, b.attention_factor);
    for (const int64_t length : {int64_t{1}, spec.context, 2 * spec.context}) {
      const auto x = nn::rotary_frequencies(a, length), y = nn::rotary_frequencies(b, length);
      for (size_t j = 0; j < std::min(x.size(), y.size()); ++j) same = same && near(x[j], y[j]);
    }
    if (same) other.rotary[i] = a;
  }
  for (size_t i = 0; i < std::min(spec.parts.size(), other.parts.size()); ++i)
    other.parts[i] = aligned(spec.parts[i], other.parts[i]);
  return other;
}

// The lines of two texts that differ first.
std::string first_difference(const std::string& a, const std::string& b) {
  size_t begin = 0;
  while (begin < std::min(a.size(), b.size())) {
    const std::string x = a.substr(begin, a.find('\n', begin) - begin),
                      y = b.substr(begin, b.find('\n', begin) - begin);
    if (x != y) return cat("it would be read as \"", y, "\", and is \"", x, "\"");
    begin += x.size() + 1;
  }
  return "it would be read as another one";
}

}  // namespace

bool is_gguf_factors(std::string_view tensor) {
  return tensor == kFreqs || tensor == kLong || tensor == kShort;
}

GgufFacts gguf_facts(const io::WeightFiles& files) {
  const io::GgufMetadata* const m = files.gguf();
  check(m != nullptr, kOp, io::quote(files.path()), " is no GGUF file");
  GgufFacts facts{.metadata = *m};
  for (const io::WeightEntry& e : files.entries()) {
    facts.tensors.insert(e.name);
    if (!is_gguf_factors(e.name)) continue;
    check(e.shape.size() == 1 && e.shape[0] > 0 && e.shape[0] <= kMaxFactors && e.type->dtype == DType::f32 &&
              e.type->is_plain(),
          kOp, io::quote(files.path()), ": ", e.name, " is ", e.type->name, ' ', e.shape, ", an F32 vector is wanted");
    const std::vector<float> numbers = files.tensor(e.name).to_vector<float>();
    for (const float n : numbers)
      check(std::isfinite(n) && n > 0, kOp, io::quote(files.path()), ": ", e.name, " has the divisor ", n);
    facts.factors.emplace(e.name, numbers);
  }
  const io::WeightEntry& embedding = files.entry(kEmbedding);
  check(embedding.shape.size() == 2, kOp, io::quote(files.path()), ": ", kEmbedding, " is ", embedding.shape);
  facts.vocab = embedding.shape[0];
  return facts;
}

std::pair<const Family*, ModelSpec> read_gguf_facts(const GgufFacts& facts, std::string_view source) {
  const Family& family = family_of_gguf(facts.metadata);
  Reader reader(family, facts);
  Json config = reader.config();
  if (family.gguf.scale) {
    ModelSpec draft = family.spec(ConfigReader(config.dump(), source));
    const double scale = reader.scale().value_or(family.gguf.scale(draft));
    check(scale > 0, kOp, "attention.scale is ", scale);
    // 1 / sqrt(n), stored in f32, of a whole n mostly.
    const double scalar = 1 / (scale * scale), whole = std::round(scalar);
    config["query_pre_attn_scalar"] = std::abs(scalar - whole) <= 1e-5 * whole ? whole : scalar;
  }
  const ModelSpec spec = read_spec(family, ConfigReader(config.dump(), source));
  check_keys(facts, family, spec, reader.known());
  return {&family, spec};
}

GgufFacts gguf_facts(const Family& family, const ModelSpec& spec) {
  GgufFacts facts;
  std::string why;
  try {
    facts = Writer(family, spec).facts();
    const ModelSpec again = aligned(spec, read_gguf_facts(facts, "GGUF").second);
    if (again != spec) why = first_difference(to_string(spec), to_string(again));
  } catch (const Error& e) {
    why = e.what();
  }
  check(why.empty(), kOp, "a file cannot say what this model of ", family.title, " is: ", why);
  return facts;
}

}  // namespace strata
