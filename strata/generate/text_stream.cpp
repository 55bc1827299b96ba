#include "strata/generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "strata/core/error.h"

namespace strata {
namespace {

// Bytes at the end of a text that begin a character of UTF-8 which is not whole. Bytes that no character has are none.
size_t unfinished(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xc0) == 0x80) continue;  // within a character
    const size_t whole = byte >= 0xf0 && byte < 0xf8 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return byte < 0xf8 && whole > n ? n : 0;
  }
  return 0;
}

}  // namespace

std::string TextStream::add(int64_t id) {
  check<IndexError>(id >= 0 && id < tokenizer_->vocab_size(), "TextStream", "token ", id, " is not one of ",
                    tokenizer_->vocab_size());
  ids_.push_back(static_cast<int32_t>(id));
  const std::string before = tokenizer_->decode({ids_.data(), given_}), now = tokenizer_->decode(ids_);
  // Until the text goes on where it was, nothing is given; nor while its end stands for bytes that are no character
  // yet, which four tokens complete or nothing does.
  if (!now.starts_with(before) || (now.ends_with("\xef\xbf\xbd") && ids_.size() - given_ < 4)) return {};
  return give(now.substr(before.size()));
}

std::string TextStream::give(std::string_view more) {
  held_ += more;
  // Of what was given, the last token is kept: a neighbour for the next.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<int64_t>(given_));
  given_ = ids_.size();
  std::string whole = held_.substr(0, held_.size() - unfinished(held_));
  held_.erase(0, whole.size());
  return whole;
}

std::string TextStream::finish() {
  const std::string before = tokenizer_->decode({ids_.data(), given_}), now = tokenizer_->decode(ids_);
  std::string rest = give(now.substr(std::min(before.size(), now.size())));
  return rest + std::exchange(held_, {});
}

std::string StopStrings::add(std::string_view piece) {
  if (found_ >= 0) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (size_t i = 0; i < strings_.size(); ++i) {
    const size_t at = held_.find(strings_[i]);
    if (at == std::string::npos) continue;
    const bool longer = found_ >= 0 && strings_[i].size() > strings_[static_cast<size_t>(found_)].size();
    if (at < first || (at == first && longer)) {
      first = at;
      found_ = static_cast<int64_t>(i);
    }
  }
  if (found_ >= 0) {
    std::string before = held_.substr(0, first);
    held_.clear();
    return before;
  }
  size_t keep = 0;
  for (const std::string& s : strings_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  return found_ >= 0 ? std::string() : std::exchange(held_, {});
}

}  // namespace strata
