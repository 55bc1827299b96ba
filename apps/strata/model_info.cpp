// strata model info: what a model is and what it needs, from what its files say of themselves.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/model.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/weight_files.h"
#include "strata/lab/peaks.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/models/packed_files.h"
#include "strata/models/pretrained.h"
#include "strata/text/pipeline/gguf_vocabulary.h"
#include "strata/text/pipeline_tokenizer.h"
#include "strata/text/tokenizer_folder.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using memory::bytes_text;
using Rows = std::vector<std::pair<std::string, std::string>>;

constexpr DType kMemory[] = {DType::bf16, DType::f32};
constexpr int64_t kCached = 1000;          // tokens that the table's cache is for
constexpr uint64_t kMaxConfig = 16 << 20;  // of config.json, as load_pretrained has it
constexpr const char* kTemplate = "tokenizer.chat_template";

// Where a model is: a folder with a config.json, or a GGUF file, alone or in a folder.
struct Source {
  std::string path;
  bool folder = false;
  std::optional<io::WeightFiles> files;  // none: the folder has its configuration alone
};

bool holds_weights(const std::string& folder) {
  for (const fs::directory_entry& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename().string();
    for (const char* begin : {"model.safetensors", "pytorch_model.bin"})
      if (name.starts_with(begin)) return true;
    if (name.ends_with(".gguf")) return true;
  }
  return false;
}

Source open(const std::string& path) {
  Source s{path, false, {}};
  if (!fs::exists(path)) throw IoError("model", fmt::format("there is no '{}'", path));
  refuse_run(path);
  s.folder = fs::exists(fs::path(path) / "config.json");
  if (!s.folder && fs::is_directory(path) && !holds_weights(path))
    throw IoError("model",
                  fmt::format("'{}' is no model's folder: it has neither a config.json nor a GGUF file", path));
  if (!s.folder || holds_weights(path)) s.files.emplace(path);
  if (!s.folder && s.files->gguf() == nullptr)
    throw IoError("model", fmt::format("'{}' is no model: it is {} without a config.json, and no GGUF file", path,
                                       io::name_of(s.files->format())));
  return s;
}

// The module, of shapes alone.
Pretrained shapes_of(const ModelSpec& spec) {
  const DeviceScope dry(Device::meta());
  return make_module(spec);
}

int64_t elements(const nn::Module& module) {
  int64_t n = 0;
  for (const auto& [name, p] : module.named_parameters()) n += p.numel();
  return n;
}

// Parameters that a token goes through: of a table one row, of experts those that are taken.
int64_t elements_read(const LanguageModel& model) {
  int64_t n = elements(model);
  const ModelSpec& spec = model.spec();
  if (!spec.tied) n -= model.token_embedding.weight.numel();
  if (model.position_embedding) n -= model.position_embedding->weight.numel();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& experts = spec.layers[i].feed_forward.experts;
    if (!experts) continue;
    for (const auto& [name, p] : model.blocks[i].named_parameters())
      if (p.dim() == 3) n -= p.numel() / experts->count * (experts->count - experts->per_token);
  }
  return n;
}

int64_t elements_cached(const LanguageModel& model, int64_t tokens) {
  int64_t n = 0;
  for (const nn::KvCache& layer : model.make_cache(1, tokens).layers)
    for (const Tensor* t : {&layer.k, &layer.v})
      if (t->defined()) n += t->numel();
  return n;
}

std::string stored(const io::WeightFiles& files) {
  std::map<std::string_view, std::pair<int64_t, uint64_t>> types;
  for (const io::WeightEntry& e : files.entries()) {
    auto& [tensors, bytes] = types[e.type->name];
    ++tensors;
    bytes += e.nbytes;
  }
  std::string text;
  for (const auto& [name, held] : types)
    text += fmt::format("{}{} {} in {} tensor{}", text.empty() ? "" : ", ", name,
                        bytes_text(static_cast<int64_t>(held.second)), held.first, held.first == 1 ? "" : "s");
  const size_t n = files.files().size();
  return fmt::format("{} in {} {} file{}: {}", bytes_text(static_cast<int64_t>(files.size())), n,
                     io::name_of(files.format()), n == 1 ? "" : "s", text);
}

// Why matrices may take less than their dtype says; empty where they do not.
std::string low_bits(const Source& s) {
  if (s.folder) {
    const std::string file = s.path + "/config.json";
    const auto scheme = packed_scheme(io::read_file(file, kMaxConfig), file);
    return scheme ? fmt::format("{}, {} bits", scheme->file->name, scheme->bits) : "";
  }
  const auto& entries = s.files->entries();
  return std::ranges::any_of(entries, [](const auto& e) { return !e.type->is_plain(); }) ? "GGUF's blocks" : "";
}

// What writes a folder's texts, or a file's.
void tell_of_text(const Source& s, Rows& rows) {
  std::string tokenizer, chat = "none";
  try {
    if (s.folder) {
      const text::TokenizerFolder folder = text::load_tokenizer_folder(s.path);
      const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(folder.tokenizer.get());
      tokenizer = fmt::format("{}{}, {} ids", pipeline != nullptr ? pipeline->model_type() : "of a run",
                              folder.tokenizer_class.empty() ? "" : fmt::format(" ({})", folder.tokenizer_class),
                              folder.tokenizer->vocab_size());
      if (!folder.chat_template.empty()) chat = fmt::format("{} bytes", folder.chat_template.size());
    } else {
      const text::GgufVocabulary v = text::gguf_vocabulary(*s.files->gguf());
      tokenizer =
          fmt::format("{}{}, {} ids", v.model, v.pre.empty() ? "" : fmt::format(" ({})", v.pre), v.tokens.size());
    }
  } catch (const Error& e) {  // absent, or a kind that is not known: the rest can still be told
    tokenizer = "none that can be read: " + plain_text(e);
  }
  if (!s.folder && s.files->gguf()->contains(kTemplate))
    chat = fmt::format("{} bytes", s.files->gguf()->text(kTemplate).size());
  rows.emplace_back("Tokenizer", tokenizer);
  rows.emplace_back("Chat template", chat);
  if (s.folder)
    rows.emplace_back("generation_config", fs::exists(fs::path(s.path) / "generation_config.json") ? "there" : "none");
}

// What loading takes, and how fast a decoder can be at most.
void tell_of_need(const Pretrained& model, bool measure, Rows& rows) {
  const int64_t all = elements(model.module());
  const LanguageModel* decoder = model.model.get();
  // A cache of more positions than the model was made for is refused.
  const int64_t tokens = decoder != nullptr ? std::min(kCached, decoder->context()) : 0;
  const int64_t cached = decoder != nullptr ? elements_cached(*decoder, tokens) : 0;
  // Layers with a window keep no more of a long text than that.
  const int64_t whole = decoder != nullptr ? elements_cached(*decoder, decoder->context()) : 0;
  const memory::Bound bound = memory::tightest_bound(Device::cpu());
  double gb_s = 0;
  if (decoder != nullptr && measure) {
    try {
      gb_s = lab::measure_limits(Device::cpu(), /*seconds=*/0.1).gb_s;
    } catch (const MemoryError&) {  // no room for it
    }
  }
  for (const DType dtype : kMemory) {
    const int64_t size = size_of(dtype), need = (all + cached) * size;
    std::string text = fmt::format("weights {}", bytes_text(all * size));
    if (decoder != nullptr) text += fmt::format(", cache of {} tokens {}", tokens, bytes_text(cached * size));
    if (whole > 0 && decoder->context() > tokens)
      text += fmt::format(" (of {}: {})", decoder->context(), bytes_text(whole * size));
    text += fmt::format("; {}", need <= bound.free() ? "fits" : "does not fit");
    if (gb_s > 0)
      text += fmt::format("; at most {} tokens/s",
                          format_count(1e9 * gb_s / static_cast<double>(elements_read(*decoder) * size)));
    rows.emplace_back(fmt::format("As {}", name_of(dtype)), text);
  }
  rows.emplace_back("Memory free", fmt::format("{} of {}", bytes_text(bound.free()), bound.name));
  if (gb_s > 0)
    rows.emplace_back(
        "Bound of speed",
        fmt::format("one text at a time, weights read at the {:.1f} GB/s that were "
                    "measured here, and no other cost; models within the processor's caches can be faster",
                    gb_s));
}

int run(const std::string& path, bool measure) {
  const Source s = open(path);
  const auto [family, spec] = read_pretrained_spec(path);
  const Pretrained model = shapes_of(spec);
  const int64_t all = elements(model.module());
  Rows rows;
  rows.emplace_back("Model", fmt::format("{} ({})", family->title, family->name));
  rows.emplace_back("Parameters", fmt::format("{} ({})", format_count(static_cast<double>(all)), all));
  rows.emplace_back("Files", s.files ? stored(*s.files) : "no weights, config.json alone");
  if (const std::string low = low_bits(s); !low.empty())
    rows.emplace_back("Low bits", low + ": matrices stay so, and take less and are read faster than told below");
  tell_of_need(model, measure, rows);
  tell_of_text(s, rows);
  size_t width = 0;
  for (const auto& [label, text] : rows) width = std::max(width, label.size());
  for (const auto& [label, text] : rows) std::fputs(fmt::format("{:<{}}  {}\n", label, width, text).c_str(), stdout);
  std::fputs(fmt::format("\n{}", to_string(spec)).c_str(), stdout);
  return kOk;
}

}  // namespace

void add_model_info(CLI::App& model, Body& body) {
  CLI::App* info = model.add_subcommand("info", "What a model is, what it needs, and how fast it can be here at most");
  struct Arguments {
    std::string path;
    bool no_limits = false;
  };
  auto a = std::make_shared<Arguments>();
  info->add_option("model", a->path, "A model's folder, or a GGUF file")->required()->type_name("PATH");
  info->add_flag("--no-limits", a->no_limits,
                 "Do not measure this machine's memory, so that no bound of speed is told");
  info->footer("A config.json alone is enough: no weight is read and nothing of the model's size is allocated.");
  info->callback([&body, a] { body = [a] { return run(a->path, !a->no_limits); }; });
}

}  // namespace strata::cli
