#pragma once
// Models of sentencepiece (tokenizer.model), as what tokenizer.json says.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace strata::text {

/// What a piece of a vocabulary is; the numbers are those in files (tokenizer.model, GGUF's token_type).
enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// A sentencepiece model: pieces, and how texts are normalised. Defaults are those of its files.
struct SentencePieceModel {
  enum class Kind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  Kind kind = Kind::unigram;
  std::vector<Piece> pieces;  // ids are their places
  bool byte_fallback = false;
  bool split_by_whitespace = true;
  bool treat_whitespace_as_suffix = false;
  /// A blank is set before the text; blanks at both ends and beside blanks are removed; blanks are written U+2581.
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string precompiled_charsmap;  // the table of normalisations, empty: none
  std::string bos_piece = "<s>", eos_piece = "</s>";
};

/// Reads a tokenizer.model. Throws IoError naming `source`, and the byte or the piece that is wrong.
SentencePieceModel parse_sentencepiece(std::string_view bytes, std::string_view source);

/// Ids that go around a text.
struct AddedEnds {
  std::optional<int32_t> bos, eos;
};

/// What tokenizer.json would say: "model" (Unigram or BPE), "normalizer", "pre_tokenizer", "decoder", "added_tokens"
/// (control pieces, which are special, and those that users defined) and, for ids in `ends`, "post_processor".
///
/// The merges of a BPE model are all the ways to join two pieces to a third, in the order of the third's score. Throws
/// ValueError for kinds and options that tokenizer.json cannot say.
nlohmann::json tokenizer_json(const SentencePieceModel& model, const AddedEnds& ends = {});

}  // namespace strata::text
