#include "strata/models/sentence_folder.h"

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json.h"

namespace strata {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kOp = "sentence_folder";

// What a pooling is called here, and both ways in which the folder's configuration names it.
struct PoolingName {
  const char* name;
  const char* flag;
  const char* mode;
  Pooling pooling;
};
const PoolingName kPoolings[] = {
    {"first", "pooling_mode_cls_token", "cls", Pooling::first},
    {"mean", "pooling_mode_mean_tokens", "mean", Pooling::mean},
    {"max", "pooling_mode_max_tokens", "max", Pooling::max},
    {"root_mean", "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::root_mean},
    {"weighted_mean", "pooling_mode_weightedmean_tokens", "weightedmean", Pooling::weighted_mean},
    {"last", "pooling_mode_lasttoken", "lasttoken", Pooling::last},
};

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

json read(const fs::path& file) {
  return io::parse_json(io::read_file(file.string(), uint64_t{1} << 20), file.string());
}

Pooling pooling_of(const fs::path& file) {
  const json config = read(file);
  check<IoError>(config.is_object(), kOp, file.string(), ": wanted an object");
  std::vector<Pooling> wanted;
  for (const PoolingName& p : kPoolings) {
    if (const auto flag = config.find(p.flag); flag != config.end()) {
      check<IoError>(flag->is_boolean(), kOp, file.string(), ": ", p.flag, " is true or false");
      if (flag->get<bool>()) wanted.push_back(p.pooling);
    }
    if (const auto mode = config.find("pooling_mode"); mode != config.end() && *mode == p.mode)
      wanted.push_back(p.pooling);
  }
  check<IoError>(wanted.size() == 1, kOp, file.string(), ": wanted one way of pooling, got ", wanted.size());
  return wanted.front();
}

}  // namespace

SentenceOptions read_sentence_options(const std::string& folder) {
  SentenceOptions o;
  const fs::path root(folder);
  if (const fs::path file = root / "sentence_bert_config.json"; is_there(file)) {
    const json config = read(file);
    check<IoError>(config.is_object(), kOp, file.string(), ": wanted an object");
    if (const auto length = config.find("max_seq_length"); length != config.end() && !length->is_null()) {
      check<IoError>(length->is_number_integer() && *length > 0 && *length <= INT32_MAX, kOp, file.string(),
                     ": max_seq_length is ", length->dump());
      o.max_length = length->get<int64_t>();
    }
  }
  const fs::path file = root / "modules.json";
  if (!is_there(file)) return o;
  const json modules = read(file);
  check<IoError>(modules.is_array(), kOp, file.string(), ": wanted a list");
  for (const json& module : modules) {
    check<IoError>(module.is_object() && module.contains("type") && module["type"].is_string(), kOp, file.string(),
                   ": wanted objects with a \"type\"");
    const std::string type = module["type"], name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      o.embedding.normalize = true;
    } else if (name == "Pooling") {
      check<IoError>(module.contains("path") && module["path"].is_string(), kOp, file.string(),
                     ": a Pooling has a path");
      const std::string path = module["path"];
      check<IoError>(!path.empty() && path != "." && path != ".." && path.find_first_of("/\\") == std::string::npos,
                     kOp, file.string(), ": '", path, "' is no folder of this folder");
      o.embedding.pooling = pooling_of(root / path / "config.json");
    } else {
      throw IoError(kOp, cat(file.string(), ": there is no module ", type, " here"));
    }
  }
  return o;
}

std::vector<std::string> pooling_names() {
  std::vector<std::string> names;
  for (const PoolingName& p : kPoolings) names.emplace_back(p.name);
  return names;
}

Pooling parse_pooling(std::string_view name) {
  std::string names;
  for (const PoolingName& p : kPoolings) {
    if (name == p.name) return p.pooling;
    names += cat(names.empty() ? "" : ", ", p.name);
  }
  throw ValueError("pooling", cat("is one of ", names, ", got '", name, "'"));
}

}  // namespace strata
