#pragma once
// A part of a tokenizer.json as it is read: every field is checked, and what was read is written back.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"

namespace strata::text::pipeline {

using Json = nlohmann::json;

/// Parts that a Sequence may have.
inline constexpr size_t kMaxParts = 64;

/// An object of the file. Fields nobody asks for are passed over, as the `tokenizers` library does.
class Fields {
 public:
  /// Throws IoError where `node` is no object. `path` is its place in the file, such as "normalizer.normalizers[0]".
  Fields(const Json& node, std::string path, std::string_view source);

  std::string type();
  bool boolean(std::string_view key, std::optional<bool> fallback = {});
  std::string string(std::string_view key, std::optional<std::string> fallback = {});
  /// A string of one character.
  uint32_t character(std::string_view key);
  /// A whole number from `low` to `high`.
  int64_t integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback = {});
  /// One of `names`: its place among them.
  size_t choice(std::string_view key, std::span<const std::string_view> names, std::optional<size_t> fallback = {});
  /// null or absent: nothing.
  std::optional<bool> optional_boolean(std::string_view key);
  /// [string, id].
  std::pair<std::string, int32_t> token_and_id(std::string_view key);
  /// The list of at most `most` objects under `key`, each given to `read(node, its path)`; what that returns is written
  /// back. With kMaxParts, lists within two others are refused.
  template <class Read>
  void list(std::string_view key, size_t most, Read&& read) {
    const Json& items = array(key, most);
    Json out = Json::array();
    for (size_t i = 0; i < items.size(); ++i) out.push_back(read(items[i], cat(path_, '.', key, '[', i, ']')));
    read_[std::string(key)] = std::move(out);
  }

  const Json& node() const { return node_; }
  const Json* find(std::string_view key) const;
  /// Of a field that the caller reads itself.
  void keep(std::string_view key, Json value) { read_[std::string(key)] = std::move(value); }
  /// What was read, defaults spelled out.
  Json take() { return std::move(read_); }

  const std::string& path() const { return path_; }
  std::string_view source() const { return source_; }
  [[noreturn]] void fail(std::string_view key, std::string_view wanted) const;

 private:
  const Json& need(std::string_view key, std::string_view wanted) const;
  const Json& array(std::string_view key, size_t most) const;

  const Json& node_;
  std::string path_;
  std::string_view source_;
  Json read_;
};

/// The record of a kind of part: the name of its type in files, and how one is made of its fields.
template <class Part>
struct Kind {
  std::string_view type;
  std::unique_ptr<const Part> (*parse)(Fields&);
};

/// A part and what is written back of it.
template <class Part>
struct Parsed {
  std::unique_ptr<const Part> part;
  Json json;
};

/// Makes the part that `node` describes. Throws IoError for a type that is in no row.
template <class Part>
Parsed<Part> parse_part(const Json& node, std::string path, std::string_view source,
                        std::span<const Kind<Part>> kinds) {
  Fields fields(node, std::move(path), source);
  const std::string type = fields.type();
  std::string known;
  for (const Kind<Part>& kind : kinds) {
    if (kind.type == type) {
      Parsed<Part> parsed;
      parsed.part = kind.parse(fields);
      parsed.json = fields.take();
      return parsed;
    }
    known += cat(known.empty() ? "" : ", ", kind.type);
  }
  fields.fail("type", cat("one of ", known));
}

}  // namespace strata::text::pipeline
