#include "strata/text/pipeline/encoder_inl.h"

#include <algorithm>

#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

bool overlaps(const ByteRanges& ranges, size_t begin, size_t end) {
  const auto behind = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                       [](size_t at, const auto& range) { return at < range.second; });
  return behind != ranges.end() && behind->first < end;
}

class Encoder final : public PieceSink {
 public:
  Encoder(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule, std::vector<int32_t>& ids,
          std::vector<size_t>* begins)
      : parts_(parts),
        text_(text),
        rule_(rule),
        guards_((!rule.parse_special || rule.from_data != nullptr) && !parts.guarded.empty()),
        ids_(ids),
        begins_(begins),
        words_(parts.pre_tokenizers, !parts.spells_bytes, growth_limit(text.size()), *this) {}

  void run() {
    const AddedTokens& added = *parts_.added;
    added.split(
        added.raw(), text_, [&](const AddedToken& t, size_t b, size_t e) { return allowed(t, b, e); },
        [&](size_t b, size_t e) { normalise(b, e); }, [&](const AddedToken& t, size_t b, size_t) { add(t.id, b); });
  }

  void take(std::string_view piece, size_t where, bool) override {
    std::string_view word = piece;
    if (parts_.spells_bytes) {
      spelled_.clear();
      append_bytes_spelled(spelled_, piece);
      word = spelled_;
    }
    const size_t before = ids_.size();
    if (guards_)
      encode_guarded(word);
    else
      parts_.model->encode(word, ids_);
    if (begins_ != nullptr) note_begins(piece, where, before);
  }

 private:
  bool allowed(const AddedToken& token, size_t begin, size_t end) const {
    if (!token.special) return true;
    return rule_.parse_special && (rule_.from_data == nullptr || !overlaps(*rule_.from_data, begin, end));
  }

  void add(int32_t id, size_t begin) {
    ids_.push_back(id);
    if (begins_ != nullptr) begins_->push_back(begin);
  }

  /// text_[begin, end), which has no more tokens that are looked for before normalising.
  void normalise(size_t begin, size_t end) {
    base_ = begin;
    const std::string_view piece = text_.substr(begin, end - begin);
    if (parts_.normalizer.part == nullptr) {
      origin_ = nullptr;
      cut(piece, begin == 0);
      return;
    }
    NormalText normal;
    normal.bytes = piece;
    normal.limit = growth_limit(piece.size());
    normal.tracked = begins_ != nullptr;
    if (normal.tracked) {
      normal.origin.resize(piece.size());
      for (size_t at = 0, n = 0; at < piece.size(); at += n) {
        n = char_at(piece, at).bytes;
        std::fill_n(normal.origin.begin() + static_cast<ptrdiff_t>(at), n, static_cast<uint32_t>(at));
      }
    }
    parts_.normalizer.part->apply(normal);
    origin_ = normal.tracked ? &normal.origin : nullptr;
    cut(normal.bytes, begin == 0 && normal.starts_at_zero);
    origin_ = nullptr;
  }

  void cut(std::string_view normal, bool begins_text) {
    normal_ = normal;
    const AddedTokens& added = *parts_.added;
    added.split(
        added.normalized(), normal,
        [&](const AddedToken& t, size_t b, size_t e) { return allowed(t, source(b), source(e - 1) + 1); },
        [&](size_t b, size_t e) { words_.take(normal.substr(b, e - b), b, begins_text && b == 0); },
        [&](const AddedToken& t, size_t b, size_t) { add(t.id, source(b)); });
  }

  /// Where in the text a byte of the normalised piece comes from.
  size_t source(size_t at) const {
    if (origin_ == nullptr) return base_ + at;
    return base_ + (origin_->empty() ? 0 : (*origin_)[std::min(at, origin_->size() - 1)]);
  }

  /// Where the model makes special tokens of a word that only spells them, the word is cut within each.
  void encode_guarded(std::string_view word) {
    const size_t before = ids_.size();
    parts_.model->encode(word, ids_);
    const auto guarded = [&](int32_t id) {
      return std::binary_search(parts_.guarded.begin(), parts_.guarded.end(), id);
    };
    if (std::none_of(ids_.begin() + static_cast<ptrdiff_t>(before), ids_.end(), guarded)) return;
    size_t done = 0, at = 0, begin = 0, end = 0;
    int32_t id = 0;
    std::vector<int32_t> again;
    for (; parts_.guarded_spellings->find(word, at, begin, end, id); at = begin + 1) {
      const size_t cut = begin + char_at(word, begin).bytes;
      parts_.model->encode(word.substr(done, cut - done), again);
      done = cut;
    }
    if (done == 0) return;  // an unknown token, say
    if (done < word.size()) parts_.model->encode(word.substr(done), again);
    ids_.resize(before);
    ids_.insert(ids_.end(), again.begin(), again.end());
  }

  /// Bytes of a word that a token of it stands for; "<0x41>" for one.
  size_t spelled_bytes(int32_t id) const {
    const std::string_view token = parts_.model->token(id);
    return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') ? 1 : token.size();
  }

  /// Of the ids from `before` on, which are those of a piece. Where its tokens do not add up to it (an unknown one),
  /// all begin where it does.
  void note_begins(std::string_view piece, size_t where, size_t before) {
    size_t bytes = 0;
    const std::string_view word = parts_.spells_bytes ? std::string_view(spelled_) : piece;
    for (size_t i = before; i < ids_.size(); ++i) bytes += spelled_bytes(ids_[i]);
    const bool exact = bytes == word.size();
    // The piece and the normalised text side by side: where they differ, something was put in front or a blank became a
    // mark.
    size_t in_word = 0, in_piece = 0, in_text = where, target = 0;
    for (size_t i = before; i < ids_.size(); ++i) {
      begins_->push_back(source(std::min(in_text, normal_.empty() ? 0 : normal_.size() - 1)));
      if (!exact) continue;
      target += spelled_bytes(ids_[i]);
      while (in_word < target && in_piece < piece.size()) {
        const size_t n = parts_.spells_bytes ? 1 : char_at(piece, in_piece).bytes;
        in_word += parts_.spells_bytes ? char_at(word, in_word).bytes : n;
        const bool same = normal_.substr(std::min(in_text, normal_.size())).starts_with(piece.substr(in_piece, n));
        in_piece += n;
        if (same)
          in_text += n;
        else if (in_text < normal_.size() && normal_[in_text] == ' ')
          ++in_text;
      }
    }
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const SpecialRule& rule_;
  bool guards_;
  std::vector<int32_t>& ids_;
  std::vector<size_t>* begins_;
  PreTokenizing words_;
  std::string spelled_;
  size_t base_ = 0;  // of the piece that is normalised now
  const std::vector<uint32_t>* origin_ = nullptr;
  std::string_view normal_;
};

}  // namespace

void encode_text(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule, std::vector<int32_t>& ids,
                 std::vector<size_t>* begins) {
  check(text.size() < UINT32_MAX, "tokenizer", "a text of ", text.size(), " bytes, at most ", UINT32_MAX - 1);
  const RegexBudget budget(text.size());
  Encoder(parts, text, rule, ids, begins).run();
}

}  // namespace strata::text::pipeline
