#include "strata/models/export.h"

#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/folder_writer.h"
#include "strata/io/gguf.h"
#include "strata/io/json.h"
#include "strata/models/packed_export_inl.h"
#include "strata/text/pipeline/gguf_folder.h"

namespace strata {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kOp = "save_pretrained";

// What stands beside a model's weights and decides no number of them.
constexpr std::string_view kCompanions[] = {"generation_config.json",
                                            "tokenizer.json",
                                            "tokenizer.model",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "vocab.txt",
                                            "merges.txt",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "preprocessor_config.json",
                                            "processor_config.json",
                                            "modules.json",
                                            "1_Pooling/config.json",
                                            "sentence_bert_config.json",
                                            "config_sentence_transformers.json"};

// The rows that are written, with what they show of the module.
struct Written {
  const WeightRow* row;
  Tensor view;
};

std::map<std::string, Written> views_of(const nn::Module& module, const Family& family,
                                        const std::vector<WeightRow>& rows, const PackedExport& packed) {
  std::map<std::string, Tensor> parameters;
  std::set<std::string> left;
  for (const auto& [name, p] : module.named_parameters()) {
    parameters.emplace(name, p.detach());
    left.insert(name);
  }
  for (const auto& [name, b] : module.named_buffers()) parameters.emplace(name, b);
  std::map<std::string, Written> all;
  for (const WeightRow& row : rows) {
    if (row.repeats || row.name.empty()) continue;  // stands there once, or in GGUF alone
    if (packed.items(row)) {
      left.erase(row.parameter);
      continue;
    }
    const auto found = parameters.find(row.parameter);
    check(found != parameters.end(), kOp, "a row of ", family.name, " writes ", row.name, " from '", row.parameter,
          "', which the model has not");
    left.erase(row.parameter);
    const Tensor view = row.view.of(found->second);
    check(view.numel() == row.shape.product(), kOp, row.name, " is ", row.shape, ", of the parameter ", row.parameter,
          " it would be ", view.shape());
    all.emplace(row.name, Written{&row, view});
  }
  check(left.empty(), kOp, "no row of ", family.name, " writes the parameter ", left.empty() ? "" : *left.begin(),
        left.size() > 1 ? cat(" (and ", left.size() - 1, " more)") : "");
  return all;
}

// How the model was stored that the given config.json is of.
std::optional<PackedScheme> given_scheme(const ExportOptions& options) {
  if (options.config.empty()) return {};
  return packed_scheme(options.config, "config.json");
}

constexpr const char* kQuantization[] = {"quantization_config", "compression_config"};

// What is written under quantization_config; nothing where the given config's stays.
std::optional<nlohmann::ordered_json> quantization_of(const PackedExport& packed, const std::vector<WeightRow>& rows,
                                                      const ExportOptions& options) {
  if (!packed.any() || (!options.packed && given_scheme(options))) return {};
  auto json = nlohmann::ordered_json::parse(packed_config(packed.scheme()));
  // Layers that stay as they are; the libraries would else make low-bit ones of them and miss their pieces.
  auto skipped = nlohmann::ordered_json::array();
  for (const WeightRow& row : rows)
    if (!packed.items(row) && row.shape.size() == 2 && row.name.ends_with(".weight"))
      skipped.push_back(row.name.substr(0, row.name.size() - std::string_view(".weight").size()));
  if (const std::string_view key = packed.scheme().file->skip_key; !key.empty()) json[key] = skipped;
  return json;
}

// The text of config.json, with the dtype in it as both versions of the library spell it.
std::string config_text(const Family& family, const ModelSpec& spec, const ExportOptions& options, DType dtype,
                        const PackedExport& packed, const std::vector<WeightRow>& rows) {
  const std::optional<nlohmann::ordered_json> quantization = quantization_of(packed, rows, options);
  if (!options.config.empty()) {
    const ConfigReader given(options.config, "config.json");
    bool leaves = quantization.has_value();
    for (const char* key : kQuantization) {
      given.ignore(key);
      leaves = leaves || (!packed.any() && given.has(key));
    }
    check(&family_of(given) == &family && read_spec(family, given) == spec, kOp,
          "the config.json that is to be kept says another model than this one");
    if (!options.dtype && !leaves) return options.config;
  }
  const std::string text = options.config.empty() ? write_config(family, spec) : options.config;
  io::parse_json(text, "config.json");  // refuses what the next line would only end with the stack
  auto json = nlohmann::ordered_json::parse(text);
  // Where a family's token for padding lies outside of a small vocabulary the library makes no model.
  const bool own = options.config.empty() && spec.kind == ModelKind::decoder;
  if (own && !json.contains("pad_token_id")) json["pad_token_id"] = nullptr;
  if (options.config.empty() || options.dtype) json["dtype"] = json["torch_dtype"] = io::stored_type(dtype).torch;
  if (quantization || !packed.any())
    for (const char* key : kQuantization) json.erase(key);
  if (quantization) json[kQuantization[0]] = *quantization;
  return json.dump(2) + "\n";
}

void copy_companions(const std::string& from, const std::string& to) {
  if (const std::string file = io::find_gguf(from); !file.empty() && !fs::exists(fs::path(from) / "config.json")) {
    if (!text::has_tokenizer(file)) return;
    text::write_tokenizer_files(text::load_tokenizer_folder(file), to);
    io::write_file((fs::path(to) / "generation_config.json").string(),
                   text::gguf_generation_config(io::read_gguf_header(io::InputFile(file)).metadata));
    return;
  }
  for (const std::string_view name : kCompanions) {
    const std::string source = (fs::path(from) / name).string(), target = (fs::path(to) / name).string();
    if (!fs::exists(source)) continue;
    io::make_directories(io::parent_directory(target));
    io::write_file(target, io::read_file(source));
  }
}

}  // namespace

void save_pretrained(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& folder,
                     const ExportOptions& options) {
  const std::vector<WeightRow> rows = family.weights(spec);
  const PackedExport packed(module, family, rows, options.packed ? options.packed : given_scheme(options),
                            options.packed ? "" : options.source);
  const std::map<std::string, Written> views = views_of(module, family, rows, packed);
  std::vector<io::StoredItem> items;
  std::map<DType, int64_t> bytes;
  for (const WeightRow& row : rows) {
    if (row.repeats || row.name.empty()) continue;
    if (const std::vector<io::StoredItem>* const low = packed.items(row)) {
      items.insert(items.end(), low->begin(), low->end());
      continue;
    }
    const DType dtype = options.dtype.value_or(views.at(row.name).view.dtype());
    items.push_back({row.name, &io::stored_type(dtype), row.shape});
    bytes[dtype] += row.shape.product() * size_of(dtype);
  }
  DType most = options.dtype.value_or(DType::f32);
  for (const auto& [dtype, n] : bytes)
    if (n > bytes[most]) most = dtype;

  io::FolderWriter target(folder);
  io::write_file(target.path() + "/config.json", config_text(family, spec, options, most, packed, rows));
  if (!options.companions.empty()) copy_companions(options.companions, target.path());
  io::ShardedSafetensorsWriter out(target.path(), std::move(items), options.max_shard_bytes);
  for (const std::string& name : out.order()) {
    const auto dense = views.find(name);
    if (dense != views.end()) {
      out.write(dense->second.view.contiguous().view(dense->second.row->shape));
      continue;
    }
    const Tensor bytes = packed.bytes(name);
    out.write_bytes({static_cast<const std::byte*>(bytes.raw_data()), static_cast<size_t>(bytes.numel())});
  }
  out.commit();
  target.commit();
}

void save_pretrained(const Pretrained& model, const std::string& folder, ExportOptions options) {
  check(model.family != nullptr, kOp, "there is no model");
  if (options.config.empty()) options.config = model.config;
  if (options.companions.empty()) options.companions = model.folder;
  if (options.source.empty()) options.source = model.folder;
  save_pretrained(model.module(), *model.family, model.spec, folder, options);
}

}  // namespace strata
