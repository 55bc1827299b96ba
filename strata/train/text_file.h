#pragma once
// Small text files, read and written whole.

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

/// The first `limit` bytes of a file. Throws IoError (no such file, a directory, no permission).
std::string read_text_file(const std::string& path, size_t limit = static_cast<size_t>(-1));

/// Writes `text` under a temporary name beside `path`, then renames it: a reader never sees half of it.
/// Throws IoError (no such folder, disk full).
void write_text_file(const std::string& path, std::string_view text);

/// Bytes of the valid UTF-8 sequence at the start of `text`, which is not empty; 0 where there is none.
size_t utf8_length(std::string_view text);

/// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace strata
