#pragma once
// A table of short byte strings on disk: what was once measured is not measured again, and a rerun takes the same
// choice, however close the race was.

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace strata::cuda {

/// Keys and values in one text file, shared by processes. A file that is not whole, or whose first line is not `title`,
/// is ignored with a warning on standard error and replaced by the next put(). Not thread-safe.
class ChoiceFile {
 public:
  /// At most `most` entries are kept: a full file takes no more. Touches no file.
  ChoiceFile(std::string path, std::string title, size_t most);

  /// Reads the file at the first call.
  std::optional<std::string> find(const std::string& key);
  /// Whether put() of a new key may succeed: there is room, and the folder is there, or could be made, and can be
  /// written.
  bool writable();
  /// Puts `value` down for `key` and returns it; where another process has done so meanwhile, returns what that one
  /// chose. Nothing, with nothing changed, where the file is full or cannot be written. It is replaced in one step.
  std::optional<std::string> put(const std::string& key, const std::string& value);

  const std::string& path() const { return path_; }

 private:
  void read();
  bool write() const;

  std::string path_, title_;
  size_t most_;
  bool read_ = false;
  std::unordered_map<std::string, std::string> values_;
  std::vector<std::string> order_;  // keys, oldest first
};

/// $XDG_CACHE_HOME/strata, else $HOME/.cache/strata; empty where neither is set.
std::string cache_folder();

}  // namespace strata::cuda
