// quantization_config of a config.json: which way of storing it selects, and its settings.

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"
#include "strata/models/packed_files.h"

namespace strata {
namespace {

using nlohmann::json;
constexpr std::string_view kName = "packed_scheme";

const PackedFile& file_named(std::string_view name) {
  for (const PackedFile& f : packed_files())
    if (f.name == name) return f;
  throw ValueError(kName, cat("there is no way of storing \"", name, "\""));
}

// An object whose keys are looked up, with those that were: the rest must be known to change nothing.
class Settings {
 public:
  Settings(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    check(object.is_object(), kName, where_, " is no object");
  }
  // nullptr where absent or null.
  const json* find(const char* key) {
    seen_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  [[noreturn]] void refuse(const char* key, std::string_view wanted) {
    const auto it = object_.find(key);
    throw ValueError(kName,
                     cat(where_, ".", key, " is ", it == object_.end() ? "absent" : it->dump(), ", wants ", wanted));
  }
  int64_t integer(const char* key, int64_t absent) {
    const json* v = find(key);
    if (v && !v->is_number_integer()) refuse(key, "a whole number");
    return v ? v->get<int64_t>() : absent;
  }
  bool flag(const char* key, bool absent) {
    const json* v = find(key);
    if (v && !v->is_boolean()) refuse(key, "true or false");
    return v ? v->get<bool>() : absent;
  }
  std::string text(const char* key, std::string absent) {
    const json* v = find(key);
    if (v && !v->is_string()) refuse(key, "a text");
    std::string t = v ? v->get<std::string>() : std::move(absent);
    std::ranges::transform(t, t.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return t;
  }
  // Settings of other programs' speed, of how codes were chosen, or lists of layers that the files show themselves.
  void ignore(std::initializer_list<const char*> keys) {
    for (const char* k : keys) seen_.insert(k);
  }
  // Absent, null, or empty.
  void none(const char* key) {
    const json* v = find(key);
    if (v && !((v->is_object() || v->is_array()) && v->empty())) refuse(key, "nothing");
  }
  void finish() {
    for (const auto& [key, value] : object_.items())
      check(seen_.contains(key), kName, where_, ".", key, " (", value.dump(), ") is not known");
  }
  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
  std::set<std::string> seen_;
};

// 0 for -1: one group of all columns.
int64_t group_size(Settings& s, const char* key, int64_t absent) {
  const int64_t g = s.integer(key, absent);
  if (g != -1 && (g <= 0 || g % 32 != 0 || g > 1 << 24)) s.refuse(key, "-1 or a multiple of 32");
  return g == -1 ? 0 : g;
}

PackedScheme gptq(Settings& s) {
  PackedScheme p;
  p.file = &file_named("GPTQ");
  p.bits = static_cast<int>(s.integer("bits", 0));
  if (p.bits != 4 && p.bits != 8) s.refuse("bits", "4 or 8");
  p.group_size = group_size(s, "group_size", -1);
  p.act_order = s.flag("desc_act", false);
  const std::string form = s.text("checkpoint_format", "gptq");
  if (form != "gptq" && form != "gptq_v2") s.refuse("checkpoint_format", "\"gptq\" or \"gptq_v2\"");
  p.zero_offset = form == "gptq" ? 1 : 0;
  s.none("dynamic");
  if (s.text("pack_dtype", "int32") != "int32") s.refuse("pack_dtype", "\"int32\"");
  if (s.flag("is_marlin_format", false)) s.refuse("is_marlin_format", "false: the matrices are in another order");
  s.ignore({"sym",
            "lm_head",
            "static_groups",
            "true_sequential",
            "damp_percent",
            "damp_auto_increment",
            "model_name_or_path",
            "model_file_base_name",
            "meta",
            "quantizer",
            "tokenizer",
            "dataset",
            "backend",
            "use_cuda_fp16",
            "model_seqlen",
            "block_name_to_quantize",
            "module_name_preceding_first_block",
            "batch_size",
            "pad_token_id",
            "use_exllama",
            "disable_exllama",
            "max_input_length",
            "exllama_config",
            "cache_block_outputs",
            "modules_in_block_to_quantize",
            "mse",
            "v2",
            "act_group_aware",
            "hyb_act",
            "modules_to_not_convert"});
  return p;
}

PackedScheme awq(Settings& s) {
  PackedScheme p;
  p.file = &file_named("AWQ");
  const char* const bits = s.find("bits") ? "bits" : "w_bit";
  p.bits = static_cast<int>(s.integer(bits, 0));
  if (p.bits != 4) s.refuse(bits, "4");
  p.group_size = group_size(s, s.find("group_size") ? "group_size" : "q_group_size", 128);
  if (s.text("version", "gemm") != "gemm") s.refuse("version", "\"gemm\": the matrices of others are in another order");
  if (!s.flag("zero_point", true)) s.refuse("zero_point", "true");
  s.ignore({"w_bit", "q_group_size", "modules_to_not_convert", "backend", "do_fuse", "fuse_max_seq_len",
            "modules_to_fuse", "exllama_config"});
  return p;
}

PackedScheme fp8(Settings& s) {
  PackedScheme p;
  p.file = &file_named("fp8");
  p.bits = 8;
  const json* block = s.find("weight_block_size");
  if (!block) s.refuse("weight_block_size", "two numbers: a scale for each block");
  if (!block->is_array() || block->size() != 2 || !(*block)[0].is_number_integer() || !(*block)[1].is_number_integer())
    s.refuse("weight_block_size", "two whole numbers");
  p.block_rows = (*block)[0].get<int64_t>(), p.group_size = (*block)[1].get<int64_t>();
  if (p.block_rows <= 0 || p.group_size <= 0 || p.group_size % 32 != 0 || p.block_rows > 1 << 24 ||
      p.group_size > 1 << 24)
    s.refuse("weight_block_size", "rows above 0, and columns in multiples of 32");
  const std::string format = s.text("fmt", "e4m3");
  if (format != "e4m3") s.refuse("fmt", "\"e4m3\"");
  if (s.text("scale_fmt", "float") != "float") s.refuse("scale_fmt", "\"float\"");
  s.ignore({"activation_scheme", "modules_to_not_convert", "dequantize"});
  return p;
}

PackedScheme bitsandbytes(Settings& s) {
  PackedScheme p;
  p.file = &file_named("bitsandbytes nf4");
  if (s.flag("load_in_8bit", false) || s.flag("_load_in_8bit", false))
    s.refuse("load_in_8bit", "false: LLM.int8() splits outliers of the inputs off");
  if (!s.flag("load_in_4bit", s.flag("_load_in_4bit", false))) s.refuse("load_in_4bit", "true");
  if (s.text("bnb_4bit_quant_type", "fp4") != "nf4") s.refuse("bnb_4bit_quant_type", "\"nf4\"");
  if (s.text("bnb_4bit_quant_storage", "uint8") != "uint8") s.refuse("bnb_4bit_quant_storage", "\"uint8\"");
  p.storage_dtype = s.text("bnb_4bit_compute_dtype", "float32");
  s.ignore({"bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
            "llm_int8_skip_modules", "llm_int8_threshold"});
  return p;
}

PackedScheme compressed_tensors(Settings& s) {
  const std::string form = s.text("format", "");
  std::string known;
  const PackedFile* file = nullptr;
  for (const PackedFile& f : packed_files()) {
    if (f.quant_method != "compressed-tensors") continue;
    const std::string_view own = f.name.substr(f.name.find(' ') + 1);
    known += cat(known.empty() ? "" : ", ", own);
    if (own == form) file = &f;
  }
  if (!file) s.refuse("format", known);
  const json* groups = s.find("config_groups");
  if (!groups || !groups->is_object() || groups->size() != 1)
    s.refuse("config_groups", "one group for all linear layers");
  s.none("kv_cache_scheme");
  s.none("transform_config");
  if (const json* sparse = s.find("sparsity_config"); sparse && !sparse->empty()) {
    Settings inner(*sparse, s.where() + ".sparsity_config");
    if (inner.text("format", "dense") != "dense") inner.refuse("format", "\"dense\"");
  }
  if (const std::string status = s.text("quantization_status", "compressed");
      status != "compressed" && status != "frozen")
    s.refuse("quantization_status", "\"compressed\"");
  s.ignore({"ignore", "global_compression_ratio", "version"});

  Settings group(*groups->begin(), cat(s.where(), ".config_groups.", groups->begin().key()));
  const json* given = group.find("weights");
  if (!given) group.refuse("weights", "how weights are stored");
  if (const std::string own = group.text("format", form); own != form) group.refuse("format", form);
  group.none("output_activations");
  group.ignore({"targets", "input_activations"});  // x is not rounded here
  group.finish();

  Settings w(*given, group.where() + ".weights");
  PackedScheme p;
  p.file = file;
  const bool packed = form == "pack-quantized", floating = form == "float-quantized";
  p.bits = static_cast<int>(w.integer("num_bits", 8));
  if (p.bits != 8 && !(packed && p.bits == 4)) w.refuse("num_bits", packed ? "4 or 8" : "8");
  if (w.text("type", "int") != (floating ? "float" : "int")) w.refuse("type", floating ? "\"float\"" : "\"int\"");
  p.symmetric = w.flag("symmetric", true);
  if (!packed && !p.symmetric) w.refuse("symmetric", "true");
  if (w.flag("dynamic", false)) w.refuse("dynamic", "false");
  const int64_t size = w.find("group_size") ? group_size(w, "group_size", -1) : 0;
  const std::string strategy = w.text("strategy", size > 0 ? "group" : "tensor");
  if (strategy == "group") {
    if (size == 0 || !packed) w.refuse("strategy", "\"channel\" or \"tensor\" for this format");
    p.group_size = size;
  } else if (strategy == "tensor" && !packed) {
    p.block_rows = 0;
  } else if (strategy == "block" && floating) {
    const json* block = w.find("block_structure");
    if (!block || !block->is_array() || block->size() != 2 || !(*block)[0].is_number_integer() ||
        !(*block)[1].is_number_integer())
      w.refuse("block_structure", "two whole numbers");
    p.block_rows = (*block)[0].get<int64_t>(), p.group_size = (*block)[1].get<int64_t>();
    if (p.block_rows <= 0 || p.group_size <= 0 || p.group_size % 32 != 0 || p.block_rows > 1 << 24 ||
        p.group_size > 1 << 24)
      w.refuse("block_structure", "rows above 0, and columns in multiples of 32");
  } else if (strategy != "channel") {
    w.refuse("strategy", packed ? "\"group\" or \"channel\"" : "\"channel\" or \"tensor\"");
  }
  if (const json* order = w.find("actorder")) p.act_order = order->is_string() ? *order != "weight" : *order == true;
  w.ignore({"observer", "observer_kwargs", "block_structure", "scale_dtype", "zp_dtype"});
  w.finish();
  return p;
}

struct Method {
  std::string_view name;
  PackedScheme (*read)(Settings& settings);
};
constexpr Method kMethods[] = {{"gptq", gptq},
                               {"awq", awq},
                               {"compressed-tensors", compressed_tensors},
                               {"fp8", fp8},
                               {"bitsandbytes", bitsandbytes}};

}  // namespace

std::optional<PackedScheme> packed_scheme(std::string_view config, std::string_view source) {
  const json all = io::parse_json(config, source);
  check(all.is_object(), kName, source, " holds no object");
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto found = all.find(key);
    if (found == all.end() || found->is_null()) continue;
    Settings settings(*found, cat(source, ": ", key));
    const std::string method = settings.text("quant_method", "");
    std::string known;
    for (const Method& m : kMethods) {
      known += cat(known.empty() ? "" : ", ", m.name);
      if (m.name != method) continue;
      const PackedScheme scheme = m.read(settings);
      settings.finish();
      return scheme;
    }
    settings.refuse("quant_method", known);
  }
  return std::nullopt;
}

std::string packed_config(const PackedScheme& s) {
  check(s.file != nullptr, "packed_config", "the scheme is empty");
  const int64_t group = s.group_size == 0 ? -1 : s.group_size;
  json c{{"quant_method", s.file->quant_method}};
  if (s.file->quant_method == "gptq") {
    c.update({{"bits", s.bits},
              {"group_size", group},
              {"desc_act", s.act_order},
              {"sym", s.symmetric},
              {"checkpoint_format", s.zero_offset == 1 ? "gptq" : "gptq_v2"}});
  } else if (s.file->quant_method == "awq") {
    c.update({{"bits", s.bits}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}});
  } else if (s.file->quant_method == "fp8") {
    c.update({{"activation_scheme", "dynamic"}, {"fmt", "e4m3"}, {"weight_block_size", {s.block_rows, s.group_size}}});
  } else if (s.file->quant_method == "bitsandbytes") {
    c.update({{"load_in_4bit", true},
              {"load_in_8bit", false},
              {"bnb_4bit_quant_type", "nf4"},
              {"bnb_4bit_quant_storage", "uint8"},
              {"bnb_4bit_compute_dtype", s.storage_dtype}});
  } else {
    const std::string form(s.file->name.substr(s.file->name.find(' ') + 1));
    const bool floating = form == "float-quantized", packed = form == "pack-quantized";
    const bool block = !packed && s.group_size > 0;
    json w{{"num_bits", s.bits},
           {"type", floating ? "float" : "int"},
           {"symmetric", packed ? s.symmetric : true},
           {"dynamic", false},
           {"strategy", block               ? "block"
                        : s.block_rows == 0 ? "tensor"
                        : s.group_size > 0  ? "group"
                                            : "channel"}};
    if (block) w["block_structure"] = {s.block_rows, s.group_size};
    if (packed && s.group_size > 0) w["group_size"] = s.group_size;
    if (s.act_order) w["actorder"] = "group";
    c.update({{"format", form},
              {"quantization_status", "compressed"},
              // The group's own format too: from `weights` alone the library takes another one.
              {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"format", form}, {"weights", w}}}}}});
  }
  return c.dump();
}

}  // namespace strata
