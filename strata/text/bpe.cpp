#include "strata/text/bpe.h"

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/merges_inl.h"
#include "strata/text/presplit.h"

namespace strata::text {

BpeTokenizer::BpeTokenizer(std::vector<Merge> merges, const std::vector<std::string>& special_tokens)
    : merges_(std::move(merges)) {
  constexpr std::string_view op = "tokenizer";
  check(static_cast<int64_t>(merges_.size()) <= detail::kMaxMerges, op, "has ", merges_.size(), " merges, at most ",
        detail::kMaxMerges, " are allowed");
  auto ranks = std::make_unique<detail::MergeTable>();
  ranks->reserve(merges_.size());
  tokens_.reserve(256 + merges_.size() + special_tokens.size());
  for (int b = 0; b < 256; ++b) tokens_.emplace_back(1, static_cast<char>(b));
  for (size_t i = 0; i < merges_.size(); ++i) {
    const auto [left, right] = merges_[i];
    const auto id = static_cast<int32_t>(tokens_.size());
    check(left >= 0 && left < id && right >= 0 && right < id, op, "merge ", i, " is of ids ", left, " and ", right,
          ", only 0 to ", id - 1, " exist before it");
    check(tokens_[left].size() + tokens_[right].size() <= kMaxPiece, op, "merge ", i, " makes a token of ",
          tokens_[left].size() + tokens_[right].size(), " bytes, at most ", kMaxPiece, " can occur");
    check(ranks->add(left, right, {static_cast<uint32_t>(i), id}), op, "merge ", i, " of ids ", left, " and ", right,
          " is given twice");
    tokens_.push_back(tokens_[left] + tokens_[right]);
  }
  for (const std::string& name : special_tokens) {
    check(!name.empty(), op, "a special token cannot be empty");
    check(special_.emplace(name, static_cast<int32_t>(tokens_.size())).second, op, "the special token ",
          io::quote(name), " is given twice");
    tokens_.push_back(name);
  }
  ranks_ = std::move(ranks);
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& out) const {
  const size_t from = out.size();
  for (const char c : piece) out.push_back(static_cast<unsigned char>(c));
  detail::merge_by_rank(*ranks_, out, from);
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  struct Range {
    size_t begin, end;
  };
  // Words repeat: the ids of each are copied from where the word was first encoded in this text.
  std::unordered_map<std::string_view, Range> seen;
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 8);
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, piece_length(text));
    text.remove_prefix(piece.size());
    if (piece.size() == 1) {
      out.push_back(static_cast<unsigned char>(piece[0]));
      continue;
    }
    const auto [entry, is_new] = seen.try_emplace(piece, Range{out.size(), 0});
    if (is_new) {
      encode_piece(piece, out);
      entry->second.end = out.size();
    } else {
      const Range range = entry->second;
      const size_t old = out.size();
      out.resize(old + range.end - range.begin);
      std::copy(out.begin() + range.begin, out.begin() + range.end, out.begin() + old);
    }
  }
  return out;
}

const std::string& BpeTokenizer::token(int32_t id) const {
  check<IndexError>(id >= 0 && id < vocab_size(), "tokenizer", "id ", id, " is out of range, the vocabulary has ",
                    vocab_size());
  return tokens_[static_cast<size_t>(id)];
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token(id);
  return text;
}

std::string BpeTokenizer::to_json() const {
  std::vector<std::string> special(special_.size());
  for (const auto& [name, id] : special_) special[static_cast<size_t>(id) - 256 - merges_.size()] = name;
  // By hand: a line per merge would be long, a tree of a million pairs is heavy.
  std::string s = "{\"format\":\"strata-tokenizer\",\"version\":1,\"type\":\"bpe\",\"special_tokens\":[";
  for (const std::string& name : special) {
    if (s.back() != '[') s += ',';
    try {
      s += nlohmann::json(name).dump();
    } catch (const nlohmann::json::exception&) {
      throw ValueError("tokenizer", cat("the special token ", io::quote(name), " is not UTF-8"));
    }
  }
  s += "],\"merges\":[";
  for (size_t i = 0; i < merges_.size(); ++i)
    s += cat(i ? "," : "", i % 16 ? "" : "\n", "[", merges_[i].first, ",", merges_[i].second, "]");
  return s + "]}\n";
}

}  // namespace strata::text
