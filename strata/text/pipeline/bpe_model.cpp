// BPE: a word's characters, of which neighbours are merged by rank (Sennrich et al. 2016,
// https://arxiv.org/abs/1508.07909).

#include <algorithm>
#include <array>
#include <bitset>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/merges_inl.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/word_cache_inl.h"

namespace strata::text::detail {
namespace {

using nlohmann::json;

struct TokenPair {
  std::string left, right;
};

// Each of "merges" is "left right" or ["left", "right"].
std::vector<TokenPair> read_merges(const ModelReader& reader) {
  const json& list = reader.required("merges");
  reader.need(list.is_array(), "merges", "must be a list");
  std::vector<TokenPair> merges;
  merges.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const json& merge = list[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back({merge[0].get<std::string>(), merge[1].get<std::string>()});
      continue;
    }
    const std::string* const line = merge.get_ptr<const std::string*>();
    if (line != nullptr && line->starts_with("#version")) continue;  // the first line of a merges.txt
    const size_t blank = line == nullptr ? std::string::npos : line->find(' ');
    if (blank == std::string::npos || line->find(' ', blank + 1) != std::string::npos)
      reader.fail(cat("merges[", i, "]"), "must be two tokens, a list of two or with one blank between them");
    merges.push_back({line->substr(0, blank), line->substr(blank + 1)});
  }
  return merges;
}

// Between which characters no merge reaches: there a long word can be cut, and its parts be merged (and kept) for
// themselves, to the same ids. A set that may say of a few pairs too many that they are joined.
class Joints {
 public:
  void add(std::string_view left, std::string_view right) {
    size_t last = left.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(left[last]) & 0xc0) == 0x80) --last;
    joined_.set(place(left.substr(last), right));
  }
  bool joined(std::string_view left, std::string_view right) const { return joined_.test(place(left, right)); }

 private:
  static size_t place(std::string_view left, std::string_view right) {
    const auto number = [](std::string_view s) {
      uint32_t n = 0;
      for (size_t i = 0, end = character_length(s[0], s.size()); i < end; ++i)
        n = n << 8 | static_cast<unsigned char>(s[i]);
      return n;
    };
    return (number(left) * 0x9e3779b1u ^ number(right) * 0x85ebca77u) * 0xc2b2ae3du >> 16;
  }
  std::bitset<65536> joined_;
};

class BpeModel final : public VocabularyModel {
 public:
  explicit BpeModel(const ModelReader& reader)
      : VocabularyModel(reader.vocabulary(kMaxWordBytes)),
        unk_token_(reader.optional_text("unk_token")),
        prefix_(reader.optional_text("continuing_subword_prefix")),
        suffix_(reader.optional_text("end_of_word_suffix")),
        fuse_unk_(reader.flag("fuse_unk")),
        byte_fallback_(reader.flag("byte_fallback")),
        ignore_merges_(reader.flag("ignore_merges")),
        unk_(unk_token_ ? vocabulary_.find(*unk_token_) : Vocabulary::kNone) {
    if (const json* dropout = reader.optional("dropout"))
      reader.need(dropout->is_number() && dropout->get<double>() == 0, "dropout",
                  "must be null or 0: words have one encoding here");
    // Every character of a word may fall back on the bytes of these as well.
    reader.need(!prefix_ || prefix_->size() <= kMaxDecoration, "continuing_subword_prefix",
                cat("must have at most ", kMaxDecoration, " bytes"));
    reader.need(!suffix_ || suffix_->size() <= kMaxDecoration, "end_of_word_suffix",
                cat("must have at most ", kMaxDecoration, " bytes"));
    if (byte_fallback_) bytes_ = byte_token_ids(vocabulary_);
    add_merges(reader);
    for (size_t c = 0; c < kPlain; ++c) {
      const std::string spelled =
          c < 0x80 ? std::string(1, static_cast<char>(c))
                   : std::string{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
      plain_[c] = vocabulary_.find(spelled);
    }
  }

  std::string_view type() const override { return kBpeType.name; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    check(word.size() <= kMaxWordBytes, "BPE", "a word has ", word.size(), " bytes, at most ", kMaxWordBytes,
          " are allowed");
    if (ignore_merges_) {
      if (const int32_t id = vocabulary_.find(word); id != Vocabulary::kNone) return ids.push_back(id);
    }
    if (!can_cut_) return encode_part(word, ids);
    while (!word.empty()) {
      const size_t length = part_length(word);
      encode_part(word.substr(0, length), ids);
      word.remove_prefix(length);
    }
  }

  json to_json() const override {
    json merges = json::array();
    for (const auto& [left, right] : merges_) merges.push_back({std::string(token(left)), std::string(token(right))});
    const auto text = [](const std::optional<std::string>& s) { return s ? json(*s) : json(); };
    return {{"type", type()},
            {"dropout", nullptr},
            {"unk_token", text(unk_token_)},
            {"continuing_subword_prefix", text(prefix_)},
            {"end_of_word_suffix", text(suffix_)},
            {"fuse_unk", fuse_unk_},
            {"byte_fallback", byte_fallback_},
            {"ignore_merges", ignore_merges_},
            {"vocab", vocabulary_json(vocabulary_)},
            {"merges", std::move(merges)}};
  }

 private:
  static constexpr size_t kPlain = 0x250;  // characters below have their ids in a table; it holds the byte alphabet

  void add_merges(const ModelReader& reader) {
    const std::vector<TokenPair> given = read_merges(reader);
    const size_t cut = prefix_ ? prefix_->size() : 0;
    table_.reserve(given.size());
    can_cut_ = cut == 0 && (!suffix_ || suffix_->empty());
    std::string joined;
    // From behind, since of a pair given twice the last counts.
    for (size_t i = given.size(); i-- > 0;) {
      const auto& [left, right] = given[i];
      const auto known = [&](const std::string& token) {
        const int32_t id = vocabulary_.find(token);
        if (id == Vocabulary::kNone)
          reader.fail(cat("merges[", i, "]"), cat("needs the token ", io::quote(token), ", which is not in vocab"));
        return id;
      };
      const int32_t a = known(left), b = known(right);
      if (right.size() < cut)
        reader.fail(cat("merges[", i, "]"), cat("ends in ", io::quote(right), ", shorter than the prefix ", *prefix_));
      joined.assign(left).append(right, cut);
      if (!table_.add(a, b, {static_cast<uint32_t>(i), known(joined)})) continue;
      merges_.emplace_back(a, b);
      // Tokens that stand for what is not spelled in them may be merged, too; then no cut is safe.
      const auto stands_in = [&](int32_t id) {
        return id == unk_ || std::find(bytes_.begin(), bytes_.end(), id) != bytes_.end();
      };
      if (left.empty() || right.empty() || stands_in(a) || stands_in(b))
        can_cut_ = false;
      else
        joints_.add(left, right);
    }
    std::reverse(merges_.begin(), merges_.end());
  }

  // Up to a place where no merge reaches across. The characters on both sides must be known: an unknown one may be
  // dropped, or be one with the unknown ones after it.
  size_t part_length(std::string_view word) const {
    size_t at = character_length(word[0], word.size());
    for (size_t before = 0; at < word.size();) {
      const size_t length = character_length(word[at], word.size() - at);
      const std::string_view left = word.substr(before, at - before), right = word.substr(at, length);
      if (!joints_.joined(left, right) && character_id(left) >= 0 && character_id(right) >= 0) break;
      before = at;
      at += length;
    }
    return at;
  }

  void encode_part(std::string_view word, std::vector<int32_t>& ids) const {
    cache_.encode(word, ids, [&](std::vector<int32_t>& out) {
      const size_t from = out.size();
      spell(word, out);
      merge_by_rank(table_, out, from);
    });
  }

  int32_t character_id(std::string_view character) const {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1 && first < 0x80) return plain_[first];
    if (character.size() == 2) {
      const size_t c = (first & size_t{0x1f}) << 6 | (static_cast<unsigned char>(character[1]) & 0x3fu);
      if (c < kPlain && c >= 0x80) return plain_[c];
    }
    return vocabulary_.find(character);
  }

  // The ids before any merge.
  void spell(std::string_view word, std::vector<int32_t>& ids) const {
    std::string decorated;
    bool unknown = false;  // an unknown token is owed: it comes before the next known character
    for (size_t at = 0; at < word.size();) {
      const size_t length = character_length(word[at], word.size() - at);
      std::string_view character = word.substr(at, length);
      const bool first = at == 0, last = at + length == word.size();
      at += length;
      int32_t id;
      if ((first || !prefix_) && (!last || !suffix_)) {
        id = character_id(character);
      } else {
        decorated.assign(first || !prefix_ ? "" : *prefix_).append(character);
        if (last && suffix_) decorated += *suffix_;
        character = decorated;
        id = vocabulary_.find(character);
      }
      if (id != Vocabulary::kNone) {
        if (unknown) ids.push_back(unk_);
        unknown = false;
        ids.push_back(id);
      } else if (!spell_bytes(character, ids) && unk_token_) {
        check(unk_ != Vocabulary::kNone, "BPE", "no token is ", io::quote(character), ", and the unknown token ",
              io::quote(*unk_token_), " is not in the vocabulary");
        if (unknown && !fuse_unk_) ids.push_back(unk_);
        unknown = true;
      }
    }
    if (unknown) ids.push_back(unk_);
  }

  bool spell_bytes(std::string_view character, std::vector<int32_t>& ids) const {
    if (!byte_fallback_) return false;
    for (const char c : character)
      if (bytes_[static_cast<unsigned char>(c)] == Vocabulary::kNone) return false;
    for (const char c : character) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
    return true;
  }

  std::optional<std::string> unk_token_, prefix_, suffix_;
  bool fuse_unk_, byte_fallback_, ignore_merges_, can_cut_ = false;
  int32_t unk_;
  std::vector<int32_t> bytes_;  // the tokens of bytes, where characters fall back on them
  std::vector<std::pair<int32_t, int32_t>> merges_;
  MergeTable table_;
  Joints joints_;
  std::array<int32_t, kPlain> plain_{};
  WordCache cache_;
};

}  // namespace

const TokenModelType kBpeType = {
    .name = "BPE",
    .fields = {"vocab", "merges"},
    .parse = [](const ModelReader& reader) -> std::unique_ptr<TokenModel> {
      return std::make_unique<BpeModel>(reader);
    },
    .train = train_bpe_model,
};

}  // namespace strata::text::detail
