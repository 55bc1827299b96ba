#pragma once
// A GGUF value's bytes.

#include <string>

#include "strata/io/gguf.h"
#include "strata/io/source_inl.h"

namespace strata::io {

inline constexpr std::string_view kGguf = "GGUF";
inline constexpr uint64_t kGgufAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

struct GgufCoding {
  /// Bytes of one number or boolean; 0 for strings and arrays.
  static size_t width(GgufType type);
  /// The value that comes next; `what` it is (a key) stands in the messages.
  static GgufValue read(Cursor& from, GgufType type, const std::string& what, int depth = 0);
  /// A type's number that comes next.
  static GgufType read_type(Cursor& from, const std::string& what);
  /// Appends its bytes, without the type before them.
  static void write(std::string& to, const GgufValue& value);
};

/// Appends a number's bytes, or a text behind its length.
template <class T>
void append_number(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_string(std::string& to, std::string_view text) {
  append_number<uint64_t>(to, text.size());
  to += text;
}

inline uint64_t padded(uint64_t size, uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace strata::io
