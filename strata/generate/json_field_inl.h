#pragma once
// A member of a file's JSON or of a call's: its value, and errors that say where it stands.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"

namespace strata::detail {

/// What is wrong with a file is an IoError, what is wrong with a call a ValueError.
[[noreturn]] inline void refuse_source(std::string_view source, bool call, const std::string& why) {
  if (call) throw ValueError(source, why);
  throw IoError("generation_config", cat(source, ": ", why));
}

/// A value and where it is, for errors.
struct JsonField {
  std::string_view source, key;
  const nlohmann::json& value;
  bool call = false;  ///< an argument, not a file's

  [[noreturn]] void refuse(const std::string& why) const {
    const std::string shown = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80);
    refuse_source(source, call, cat(key, " is ", shown, ": ", why));
  }
  int64_t whole(const nlohmann::json& v) const {
    if (v.is_number_integer() && v <= std::numeric_limits<int32_t>::max() && v >= std::numeric_limits<int32_t>::min())
      return v.get<int64_t>();
    refuse("wanted a whole number");
  }
  int64_t whole() const { return whole(value); }
  uint64_t seed() const {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    refuse("wanted a whole number from 0 to 2^64 - 1");
  }
  double number() const {
    if (value.is_number()) return value.get<double>();
    refuse("wanted a number");
  }
  bool truth() const {
    if (value.is_boolean()) return value.get<bool>();
    refuse("wanted true or false");
  }
  std::string text() const {
    if (value.is_string()) return value.get<std::string>();
    refuse("wanted a text");
  }
  /// One or several.
  std::vector<int64_t> ids() const {
    std::vector<int64_t> all;
    if (!value.is_array()) return {whole()};
    for (const nlohmann::json& v : value) all.push_back(whole(v));
    return all;
  }
  /// One or several.
  std::vector<std::string> texts() const {
    if (value.is_string()) return {value.get<std::string>()};
    if (!value.is_array()) refuse("wanted a text or a list of texts");
    if (!std::ranges::all_of(value, [](const nlohmann::json& v) { return v.is_string(); }))
      refuse("wanted a list of texts");
    return value.get<std::vector<std::string>>();
  }
};

/// The object that a text is; nothing is an empty one.
inline nlohmann::json object_of(std::string_view text, std::string_view source, bool call) {
  nlohmann::json all = nlohmann::json::object();
  try {
    if (!text.empty()) all = io::parse_json(text, source);
  } catch (const IoError& e) {
    if (call) throw ValueError("", e.what());
    throw;
  }
  if (!all.is_object()) refuse_source(source, call, "wanted an object");
  return all;
}

}  // namespace strata::detail
