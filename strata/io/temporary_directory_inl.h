#pragma once
// Directories that are made under another name, and get their own when they are whole.

#include <optional>
#include <string>
#include <string_view>

#include "strata/io/descriptor.h"

namespace strata::io {

/// What their names begin with until then.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// A new directory PARENT/.tmp-NAME-PROCESS-N, locked while this lives, deleted with it unless it was renamed.
class TemporaryDirectory {
 public:
  /// Throws IoError where it cannot be made.
  TemporaryDirectory(const std::string& parent, std::string_view name);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<Descriptor> lock_;
};

/// Removes from `parent` what killed processes left: directories whose names begin so and that nobody has locked.
void remove_leftover_directories(const std::string& parent, std::string_view prefix);

}  // namespace strata::io
