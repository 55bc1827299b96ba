#pragma once
// What a training run is made of: typed settings, one table that names them all, TOML in and out.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/dist/exchange_options.h"
#include "strata/memory/budget.h"
#include "strata/models/model_config.h"

namespace strata {

/// Section [data].
struct DataConfig {
  std::string path;
  std::string valid_path;
  double valid_fraction = 0.05;
  std::string tokenizer = "byte";
  std::string format = "text";
  std::string packing = "first_fit";
  bool shuffle = true;

  /// Whether `tokenizer` is the path of one that exists, and no kind of tokenizer.
  bool names_tokenizer() const { return tokenizer != "byte" && tokenizer != "bpe" && tokenizer != "ids"; }
  bool operator==(const DataConfig&) const = default;
};

/// The options of the update rules, by key: those that their records (strata/optim/record.h) give one.
using RuleOptions = std::map<std::string, std::variant<bool, int64_t, double>, std::less<>>;
/// Every such key: the rules' own defaults, but for those that training has.
const RuleOptions& rule_defaults();

/// The part of section [train] that the optimizer and its schedule read.
struct OptimConfig {
  std::string optimizer = "adamw";
  double lr = 1e-3;
  std::string schedule = "cosine";
  std::string schedule_options;
  int64_t warmup = 50;
  double min_lr = 0.1;
  double decay_fraction = 0.2;
  double weight_decay = 0.1;
  RuleOptions rule = rule_defaults();
  double grad_clip = 1.0;
  std::string param_update = "stochastic";
  bool low_state = false;
  bool state_8bit = false;

  /// @name One of `rule`, to read and to write. Throws ValueError for a key that is none, or of another type.
  /// @{
  double& number(std::string_view key);
  bool& flag(std::string_view key);
  /// @}
  bool operator==(const OptimConfig&) const = default;
};

/// Section [memory]: how much of each tier the run may take, and what is where. docs/guide/memory.md.
struct MemoryConfig {
  std::string device;
  std::string host;
  std::string disk;
  std::string activations = "auto";
  std::string recompute = "auto";
  std::string state = "auto";
  std::string update = "auto";
  std::string parameters = "auto";
  bool delayed_update = false;
  std::string accumulation = "auto";

  /// Throws ValueError naming the key.
  memory::Budget budget() const;
  /// Whether any of it differs from a run without tiers.
  bool any() const;
  bool operator==(const MemoryConfig&) const = default;
};

/// Section [parallel]: how a run is spread over the ranks of a job. docs/guide/parallel.md.
struct ParallelConfig {
  bool automatic = false;
  std::string links;
  int64_t dp = 0;
  std::string shares;
  int64_t exact = 0;
  int64_t ep = 1;
  int64_t zero = 0;
  std::string reshard = "always";
  bool every_pass = true;
  int64_t tp = 1;
  bool sequence = true;
  int64_t cp = 1;
  std::string cp_kind = "ring";
  int64_t pp = 1;
  std::string schedule = "1f1b";
  int64_t micro_batches = 0;
  int64_t stages = 0;
  bool recompute = false;
  int64_t check_replicas = 0;
  int64_t mirror = 0;
  std::string reduce = "plain";
  distributed::ExchangeOptions reduce_options;  ///< parallel.reduce_rank and so on
  bool operator==(const ParallelConfig&) const = default;
};

/// Section [tune]: what of a model is trained, and how. docs/design/fine_tuning.md.
struct TuneConfig {
  std::string method = "full";
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;
  std::string targets = "blocks";
  std::string ranks;
  std::string alphas;
  std::string train;
  std::string freeze;
  std::string quantize = "none";
  std::string preference = "sigmoid";
  double beta = 0.1;
  double label_smoothing = 0;

  bool operator==(const TuneConfig&) const = default;
};

/// Everything that a run of `strata train` is determined by. The meaning, the range and the default of each field
/// stand in config_keys(); `strata train --help` prints them.
///
///     TrainConfig c = load_config("gpt.toml", {"model.layers=6", "train.lr=3e-4"});
///     c.optim.warmup = 100;
///     validate(c);
struct TrainConfig {
  ModelConfig model;
  std::string init;  ///< model.init
  TuneConfig tune;
  DataConfig data;
  OptimConfig optim;
  MemoryConfig memory;
  ParallelConfig parallel;
  int64_t steps = 1000;
  double max_seconds = 0.0;
  double fit_seconds = 0.0;
  int64_t batch = 8;
  int64_t accumulate = 1;
  int64_t tile = 0;
  std::string recompute = "none";
  std::string dtype = "f32";
  std::string grad_dtype = "f32";
  std::string param_dtype = "f32";
  std::string fp8_scaling = "tensor";
  std::string fp8_exclude = "head";
  std::string device = "cpu";
  std::string graph = "auto";
  int64_t seed = 1;
  int64_t threads = 0;
  int64_t eval_every = 100;
  int64_t eval_batches = 8;
  int64_t save_every = 200;
  bool save_first = false;
  bool save_async = false;
  int64_t keep_last = 2;
  std::string sample_prompt = "\n";
  int64_t sample_tokens = 256;

  bool operator==(const TrainConfig&) const = default;
};

/// The kinds of value that a key takes.
enum class ConfigType { integer, number, boolean, text };

/// Where a key's value stands.
struct ConfigField {
  void* (*member)(TrainConfig&) = nullptr;
  std::string_view rule = {};  ///< or its key in OptimConfig::rule
  /// Or a member of ParallelConfig::reduce_options.
  void* (*exchange)(distributed::ExchangeOptions&) = nullptr;
  /// The int64_t, double, bool or std::string.
  void* operator()(TrainConfig& config) const;
};

/// One key: the parser, the help, the reference page and the writer read the same row.
struct ConfigKey {
  std::string name;  ///< "model.layers", as in a TOML file's section and key
  ConfigType type;
  std::string doc;          ///< one sentence
  std::string choices;      ///< for text: the words allowed, separated by spaces; empty for any text
  double min = 0, max = 0;  ///< for integer and number: the range allowed, both ends included
  ConfigField field;        ///< what it sets
  /// Of a key that some update rules read: their names in train.optimizer, separated by spaces; empty for the others.
  std::string optimizers = {};
};

/// Every key, by section.
std::span<const ConfigKey> config_keys();

/// Whether a run with the optimizer of this name reads the key.
bool is_read(const ConfigKey& key, std::string_view optimizer);

/// What becomes of a key that the optimizer does not read and whose value is neither the default nor the number 0.
enum class Unread {
  refused,  ///< an error, unless `overrides` changed the optimizer of a text that sets the key
  dropped   ///< it takes the default: for a text that was accepted once, e.g. a checkpoint's
};

/// The settings of a TOML text, defaults where it is silent, then `overrides` ("model.layers=6") on top.
/// `source` names the text in messages ("gpt.toml:3: ..."). Throws ValueError for a syntax error, an unknown key
/// (with the nearest known one), a wrong type, a value out of range, settings that do not fit together, and what
/// `unread` says. Never crashes, whatever the text.
TrainConfig parse_config(std::string_view toml, std::string_view source = "config",
                         const std::vector<std::string>& overrides = {}, Unread unread = Unread::refused);

/// parse_config() of a file; of no file when `path` is empty. Throws IoError where it cannot be read.
TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Checks every range and what must fit together (heads divide dim, the optimizer reads what is not the default ...).
/// Throws ValueError naming the key.
void validate(const TrainConfig& config);

/// The settings as TOML, every key written out: parse_config() gives the same settings back.
std::string to_toml(const TrainConfig& config);

/// A key's value as to_toml() writes it.
std::string value_text(const TrainConfig& config, const ConfigKey& key);

/// The keys with type, default and meaning, as aligned text no wider than `width` columns where that is possible.
std::string config_help(int width = 100);

/// The same as a Markdown table for the reference.
std::string config_markdown();

}  // namespace strata
