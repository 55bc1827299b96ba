#include "strata/models/family.h"

#include <algorithm>
#include <set>

#include "strata/core/error.h"
#include "strata/io/gguf.h"
#include "strata/models/family_list.h"

namespace strata {

// Defined in families/<name>.cpp.
namespace records {
#define STRATA_FAMILY(name) const Family& name();
STRATA_FAMILIES
#undef STRATA_FAMILY
}  // namespace records

namespace {

constexpr const char* kOp = "families";

bool holds(const std::vector<std::string_view>& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

std::string listed(std::vector<std::string_view> Family::*names) {
  std::string text;
  for (const Family* f : families())
    for (const std::string_view name : f->*names) text += cat(text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

std::span<const Family* const> families() {
  static const auto all = [] {
#define STRATA_FAMILY(name) &records::name(),
    std::vector<const Family*> list{STRATA_FAMILIES};
#undef STRATA_FAMILY
    std::ranges::sort(list, {}, [](const Family* f) { return f->name; });
    return list;
  }();
  return all;
}

const Family& family_of(const ConfigReader& config) {
  const std::string type = config.has("model_type") && !config.is_null("model_type") ? config.text("model_type") : "";
  const std::vector<std::string> classes = config.texts("architectures").value_or(std::vector<std::string>{});
  const auto ours = [&](const Family& f) {
    return std::ranges::any_of(classes, [&](const std::string& name) { return holds(f.architectures, name); });
  };
  for (const Family* f : families()) {
    if (type.empty() ? !ours(*f) : !holds(f->model_types, type)) continue;
    if (!classes.empty() && !ours(*f)) {
      std::string known;
      for (const std::string_view name : f->architectures) known += cat(known.empty() ? "" : ", ", name);
      config.refuse("architectures", cat("of model_type '", f->model_types.front(), "' is taken as ", known));
    }
    return *f;
  }
  if (!type.empty())
    config.refuse("model_type", cat("names no family that is known; there are: ", listed(&Family::model_types)));
  if (classes.empty()) config.refuse("model_type", "is missing, and so are architectures");
  config.refuse("architectures", cat("names no family that is known; there are: ", listed(&Family::architectures)));
}

const Family& family_named(std::string_view name) {
  std::string names;
  for (const Family* f : families()) {
    if (f->name == name) return *f;
    names += cat(names.empty() ? "" : ", ", f->name);
  }
  throw ValueError(kOp, cat("there is no family '", name, "'; there are: ", names));
}

const Family& family_of_gguf(const io::GgufMetadata& metadata) {
  const std::string& architecture = metadata.text("general.architecture");
  const Family* other = nullptr;
  std::set<std::string_view> known;
  for (const Family* f : families()) {
    known.insert(f->gguf.architectures.begin(), f->gguf.architectures.end());
    if (!holds(f->gguf.architectures, architecture)) continue;
    if (!f->gguf.fits) other = f;
    if (f->gguf.fits && f->gguf.fits(metadata)) return *f;
  }
  if (other) return *other;
  std::string names;
  for (const std::string_view name : known) names += cat(names.empty() ? "" : ", ", name);
  throw ValueError(kOp,
                   cat("general.architecture '", architecture, "' names no family that is known; there are: ", names));
}

ModelSpec read_spec(const Family& family, const ConfigReader& config) {
  ModelSpec spec = family.spec(config);
  config.finish();
  check_spec(spec);
  return spec;
}

std::string write_config(const Family& family, const ModelSpec& spec) {
  std::string text = family.config(spec);
  check(read_spec(family, ConfigReader(text, "config.json")) == spec, kOp, "a config.json of ", family.name,
        " cannot say what this model is:\n", to_string(spec));
  return text;
}

}  // namespace strata
