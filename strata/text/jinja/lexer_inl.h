#pragma once
// A template's source as tokens, white space control done.

#include <string>
#include <string_view>
#include <vector>

namespace strata::text::jinja {

struct Token {
  enum Kind { data, output_begin, output_end, block_begin, block_end, name, string, integer, real, op, end };
  Kind kind = end;
  std::string text;
  int line = 1;
  bool is(std::string_view t) const { return (kind == op || kind == name) && text == t; }
  bool op_is(std::string_view t) const { return kind == op && text == t; }
};

/// Throws ValueError with the line.
std::vector<Token> tokens(std::string_view source);

[[noreturn]] void fail_at(int line, const std::string& message);

}  // namespace strata::text::jinja
