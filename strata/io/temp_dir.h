#pragma once
// Scratch space, for tests and examples.

#include <string>
#include <string_view>

namespace strata::io {

/// An empty directory, deleted with all that is in it when the object goes.
class TempDir {
 public:
  /// Makes an empty directory with a name of its own under $TMPDIR or /tmp. Throws IoError.
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  /// The path of an entry in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace strata::io
