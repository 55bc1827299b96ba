#pragma once
// Tokens to text as they come, up to a stop string.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/tokenizer.h"

namespace strata {

/// The text of tokens that come one after another. What a token adds is what the text of all has more than that of
/// those before, so spaces that depend on neighbours are right; a character is given when it is whole.
///
///     TextStream stream(tokenizer);
///     for (const int64_t id : ids) std::fputs(stream.add(id).c_str(), stdout);
///     std::fputs(stream.finish().c_str(), stdout);
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// Text that the token adds; what is cut within a character comes with a later token. Throws IndexError for an id
  /// that the tokenizer does not have.
  std::string add(int64_t id);
  /// The rest: bytes of a character that nothing completed.
  std::string finish();

 private:
  std::string give(std::string_view more);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> ids_;  // those whose text the next one's depends on
  size_t given_ = 0;          // of them that have been given
  std::string held_;          // bytes of a character that is not whole
};

/// Looks for the first of some texts in a text that comes in pieces. What may be the beginning of one is held back
/// until it is decided.
///
///     StopStrings stop({"\n\n", "User:"});
///     std::fputs(stop.add("Hello\n").c_str(), stdout);  // "Hello"
///     std::fputs(stop.add("\nUser").c_str(), stdout);   // "", and stop.found() is 0
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}
  /// What of the text so far is certain to stand before any stop string and was not given yet. The first that is whole
  /// is found; of several that a piece completes the one that begins first, of those the longest. Nothing once one was
  /// found.
  std::string add(std::string_view piece);
  /// Which was found; -1: none.
  int64_t found() const { return found_; }
  /// What was held back, where none was found.
  std::string finish();

 private:
  std::vector<std::string> strings_;
  std::string held_;
  int64_t found_ = -1;
};

}  // namespace strata
