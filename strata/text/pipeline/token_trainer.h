#pragma once
// Training of the models that tokenizer.json describes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "strata/text/pipeline/word_counts.h"

namespace strata::text {

/// How train_token_model learns; names and defaults are those of tokenizers' trainers. What a model has no use for is
/// not looked at.
struct TokenTrainOptions {
  /// Of the result, special tokens included. Fewer come out where the words have no more to learn; more where their
  /// characters alone are more.
  int64_t vocab_size = 30'000;
  /// BPE, WordPiece: pairs seen less often are not merged. WordLevel: words seen less often are left out.
  int64_t min_frequency = 0;
  /// They get the first ids.
  std::vector<std::string> special_tokens;
  /// BPE, WordPiece: the most characters to start from; the rarest are left out, of equals the larger.
  std::optional<int64_t> limit_alphabet;
  /// Characters (UTF-8, each of one string) that are tokens even where no word has them.
  std::vector<std::string> initial_alphabet;
  /// BPE: what comes before a character within a word; WordPiece: "##" where it is not given.
  std::optional<std::string> continuing_subword_prefix;
  /// BPE, WordPiece: what comes after a word's last character.
  std::optional<std::string> end_of_word_suffix;
  /// BPE: tokens made by merges are of fewer characters.
  std::optional<int64_t> max_token_length;
  /// Unigram: the part of the pieces that a pruning keeps.
  double shrinking_factor = 0.75;
  /// Unigram: steps of expectation and maximisation before each pruning.
  int64_t n_sub_iterations = 2;
  /// Unigram: characters of a piece.
  int64_t max_piece_length = 16;
  /// Unigram: pieces to start from.
  int64_t seed_size = 1'000'000;
  /// The unknown token: added in front where it is no special token (Unigram), written into the model. Where it is not
  /// given, BPE and Unigram have none, WordPiece has "[UNK]" and WordLevel "<unk>".
  std::optional<std::string> unk_token;
};

/// Learns a model of this type ("BPE", "WordPiece", "WordLevel", "Unigram") and returns it as it stands under "model"
/// in tokenizer.json. It depends on the words and their counts alone.
///
/// BPE merges again and again the most frequent pair of neighbours, of equals the one with the smaller ids, as
/// tokenizers does, to the same vocabulary and merges. WordPiece is BPE's vocabulary with prefixed characters.
/// WordLevel has the most frequent words. Unigram (Kudo 2018, https://arxiv.org/abs/1804.10959) starts from the
/// substrings that occur most, fits their probabilities by expectation and maximisation, and drops those whose loss
/// harms least. Throws ValueError for options out of range and for an unknown type.
nlohmann::json train_token_model(std::string_view type, const WordCounts& words, const TokenTrainOptions& options = {});

}  // namespace strata::text
