#pragma once
// Texts of different lengths packed into rows of one length, for attention that stays within each text.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/data/sequences.h"

namespace strata::data {

/// How texts are laid into rows.
enum class Packing : uint8_t {
  cut,        ///< one behind another, cut where a row ends: no row has room left but the last
  next_fit,   ///< one behind another; what does not fit any more begins the next row
  first_fit,  ///< of a window of texts the longest first, each into the first row that has room (first fit decreasing)
};
std::span<const std::string_view> packings();
std::string_view to_string(Packing packing);
/// Throws ValueError that lists them.
Packing parse_packing(std::string_view name);

/// What is done with a text that is longer than a row.
enum class LongText : uint8_t {
  split,     ///< its parts are texts of their own
  truncate,  ///< its end is left out
  drop,      ///< it is left out
};
std::span<const std::string_view> long_texts();
std::string_view to_string(LongText way);
/// Throws ValueError that lists them.
LongText parse_long_text(std::string_view name);

struct PackedRowsOptions {
  /// Tokens of a row, T.
  int64_t context = 1024;
  Packing packing = Packing::first_fit;
  LongText long_text = LongText::truncate;
  /// Texts that Packing::first_fit looks at together.
  int64_t window = 4096;
  /// The order in which texts are packed: drawn by the seed, or as they come.
  bool shuffle = true;
  uint64_t seed = 0;
  /// Of the tensors: i64 or i32.
  DType dtype = DType::i64;
};

/// Rows of T tokens, each of one text or several. A text of n tokens takes n - 1 places: each of its tokens but the
/// last is an input, whose target is the one behind it, or kIgnored where that is not learned. What stands where
/// depends on the texts and the options alone; a DataLoader shuffles the rows and resumes as with any Dataset.
///
/// A batch has {tokens, targets, positions, documents, ends}: the first four [B, T], with positions from 0 in each text
/// and documents counting the texts of a row from 0; what is left of a row has token 0, target kIgnored and, where
/// there is any, a document of its own. ends [B, texts_per_row()] has where each text of a row ends, T in the places
/// behind: packed_ends() makes of it what varlen_attention takes, and packed_mask() the mask that
/// scaled_dot_product_attention takes. Both work on the batch's device and keep their shapes, so they may be captured.
/// \code
///   auto rows = std::make_shared<data::PackedRows>(chats, data::PackedRowsOptions{.context = 2048});
///   data::DataLoader loader(rows, {.batch_size = 4, .shuffle = true, .seed = 1, .repeat = true});
///   const data::Batch b = *loader.next();
///   const Tensor ends = data::packed_ends(b[4], 2048);
///   // q, k, v [4 * 2048, heads, D]: varlen_attention(q, k, v, ends, ends, {.is_causal = true})
/// \endcode
class PackedRows final : public Dataset {
 public:
  /// What cross_entropy takes for "no target".
  static constexpr int64_t kIgnored = -100;

  /// Throws ValueError: a context < 1, a window < 1, another dtype, or no text with something to learn.
  PackedRows(std::shared_ptr<const Sequences> texts, const PackedRowsOptions& options = {});
  int64_t size() const override { return static_cast<int64_t>(rows_.size()) - 1; }
  Batch get_batch(std::span<const Sample> samples) const override;

  /// The second dimension of `ends`: the most texts of a row, and one more where a row has room left.
  int64_t texts_per_row() const { return texts_per_row_; }
  /// Places of all rows that hold a text, from 0 to 1.
  double fill() const;
  /// Targets of all rows that are not kIgnored.
  int64_t learned() const { return learned_; }
  /// Texts of which all or the end was left out: too long (by LongText), or without anything to learn.
  int64_t truncated() const { return truncated_; }
  int64_t dropped() const { return dropped_; }

 private:
  struct Piece {
    int64_t text = 0;   // of texts_
    int64_t begin = 0;  // the first input
    int64_t count = 0;  // inputs
  };
  std::vector<Piece> make_pieces();
  void pack(std::vector<Piece> pieces);

  std::shared_ptr<const Sequences> texts_;
  PackedRowsOptions options_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> rows_;  // where each row's pieces begin, and the end of all
  int64_t texts_per_row_ = 1, learned_ = 0, truncated_ = 0, dropped_ = 0;
};

/// cu_seqlens for varlen_attention over the rows of a batch as one: from ends [B, N] i64, on any device, to i64
/// [B * N + 1], from 0 to B * context. Texts without tokens are among them.
Tensor packed_ends(const Tensor& ends, int64_t context);
/// [B, 1, T, T] boolean, for scaled_dot_product_attention: whether query and key are of the same text, from
/// documents [B, T].
Tensor packed_mask(const Tensor& documents);

}  // namespace strata::data
