#pragma once
// A file's bytes in memory without reading it: the pages come when they are touched.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strata::io {

/// A read-only memory map of a whole regular file, unmapped by the destructor. Move-only; the map stays valid when the
/// file is renamed, replaced or deleted. Truncating a mapped file in place is outside what a map can survive (SIGBUS):
/// Strata's own writers never do it, they replace files.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError naming `path` where it is missing, unreadable, empty, or not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Tells the system that the file will be read once from front to back (read ahead, drop behind).
  void advise_sequential() const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace strata::io
