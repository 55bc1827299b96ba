#pragma once
// How texts are cut before BPE of bytes, by the name that GGUF gives it.

#include <span>
#include <string_view>
#include <vector>

namespace strata::text::detail {

struct GgufPre {
  std::vector<std::string_view> names;  // the first is the one that is written
  /// What is cut out, one expression after the other; what lies between stays in pieces, too.
  std::vector<std::string_view> expressions;
  bool ignore_merges = false;  // a word that is a token is one
  bool add_bos = false;        // where a file does not say
};

std::span<const GgufPre> gguf_pres();

}  // namespace strata::text::detail
