#pragma once
// The reference of the classes, written from the headers' comments.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace strata::docs {

/// (file name, contents) of an index, README.md, and of one page for each room, from the headers under `root`/strata.
/// `is_private` is the pattern of headers that are not for programs.
std::vector<std::pair<std::string, std::string>> class_reference(const std::filesystem::path& root,
                                                                 const std::string& is_private);

}  // namespace strata::docs
