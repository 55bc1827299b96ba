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
  bool no_cap_is_null = false;   // 0, or a number from kNoCap on, says that there is none
  std::string_view absent = {};  // what no key means, as JSON; empty: what config.json means without it
  bool always = false;           // the family's reader takes it even where its sample does not write it
};
/// What is written where there is no cap. Not 0: llama.cpp divides by it, and without the key takes Gemma 2's own.
inline constexpr double kNoCap = 1e30;
/// Whether a key's number says that there is no cap. kNoCap as an f32 may be less.
inline bool is_no_cap(double v) {
  return v == 0 || v > 0.99 * kNoCap;
}
/// All of them; what is said otherwise on either side stands in gguf_sides_inl.h.
const std::vector<KeyRow>& gguf_keys();

}  // namespace strata
