#pragma once
// Lines of JSON that come from outside.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace strata::data {

/// A line and where it stands.
struct JsonLine {
  std::string_view bytes;
  std::string_view file;
  uint64_t line = 0;
  uint64_t byte = 0;  ///< where the line begins in the unpacked file
};

/// "'a.jsonl': line 3".
std::string place_of(const JsonLine& line);

/// The string at `field` ("text", "meta.body") of an object, without a tree of the rest. False where it is null or
/// empty. Throws IoError naming the place: not JSON, no object, no such member, one that stands twice, or no string.
bool json_text(const JsonLine& line, std::string_view field, std::string& text);

/// The whole line as an object, its members in their order. Throws IoError naming the place: not JSON, nested deeper
/// than io::kMaxJsonDepth, or no object.
nlohmann::ordered_json json_row(const JsonLine& line);

/// The member at a path of names between dots; nullptr where there is none. A name that has dots itself is found first.
const nlohmann::ordered_json* json_member(const nlohmann::ordered_json& row, std::string_view path);
/// The names of an object's members for a message, at most a dozen: "'a', 'b'".
std::string json_members(const nlohmann::ordered_json& row);

}  // namespace strata::data
