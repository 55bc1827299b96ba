#pragma once
// The way of one text through a PipelineTokenizer.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/pipeline_parts_inl.h"

namespace strata::text::pipeline {

/// Half-open ranges of bytes, in order.
using ByteRanges = std::vector<std::pair<size_t, size_t>>;

/// What a text may spell.
struct SpecialRule {
  bool parse_special = true;
  /// Where special tokens stay text even so; nullptr: nowhere.
  const ByteRanges* from_data = nullptr;
};

/// Appends the ids of valid UTF-8 and, where `begins` is given, for each where in the text it begins.
void encode_text(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule, std::vector<int32_t>& ids,
                 std::vector<size_t>* begins);

}  // namespace strata::text::pipeline
