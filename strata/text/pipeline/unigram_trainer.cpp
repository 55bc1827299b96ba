// Training of Unigram: Kudo 2018 (https://arxiv.org/abs/1804.10959), in the form that sentencepiece gave it: seeds,
// expectation and maximisation with a sparse prior, pruning by the loss that the absence of a piece would mean.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/token_trainer.h"
#include "strata/text/pipeline/trie_inl.h"

namespace strata::text::detail {
namespace {

using nlohmann::json;

// Sums go over so many parts, in their order, however many threads there are.
constexpr int64_t kParts = 16;
constexpr double kUnknownPenalty = 10;
// Pieces that are expected less often than this are dropped when probabilities are fitted.
constexpr double kLeastExpected = 0.5;
constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Piece {
  std::string text;
  double score;
};
struct Sentence {
  std::string_view text;
  double count;
};

double log_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

// d/dx log gamma(x), x > 0: its recurrence up to 7, then the asymptotic series (Abramowitz and Stegun, 6.3.18).
double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double r = 1 / (x * x);
  return result + std::log(x) + r * (1.0 / 24 - r * (7.0 / 960 - r * (31.0 / 8064 - r * 127.0 / 30720)));
}

// All ways through a text are edges: a piece, or an unknown character where no piece is that character.
class Lattice {
 public:
  static constexpr int32_t kUnknown = -1;

  explicit Lattice(const std::vector<Piece>& pieces) : pieces_(pieces), trie_(trie_of(pieces)) {
    double least = 0;
    for (const Piece& p : pieces) least = std::min(least, p.score);
    unknown_score_ = least - kUnknownPenalty;
  }
  double least_score() const { return unknown_score_ + kUnknownPenalty; }

  /// f(begin, end, piece or kUnknown, score) for all edges, from the left.
  template <class F>
  void edges(std::string_view text, F&& f) const {
    for (size_t begin = 0; begin < text.size();) {
      const size_t one = character_length(text[begin], text.size() - begin);
      bool known = false;
      trie_.prefixes(text.substr(begin), [&](size_t bytes, int32_t piece) {
        known = known || bytes == one;
        f(begin, begin + bytes, piece, pieces_[static_cast<size_t>(piece)].score);
      });
      if (!known) f(begin, begin + one, kUnknown, unknown_score_);
      begin += one;
    }
  }

 private:
  static Trie trie_of(const std::vector<Piece>& pieces) {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    tokens.reserve(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) tokens.emplace_back(pieces[i].text, static_cast<int32_t>(i));
    return Trie(std::move(tokens));
  }
  const std::vector<Piece>& pieces_;
  Trie trie_;
  double unknown_score_;
};

// The best way: pieces from the right, unknown ones too. `without`: a piece that is not used where it is the whole
// text.
struct Way {
  struct Node {
    double score;
    size_t begin;
    int32_t piece;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> pieces;

  double find(const Lattice& lattice, std::string_view text, int32_t without = Lattice::kUnknown) {
    nodes.assign(text.size() + 1, {kNever, 0, Lattice::kUnknown});
    nodes[0].score = 0;
    lattice.edges(text, [&](size_t begin, size_t end, int32_t piece, double score) {
      if (piece == without && end - begin == text.size() && piece != Lattice::kUnknown) return;
      const double sum = nodes[begin].score + score;
      if (sum > nodes[end].score) nodes[end] = {sum, begin, piece};
    });
    pieces.clear();
    if (nodes[text.size()].score == kNever) return kNever;
    for (size_t end = text.size(); end > 0; end = nodes[end].begin) pieces.push_back(nodes[end].piece);
    return nodes[text.size()].score;
  }
};

class UnigramTrainer {
 public:
  UnigramTrainer(const WordCounts& words, const TokenTrainOptions& options) : options_(options) {
    for (int64_t w = 0; w < words.size(); ++w)
      if (words.count(w) > 0) sentences_.push_back({words.word(w), static_cast<double>(words.count(w))});
    // Sums of floating-point numbers depend on the order.
    std::sort(sentences_.begin(), sentences_.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
    for (const Sentence& s : sentences_) total_ += s.count;
  }

  json train() {
    find_characters();
    make_seeds();
    const auto enough = static_cast<size_t>(options_.vocab_size * 11 / 10);
    for (;;) {
      for (int64_t i = 0; i < options_.n_sub_iterations; ++i) maximise(expect());
      if (pieces_.size() <= enough) break;
      const size_t before = pieces_.size();
      prune(std::max(enough, static_cast<size_t>(static_cast<double>(before) * options_.shrinking_factor)));
      if (pieces_.size() >= before) break;  // nothing is left that may go
    }
    return finish();
  }

 private:
  template <class F>
  static void characters(std::string_view text, F&& f) {
    for (size_t at = 0; at < text.size();) {
      const size_t length = character_length(text[at], text.size() - at);
      f(text.substr(at, length));
      at += length;
    }
  }

  void find_characters() {
    TextTable found;
    std::vector<double> counts;
    const auto add = [&](std::string_view character, double by) {
      const auto [number, is_new] = found.add(character);
      if (is_new) counts.push_back(0);
      counts[static_cast<size_t>(number)] += by;
    };
    for (const Sentence& s : sentences_) characters(s.text, [&](std::string_view c) { add(c, s.count); });
    for (const std::string& c : options_.initial_alphabet) add(c, 0);
    for (int32_t i = 0; i < found.size(); ++i)
      required_.push_back({std::string(found[i]), counts[static_cast<size_t>(i)]});
    std::sort(required_.begin(), required_.end(), by_score);
  }

  static bool by_score(const Piece& a, const Piece& b) {
    return a.score != b.score ? a.score > b.score : a.text < b.text;
  }

  // The characters, and of the substrings of words that occur twice at least and are not always followed by the same
  // character the ones of the largest count times length.
  void make_seeds() {
    struct Suffix {
      std::string_view text;  // to the end of the word, at most one character more than a piece
      double count;
    };
    std::vector<Suffix> suffixes;
    for (const Sentence& s : sentences_) {
      for (size_t begin = 0; begin < s.text.size(); begin += character_length(s.text[begin], s.text.size() - begin)) {
        size_t end = begin;
        for (int64_t n = 0; n <= options_.max_piece_length && end < s.text.size(); ++n)
          end += character_length(s.text[end], s.text.size() - end);
        suffixes.push_back({s.text.substr(begin, end - begin), s.count});
      }
    }
    std::sort(suffixes.begin(), suffixes.end(), [](const Suffix& a, const Suffix& b) { return a.text < b.text; });

    for (const Piece& p : required_)
      if (p.score > 0) pieces_.push_back(p);
    std::vector<Piece> found;
    // The substrings that the suffixes so far have in common with the one before, the longest last.
    struct Open {
      size_t bytes;
      double count;
      bool twice;
    };
    std::vector<Open> open;
    std::string_view last;
    const auto close = [&](size_t common) {
      double count = 0;
      bool twice = false;
      while (!open.empty() && open.back().bytes > common) {
        open.back().count += count;
        open.back().twice = open.back().twice || twice;
        offer(last.substr(0, open.back().bytes), open.back().count, open.back().twice, found);
        count = open.back().count;
        twice = true;
        open.pop_back();
      }
      if (common == 0) return;
      if (open.empty() || open.back().bytes < common) open.push_back({common, 0, true});
      open.back().count += count;
      open.back().twice = true;
    };
    for (const Suffix& s : suffixes) {
      size_t common = static_cast<size_t>(std::mismatch(last.begin(), last.end(), s.text.begin(), s.text.end()).first -
                                          last.begin());
      while (common > 0 && common < s.text.size() && (static_cast<unsigned char>(s.text[common]) & 0xc0) == 0x80)
        --common;
      close(common);
      if (!open.empty() && open.back().bytes == s.text.size()) {
        open.back().count += s.count;
        open.back().twice = true;
      } else {
        open.push_back({s.text.size(), s.count, s.count > 1});
      }
      last = s.text;
    }
    close(0);
    std::sort(found.begin(), found.end(), by_score);
    for (Piece& p : found) {
      if (static_cast<int64_t>(pieces_.size()) >= options_.seed_size) break;
      pieces_.push_back(std::move(p));
    }
    double sum = 0;
    for (const Piece& p : pieces_) sum += p.score;
    for (Piece& p : pieces_) p.score = std::log(p.score) - std::log(sum);
  }

  void offer(std::string_view text, double count, bool twice, std::vector<Piece>& found) const {
    int64_t length = 0;
    characters(text, [&](std::string_view) { ++length; });
    if (twice && length > 1 && length <= options_.max_piece_length)
      found.push_back({std::string(text), count * static_cast<double>(length)});
  }

  // Runs f(part, begin, end) over the sentences in parts.
  template <class F>
  void in_parts(F&& f) const {
    const auto n = static_cast<int64_t>(sentences_.size());
    parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) f(part, n * part / kParts, n * (part + 1) / kParts);
    });
  }

  // How often each piece is expected, over all ways by their probability.
  std::vector<double> expect() const {
    const Lattice lattice(pieces_);
    std::vector<std::vector<double>> parts(kParts);
    in_parts([&](int64_t part, int64_t first, int64_t last) {
      std::vector<double>& expected = parts[static_cast<size_t>(part)];
      expected.assign(pieces_.size(), 0);
      struct Edge {
        size_t begin, end;
        int32_t piece;
        double score;
      };
      std::vector<Edge> edges;
      std::vector<double> forward, backward;
      for (int64_t i = first; i < last; ++i) {
        const Sentence& s = sentences_[static_cast<size_t>(i)];
        edges.clear();
        forward.assign(s.text.size() + 1, kNever);
        backward.assign(s.text.size() + 1, kNever);
        forward[0] = backward[s.text.size()] = 0;
        lattice.edges(s.text, [&](size_t begin, size_t end, int32_t piece, double score) {
          edges.push_back({begin, end, piece, score});
          forward[end] = log_sum(forward[end], forward[begin] + score);
        });
        for (size_t e = edges.size(); e-- > 0;)
          backward[edges[e].begin] = log_sum(backward[edges[e].begin], backward[edges[e].end] + edges[e].score);
        for (const Edge& e : edges)
          if (e.piece != Lattice::kUnknown)
            expected[static_cast<size_t>(e.piece)] +=
                s.count * std::exp(forward[e.begin] + e.score + backward[e.end] - backward[0]);
      }
    });
    return sum_of(parts);
  }

  std::vector<double> sum_of(const std::vector<std::vector<double>>& parts) const {
    std::vector<double> sum(pieces_.size());
    for (const std::vector<double>& part : parts)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    return sum;
  }

  // The digamma functions in place of logarithms are a prior for few pieces (Liang and Klein 2007).
  void maximise(const std::vector<double>& expected) {
    double sum = 0;
    size_t to = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (expected[i] < kLeastExpected) continue;
      sum += expected[i];
      if (to != i) pieces_[to] = std::move(pieces_[i]);
      pieces_[to++].score = expected[i];
    }
    pieces_.resize(to);
    for (Piece& p : pieces_) p.score = digamma(p.score) - digamma(sum);
  }

  // Leaves `size` pieces: those that nothing can stand in for, then those whose absence would cost the most.
  void prune(size_t size) {
    const Lattice lattice(pieces_);
    std::vector<std::vector<double>> used_parts(kParts), weight_parts(kParts);
    in_parts([&](int64_t part, int64_t first, int64_t last) {
      std::vector<double>& used = used_parts[static_cast<size_t>(part)];
      used.assign(pieces_.size(), 0);
      Way way;
      for (int64_t i = first; i < last; ++i) {
        way.find(lattice, sentences_[static_cast<size_t>(i)].text);
        for (const int32_t piece : way.pieces)
          if (piece != Lattice::kUnknown) used[static_cast<size_t>(piece)] += sentences_[static_cast<size_t>(i)].count;
      }
    });
    const std::vector<double> used = sum_of(used_parts);
    const double sum = std::accumulate(used.begin(), used.end(), 0.0);
    std::vector<char> stays(pieces_.size(), 0);
    std::vector<std::pair<double, size_t>> losses(pieces_.size(), {kNever, 0});
    parallel_for(0, static_cast<int64_t>(pieces_.size()), 1024, [&](int64_t first, int64_t last) {
      Way way;
      for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
        const double other = way.find(lattice, pieces_[i].text, static_cast<int32_t>(i));
        if (other > pieces_[i].score) continue;  // it is never the best way, even of its own text
        const bool replaced =
            other != kNever && std::find(way.pieces.begin(), way.pieces.end(), Lattice::kUnknown) == way.pieces.end();
        if (!replaced) {
          stays[i] = 1;
        } else if (used[i] > 0) {
          const double all = std::log(sum + used[i] * static_cast<double>(way.pieces.size() - 1));
          double instead = 0;
          for (const int32_t piece : way.pieces) instead += std::log(used[static_cast<size_t>(piece)] + used[i]) - all;
          losses[i] = {used[i] / total_ * (std::log(used[i]) - std::log(sum) - instead), i};
        }
      }
    });
    const auto count = static_cast<size_t>(std::count(stays.begin(), stays.end(), 1));
    std::erase_if(losses, [](const auto& l) { return l.first == kNever; });
    std::sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    losses.resize(std::min(losses.size(), size > count ? size - count : 0));
    for (const auto& [loss, i] : losses) stays[i] = 1;
    size_t to = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!stays[i]) continue;
      if (to != i) pieces_[to] = std::move(pieces_[i]);
      ++to;
    }
    pieces_.resize(to);
  }

  // Special tokens, then the characters and the pieces of the best scores, up to the vocabulary's size.
  json finish() {
    std::vector<std::string> special = options_.special_tokens;
    json unk_id;
    if (options_.unk_token) {
      const auto found = std::find(special.begin(), special.end(), *options_.unk_token);
      unk_id = found == special.end() ? 0 : found - special.begin();
      if (found == special.end()) special.insert(special.begin(), *options_.unk_token);
    }
    double least = 0;
    for (const Piece& p : pieces_) least = std::min(least, p.score);
    std::sort(pieces_.begin(), pieces_.end(), by_score);
    TextTable taken;
    for (const std::string& token : special) taken.add(token);
    TextTable known;
    for (const Piece& p : pieces_) known.add(p.text);
    std::vector<Piece> result;
    for (const Piece& c : required_) {
      if (!taken.add(c.text).second) continue;
      const int32_t at = known.find(c.text);
      result.push_back({c.text, at == TextTable::kNone ? least : pieces_[static_cast<size_t>(at)].score});
      if (at == TextTable::kNone) least -= kStep;  // no two of them equal
    }
    const size_t room = static_cast<size_t>(options_.vocab_size) -
                        std::min<size_t>(special.size(), static_cast<size_t>(options_.vocab_size));
    for (const Piece& p : pieces_) {
      if (result.size() >= room) break;
      if (taken.add(p.text).second) result.push_back(p);
    }
    std::sort(result.begin(), result.end(), by_score);
    json vocab = json::array();
    for (const std::string& token : special) vocab.push_back({token, 0.0});
    for (const Piece& p : result) vocab.push_back({p.text, p.score});
    return {{"type", kUnigramType.name},
            {"unk_id", std::move(unk_id)},
            {"vocab", std::move(vocab)},
            {"byte_fallback", false}};
  }

  static constexpr double kStep = 1e-4;
  const TokenTrainOptions& options_;
  std::vector<Sentence> sentences_;
  double total_ = 0;
  std::vector<Piece> required_;  // the characters; their scores are their counts
  std::vector<Piece> pieces_;
};
}  // namespace

json train_unigram_model(const WordCounts& words, const TokenTrainOptions& options) {
  return UnigramTrainer(words, options).train();
}

}  // namespace strata::text::detail
