#include "strata/models/gguf_facts_inl.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/weight_files.h"
#include "strata/models/gguf_keys_inl.h"
#include "strata/models/gguf_sides_inl.h"
#include "strata/nn/rotary.h"

namespace strata {
namespace {

using namespace gguf;
using nn::RotarySpec;

// Keys that decide no number of a forward.
constexpr std::string_view kPassedOver[] = {"rope.scaling.finetuned", "tensor_data_layout"};

// Throws where the file has a key of the architecture that was not read, or that says otherwise than the spec.
void check_keys(const GgufFacts& facts, const Family& family, const ModelSpec& spec,
                const std::set<std::string>& known) {
  const std::string prefix = cat(facts.metadata.text(kArchitecture), ".");
  const io::GgufMetadata ours = write_facts(family, spec).metadata;
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
    const bool no_cap = number(*said) != 0 && is_no_cap(number(*said)) && is_no_cap(number(value));
    check(no_cap || near(number(value), number(*said)), kOp, "key ", key, " is ", number(value),
          ", by other keys it would be ", flag ? static_cast<double>(said->boolean()) : number(*said));
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
  FileConfig said = read_config(family, facts);
  Json& config = said.config;
  if (family.gguf.scale) {
    ModelSpec draft = family.spec(ConfigReader(config.dump(), source));
    const double scale = said.scale.value_or(family.gguf.scale(draft));
    check(scale > 0, kOp, "attention.scale is ", scale);
    // 1 / sqrt(n), stored in f32, of a whole n mostly.
    const double scalar = 1 / (scale * scale), whole = std::round(scalar);
    config["query_pre_attn_scalar"] = std::abs(scalar - whole) <= 1e-5 * whole ? whole : scalar;
  }
  const ModelSpec spec = read_spec(family, ConfigReader(config.dump(), source));
  check_keys(facts, family, spec, said.known);
  return {&family, spec};
}

GgufFacts gguf_facts(const Family& family, const ModelSpec& spec) {
  GgufFacts facts;
  std::string why;
  try {
    facts = write_facts(family, spec);
    const ModelSpec again = aligned(spec, read_gguf_facts(facts, "GGUF").second);
    if (again != spec) why = first_difference(to_string(spec), to_string(again));
  } catch (const Error& e) {
    why = e.what();
  }
  check(why.empty(), kOp, "a file cannot say what this model of ", family.title, " is: ", why);
  return facts;
}

}  // namespace strata
