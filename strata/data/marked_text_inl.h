#pragma once
// A text whose parts have marks, as tokens.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/data/sequences.h"
#include "strata/text/jinja/template.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

/// Encodes texts with a tokenizer, which must outlive it. Const functions may be called from several threads.
class MarkedText {
 public:
  explicit MarkedText(const text::Tokenizer& tokenizer);
  /// Tokens of a text. Names of special tokens become their ids, the longest where several fit, but where they touch
  /// `from_data`. What lies between them is encoded as one piece. A token is learned where any of its bytes is in
  /// `learned`; of a tokenizer whose tokens do not tell which bytes they stand for (it changes texts), pieces are
  /// encoded apart at the ends of `learned`.
  MarkedTokens encode(std::string_view text, const text::jinja::Ranges& from_data,
                      const text::jinja::Ranges& learned) const;

  /// A special token.
  struct Name {
    std::string text;
    int32_t id;
  };

 private:
  const Name* name_at(std::string_view text, size_t begin, const text::jinja::Ranges& from_data) const;

  const text::Tokenizer& tokenizer_;
  std::vector<Name> by_first_[256];  // by their first byte, the longest first
};

}  // namespace strata::data
