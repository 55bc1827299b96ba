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
                                        const std::vector<WeightRow>& rows) {
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

// The text of config.json, with the dtype in it as both versions of the library spell it.
std::string config_text(const Family& family, const ModelSpec& spec, const ExportOptions& options, DType dtype) {
  if (!options.config.empty()) {
    const ConfigReader given(options.config, "config.json");
    check(&family_of(given) == &family && read_spec(family, given) == spec, kOp,
          "the config.json that is to be kept says another model than this one");
    if (!options.dtype) return options.config;
  }
  const std::string text = options.config.empty() ? write_config(family, spec) : options.config;
  io::parse_json(text, "config.json");  // refuses what the next line would only end with the stack
  auto json = nlohmann::ordered_json::parse(text);
  // Where a family's token for padding lies outside of a small vocabulary the library makes no model.
  const bool own = options.config.empty() && spec.kind == ModelKind::decoder;
  if (own && !json.contains("pad_token_id")) json["pad_token_id"] = nullptr;
  json["dtype"] = json["torch_dtype"] = io::stored_type(dtype).torch;
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
  const std::map<std::string, Written> views = views_of(module, family, rows);
  std::vector<io::StoredItem> items;
  std::map<DType, int64_t> bytes;
  for (const WeightRow& row : rows) {
    if (row.repeats || row.name.empty()) continue;
    const DType dtype = options.dtype.value_or(views.at(row.name).view.dtype());
    items.push_back({row.name, &io::stored_type(dtype), row.shape});
    bytes[dtype] += row.shape.product() * size_of(dtype);
  }
  DType most = options.dtype.value_or(DType::f32);
  for (const auto& [dtype, n] : bytes)
    if (n > bytes[most]) most = dtype;

  io::FolderWriter target(folder);
  io::write_file(target.path() + "/config.json", config_text(family, spec, options, most));
  if (!options.companions.empty()) copy_companions(options.companions, target.path());
  io::ShardedSafetensorsWriter out(target.path(), std::move(items), options.max_shard_bytes);
  for (const std::string& name : out.order()) {
    const Written& w = views.at(name);
    out.write(w.view.contiguous().view(w.row->shape));
  }
  out.commit();
  target.commit();
}

void save_pretrained(const Pretrained& model, const std::string& folder, ExportOptions options) {
  check(model.family != nullptr, kOp, "there is no model");
  if (options.config.empty()) options.config = model.config;
  if (options.companions.empty()) options.companions = model.folder;
  save_pretrained(model.module(), *model.family, model.spec, folder, options);
}

}  // namespace strata
