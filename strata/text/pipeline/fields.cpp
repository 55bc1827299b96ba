#include <algorithm>

#include "strata/io/files.h"
#include "strata/text/pipeline/fields_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {

Fields::Fields(const Json& node, std::string path, std::string_view source)
    : node_(node), path_(std::move(path)), source_(source), read_(Json::object()) {
  check<IoError>(node.is_object(), "tokenizer", io::quote(source_), ": ", path_.empty() ? "the file" : path_,
                 " must be an object");
}

void Fields::fail(std::string_view key, std::string_view wanted) const {
  const Json* got = find(key);
  std::string text = got == nullptr ? "absent" : got->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  throw IoError("tokenizer",
                cat(io::quote(source_), ": ", path_, path_.empty() ? "" : ".", key, " is ", text, ", wanted ", wanted));
}

const Json* Fields::find(std::string_view key) const {
  const auto at = node_.find(key);
  return at == node_.end() ? nullptr : &*at;
}

const Json& Fields::need(std::string_view key, std::string_view wanted) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, wanted);
  return *value;
}

const Json& Fields::array(std::string_view key, size_t most) const {
  const std::string wanted = cat("a list of at most ", most);
  const Json& value = need(key, wanted);
  if (!value.is_array() || value.size() > most) fail(key, wanted);
  // Parts of a chain call each other.
  if (most == kMaxParts && std::count(path_.begin(), path_.end(), '[') > 1) fail(key, "no list within two others");
  return value;
}

std::string Fields::type() {
  return string("type");
}

bool Fields::boolean(std::string_view key, std::optional<bool> fallback) {
  const Json* found = find(key);
  if (found == nullptr && !fallback) fail(key, "true or false");
  if (found != nullptr && !found->is_boolean()) fail(key, "true or false");
  const bool value = found != nullptr ? found->get<bool>() : *fallback;
  keep(key, value);
  return value;
}

std::string Fields::string(std::string_view key, std::optional<std::string> fallback) {
  const Json* found = find(key);
  if (found == nullptr && !fallback) fail(key, "a string");
  if (found != nullptr && !found->is_string()) fail(key, "a string");
  std::string value = found != nullptr ? found->get<std::string>() : *fallback;
  keep(key, value);
  return value;
}

uint32_t Fields::character(std::string_view key) {
  const std::string value = string(key);
  if (value.empty() || char_at(value, 0).bytes != value.size()) fail(key, "a string of one character");
  return char_at(value, 0).code;
}

int64_t Fields::integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback) {
  const std::string wanted = cat("a whole number from ", low, " to ", high);
  const Json* found = find(key);
  if (found == nullptr && !fallback) fail(key, wanted);
  if (found != nullptr && !found->is_number_integer()) fail(key, wanted);
  if (found != nullptr && found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX})
    fail(key, wanted);
  const int64_t value = found != nullptr ? found->get<int64_t>() : *fallback;
  if (value < low || value > high) fail(key, wanted);
  keep(key, value);
  return value;
}

size_t Fields::choice(std::string_view key, std::span<const std::string_view> names, std::optional<size_t> fallback) {
  std::string wanted = "one of ";
  for (const std::string_view name : names) wanted += cat(name == names.front() ? "" : ", ", name);
  const Json* found = find(key);
  if (found == nullptr && !fallback) fail(key, wanted);
  if (found != nullptr && !found->is_string()) fail(key, wanted);
  const std::string value(found != nullptr ? found->get<std::string>() : std::string(names[*fallback]));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != value) continue;
    keep(key, value);
    return i;
  }
  fail(key, wanted);
}

std::optional<bool> Fields::optional_boolean(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr || found->is_null()) {
    keep(key, nullptr);
    return {};
  }
  return boolean(key);
}

std::pair<std::string, int32_t> Fields::token_and_id(std::string_view key) {
  constexpr std::string_view wanted = "[a string, an id]";
  const Json& value = need(key, wanted);
  if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_number_integer() ||
      value[1].get<int64_t>() < 0 || value[1].get<int64_t>() > INT32_MAX)
    fail(key, wanted);
  keep(key, value);
  return {value[0].get<std::string>(), value[1].get<int32_t>()};
}

}  // namespace strata::text::pipeline
