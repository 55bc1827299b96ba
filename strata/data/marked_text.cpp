#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "strata/data/marked_text_inl.h"

namespace strata::data {
namespace {

using text::jinja::Ranges;

// Whether [begin, end) has a byte in common with one of the ranges, which are in order.
bool touches(const Ranges& ranges, size_t begin, size_t end) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](size_t at, const auto& range) { return at < range.second; });
  return after != ranges.end() && after->first < end;
}

class Encoder {
 public:
  Encoder(const text::Tokenizer& tokenizer, std::string_view text, const Ranges& learned)
      : tokenizer_(tokenizer), text_(text), learned_(learned) {}

  void special(size_t begin, const MarkedText::Name& name) {
    put(name.id, touches(learned_, begin, begin + name.text.size()));
  }

  void plain(size_t begin, size_t end) {
    if (begin == end) return;
    const std::string_view piece = text_.substr(begin, end - begin);
    const std::vector<int32_t> ids = tokenizer_.encode(piece);
    std::vector<size_t> lengths;
    size_t total = 0;
    bool same = true;  // the tokens' bytes, one behind another, are the piece
    for (const int32_t id : ids) {
      const std::string bytes = tokenizer_.decode({&id, 1});
      same = same && piece.substr(total).starts_with(bytes);
      if (!same) break;
      lengths.push_back(bytes.size());
      total += bytes.size();
    }
    if (same && total == piece.size()) {
      size_t at = begin;
      for (size_t i = 0; i < ids.size(); at += lengths[i++]) put(ids[i], touches(learned_, at, at + lengths[i]));
      return;
    }
    for (size_t at = begin; at < end;) {
      const bool learn = touches(learned_, at, at + 1);
      size_t stop = end;
      for (const auto& [from, to] : learned_) {
        if (from > at) stop = std::min(stop, from);
        if (to > at) stop = std::min(stop, to);
      }
      for (const int32_t id : tokenizer_.encode(text_.substr(at, stop - at))) put(id, learn);
      at = stop;
    }
  }

  MarkedTokens result;

 private:
  void put(int32_t id, bool learn) {
    result.tokens.push_back(id);
    result.learned.push_back(learn ? 1 : 0);
  }

  const text::Tokenizer& tokenizer_;
  std::string_view text_;
  const Ranges& learned_;
};

}  // namespace

MarkedText::MarkedText(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const auto& [name, id] : tokenizer.special_tokens())
    if (!name.empty()) by_first_[static_cast<unsigned char>(name[0])].push_back({name, id});
  for (auto& names : by_first_)
    std::ranges::stable_sort(names, [](const Name& a, const Name& b) { return a.text.size() > b.text.size(); });
}

const MarkedText::Name* MarkedText::name_at(std::string_view text, size_t begin, const Ranges& from_data) const {
  for (const Name& name : by_first_[static_cast<unsigned char>(text[begin])])
    if (text.substr(begin).starts_with(name.text) && !touches(from_data, begin, begin + name.text.size())) return &name;
  return nullptr;
}

MarkedTokens MarkedText::encode(std::string_view text, const Ranges& from_data, const Ranges& learned) const {
  Encoder encoder(tokenizer_, text, learned);
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const Name* name = name_at(text, at, from_data);
    if (!name) {
      ++at;
      continue;
    }
    encoder.plain(plain, at);
    encoder.special(at, *name);
    at += name->text.size();
    plain = at;
  }
  encoder.plain(plain, text.size());
  return std::move(encoder.result);
}

}  // namespace strata::data
