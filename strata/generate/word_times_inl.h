#pragma once
// When words are said, from how a decoder reads what the encoder gave.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/text/tokenizer.h"

namespace strata::detail {

/// Where on the path of least cost through costs [rows, columns] each row begins: a column for each row, none less than
/// the one before it. A path takes steps of a row, a column or both; of equal ways a column, as transformers has it
/// (dynamic time warping, Sakoe and Chiba, 1978).
std::vector<int64_t> warped(std::span<const double> costs, int64_t rows, int64_t columns);

/// The place of the source at which each token begins, from attention weights [heads, tokens, places] on any device:
/// weights are normalised over the tokens, smoothed along the places by a median of `width`, averaged over the heads.
std::vector<int64_t> token_places(const Tensor& weights, int64_t width);

/// Tokens from `begin` up to `end` of a list that are a word.
struct TokenWord {
  size_t begin = 0, end = 0;
  std::string text;
};
/// The words of tokens, as transformers' WhisperTokenizer finds them: tokens up to a blank, with punctuation beside
/// them; in languages without blanks each character.
std::vector<TokenWord> words_of(const text::Tokenizer& tokenizer, std::span<const int64_t> tokens, bool blanks);
/// Whether words of a language ("<|zh|>") have blanks between them.
bool has_blanks(const std::string& language);

}  // namespace strata::detail
