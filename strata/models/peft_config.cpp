// adapter_config.json.

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/models/peft.h"

namespace strata {
namespace {

using json = nlohmann::json;

// Keys that say how the adapter was made, or for whom: what it computes is in the tensors and the keys that are read.
constexpr std::string_view kPassedOver[] = {
    "auto_mapping",   "corda_config",   "eva_config",    "exclude_modules",   "inference_mode", "layers_to_transform",
    "layers_pattern", "lora_ga_config", "megatron_core", "qalora_group_size", "revision",       "runtime_config",
    "target_modules", "task_type",
};
// Ways to begin that leave the base as it was.
constexpr std::string_view kBeginnings[] = {"gaussian", "eva", "orthogonal"};

struct Reader {
  std::string_view source;
  template <class... Text>
  void require(bool holds, const std::string& key, const Text&... text) const {
    check<IoError>(holds, "adapter_config", io::quote(source), ": ", io::quote(key), " ", text...);
  }
  bool boolean(const std::string& key, const json& v) const {
    require(v.is_boolean(), key, "is true or false, got ", io::quote(v.dump()));
    return v.get<bool>();
  }
  int64_t rank(const std::string& key, const json& v) const {
    require(v.is_number_integer() && v.get<double>() >= 1 && v.get<double>() <= 1 << 20, key,
            "is a rank of at least 1, got ", io::quote(v.dump()));
    return v.get<int64_t>();
  }
  double number(const std::string& key, const json& v) const {
    require(v.is_number(), key, "is a number, got ", io::quote(v.dump()));
    return v.get<double>();
  }
  std::string text(const std::string& key, const json& v) const {
    if (v.is_null()) return {};
    require(v.is_string(), key, "is a text, got ", io::quote(v.dump()));
    return v.get<std::string>();
  }
  // PEFT takes keys of patterns for regular expressions; they are names with hardly an exception: of experts whose
  // adapters it brought into one tensor it writes ".*\\.gate_up_proj".
  static std::string plain(const std::string& key) {
    constexpr std::string_view any = ".*\\.";
    std::string name = key.starts_with(any) ? key.substr(any.size()) : key;
    for (size_t at = 0; (at = name.find("\\.", at)) != std::string::npos; ++at) name.erase(at, 1);
    return name;
  }
  template <class Map, class Read>
  void pattern(Map& into, const std::string& key, const json& v, Read&& read) const {
    if (v.is_null()) return;
    require(v.is_object(), key, "is an object, got ", io::quote(v.dump()));
    for (const auto& [written, value] : v.items()) {
      const std::string name = plain(written);
      const std::string_view body = std::string_view(name).substr(name.starts_with('^') ? 1 : 0);
      const bool is_name = !body.empty() && std::ranges::all_of(body, [](unsigned char c) {
        return std::isalnum(c) || c == '_' || c == '-' || c == '.';
      });
      require(is_name, key, "has the key ", io::quote(written), ", a regular expression: only names are read");
      into[name] = read(key + "." + name, value);
    }
  }
};

template <class T>
T of_pattern(const std::map<std::string, T>& pattern, std::string_view module, T otherwise) {
  for (const auto& [key, value] : pattern) {
    const std::string_view name(key);
    const bool whole = name.starts_with('^') ? module == name.substr(1) : module == name;
    if (whole ||
        (module.size() > name.size() && module.ends_with(name) && module[module.size() - name.size() - 1] == '.'))
      return value;
  }
  return otherwise;
}

}  // namespace

int64_t AdapterConfig::rank_of(std::string_view module) const {
  return of_pattern(rank_pattern, module, rank);
}
double AdapterConfig::alpha_of(std::string_view module) const {
  return of_pattern(alpha_pattern, module, alpha);
}

double AdapterConfig::scale_of(std::string_view module) const {
  const auto by = static_cast<double>(rank_of(module));
  return alpha_of(module) / (rslora ? std::sqrt(by) : by);
}

AdapterConfig parse_adapter_config(std::string_view text, std::string_view source) {
  const json all = io::parse_json(text, source);
  const Reader in{source};
  check<IoError>(all.is_object(), "adapter_config", io::quote(source), ": is an object, got ", io::quote(all.dump()));
  AdapterConfig c;
  for (const auto& [key, v] : all.items()) {
    if (key == "peft_type") {
      in.require(v == "LORA", key, "is ", io::quote(v.dump()), "; LORA is read");
    } else if (key == "r") {
      c.rank = in.rank(key, v);
    } else if (key == "lora_alpha") {
      c.alpha = in.number(key, v);
    } else if (key == "lora_dropout") {
      c.dropout = in.number(key, v);
      in.require(c.dropout >= 0 && c.dropout < 1, key, "is in [0, 1), got ", c.dropout);
    } else if (key == "use_rslora") {
      c.rslora = in.boolean(key, v);
    } else if (key == "use_dora") {
      c.dora = in.boolean(key, v);
    } else if (key == "fan_in_fan_out") {
      c.fan_in_fan_out = in.boolean(key, v);
    } else if (key == "rank_pattern") {
      in.pattern(c.rank_pattern, key, v, [&](const std::string& k, const json& x) { return in.rank(k, x); });
    } else if (key == "alpha_pattern") {
      in.pattern(c.alpha_pattern, key, v, [&](const std::string& k, const json& x) { return in.number(k, x); });
    } else if (key == "target_parameters") {
      if (v.is_null()) continue;
      in.require(v.is_array(), key, "is a list, got ", io::quote(v.dump()));
      for (const json& name : v) c.target_parameters.push_back(in.text(key, name));
    } else if (key == "peft_version") {
      c.peft_version = in.text(key, v);
    } else if (key == "base_model_name_or_path") {
      c.base = in.text(key, v);
    } else if (key == "modules_to_save") {
      if (v.is_null()) continue;
      in.require(v.is_array(), key, "is a list, got ", io::quote(v.dump()));
      for (const json& name : v) c.modules_to_save.push_back(in.text(key, name));
    } else if (key == "bias") {
      in.require(v == "none", key, "is ", io::quote(v.dump()), "; biases of adapters are not read");
    } else if (key == "init_lora_weights") {
      const bool known = v.is_boolean() || (v.is_string() && std::ranges::find(kBeginnings, v.get<std::string>()) !=
                                                                 std::end(kBeginnings));
      in.require(known, key, "is ", io::quote(v.dump()), ", which changes the weights that are adapted");
    } else if (std::ranges::find(kPassedOver, key) == std::end(kPassedOver)) {
      in.require(v.is_null() || v == false || ((v.is_object() || v.is_array()) && v.empty()), key, "is ",
                 io::quote(v.dump()), ", which is not supported");
    }
  }
  check<IoError>(all.contains("peft_type"), "adapter_config", io::quote(source), ": has no \"peft_type\"");
  return c;
}

}  // namespace strata
