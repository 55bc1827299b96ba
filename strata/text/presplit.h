#pragma once
// Cutting text into the pieces that byte-pair merges never cross.

#include <cstddef>
#include <string_view>

namespace strata::text {

/// No piece is longer: bounds the work per piece, and the length of a token, on any input.
inline constexpr size_t kMaxPiece = 256;

/// Length of the piece that `text` (not empty) starts with, by the rule of GPT-2 (Radford et al. 2019), whose pattern
/// is
///   's|'t|'re|'ve|'m|'ll|'d| ?letters| ?digits| ?others|whitespace not followed by a word|whitespace
/// with two differences: every byte from 0x80 counts as a letter (so that no Unicode tables are needed; UTF-8 words
/// stay whole), and a piece ends after at most kMaxPiece bytes, before a UTF-8 sequence where possible.
size_t piece_length(std::string_view text);

}  // namespace strata::text
