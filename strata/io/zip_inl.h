#pragma once
// Zip archives (PKWARE's APPNOTE.TXT 4.3, zip64 included) whose entries are stored, as PyTorch writes them: where in
// the file the bytes of each are. Nothing is unpacked.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "strata/io/source_inl.h"

namespace strata::io {

/// A longer list of entries is refused.
inline constexpr uint64_t kMaxZipDirectory = 100'000'000;

/// An archive's list of entries.
class ZipFile {
 public:
  /// Reads the list; the source stays the caller's. Throws IoError that names the file and the byte, where it is no zip
  /// archive, is cut off, is one of several volumes, its records disagree or leave the file, or a name is given twice.
  explicit ZipFile(const Source& source);

  /// Where an entry's bytes are.
  struct Place {
    uint64_t offset = 0, size = 0;
  };
  bool contains(std::string_view name) const { return entries_.contains(name); }
  /// Throws IoError where there is no such entry, it is compressed or encrypted, or its own header says otherwise than
  /// the list.
  Place place(std::string_view name) const;
  /// All of an entry. Throws IoError as place(), and where it is longer than `limit`.
  std::string read(std::string_view name, uint64_t limit) const;

  struct Entry {
    uint64_t header = 0, size = 0, packed = 0;  // header: offset of its own
    uint16_t method = 0, flags = 0;
  };
  /// By name.
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

 private:
  const Source& source_;
  uint64_t directory_ = 0;  // offset of the list; entries lie before it
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace strata::io
