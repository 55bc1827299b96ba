#pragma once
// Byte-pair encoding over bytes (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, in GPT-2's byte-level form).

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/text/tokenizer.h"

namespace strata::text {
namespace detail {
class MergeTable;
}

/// Two ids that become one.
using Merge = std::pair<int32_t, int32_t>;

/// Ids: 0-255 the bytes, then one per merge in the order in which they apply, then the special tokens.
class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws ValueError for a merge of an id that does not exist yet, a pair given twice, a token longer than kMaxPiece
  /// bytes, more than 1,000,000 merges, and empty or repeated special tokens.
  explicit BpeTokenizer(std::vector<Merge> merges, const std::vector<std::string>& special_tokens = {});
  ~BpeTokenizer() override;

  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  const std::map<std::string, int32_t>& special_tokens() const override { return special_; }
  std::string to_json() const override;

  const std::vector<Merge>& merges() const { return merges_; }
  /// The bytes of one token. Throws IndexError.
  const std::string& token(int32_t id) const;

 private:
  void encode_piece(std::string_view piece, std::vector<int32_t>& out) const;

  std::vector<Merge> merges_;
  std::vector<std::string> tokens_;
  std::map<std::string, int32_t> special_;
  std::unique_ptr<const detail::MergeTable> ranks_;
};

/// How train_bpe learns.
struct BpeTrainOptions {
  /// Of the result: 256 bytes + merges + special tokens. Fewer come out where the text has no more pairs to merge.
  int64_t vocab_size = 8192;
  /// Pairs seen less often are not merged.
  int64_t min_frequency = 2;
  /// They get the last ids. Their names are not learned from where they occur in the text.
  std::vector<std::string> special_tokens;
};

/// Learns merges: again and again the pair of neighbouring tokens that occurs most often within pieces (piece_length),
/// equal counts decided by the smaller ids, so that the result depends on the text alone. About linear in the number of
/// distinct words. Throws ValueError for a vocab_size below 256 + special tokens or with more than 1,000,000 merges.
BpeTokenizer train_bpe(std::string_view text, const BpeTrainOptions& options = {});
BpeTokenizer train_bpe(std::span<const std::string_view> texts, const BpeTrainOptions& options = {});

namespace detail {
inline constexpr int64_t kMaxMerges = 1'000'000;
}  // namespace detail

}  // namespace strata::text
