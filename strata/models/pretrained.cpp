#include "strata/models/pretrained.h"

#include <filesystem>
#include <map>
#include <set>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/weight_files.h"
#include "strata/models/gguf_facts_inl.h"
#include "strata/models/packed_rows_inl.h"
#include "strata/models/rounded_weights_inl.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/pipeline/gguf_folder.h"

namespace strata {
namespace {

constexpr const char* kOp = "load_weights";
constexpr uint64_t kMaxConfig = 16 << 20;  // of config.json: known ones have some KiB
constexpr size_t kMaxLines = 200;          // of an error

// The default dtype while one lives.
class DefaultDType {
 public:
  explicit DefaultDType(DType dtype) : before_(default_dtype()) { set_default_dtype(dtype); }
  ~DefaultDType() { set_default_dtype(before_); }
  DefaultDType(const DefaultDType&) = delete;

 private:
  DType before_;
};

// Rows and the entries of files that they name, and what is wrong.
class Plan {
 public:
  Plan(const nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
       const std::optional<PackedScheme>& scheme, bool keep_packed)
      : files_(files), module_(module), gguf_(files.format() == io::WeightsFormat::gguf) {
    for (const auto& [name, p] : module.named_parameters()) parameters_.emplace(name, p);
    for (const auto& [name, b] : module.named_buffers()) parameters_.emplace(name, b);
    const std::string_view prefix = left_out_prefix(family, files);
    std::set<std::string> taken, filled;
    const std::vector<WeightRow> rows = family.weights(spec);
    packed_.emplace(module, rows, prefix, files, scheme, keep_packed);
    for (const WeightRow& row : rows) take(row, prefix, taken, filled);
    for (const auto& [name, p] : parameters_)
      if (!filled.contains(name))
        wrong(cat("parameter ", name, ' ', p.shape(), ": no row of ", family.name, " fills it"));
    for (const io::WeightEntry& e : files.entries())
      if (!taken.contains(e.name) && !(gguf_ ? is_gguf_factors(e.name) : is_buffer(family, e.name)))
        wrong(cat("left over in ", files.files().at(e.file), ": ", e.name, ' ', e.shape));
    if (wrong_.empty()) return;
    std::string text = cat(files.path(), ": does not hold what its config.json says, ", wrong_.size(), " differences:");
    for (size_t i = 0; i < std::min(wrong_.size(), kMaxLines); ++i) text += "\n  " + wrong_[i];
    if (wrong_.size() > kMaxLines) text += cat("\n  and ", wrong_.size() - kMaxLines, " more");
    throw ValueError(kOp, text);
  }

  void read() const {
    const NoGrad guard;
    packed_->load(module_, files_);
    fill(parts_);
    for (const auto& [name, t] : parameters_)
      if (!later_.contains(name)) check_repeats(name, t.detach());
  }

  // What a parameter without memory is to have.
  Tensor read_one(const std::string& name, DType dtype) const {
    const auto parts = later_.find(name);
    check(parts != later_.end(), kOp, "the model has no weight '", name, "'");
    const NoGrad guard;
    const Tensor dense = empty({parameters_.find(name)->second.shape(), dtype, default_device(), std::nullopt});
    std::vector<Part> filled;
    for (const auto& [entry, view, plus] : parts->second) filled.push_back({entry, view.of(dense), plus});
    fill(filled);
    check_repeats(name, dense);
    return dense;
  }

  // Parameters without memory, which are to be the weights of Linears: one dense one at a time.
  void read_rounded(std::string_view format, const QuantizeOptions& rounding) const {
    const NoGrad guard;
    const memory::TierScope own{Tier()};
    std::map<std::string, nn::Module, std::less<>> modules;
    for (const auto& [name, part] : module_.named_modules()) modules.emplace(name, part);
    for (const auto& [name, parts] : later_) {
      const Tensor dense = read_one(name, parameters_.find(name)->second.dtype());
      constexpr std::string_view kWeight = ".weight";
      check(name.ends_with(kWeight), kOp, "'", name, "' has no memory and is no layer's weight");
      const std::string layer = name.substr(0, name.size() - kWeight.size());
      const PackedWeight w = nn::detail::rounded_weight(layer, dense, format, rounding);
      nn::pack_linear(modules.at(layer), moved(w, dense.device()));
    }
  }

 private:
  // An entry's numbers, less `plus`, as a view of a parameter.
  struct Part {
    std::string entry;
    Tensor view;
    double plus;
  };
  // The same of a parameter that is not there yet.
  struct LaterPart {
    std::string entry;
    WeightView view;
    double plus;
  };

  void fill(const std::vector<Part>& parts) const {
    std::vector<io::WeightRead> plain;
    for (const auto& [entry, view, plus] : parts)
      if (plus == 0) plain.push_back({.name = entry, .target = view, .view = view.shape()});
    files_.read(plain);
    // Taken off before it is rounded to the parameter's dtype.
    for (const auto& [entry, view, plus] : parts)
      if (plus != 0) Tensor(view).copy_((files_.tensor(entry, view.device()).to(DType::f32) - plus).view(view.shape()));
  }
  // Entries that are to be what a parameter is.
  void check_repeats(const std::string& parameter, const Tensor& is) const {
    for (const auto& [entry, repeated] : repeats_) {
      if (repeated != parameter) continue;
      check(equal(files_.tensor(entry, is.device()).to(is.dtype()), is), kOp, files_.path(), ": ", entry,
            " differs from the embedding, which config.json says it is (tie_word_embeddings)");
    }
  }
  void wrong(std::string line) { wrong_.push_back(std::move(line)); }

  static bool is_buffer(const Family& family, std::string_view name) {
    for (const std::string_view part : family.buffers)
      if (part.ends_with('.') ? name.starts_with(part) : name.ends_with(part)) return true;
    return false;
  }

  void take(const WeightRow& row, std::string_view prefix, std::set<std::string>& taken,
            std::set<std::string>& filled) {
    if (const std::vector<std::string>* const entries = packed_->entries(row)) {
      taken.insert(entries->begin(), entries->end());
      filled.insert(row.parameter);
      return;
    }
    std::string name = gguf_ ? row.gguf : row.name;
    if (name.empty()) return;  // not in files of this kind
    if (!prefix.empty() && name.starts_with(prefix)) name.erase(0, prefix.size());
    const io::WeightEntry* entry = files_.find(name);
    if (!entry && !gguf_ && !row.other_name.empty()) entry = files_.find(row.other_name);
    const auto at = parameters_.find(row.parameter);
    check(at != parameters_.end(), kOp, "a row fills '", row.parameter, "', which the module has not");
    if (row.repeats) {
      if (!entry) return;
    } else {
      filled.insert(row.parameter);
    }
    if (!entry) return wrong(cat("missing: ", name, ' ', row.shape, ", for ", row.parameter));
    taken.insert(entry->name);
    const WeightView& steps = gguf_ ? row.gguf_view : row.view;
    const Tensor view = steps.of(at->second.detach());
    const std::string where = cat(files_.files().at(entry->file), ": ", entry->name, ' ', entry->shape);
    if (gguf_ ? entry->shape.product() != view.numel() : entry->shape != row.shape)
      return wrong(cat(where, " is to be ", row.shape));
    if (!entry->type->dtype || !is_floating(*entry->type->dtype))
      return wrong(cat(where, " is of type ", entry->type->name, ", which is not taken as weights"));
    if (row.repeats) {
      repeats_.emplace_back(entry->name, row.parameter);
      return;
    }
    const double plus = gguf_ ? row.gguf_plus : 0;
    if (view.is_meta())
      later_[row.parameter].push_back({entry->name, steps, plus});
    else
      parts_.push_back({entry->name, view, plus});
  }

  const io::WeightFiles& files_;
  const nn::Module& module_;
  bool gguf_;
  std::optional<PackedRows> packed_;
  std::map<std::string, Tensor, std::less<>> parameters_;
  std::vector<Part> parts_;
  std::map<std::string, std::vector<LaterPart>> later_;  // by parameter
  std::vector<std::pair<std::string, std::string>> repeats_;  // an entry, a parameter
  std::vector<std::string> wrong_;
};

// What stands beside the weights of a model, and where they are.
struct Described {
  const Family* family = nullptr;
  ModelSpec spec;
  std::string config, generation_config, weights;
  std::optional<PackedScheme> scheme;
};

bool has_config(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(path) / "config.json", error);
}

Described describe_folder(const std::string& folder) {
  const std::filesystem::path root(folder), generation = root / "generation_config.json";
  const std::string source = (root / "config.json").string();
  Described d{.config = io::read_file(source, kMaxConfig), .weights = folder};
  const ConfigReader config(d.config, source);
  for (const char* key : {"quantization_config", "compression_config"}) config.ignore(key);  // packed_scheme()'s
  d.family = &family_of(config);
  d.spec = read_spec(*d.family, config);
  d.scheme = packed_scheme(d.config, source);
  if (std::filesystem::exists(generation)) d.generation_config = io::read_file(generation.string(), kMaxConfig);
  return d;
}

Described describe_gguf(const std::string& path) {
  const io::WeightFiles files(path);
  Described d{.weights = path};
  std::tie(d.family, d.spec) = read_gguf_facts(gguf_facts(files), path);
  d.config = write_config(*d.family, d.spec);
  d.generation_config = text::gguf_generation_config(*files.gguf());
  return d;
}

Described describe(const std::string& path) {
  if (!has_config(path))
    if (const std::string file = io::find_gguf(path); !file.empty()) return describe_gguf(file);
  return describe_folder(path);
}

DType most_bytes(const io::WeightFiles& files) {
  std::map<DType, uint64_t> bytes;
  for (const io::WeightEntry& e : files.entries())
    if (e.type->dtype && is_floating(*e.type->dtype)) bytes[*e.type->dtype] += e.nbytes;
  DType most = DType::f32;
  uint64_t best = 0;
  for (const auto& [dtype, n] : bytes)
    if (n > best) std::tie(most, best) = std::pair(dtype, n);
  return most;
}

}  // namespace

nn::Module& Pretrained::module() const {
  if (model) return *model;
  if (text_encoder) return *text_encoder;
  if (image_encoder) return *image_encoder;
  if (pair) return *pair;
  check(encoder_decoder != nullptr, "Pretrained", "there is no model");
  return *encoder_decoder;
}

Pretrained make_module(const ModelSpec& spec) {
  Pretrained p;
  p.spec = spec;
  switch (spec.kind) {
    case ModelKind::decoder:
      p.model = std::make_shared<LanguageModel>(spec);
      break;
    case ModelKind::encoder:
      p.text_encoder = std::make_shared<TextEncoder>(spec);
      break;
    case ModelKind::image_encoder:
      p.image_encoder = std::make_shared<ImageEncoder>(spec);
      break;
    case ModelKind::pair:
      p.pair = std::make_shared<ContrastivePair>(spec);
      break;
    case ModelKind::encoder_decoder:
      p.encoder_decoder = std::make_shared<EncoderDecoder>(spec);
      break;
  }
  return p;
}

bool is_pretrained(const std::string& path) {
  return has_config(path) || !io::find_gguf(path).empty();
}

std::pair<const Family*, ModelSpec> read_pretrained_spec(const std::string& path) {
  const Described d = describe(path);
  return {d.family, d.spec};
}

std::string read_pretrained_config(const std::string& path) {
  return describe(path).config;
}

void load_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
                  const std::optional<PackedScheme>& scheme, bool keep_packed) {
  Plan(module, family, spec, files, scheme, keep_packed).read();
}

void load_rounded_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
                          std::string_view format, const nn::PackOptions& options) {
  nn::detail::make_deferred(module, options);
  const Plan plan(module, family, spec, files, {}, false);
  plan.read();
  plan.read_rounded(format, options.rounding);
}

void load_late_weights(nn::Module& module, const Family& family, const ModelSpec& spec,
                       const std::shared_ptr<const io::WeightFiles>& files) {
  const auto plan = std::make_shared<const Plan>(module, family, spec, *files, std::nullopt, false);
  plan->read();
  for (const auto& [name, p] : module.named_parameters())
    nn::detail::make_later(p, [plan, files, name = name](DType dtype) { return plan->read_one(name, dtype); });
}

struct FolderWeights::Inside {
  Inside(const Family& family, const ModelSpec& spec, const io::WeightFiles& files)
      : shapes(make_shapes(spec)), plan(shapes.module(), family, spec, files, {}, false) {}
  static Pretrained make_shapes(const ModelSpec& spec) {
    const DeviceScope nowhere(Device::meta());
    return make_module(spec);
  }
  Pretrained shapes;
  Plan plan;
};
FolderWeights::FolderWeights(const Family& family, const ModelSpec& spec, const io::WeightFiles& files)
    : inside_(std::make_unique<Inside>(family, spec, files)) {}
FolderWeights::~FolderWeights() = default;
Tensor FolderWeights::read(const std::string& parameter, DType dtype) const {
  return inside_->plan.read_one(parameter, dtype);
}

Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options) {
  Described d = describe(path);
  const io::WeightFiles files(d.weights);
  {
    const DeviceScope dry(Device::meta());
    const Pretrained shapes = make_module(d.spec);
    const Plan fits(shapes.module(), *d.family, d.spec, files, d.scheme, options.keep_packed);
  }
  const DeviceScope there(options.device);
  const DefaultDType dtype(options.dtype.value_or(most_bytes(files)));
  const nn::init::SkipDraws from_file;
  // Layers that will be packed never have a dense weight.
  const bool packs = options.keep_packed && (d.scheme || files.format() == io::WeightsFormat::gguf);
  std::optional<nn::detail::DeferredWeights> later;
  if (packs) later.emplace(default_dtype());
  Pretrained p = make_module(d.spec);
  later.reset();
  if (packs)
    nn::detail::make_deferred(p.module(), PackedRows(p.module(), d.family->weights(d.spec),
                                                     left_out_prefix(*d.family, files), files, d.scheme)
                                              .to_pack());
  p.family = d.family;
  p.config = std::move(d.config);
  p.generation_config = std::move(d.generation_config);
  p.folder = path;
  load_weights(p.module(), *p.family, p.spec, files, d.scheme, options.keep_packed);
  p.module().eval();
  return p;
}

}  // namespace strata
