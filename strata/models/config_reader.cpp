#include "strata/models/config_reader.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"

namespace strata {
namespace {

using nlohmann::json;

std::string text_of(const ConfigKey& key) {
  std::string text;
  for (const std::string_view name : key.names) text += cat(text.empty() ? "" : " or ", '\'', name, '\'');
  return text;
}

std::string short_text(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// Of any model: what a library noted, what training and generation were set to, ids that the tokenizer knows as well.
constexpr std::string_view kUnread[] = {
    "transformers_version",
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "architectures",
    "model_type",
    "auto_map",
    "torch_dtype",
    "dtype",
    "use_cache",
    "initializer_range",
    "initializer_factor",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "experts_implementation",
    "use_return_dict",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "cross_attention_hidden_size",
    "chunk_size_feed_forward",
    "tokenizer_class",
    "prefix",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "unk_token_id",
    "cls_token_id",
    "mask_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "classifier_dropout",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "gradient_checkpointing",
    "cache_implementation",
    "tie_last_hidden_states",
    "pretraining_tp",
    "unsloth_version",
    "unsloth_fixed",
};

}  // namespace

struct ConfigReader::State {
  json value;
  std::string source;
  std::set<std::string, std::less<>> read;
  std::vector<std::shared_ptr<State>> within;

  [[noreturn]] void fail(const ConfigKey& key, std::string_view what, const json* given = nullptr) const {
    throw ValueError(
        "config", cat(source, ": ", text_of(key), ' ', what, given ? ", got " : "", given ? short_text(*given) : ""));
  }
  // The value under any of the names; nullptr where there is none. Equal values may come twice.
  const json* find(const ConfigKey& key) {
    const json* found = nullptr;
    for (const std::string_view name : key.names) {
      read.emplace(name);
      const auto at = value.find(name);
      if (at == value.end()) continue;
      if (found && *found != *at) fail(key, "mean the same and differ");
      found = &*at;
    }
    return found;
  }
  const json* find_set(const ConfigKey& key) {
    const json* found = find(key);
    return found && found->is_null() ? nullptr : found;
  }
  double number(const ConfigKey& key, const json& j) const {
    if (!j.is_number() || !std::isfinite(j.get<double>())) fail(key, "is to be a number", &j);
    return j.get<double>();
  }
  int64_t integer(const ConfigKey& key, const json& j) const {
    const bool fits =
        j.is_number_integer() && (!j.is_number_unsigned() || j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (!fits) fail(key, "is to be a whole number", &j);
    return j.get<int64_t>();
  }
  int64_t size(const ConfigKey& key, const json& j) const {
    const int64_t n = integer(key, j);
    if (n < 1 || n >= int64_t{1} << 31) fail(key, "is to be from 1 to 2^31 - 1", &j);
    return n;
  }
  std::string text(const ConfigKey& key, const json& j) const {
    if (!j.is_string()) fail(key, "is to be a text", &j);
    return j.get<std::string>();
  }
  // What `read_one` makes of the value; of an absent key `absent`, of null an error.
  template <class T, class F>
  T value_of(const ConfigKey& key, const std::optional<T>& absent, F&& read_one) {
    const json* found = find(key);
    if (found) return read_one(*found);
    if (!absent) fail(key, "is missing");
    return *absent;
  }
  template <class T, class F>
  std::optional<std::vector<T>> list_of(const ConfigKey& key, F&& read_one) {
    const json* found = find_set(key);
    if (!found) return std::nullopt;
    if (!found->is_array()) fail(key, "is to be a list", found);
    std::vector<T> all;
    for (const json& one : *found) all.push_back(read_one(one));
    return all;
  }
  void unread(std::vector<std::string>& names) const {
    for (const auto& [name, ignored] : value.items()) {
      bool known = read.contains(name);
      for (const std::string_view other : kUnread) known = known || other == name;
      if (!known) names.push_back(cat(source, ": '", name, "' = ", short_text(ignored)));
    }
    for (const auto& child : within) child->unread(names);
  }
};

ConfigReader::ConfigReader(std::string_view text, std::string_view source) : state_(std::make_shared<State>()) {
  state_->source = source;
  state_->value = io::parse_json(text, source);
  check<IoError>(state_->value.is_object(), "config", source, ": is no JSON object");
}

bool ConfigReader::has(const ConfigKey& key) const {
  return state_->find(key) != nullptr;
}
bool ConfigReader::is_null(const ConfigKey& key) const {
  const json* found = state_->find(key);
  return found && found->is_null();
}

int64_t ConfigReader::integer(const ConfigKey& key, std::optional<int64_t> absent) const {
  return state_->value_of<int64_t>(key, absent, [&](const json& j) { return state_->integer(key, j); });
}
int64_t ConfigReader::size(const ConfigKey& key, std::optional<int64_t> absent) const {
  return state_->value_of<int64_t>(key, absent, [&](const json& j) { return state_->size(key, j); });
}
double ConfigReader::number(const ConfigKey& key, std::optional<double> absent) const {
  return state_->value_of<double>(key, absent, [&](const json& j) { return state_->number(key, j); });
}
bool ConfigReader::flag(const ConfigKey& key, std::optional<bool> absent) const {
  return state_->value_of<bool>(key, absent, [&](const json& j) {
    if (!j.is_boolean()) state_->fail(key, "is to be true or false", &j);
    return j.get<bool>();
  });
}
std::string ConfigReader::text(const ConfigKey& key, std::optional<std::string_view> absent) const {
  const auto usual = absent ? std::optional<std::string>(*absent) : std::nullopt;
  return state_->value_of<std::string>(key, usual, [&](const json& j) { return state_->text(key, j); });
}
std::optional<int64_t> ConfigReader::maybe_size(const ConfigKey& key, std::optional<int64_t> absent) const {
  const json* found = state_->find(key);
  if (!found) return absent;
  return found->is_null() ? std::nullopt : std::optional<int64_t>(state_->size(key, *found));
}
std::optional<double> ConfigReader::maybe_number(const ConfigKey& key, std::optional<double> absent) const {
  const json* found = state_->find(key);
  if (!found) return absent;
  return found->is_null() ? std::nullopt : std::optional<double>(state_->number(key, *found));
}
std::optional<std::vector<double>> ConfigReader::numbers(const ConfigKey& key) const {
  return state_->list_of<double>(key, [&](const json& j) { return state_->number(key, j); });
}
std::optional<std::vector<std::string>> ConfigReader::texts(const ConfigKey& key) const {
  return state_->list_of<std::string>(key, [&](const json& j) { return state_->text(key, j); });
}
std::optional<std::vector<int64_t>> ConfigReader::integers(const ConfigKey& key) const {
  return state_->list_of<int64_t>(key, [&](const json& j) { return state_->integer(key, j); });
}

std::optional<ConfigReader> ConfigReader::object(const ConfigKey& key) const {
  const json* found = state_->find_set(key);
  if (!found) return std::nullopt;
  if (!found->is_object()) state_->fail(key, "is to be an object", found);
  auto child = std::make_shared<State>();
  child->value = *found;
  child->source = cat(state_->source, ": ", text_of(key));
  state_->within.push_back(child);
  return ConfigReader(child);
}

bool ConfigReader::is_list(const ConfigKey& key) const {
  for (const std::string_view name : key.names) {
    const auto found = state_->value.find(std::string(name));
    if (found != state_->value.end()) return found->is_array();
  }
  return false;
}

std::optional<int64_t> ConfigReader::members(const ConfigKey& key) const {
  const json* found = state_->find_set(key);
  if (!found) return std::nullopt;
  if (!found->is_object()) state_->fail(key, "is to be an object", found);
  return static_cast<int64_t>(found->size());
}

void ConfigReader::ignore(const ConfigKey& key) const {
  for (const std::string_view name : key.names) state_->read.emplace(name);
}
void ConfigReader::expect(const ConfigKey& key, bool value) const {
  const json* found = state_->find_set(key);
  if (found && !(found->is_boolean() && found->get<bool>() == value))
    state_->fail(key, cat("is taken as ", value ? "true" : "false", " alone"), found);
}
void ConfigReader::expect(const ConfigKey& key, std::string_view value) const {
  const json* found = state_->find_set(key);
  if (found && !(found->is_string() && found->get<std::string>() == value))
    state_->fail(key, cat("is taken as '", value, "' alone"), found);
}
void ConfigReader::expect(const ConfigKey& key, double value) const {
  const json* found = state_->find_set(key);
  if (found && !(found->is_number() && found->get<double>() == value))
    state_->fail(key, cat("is taken as ", value, " alone"), found);
}
void ConfigReader::expect_none(const ConfigKey& key) const {
  const json* found = state_->find_set(key);
  if (found) state_->fail(key, "is not taken", found);
}
void ConfigReader::refuse(const ConfigKey& key, std::string_view why) const {
  state_->fail(key, why, state_->find(key));
}

void ConfigReader::finish() const {
  std::vector<std::string> names;
  state_->unread(names);
  if (names.empty()) return;
  std::string text = "keys that are not known here, and might change what the model computes:";
  for (const std::string& name : names) text += "\n  " + name;
  throw ValueError("config", text);
}

const std::string& ConfigReader::source() const {
  return state_->source;
}

std::vector<std::string_view> unread_keys() {
  return {std::begin(kUnread), std::end(kUnread)};
}

}  // namespace strata
