#pragma once
// "pre_tokenizer" of tokenizer.json: how a normalised text is cut into words.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/fields_inl.h"

namespace strata::text::pipeline {

/// Takes pieces of a text from left to right.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  /// A piece, not empty, and where in the normalised text it (or what it was made of) begins. `begins_text`: there was
  /// nothing before it in the original.
  virtual void take(std::string_view piece, size_t where, bool begins_text) = 0;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts one piece; what is passed on may stand in `scratch`, which is the caller's for this one object.
  virtual void split(std::string_view piece, size_t where, bool begins_text, std::string& scratch,
                     PieceSink& out) const = 0;
  /// Whether it leaves the text as it is and spells it in the alphabet of bytes afterwards, so that the last part of a
  /// chain may leave the spelling to who takes the words.
  virtual bool spells_bytes() const { return false; }
};

/// The parts of a chain, in order; a Sequence is its parts.
using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

/// Appends the parts that `node` describes to `chain` and returns what is written back.
Json parse_pre_tokenizer(const Json& node, std::string path, std::string_view source, PreTokenizers& chain);

/// A chain at work on one text.
class PreTokenizing {
 public:
  /// `limit`: bytes that a piece may grow to. `spell_last`: else the last part's spelling of bytes is left out.
  PreTokenizing(const PreTokenizers& chain, bool spell_last, size_t limit, PieceSink& words);
  void take(std::string_view piece, size_t where, bool begins_text);

 private:
  struct Link final : PieceSink {
    void take(std::string_view piece, size_t where, bool begins_text) override;
    const PreTokenizer* part = nullptr;
    std::string scratch;
    PieceSink* next = nullptr;
    size_t limit = 0;
  };
  std::vector<Link> links_;
  PieceSink* first_;
};

}  // namespace strata::text::pipeline
