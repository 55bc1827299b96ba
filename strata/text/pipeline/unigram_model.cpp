// Unigram: the tokens whose scores sum to the most (Kudo 2018, https://arxiv.org/abs/1804.10959).

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/trie_inl.h"
#include "strata/text/pipeline/word_cache_inl.h"

namespace strata::text::detail {
namespace {

using nlohmann::json;

// How much less than the worst token an unknown character scores.
constexpr double kUnknownPenalty = 10;

struct Piece {
  std::string text;
  double given;  // its score in the file
  double score;
};

// The double that tokenizers makes of this one's shortest digits: it rounds the digits to a double before it divides
// them by their power of ten, so the last bit may differ, and with it which of two equal ways wins.
double as_tokenizers_reads(double value) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, std::abs(value), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false;
  for (const char* at = text; at != end; ++at) {
    if (*at == 'e') {
      int power = 0;
      std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, power);
      exponent += power;
      break;
    }
    if (*at == '.') {
      fraction = true;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      exponent -= fraction;
    }
  }
  auto magnitude = static_cast<double>(digits);
  if (exponent > 0) magnitude *= std::pow(10.0, exponent);
  for (; exponent < 0; exponent += 308) magnitude /= std::pow(10.0, std::min(-exponent, 308));
  return std::copysign(magnitude, value);
}

std::vector<Piece> read_pieces(const ModelReader& reader) {
  const json& list = reader.required("vocab");
  reader.need(list.is_array() && list.size() <= static_cast<size_t>(Vocabulary::kMaxIds), "vocab",
              cat("must be a list of at most ", Vocabulary::kMaxIds, " pairs of a token and its score"));
  std::vector<Piece> pieces;
  pieces.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const json& pair = list[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number())
      reader.fail(cat("vocab[", i, "]"), "must be a token and its score");
    const auto score = pair[1].get<double>();
    reader.need(std::isfinite(score), cat("vocab[", i, "]"), "has a score that is no number");
    pieces.push_back({pair[0].get<std::string>(), score, as_tokenizers_reads(score)});
    if (pieces.back().text.size() > kMaxTokenBytes)
      reader.fail(cat("vocab[", i, "]"),
                  cat("has ", pieces.back().text.size(), " bytes, at most ", kMaxTokenBytes, " are allowed"));
  }
  return pieces;
}

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(const ModelReader& reader)
      : pieces_(read_pieces(reader)), byte_fallback_(reader.flag("byte_fallback")), trie_(trie_of(pieces_)) {
    if (const json* unk = reader.optional("unk_id")) {
      const std::optional<uint64_t> id = whole_number(*unk, pieces_.size());
      reader.need(id.has_value(), "unk_id", cat("must be an id below ", pieces_.size()));
      unk_ = static_cast<int32_t>(*id);
    }
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < pieces_.size(); ++i) least = std::min(least, pieces_[i].score);
    unknown_score_ = least - kUnknownPenalty;
    // The last of equal tokens is found by its text.
    for (size_t i = pieces_.size(); i-- > 0;) by_text_.add(pieces_[i].text, static_cast<int32_t>(i));
    if (byte_fallback_) bytes_ = byte_token_ids(by_text_);
  }

  std::string_view type() const override { return kUnigramType.name; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> id(std::string_view token) const override {
    const int32_t id = by_text_.find(token);
    return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
  }
  std::string_view token(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(pieces_[static_cast<size_t>(id)].text) : std::string_view();
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    check(word.size() <= kMaxWordBytes, "Unigram", "a word has ", word.size(), " bytes, at most ", kMaxWordBytes,
          " are allowed");
    cache_.encode(word, ids, [&](std::vector<int32_t>& out) { encode_anew(word, out); });
  }

  json to_json() const override {
    json vocab = json::array();
    for (const Piece& p : pieces_) vocab.push_back({p.text, p.given});
    return {{"type", type()},
            {"unk_id", unk_ == Vocabulary::kNone ? json() : json(unk_)},
            {"vocab", std::move(vocab)},
            {"byte_fallback", byte_fallback_}};
  }

 private:
  // The best way to the end of a position's bytes.
  struct Best {
    double score;
    int32_t begin;  // of its last token; -1: nothing ends here yet
    int32_t id;
  };

  static Trie trie_of(const std::vector<Piece>& pieces) {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    tokens.reserve(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) tokens.emplace_back(pieces[i].text, static_cast<int32_t>(i));
    return Trie(std::move(tokens));
  }

  void encode_anew(std::string_view word, std::vector<int32_t>& ids) const {
    constexpr size_t kShort = 256;
    Best few[kShort + 1];
    std::vector<Best> many;
    Best* best = few;
    if (word.size() > kShort) {
      many.resize(word.size() + 1);
      best = many.data();
    }
    std::fill_n(best, word.size() + 1, Best{0, -1, 0});
    find_best(word, best);
    const size_t from = ids.size();
    // From the end to the start; what is unknown side by side is one text.
    for (size_t end = word.size(); end > 0;) {
      size_t begin = static_cast<size_t>(best[end].begin);
      const int32_t id = best[end].id;
      if (id != unk_) {
        ids.push_back(id);
      } else {
        while (begin > 0 && best[begin].id == unk_) begin = static_cast<size_t>(best[begin].begin);
        add_unknown(word.substr(begin, end - begin), ids);
      }
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<ptrdiff_t>(from), ids.end());
  }

  // Of equal sums the one whose last token starts first, as in tokenizers.
  void find_best(std::string_view word, Best* best) const {
    for (size_t begin = 0; begin < word.size();) {
      const size_t one = character_length(word[begin], word.size() - begin);
      const double before = best[begin].score;
      bool known = false;
      const auto offer = [&](size_t bytes, double score) {
        Best& b = best[begin + bytes];
        if (b.begin >= 0 && score + before <= b.score) return false;
        b.score = score + before;
        b.begin = static_cast<int32_t>(begin);
        return true;
      };
      trie_.prefixes(word.substr(begin), [&](size_t bytes, int32_t id) {
        known = known || bytes == one;
        if (offer(bytes, pieces_[static_cast<size_t>(id)].score)) best[begin + bytes].id = id;
      });
      if (!known && offer(one, unknown_score_)) {
        check(unk_ != Vocabulary::kNone, "Unigram", "no token is ", io::quote(word.substr(begin, one)),
              ", and the model has no unk_id");
        best[begin + one].id = unk_;
      }
      begin += one;
    }
  }

  // Appends in reverse.
  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
    const int32_t whole = by_text_.find(text);
    if (whole != Vocabulary::kNone) return ids.push_back(whole);
    const bool spelled = byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) {
                           return bytes_[static_cast<unsigned char>(c)] != Vocabulary::kNone;
                         });
    if (!spelled) return ids.push_back(unk_);
    for (size_t i = text.size(); i-- > 0;) ids.push_back(bytes_[static_cast<unsigned char>(text[i])]);
  }

  std::vector<Piece> pieces_;
  bool byte_fallback_;
  int32_t unk_ = Vocabulary::kNone;
  double unknown_score_ = 0;
  Vocabulary by_text_;
  Trie trie_;
  std::vector<int32_t> bytes_;
  WordCache cache_;
};

}  // namespace

const TokenModelType kUnigramType = {
    .name = "Unigram",
    .fields = {"vocab"},
    .parse = [](const ModelReader& reader) -> std::unique_ptr<TokenModel> {
      return std::make_unique<UnigramModel>(reader);
    },
    .train = train_unigram_model,
};

}  // namespace strata::text::detail
