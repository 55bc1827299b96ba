#pragma once
// The table of keys that GGUF's architectures share with config.json.

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

/// A key of GGUF, behind "ARCHITECTURE.", and what config.json calls it: the name that the family writes.
struct KeyRow {
  enum class Kind : uint8_t { integer, number, flag };
  std::string_view gguf;
  std::vector<std::string_view> config;
  Kind kind = Kind::integer;
  bool required = false;         // where the family has it
  bool zero_is_null = false;     // 0 says that there is none
  std::string_view absent = {};  // what no key means, as JSON; empty: what config.json means without it
  bool always = false;           // the family's reader takes it even where its sample does not write it
};
/// All of them; what is said otherwise on either side stands in gguf_sides_inl.h.
const std::vector<KeyRow>& gguf_keys();

}  // namespace strata
