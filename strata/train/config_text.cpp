// Settings as text: TOML, the command line's help, the reference page.

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "strata/train/config.h"
#include "strata/train/config_inl.h"

namespace strata {
namespace {

using detail::field;
using detail::leaf;

std::string_view short_type_name(ConfigType t) {
  switch (t) {
    case ConfigType::integer:
      return "int";
    case ConfigType::number:
      return "float";
    case ConfigType::boolean:
      return "bool";
    case ConfigType::text:
      break;
  }
  return "text";
}

std::string meaning(const ConfigKey& key) {
  std::string doc(key.doc);
  if (!key.optimizers.empty()) doc += fmt::format(" Of: {}.", key.optimizers);
  if (!key.choices.empty()) doc += fmt::format(" One of: {}.", key.choices);
  return doc;
}

std::string basic_string(std::string_view text) {
  std::string s = "\"";
  for (const char ch : text) {
    const auto u = static_cast<unsigned char>(ch);
    if (ch == '"' || ch == '\\') {
      s += '\\';
      s += ch;
    } else if (ch == '\n') {
      s += "\\n";
    } else if (ch == '\t') {
      s += "\\t";
    } else if (u < 0x20 || u == 0x7f) {
      s += fmt::format("\\u{:04x}", u);
    } else {
      s += ch;
    }
  }
  return s + '"';
}

}  // namespace

std::string value_text(const TrainConfig& config, const ConfigKey& key) {
  // The table's accessors give a mutable field; nothing is written here.
  auto& c = const_cast<TrainConfig&>(config);
  switch (key.type) {
    case ConfigType::integer:
      return fmt::format("{}", field<int64_t>(c, key));
    case ConfigType::number:
      return fmt::format("{}", field<double>(c, key));
    case ConfigType::boolean:
      return field<bool>(c, key) ? "true" : "false";
    case ConfigType::text:
      break;
  }
  return basic_string(field<std::string>(c, key));
}

std::string to_toml(const TrainConfig& config) {
  std::string s;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const std::string_view in = std::string_view(key.name).substr(0, key.name.find('.'));
    if (in != section) {
      s += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", in);
      section = in;
    }
    s += fmt::format("{} = {}\n", leaf(key.name), value_text(config, key));
  }
  return s;
}

std::string config_help(int width) {
  const TrainConfig defaults;
  size_t name_width = 0, value_width = 0;
  for (const ConfigKey& key : config_keys()) {
    name_width = std::max(name_width, key.name.size());
    value_width = std::max(value_width, value_text(defaults, key).size());
  }
  const size_t indent = 2 + name_width + 2 + 5 + 2 + value_width + 2;
  const size_t room =
      std::max<size_t>(30, static_cast<size_t>(std::max(width, 0)) > indent ? static_cast<size_t>(width) - indent : 0);
  std::string s, section;
  for (const ConfigKey& key : config_keys()) {
    const std::string in(key.name.substr(0, key.name.find('.')));
    if (in != section) s += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", in);
    section = in;
    s += fmt::format("  {:<{}}  {:<5}  {:<{}}  ", key.name, name_width, short_type_name(key.type),
                     value_text(defaults, key), value_width);
    size_t column = 0;
    std::istringstream words(meaning(key));
    for (std::string word; words >> word;) {
      if (column > 0 && column + 1 + word.size() > room) {
        s += '\n' + std::string(indent, ' ');
        column = 0;
      }
      if (column > 0) s += ' ', ++column;
      s += word;
      column += word.size();
    }
    s += '\n';
  }
  return s;
}

std::string config_markdown() {
  const TrainConfig defaults;
  std::string s = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    s += fmt::format("| `{}` | {} | `{}` | {} |\n", key.name, short_type_name(key.type), value_text(defaults, key),
                     meaning(key));
  }
  return s;
}

}  // namespace strata
