#pragma once
// A file that is read here and there.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "strata/io/hash.h"

namespace strata::io {

/// An open regular file, read from any offset by any thread. It stays what it was when another file takes its name or
/// it is deleted. Where it was cut meanwhile, reading is an error, as it is where the disk fails: that is why files are
/// read here and not mapped into memory, where both would end the process. Move-only.
class InputFile {
 public:
  InputFile() = default;
  /// Throws IoError naming `path` where it is missing, unreadable, empty, or not a regular file.
  explicit InputFile(const std::string& path);
  /// The file `name` in an open directory; `path` stands in the messages.
  InputFile(int directory, const std::string& name, std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  /// The same open file once more.
  InputFile again() const;

  /// Bytes that it had when it was opened.
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Reads [offset, offset + bytes). Throws IoError: past the end, or the file was cut, or could not be read.
  void read(uint64_t offset, void* to, size_t bytes) const;
  /// Asks the system to read these bytes into its cache, and does not wait for them. Where it cannot, nothing is said.
  void will_need(uint64_t offset, uint64_t bytes) const noexcept;
  /// The same as read(), as a text.
  std::string read(uint64_t offset, size_t bytes) const;
  /// Appends all of it to what is hashed.
  void hash(Hasher& hasher) const;

 private:
  void open(int directory, const std::string& name);

  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_;
};

}  // namespace strata::io
