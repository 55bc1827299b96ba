// libFuzzer: any JSON is a model or an IoError; a model encodes any word to ids that it has, or says that it cannot,
// and is read back from what it writes. The first line is the JSON, the rest a word.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/text/pipeline/token_model.h"
#include "strata/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::text;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), text.size());
  int depth = 0;
  for (const char c : text.substr(0, line))
    if (c == '[' || c == '{')
      if (++depth > 1000) return 0;
  const nlohmann::json json = nlohmann::json::parse(text.substr(0, line), nullptr, false);
  if (json.is_discarded()) return 0;
  try {
    const auto model = parse_token_model(json, "fuzz");
    const auto again = parse_token_model(model->to_json(), "fuzz");
    if (again->to_json() != model->to_json()) __builtin_trap();
    const std::string word = valid_utf8(text.substr(std::min(line + 1, text.size())));
    if (word.empty()) return 0;
    std::vector<int32_t> ids, same;
    model->encode(word, ids);
    again->encode(word, same);
    if (ids != same) __builtin_trap();
    for (const int32_t id : ids)
      if (model->id(model->token(id)) == std::nullopt) __builtin_trap();
  } catch (const strata::IoError&) {
  } catch (const strata::ValueError&) {
  }
  return 0;
}
