#pragma once
// What somebody may have meant who wrote a word that is not known.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strata::text {

/// Levenshtein distance: insertions, deletions and substitutions of a byte that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest of `known`, where it is near enough to be what was meant (a third of the word, or two bytes, apart);
/// otherwise empty.
std::string_view nearest(std::string_view word, std::span<const std::string> known);

}  // namespace strata::text
