// What a GGUF file says of a model, as a config.json of its family.

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/models/gguf_keys_inl.h"
#include "strata/models/gguf_sides_inl.h"
#include "strata/nn/rotary.h"

namespace strata::gguf {
namespace {

using nn::RotarySpec;
using Scaling = RotarySpec::Scaling;
using Kind = KeyRow::Kind;

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
    if (row.no_cap_is_null && is_no_cap(m_.number(key))) value = nullptr;
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

}  // namespace

FileConfig read_config(const Family& family, const GgufFacts& facts) {
  Reader reader(family, facts);
  FileConfig said;
  said.config = reader.config();
  said.scale = reader.scale();
  said.known = reader.known();
  return said;
}

}  // namespace strata::gguf
