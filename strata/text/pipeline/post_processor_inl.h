#pragma once
// "post_processor" of tokenizer.json: the special tokens around one text or two.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/fields_inl.h"

namespace strata::text::pipeline {

/// A run of ids of a result.
struct Segment {
  std::vector<int32_t> ids;
  int32_t type_id = 0;
  int sequence = -1;  ///< the text that the ids are of: 0, 1, or -1 where they are special tokens
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// Takes what was made so far, at first a segment for each text, and returns it with what is put around. Throws
  /// ValueError for a number of segments that it has no template for.
  virtual std::vector<Segment> apply(std::vector<Segment> segments, bool add_special_tokens) const = 0;
};

Parsed<PostProcessor> parse_post_processor(const Json& node, std::string path, std::string_view source);

}  // namespace strata::text::pipeline
