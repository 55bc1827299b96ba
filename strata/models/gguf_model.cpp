#include "strata/models/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/weight_files.h"
#include "strata/models/gguf_facts_inl.h"
#include "strata/nn/packed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/text/pipeline/gguf_folder.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "save_gguf", kHead = "output.weight", kEmbedding = "token_embd.weight",
                           kFileType = "general.file_type", kVersion = "general.quantization_version";
constexpr uint64_t kMaxConfig = 16 << 20;  // of generation_config.json

// What matrices are written as.
struct MatrixType {
  std::string_view name;
  uint32_t file_type;          // general.file_type
  std::string_view head = {};  // of the output layer; empty: the same
};
constexpr MatrixType kTypes[] = {{"F32", 0},          {"F16", 1},           {"BF16", 32},         {"Q8_0", 7},
                                 {"Q4_0", 2, "Q6_K"}, {"Q4_K", 14, "Q6_K"}, {"Q5_K", 16, "Q6_K"}, {"Q6_K", 18}};
// Matrices that stay F32.
constexpr std::string_view kExact[] = {".ffn_gate_inp.weight", "position_embd.weight", ".attn_rel_b.weight"};

const MatrixType& matrix_type(std::string_view name) {
  std::string known;
  for (const MatrixType& t : kTypes) {
    if (t.name == name) return t;
    known += cat(known.empty() ? "" : ", ", t.name);
  }
  throw ValueError(kOp, cat("matrices are written as ", known, ", not ", io::quote(name)));
}

const io::StoredType& stored(std::string_view name) {
  return *io::find_stored_type(name);
}

// The type of these that fits rows of so many columns.
const io::StoredType& fitting(const io::StoredType& type, int64_t columns) {
  const io::StoredType& other = stored("Q8_0");
  if (columns % type.block == 0) return type;
  return type.block > other.block && columns % other.block == 0 ? other : stored("F16");
}

// Parameters of a module by name, and the weights of low-bit layers as numbers.
class Numbers {
 public:
  explicit Numbers(const nn::Module& module) {
    for (const auto& [name, p] : module.named_parameters()) parameters_.emplace(name, p.detach());
    for (const auto& [name, b] : module.named_buffers()) parameters_.emplace(name, b);
    for (const auto& [name, part] : module.named_modules())
      if (nn::is_packed(part)) packed_.emplace(cat(name, ".weight"), part);
  }
  bool has(const std::string& name) const { return parameters_.contains(name) || packed_.contains(name); }
  Shape shape(const std::string& name) const {
    if (const auto found = packed_.find(name); found != packed_.end())
      return nn::dense_shape(nn::packed_weights(found->second));
    return parameters_.at(name).shape();
  }
  DType dtype(const std::string& name) const {
    return packed_.contains(name) ? DType::f32 : parameters_.at(name).dtype();
  }
  // Of a low-bit layer the last one asked for is kept: its rows stand in several tensors.
  Tensor operator()(const std::string& name) {
    const auto found = packed_.find(name);
    if (found == packed_.end()) return parameters_.at(name);
    if (last_ != name) {
      decoded_ = nn::dense_weight(nn::packed_weights(found->second));
      last_ = name;
    }
    return decoded_;
  }

 private:
  std::map<std::string, Tensor> parameters_;
  std::map<std::string, nn::Module> packed_;
  std::string last_;
  Tensor decoded_;
};

std::optional<io::WeightFiles> gguf_companion(const std::string& path) {
  const std::string file = path.empty() ? "" : io::find_gguf(path);
  if (file.empty()) return {};
  return std::optional<io::WeightFiles>(std::in_place, file);
}

bool describes_this_file(std::string_view key) {
  for (const std::string_view own :
       {std::string_view("general.architecture"), kFileType, kVersion, std::string_view("general.alignment")})
    if (key == own) return true;
  return false;
}

// What stands beside the weights and is no number of them.
void add_companions(const GgufOptions& options, const std::optional<io::WeightFiles>& source, const ModelSpec& spec,
                    io::GgufMetadata& metadata) {
  if (source) {
    for (const auto& [key, value] : source->gguf()->entries())
      if (key.starts_with("tokenizer.") || (key.starts_with("general.") && !describes_this_file(key)))
        metadata.set(key, value);
  } else if (!options.companions.empty() && text::has_tokenizer(options.companions)) {
    const auto file = std::filesystem::path(options.companions) / "generation_config.json";
    const std::string generation =
        std::filesystem::exists(file) ? io::read_file(file.string(), kMaxConfig) : std::string();
    text::set_gguf_tokenizer(text::load_tokenizer_folder(options.companions), spec.vocab, generation, metadata);
  }
  text::set_no_gguf_tokenizer(metadata);
  if (!options.name.empty()) metadata.set("general.name", io::GgufValue::of(options.name));
}

const ModelSpec& writing_part(const ModelSpec& spec) {
  return spec.kind == ModelKind::encoder_decoder ? spec.parts[1] : spec;
}

struct Planned {
  WeightRow row;
  const io::WeightEntry* same = nullptr;  // of the companion, whose bytes are kept where its numbers are these
};

}  // namespace

std::vector<std::string_view> gguf_types() {
  std::vector<std::string_view> names;
  for (const MatrixType& t : kTypes) names.push_back(t.name);
  return names;
}

void save_gguf(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& path,
               const GgufOptions& options) {
  const NoGrad guard;
  const MatrixType* const asked = options.type.empty() ? nullptr : &matrix_type(options.type);
  GgufFacts facts = gguf_facts(family, spec);
  const std::optional<io::WeightFiles> source = gguf_companion(options.companions);
  add_companions(options, source, writing_part(spec), facts.metadata);
  Numbers numbers(module);

  const ModelSpec& writes = writing_part(spec);
  std::vector<io::StoredItem> items;
  std::vector<Planned> planned;
  bool blocks = false;
  for (const WeightRow& row : family.weights(spec)) {
    if (row.repeats || row.gguf.empty()) continue;
    check(numbers.has(row.parameter), kOp, "the model has no parameter ", row.parameter);
    const Tensor shapes = empty({numbers.shape(row.parameter), DType::u8, Device::meta(), std::nullopt});
    const Tensor view = row.gguf_view.of(shapes);
    const Shape shape = view.dim() > 2 ? row.shape : view.shape();
    check(shape.product() == view.numel(), kOp, row.gguf, " would be ", view.shape(), ", is to be ", shape);
    const bool exact =
        shape.size() < 2 || std::ranges::any_of(kExact, [&](auto end) { return row.gguf.ends_with(end); });
    const bool head = row.gguf == kHead || (writes.tied && row.gguf == kEmbedding);
    const io::StoredType* type = &io::stored_type(DType::f32);
    const io::WeightEntry* const before = source ? source->find(row.gguf) : nullptr;
    const bool same = !asked && before && before->shape == shape;
    if (same)
      type = before->type;
    else if (!exact)
      type = &fitting(!asked                         ? io::stored_type(numbers.dtype(row.parameter))
                      : head && !asked->head.empty() ? stored(asked->head)
                                                     : stored(asked->name),
                      shape.back());
    blocks = blocks || type->block > 1;
    items.push_back({row.gguf, type, shape});
    planned.push_back({row, same ? before : nullptr});
  }
  for (const auto& [name, factors] : facts.factors)
    items.push_back({name, &io::stored_type(DType::f32), {static_cast<int64_t>(factors.size())}});
  if (blocks) facts.metadata.set(std::string(kVersion), io::GgufValue::of(uint32_t{2}));
  const auto before = source ? source->gguf()->find(kFileType) : nullptr;
  if (asked)
    facts.metadata.set(std::string(kFileType), io::GgufValue::of(asked->file_type));
  else if (before)
    facts.metadata.set(std::string(kFileType), *before);

  io::GgufWriter out(path, facts.metadata, items);
  for (size_t i = 0; i < planned.size(); ++i) {
    const auto& [row, same] = planned[i];
    const Tensor own = row.gguf_view.of(numbers(row.parameter)).contiguous().view(items[i].shape).to(Device::cpu());
    if (same) {
      Tensor there = source->tensor(same->name).to(DType::f32);
      if (row.gguf_plus != 0) there = there - row.gguf_plus;
      if (equal(there.to(own.dtype()), own)) {
        const Tensor bytes = source->bytes(same->name);
        out.write_bytes({static_cast<const std::byte*>(bytes.raw_data()), static_cast<size_t>(bytes.numel())});
        continue;
      }
    }
    out.write(row.gguf_plus == 0 ? own : own.to(DType::f32) + row.gguf_plus);
  }
  for (const auto& [name, factors] : facts.factors)
    out.write(from_span<float>(factors, {static_cast<int64_t>(factors.size())}));
  out.commit();
}

void save_gguf(const Pretrained& model, const std::string& path, GgufOptions options) {
  check(model.family != nullptr, kOp, "there is no model");
  check(!model.family->gguf.architectures.empty(), kOp, "GGUF files have no name for models of ", model.family->title);
  if (options.companions.empty()) options.companions = model.folder;
  // The spec does not hold it, and what is written of one says 0. The first of the two files that says it counts.
  constexpr std::string_view kStart = "decoder_start_token_id";
  for (const std::string* text : {&model.generation_config, &model.config}) {
    if (!model.encoder_decoder || text->empty()) continue;
    const ConfigReader settings(*text, model.folder);
    if (!settings.has(kStart) || settings.is_null(kStart)) continue;
    const int64_t start = settings.integer(kStart);
    check(start == 0, kOp, "texts that begin with id ", start, " (", kStart, ") cannot be said");
    break;
  }
  save_gguf(model.module(), *model.family, model.spec, path, options);
}

}  // namespace strata
