#include "strata/models/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/weight_files.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kOp = "GGUF", kArchitecture = "general.architecture", kEmbedding = "token_embd.weight",
                           kHead = "output.weight";

// A key of GGUF, behind "ARCHITECTURE.", and what config.json calls it: the name that the family writes.
enum class Kind : uint8_t { integer, number, flag };
struct KeyRow {
  std::string_view gguf;
  std::vector<std::string_view> config;
  Kind kind = Kind::integer;
};
const std::vector<KeyRow>& keys() {
  static const std::vector<KeyRow> rows = {
      {"vocab_size", {"vocab_size"}},
      {"context_length", {"max_position_embeddings", "n_positions"}},
      {"embedding_length", {"hidden_size", "n_embd"}},
      {"block_count", {"num_hidden_layers", "n_layer"}},
      {"feed_forward_length", {"intermediate_size", "n_inner"}},
      {"attention.head_count", {"num_attention_heads", "n_head"}},
      {"attention.head_count_kv", {"num_key_value_heads"}},
      {"attention.key_length", {"head_dim"}},
      {"attention.value_length", {"head_dim"}},
      {"attention.sliding_window", {"sliding_window"}},
      {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, Kind::number},
      {"attention.layer_norm_epsilon", {"layer_norm_eps", "layer_norm_epsilon"}, Kind::number},
      {"rope.freq_base", {"rope_theta", "rotary_emb_base"}, Kind::number},
      {"attn_logit_softcapping", {"attn_logit_softcapping"}, Kind::number},
      {"final_logit_softcapping", {"final_logit_softcapping"}, Kind::number},
      {"use_parallel_residual", {"use_parallel_residual"}, Kind::flag},
  };
  return rows;
}
// And what is said otherwise on either side.
constexpr std::string_view kRotaryDims = "rope.dimension_count", kScaling = "rope.scaling.type",
                           kFactor = "rope.scaling.factor", kOriginal = "rope.scaling.original_context_length",
                           kFinetuned = "rope.scaling.finetuned";
constexpr std::string_view kRotaryParts[] = {"rotary_pct", "partial_rotary_factor"};

// The f64 that the shortest text of an f32 says: 1e-05, not 9.99999974737875e-06.
double shortest(double stored) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(stored)).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return static_cast<float>(value) == static_cast<float>(stored) ? value : stored;
}

std::string architecture_of(const Family& family) {
  check(!family.gguf_architectures.empty(), kOp, "GGUF files have no name for models of ", family.name);
  return std::string(family.gguf_architectures.front());
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

int64_t head_size(const Json& config) {
  const std::string own = name_in(config, {"head_dim"});
  if (config.contains(own) && config[own].is_number()) return config[own].get<int64_t>();
  const int64_t heads = config.at(name_in(config, {"num_attention_heads", "n_head"})).get<int64_t>();
  check(heads > 0, kOp, "attention.head_count is ", heads);
  return config.at(name_in(config, {"hidden_size", "n_embd"})).get<int64_t>() / heads;
}

// What the metadata say, as the family's config.json.
std::string config_of(const Family& family, const io::GgufMetadata& m, bool tied, int64_t vocab) {
  const std::string prefix = cat(m.text(kArchitecture), ".");
  const Json usual = usual_config(family);
  std::set<std::string> known;
  const auto has = [&](std::string_view key) { return m.contains(*known.insert(cat(prefix, key)).first); };
  Json config;
  config["model_type"] = family.model_types.front();
  config["vocab_size"] = vocab;
  config["tie_word_embeddings"] = tied;
  for (const KeyRow& row : keys()) {
    if (!has(row.gguf)) continue;
    const std::string key = prefix + std::string(row.gguf), name = name_in(usual, row.config);
    const Json value = row.kind == Kind::integer  ? Json(m.integer(key))
                       : row.kind == Kind::number ? Json(shortest(m.number(key)))
                                                  : Json(m.boolean(key));
    check(!config.contains(name) || config[name] == value, kOp, io::quote(m.text(kArchitecture)), " says of ", name,
          ' ', config.contains(name) ? config[name].dump() : "", " and, by ", key, ", ", value.dump());
    config[name] = value;
  }
  if (has(kRotaryDims)) {
    const int64_t dims = m.integer(prefix + std::string(kRotaryDims)), all = head_size(config);
    if (dims != all || usual.contains(kRotaryParts[0]) || usual.contains(kRotaryParts[1]))
      config[name_in(usual, {kRotaryParts[0], kRotaryParts[1]})] = static_cast<double>(dims) / static_cast<double>(all);
  }
  const bool factor = has(kFactor), original = has(kOriginal);
  has(kFinetuned);
  if (has(kScaling) && m.text(prefix + std::string(kScaling)) != "none") {
    const std::string& kind = m.text(prefix + std::string(kScaling));
    check(kind == "linear" || kind == "yarn", kOp, prefix, kScaling, " is ", io::quote(kind),
          "; none, linear and yarn are taken");
    Json scaling{{"rope_type", kind}};
    if (factor) scaling["factor"] = shortest(m.number(prefix + std::string(kFactor)));
    if (original) scaling["original_max_position_embeddings"] = m.integer(prefix + std::string(kOriginal));
    config["rope_scaling"] = scaling;
  }
  for (const auto& [key, value] : m.entries())
    check(!key.starts_with(prefix) || known.contains(key), kOp, "key ", key, " of the metadata is not known");
  return config.dump(2);
}

// The metadata that say what config.json says. Throws where reading them would not give the spec again.
io::GgufMetadata metadata_of(const Family& family, const ModelSpec& spec) {
  const std::string architecture = architecture_of(family), prefix = architecture + ".";
  const Json config = Json::parse(write_config(family, spec));
  io::GgufMetadata m(cat("of ", family.name));
  m.set(std::string(kArchitecture), io::GgufValue::of(architecture));
  for (const KeyRow& row : keys()) {
    const std::string name = name_in(config, row.config), key = prefix + std::string(row.gguf);
    if (!config.contains(name) || config[name].is_null()) continue;
    if (row.kind == Kind::flag) {
      m.set(key, io::GgufValue::of(config[name].get<bool>()));
    } else if (row.kind == Kind::number) {
      m.set(key, io::GgufValue::of(config[name].get<float>()));
    } else {
      m.set(key, io::GgufValue::of(config[name].get<uint32_t>()));
    }
  }
  if (!spec.rotary.empty()) {
    const nn::RotarySpec& r = spec.rotary.front();
    m.set(prefix + std::string(kRotaryDims), io::GgufValue::of(static_cast<uint32_t>(r.dims)));
    if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) {
      const Json& scaling = config["rope_scaling"];
      m.set(prefix + std::string(kScaling), io::GgufValue::of(scaling.value("rope_type", "none")));
      if (scaling.contains("factor"))
        m.set(prefix + std::string(kFactor), io::GgufValue::of(scaling["factor"].get<float>()));
      if (r.original_context > 0)
        m.set(prefix + std::string(kOriginal), io::GgufValue::of(static_cast<uint32_t>(r.original_context)));
    }
  }
  std::string why;
  try {
    const Family& reader = family_of_gguf(architecture);  // which may have the name first, as llama before mistral
    const std::string again = config_of(reader, m, config.value("tie_word_embeddings", true), spec.vocab);
    if (read_spec(reader, ConfigReader(again, "GGUF")) != spec) why = "what they say is another one";
  } catch (const Error& e) {
    why = e.what();
  }
  check(why.empty(), kOp, "metadata cannot say what this model of ", family.name, " is: ", why);
  return m;
}

}  // namespace

std::pair<const Family*, ModelSpec> read_gguf_spec(const io::WeightFiles& files) {
  const io::GgufMetadata* m = files.gguf();
  check(m != nullptr, kOp, io::quote(files.path()), " is no GGUF file");
  const Family& family = family_of_gguf(m->text(kArchitecture));
  const io::WeightEntry& embedding = files.entry(kEmbedding);
  check(embedding.shape.size() == 2, kOp, io::quote(files.path()), ": ", kEmbedding, " is ", embedding.shape);
  const std::string config = config_of(family, *m, !files.contains(kHead), embedding.shape[0]);
  return {&family, read_spec(family, ConfigReader(config, files.path()))};
}

Pretrained load_gguf(const std::string& path, const PretrainedOptions& options) {
  const io::WeightFiles files(path);
  Pretrained p;
  std::tie(p.family, p.spec) = read_gguf_spec(files);
  check(p.spec.kind == ModelKind::decoder, kOp, "models of ", p.family->name, " are not made of GGUF files");
  p.folder = path;
  p.config = write_config(*p.family, p.spec);
  const DType dtype = options.dtype.value_or(files.entry(kEmbedding).type->dtype.value_or(DType::f32));
  const DType before = default_dtype();
  const DeviceScope there(options.device);
  const nn::init::SkipDraws from_file;
  set_default_dtype(dtype);
  try {
    p.model = std::make_shared<LanguageModel>(p.spec);
  } catch (...) {
    set_default_dtype(before);
    throw;
  }
  set_default_dtype(before);
  load_weights(*p.model, *p.family, p.spec, files);
  p.model->eval();
  return p;
}

void save_gguf(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& path,
               std::string_view type) {
  constexpr std::string_view kTypes[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0"};
  check(std::ranges::find(kTypes, type) != std::end(kTypes), kOp,
        "matrices are written as F32, F16, BF16, Q8_0 or Q4_0, not ", io::quote(type));
  const io::StoredType& matrices = *io::find_stored_type(type);
  io::GgufMetadata metadata = metadata_of(family, spec);
  if (matrices.block > 1) metadata.set("general.quantization_version", io::GgufValue::of(uint32_t{2}));
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : module.named_parameters()) parameters.emplace(name, p.detach());
  std::vector<io::StoredItem> items;
  std::vector<std::pair<Tensor, double>> views;
  for (const WeightRow& row : family.weights(spec)) {
    if (row.repeats || row.gguf.empty()) continue;
    const auto found = parameters.find(row.parameter);
    check(found != parameters.end(), kOp, "the model has no parameter ", row.parameter);
    const Tensor view = row.gguf_view.of(found->second);
    const Shape shape = view.dim() > 2 ? row.shape : view.shape();
    const io::StoredType& plain = io::stored_type(shape.size() < 2 ? DType::f32 : DType::f16);
    const bool fits = shape.size() > 1 && shape.back() % matrices.block == 0;
    items.push_back({row.gguf, fits ? &matrices : &plain, shape});
    views.emplace_back(view, row.gguf_plus);
  }
  io::GgufWriter out(path, metadata, items);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& [view, plus] = views[i];
    const Tensor t = view.contiguous().view(items[i].shape);
    out.write(plus == 0 ? t : t + plus);
  }
  out.commit();
}

}  // namespace strata
