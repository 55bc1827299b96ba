// What a GGUF file of a model says beside its weights.

#include "strata/core/error.h"
#include "strata/models/gguf_keys_inl.h"
#include "strata/models/gguf_sides_inl.h"
#include "strata/nn/rotary.h"

namespace strata::gguf {
namespace {

using nn::RotarySpec;
using Scaling = RotarySpec::Scaling;
using Kind = KeyRow::Kind;

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
      if (row.no_cap_is_null) set(row.gguf, kNoCap);
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

}  // namespace

GgufFacts write_facts(const Family& family, const ModelSpec& spec) {
  return Writer(family, spec).facts();
}

}  // namespace strata::gguf
