#pragma once
// Family: all that is known of an architecture, in one record. strata/models/families/<name>.cpp defines it, and the
// build finds it there: loading, export, estimates, tests and docs come from the record.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/models/config_reader.h"
#include "strata/models/gguf_form.h"
#include "strata/models/spec.h"
#include "strata/models/weight_row.h"

namespace strata {

/// A small configuration, for tests and examples.
struct FamilySample {
  std::string_view name;    ///< of the variant: "window", "yarn"
  std::string_view config;  ///< config.json as transformers reads it
};

/// An architecture. `spec` and `config` are each other's inverse: spec(config(s)) == s for every s
/// that spec() gives.
struct Family {
  std::string_view name;   ///< "llama": the file's name, error texts
  std::string_view title;  ///< "Llama 2, 3": what it covers, for the docs
  ModelKind kind = ModelKind::decoder;
  std::vector<std::string_view> model_types;    ///< of config.json; the first is written
  std::vector<std::string_view> architectures;  ///< of config.json; the first is written
  GgufForm gguf = {};                           ///< of GGUF files
  /// From config.json, which it reads whole: what it does not know is refused by name (ConfigReader). Throws
  /// ValueError.
  ModelSpec (*spec)(const ConfigReader& config) = nullptr;
  /// The text of a config.json that transformers 4 and 5 read. A spec that the family cannot say is write_config()'s to
  /// notice.
  std::string (*config)(const ModelSpec& spec) = nullptr;
  /// Every tensor of its files.
  std::vector<WeightRow> (*weights)(const ModelSpec& spec) = nullptr;
  /// The prefix of names that files of the model without its head lack: "model.".
  std::string_view base_prefix = {};
  /// Ends of names of files that hold no weights of ours: tables that the library made again when it loaded them. One
  /// that ends with a dot is a beginning.
  std::vector<std::string_view> buffers = {};
  std::vector<FamilySample> samples = {};
};

/// Every record, sorted by name.
std::span<const Family* const> families();
/// The record of a config.json: by model_type, else by architectures. Throws ValueError naming both and listing the
/// families there are.
const Family& family_of(const ConfigReader& config);
/// The record of that name. Throws ValueError listing those there are.
const Family& family_named(std::string_view name);
/// The record of a GGUF file, by its general.architecture and, where families share one, GgufForm::fits. Throws
/// ValueError listing the architectures there are.
const Family& family_of_gguf(const io::GgufMetadata& metadata);
/// config -> spec, with check_spec and ConfigReader::finish.
ModelSpec read_spec(const Family& family, const ConfigReader& config);
/// spec -> config. Throws ValueError where reading the text would not give the spec again: one of another family.
std::string write_config(const Family& family, const ModelSpec& spec);

}  // namespace strata
