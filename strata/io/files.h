#pragma once
// Files written so that a crash, a kill or a full disk never leaves half of one under its name.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "strata/io/hash.h"

namespace strata::io {

/// What a finished file holds: for checksums kept beside it.
struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t xxh64 = 0;
};

/// Writes a file under a temporary name in the same directory; commit() syncs it, renames it to `path` and syncs the
/// directory. Until then (and for ever, if the writer is destroyed first) whatever was at `path` stays as it was.
///
/// A symbolic link is followed: the file that it leads to is replaced, the link stays. A file that is replaced passes
/// on its permissions and, where we may give it away, its owner. A device, a pipe or an open file's name (/dev/full,
/// /dev/stdout) is written to, and not replaced. A temporary file is locked while its writer lives: what a killed one
/// left is removed by whoever writes the same path next, or by remove_leftovers().
///
/// Every failure is an IoError that names the path; a full disk says how many bytes were needed and how many are free.
/// Limits of the file size and readers that went away (SIGXFSZ, SIGPIPE) are such failures, too.
class FileWriter {
 public:
  /// `expected_bytes`: the size of the whole file where the caller knows it (0 if not), for that message.
  explicit FileWriter(std::string path, uint64_t expected_bytes = 0);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Appends.
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Overwrites bytes that were written before (a header known only at the end). The checksum given by commit() is then
  /// read back from the file. Throws IoError where the path is a device or a pipe.
  void rewrite(uint64_t offset, const void* data, size_t bytes);
  uint64_t bytes_written() const { return written_; }
  WrittenFile commit();

 private:
  [[noreturn]] void fail(std::string_view what, int error, uint64_t wanted);
  void open_temporary(unsigned mode);

  std::string path_;       // as it was given
  std::string target_;     // where its links lead
  std::string temporary_;  // empty: written through to a device or a pipe
  uint64_t expected_ = 0, written_ = 0;
  bool rewritten_ = false, replaces_ = false;
  unsigned mode_ = 0, owner_ = 0, group_ = 0;  // of the file that is replaced
  int fd_ = -1;
  Hasher hasher_;
};

/// FileWriter for a text that is in memory.
WrittenFile write_file(const std::string& path, std::string_view text);
/// Why FileWriter could not write `path` as things stand, found out without touching it; empty where it can.
std::string why_not_writable(const std::string& path);
/// Removes from a directory the temporary files (.NAME.tmp.N) that no living process writes.
void remove_leftovers(const std::string& directory);
/// Renames a file to the first free name of STEM.1.EXT, STEM.2.EXT, ... beside it, and returns that. Throws IoError.
std::string keep_aside(const std::string& path);
/// The whole file as a string; an empty file is an empty string. Files of /proc and pipes are read to their end. Throws
/// IoError where it is missing, unreadable, a directory, or longer than `limit` bytes.
std::string read_file(const std::string& path, uint64_t limit = uint64_t{1} << 30);

/// Makes a directory and its parents. Throws IoError naming the path, e.g. where a file stands in the way.
void make_directories(const std::string& path);
/// Makes the entries of a directory (names, renames) durable.
void sync_directory(const std::string& path);
/// The directory part of a path, "." if it has none.
std::string parent_directory(const std::string& path);

/// "No such file or directory" for ENOENT.
std::string errno_text(int error);
/// `text` in single quotes, made fit for a message: control characters as \xNN, cut after `limit` bytes.
std::string quote(std::string_view text, size_t limit = 80);

}  // namespace strata::io
