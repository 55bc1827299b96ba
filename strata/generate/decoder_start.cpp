#include "strata/generate/decoder_start.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"

namespace strata {
namespace {
using nlohmann::json;

constexpr std::string_view kOp = "decoder_start";

// The objects of both files, of which the first that has a key says it.
class Files {
 public:
  Files(std::string_view generation_config, std::string_view config, std::string_view source) : source_(source) {
    for (const std::string_view text : {generation_config, config}) {
      if (text.empty()) continue;
      all_.push_back(io::parse_json(text, source));
      if (!all_.back().is_object()) refuse("a configuration", "wanted an object");
    }
  }

  const json* find(const char* key) const {
    for (const json& j : all_)
      if (const auto at = j.find(key); at != j.end() && !at->is_null()) return &*at;
    return nullptr;
  }
  int64_t count(const char* key, const json& value, const char* wanted = "wanted a whole number of at least 0") const {
    if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<int32_t>::max()) refuse(key, wanted);
    return value.get<int64_t>();
  }
  int64_t id(const char* key, const json& value) const { return count(key, value, "wanted the id of a token"); }
  std::map<std::string, int64_t> ids_by_name(const char* key) const {
    std::map<std::string, int64_t> ids;
    const json* found = find(key);
    if (found == nullptr) return ids;
    if (!found->is_object()) refuse(key, "wanted an object of ids");
    for (const auto& [name, value] : found->items()) ids.emplace(name, id(key, value));
    return ids;
  }
  [[noreturn]] void refuse(const char* key, std::string_view why) const {
    throw IoError(kOp, cat(source_, ": ", key, ": ", why));
  }

 private:
  std::string source_;
  std::vector<json> all_;
};

std::string names_of(const std::map<std::string, int64_t>& ids) {
  std::string names;
  for (const auto& [name, id] : ids) names += cat(names.empty() ? "" : ", ", name);
  return names;
}

}  // namespace

DecoderStart parse_decoder_start(std::string_view generation_config, std::string_view config, std::string_view source) {
  const Files files(generation_config, config, source);
  DecoderStart s;
  const json* start = files.find("decoder_start_token_id");
  if (start == nullptr) files.refuse("decoder_start_token_id", "is missing, in generation_config.json and config.json");
  s.start = files.id("decoder_start_token_id", *start);
  constexpr const char* kForced = "forced_decoder_ids";
  if (const json* forced = files.find(kForced)) {
    if (!forced->is_array()) files.refuse(kForced, "wanted a list of [place, id]");
    for (const json& pair : *forced) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer())
        files.refuse(kForced, "wanted a list of [place, id]");
      if (pair[0] != static_cast<int64_t>(s.forced.size()) + 1)
        files.refuse(kForced, "wanted an id for each place from 1 on, in order");
      s.forced.push_back(pair[1].is_null() ? std::nullopt : std::optional(files.id(kForced, pair[1])));
    }
  }
  s.languages = files.ids_by_name("lang_to_id");
  s.tasks = files.ids_by_name("task_to_id");
  if (const json* none = files.find("no_timestamps_token_id"))
    s.no_timestamps = files.id("no_timestamps_token_id", *none);
  constexpr const char* kInitial = "max_initial_timestamp_index";
  if (const json* most = files.find(kInitial)) s.most_initial = files.id(kInitial, *most);
  constexpr const char* kPrevious = "prev_sot_token_id";
  if (const json* id = files.find(kPrevious))
    s.previous = files.id(kPrevious, *id);
  else if (const json* never = files.find("suppress_tokens"); never && never->is_array() && never->size() >= 2)
    s.previous = files.id("suppress_tokens", (*never)[never->size() - 2]);
  constexpr const char* kHeads = "alignment_heads";
  if (const json* heads = files.find(kHeads)) {
    if (!heads->is_array()) files.refuse(kHeads, "wanted a list of [layer, head]");
    for (const json& pair : *heads) {
      if (!pair.is_array() || pair.size() != 2) files.refuse(kHeads, "wanted a list of [layer, head]");
      s.alignment_heads.emplace_back(files.count(kHeads, pair[0]), files.count(kHeads, pair[1]));
    }
  }
  constexpr const char* kWidth = "median_filter_width";
  if (const json* width = files.find(kWidth)) {
    s.median_filter_width = files.count(kWidth, *width);
    if (s.median_filter_width % 2 == 0) files.refuse(kWidth, "wanted an odd number");
  }
  return s;
}

std::vector<int64_t> DecoderStart::tokens(std::string_view language, std::string_view task, bool timestamps) const {
  std::vector<int64_t> ids{start};
  if (languages.empty()) {
    check(language.empty() && task.empty(), kOp, "this model knows no languages and no tasks");
    for (const std::optional<int64_t>& id : forced) {
      check(id.has_value(), kOp, "forced_decoder_ids leaves a token open, and there are no languages for it");
      ids.push_back(*id);
    }
  } else {
    if (language.empty()) {
      check(!forced.empty() && forced[0], kOp, "the language is to be said: one of ", names_of(languages));
      ids.push_back(*forced[0]);
    } else {
      auto at = languages.find(std::string(language));
      if (at == languages.end()) at = languages.find(cat("<|", language, "|>"));
      check(at != languages.end(), kOp, "language '", language, "' is none of ", names_of(languages));
      ids.push_back(at->second);
    }
    const std::string wanted(task.empty() ? "transcribe" : task);
    const auto at = tasks.find(wanted);
    check(at != tasks.end(), kOp, "task '", wanted, "' is none of ", names_of(tasks));
    ids.push_back(at->second);
  }
  if (no_timestamps && ids.back() == *no_timestamps) ids.pop_back();
  if (no_timestamps && !timestamps) ids.push_back(*no_timestamps);
  return ids;
}

TimestampRules DecoderStart::timestamps(int64_t end) const {
  check(no_timestamps.has_value(), kOp, "this model writes no times: its files have no no_timestamps_token_id");
  return {*no_timestamps + 1, end, most_initial};
}

}  // namespace strata
