#include "strata/io/json.h"

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::io {

nlohmann::json parse_json(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      check<IoError>(++depth <= kMaxJsonDepth, "", quote(source), " is not valid JSON for us: at byte ", i,
                     " it nests deeper than ", kMaxJsonDepth, " levels");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw IoError("", cat(quote(source), " is not valid JSON at byte ", e.byte, " (damaged or cut off)"));
  } catch (const nlohmann::json::exception&) {  // a number that no double holds
    throw IoError("", cat(quote(source), " is not valid JSON: a number is out of range"));
  }
}

}  // namespace strata::io
