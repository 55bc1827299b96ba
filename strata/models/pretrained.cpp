#include "strata/models/pretrained.h"

#include <filesystem>
#include <map>
#include <set>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/weight_files.h"
#include "strata/models/packed_rows_inl.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"

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
       const std::optional<PackedScheme>& scheme)
      : files_(files), module_(module), gguf_(files.format() == io::WeightsFormat::gguf) {
    for (const auto& [name, p] : module.named_parameters()) parameters_.emplace(name, p);
    for (const auto& [name, b] : module.named_buffers()) parameters_.emplace(name, b);
    const std::string_view prefix = left_out_prefix(family, files);
    std::set<std::string> taken, filled;
    const std::vector<WeightRow> rows = family.weights(spec);
    packed_.emplace(module, rows, prefix, files, scheme);
    for (const WeightRow& row : rows) take(row, prefix, taken, filled);
    for (const auto& [name, p] : parameters_)
      if (!filled.contains(name))
        wrong(cat("parameter ", name, ' ', p.shape(), ": no row of ", family.name, " fills it"));
    for (const io::WeightEntry& e : files.entries())
      if (!taken.contains(e.name) && !is_buffer(family, e.name))
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
    files_.read(parts_);
    for (const auto& [view, plus] : raised_) Tensor(view).copy_(view - plus);
    for (const auto& [name, parameter] : repeats_) {
      const Tensor there = files_.tensor(name, parameter.device()).to(parameter.dtype());
      check(equal(there, parameter), kOp, files_.path(), ": ", name,
            " differs from the embedding, which config.json says it is (tie_word_embeddings)");
    }
  }

 private:
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
    const Tensor view = (gguf_ ? row.gguf_view : row.view).of(at->second.detach());
    const std::string where = cat(files_.files().at(entry->file), ": ", entry->name, ' ', entry->shape);
    if (gguf_ ? entry->shape.product() != view.numel() : entry->shape != row.shape)
      return wrong(cat(where, " is to be ", row.shape));
    if (!entry->type->dtype || !is_floating(*entry->type->dtype))
      return wrong(cat(where, " is of type ", entry->type->name, ", which is not taken as weights"));
    if (row.repeats) {
      repeats_.emplace_back(entry->name, at->second.detach());
      return;
    }
    parts_.push_back({.name = entry->name, .target = view, .view = view.shape()});
    if (gguf_ && row.gguf_plus != 0) raised_.emplace_back(view, row.gguf_plus);
  }

  const io::WeightFiles& files_;
  const nn::Module& module_;
  bool gguf_;
  std::optional<PackedRows> packed_;
  std::map<std::string, Tensor, std::less<>> parameters_;
  std::vector<io::WeightRead> parts_;
  std::vector<std::pair<Tensor, double>> raised_;
  std::vector<std::pair<std::string, Tensor>> repeats_;
  std::vector<std::string> wrong_;
};

std::string read_config(const std::string& folder) {
  return io::read_file((std::filesystem::path(folder) / "config.json").string(), kMaxConfig);
}

std::pair<const Family*, ModelSpec> spec_of(const std::string& text, const std::string& folder) {
  const ConfigReader config(text, (std::filesystem::path(folder) / "config.json").string());
  for (const char* key : {"quantization_config", "compression_config"}) config.ignore(key);  // packed_scheme()'s
  const Family& family = family_of(config);
  return {&family, read_spec(family, config)};
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

void make_module(Pretrained& p, const ModelSpec& spec) {
  switch (spec.kind) {
    case ModelKind::decoder:
      p.model = std::make_shared<LanguageModel>(spec);
      return;
    case ModelKind::encoder:
      p.text_encoder = std::make_shared<TextEncoder>(spec);
      return;
    case ModelKind::image_encoder:
      p.image_encoder = std::make_shared<ImageEncoder>(spec);
      return;
    case ModelKind::pair:
      p.pair = std::make_shared<ContrastivePair>(spec);
      return;
    case ModelKind::encoder_decoder:
      break;
  }
  throw ValueError("load_pretrained", "models of this kind are not made");
}

}  // namespace

nn::Module& Pretrained::module() const {
  if (model) return *model;
  if (text_encoder) return *text_encoder;
  if (image_encoder) return *image_encoder;
  check(pair != nullptr, "Pretrained", "there is no model");
  return *pair;
}

std::pair<const Family*, ModelSpec> read_pretrained_spec(const std::string& folder) {
  return spec_of(read_config(folder), folder);
}

void load_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
                  const std::optional<PackedScheme>& scheme) {
  Plan(module, family, spec, files, scheme).read();
}

Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options) {
  Pretrained p;
  p.folder = folder;
  p.config = read_config(folder);
  std::tie(p.family, p.spec) = spec_of(p.config, folder);
  const std::filesystem::path generation = std::filesystem::path(folder) / "generation_config.json";
  if (std::filesystem::exists(generation)) p.generation_config = io::read_file(generation.string(), kMaxConfig);
  const std::optional<PackedScheme> scheme =
      packed_scheme(p.config, (std::filesystem::path(folder) / "config.json").string());
  const io::WeightFiles files(folder);
  {
    const DeviceScope dry(Device::meta());
    Pretrained shapes;
    make_module(shapes, p.spec);
    const Plan fits(shapes.module(), *p.family, p.spec, files, scheme);
  }
  const DeviceScope there(options.device);
  const DefaultDType dtype(options.dtype.value_or(most_bytes(files)));
  const nn::init::SkipDraws from_file;
  make_module(p, p.spec);
  load_weights(p.module(), *p.family, p.spec, files, scheme);
  p.module().eval();
  return p;
}

}  // namespace strata
