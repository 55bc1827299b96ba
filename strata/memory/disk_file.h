#pragma once
// One file of a DiskStore: opened without a name, and which bytes of it are free.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace strata::memory {

/// A file that has no name, so that it ends with the process. Move-only.
class UnnamedFile {
 public:
  /// Opens one in a directory, with O_DIRECT if wanted and possible. Throws IoError naming the directory.
  UnnamedFile(const std::string& directory, bool direct);
  ~UnnamedFile();
  UnnamedFile(UnnamedFile&& other) noexcept
      : directory_(std::move(other.directory_)), fd_(std::exchange(other.fd_, -1)), direct_(other.direct_) {}
  UnnamedFile& operator=(UnnamedFile&&) = delete;

  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  const std::string& directory() const { return directory_; }
  /// What is left for this process on its file system, and which that is.
  struct Room {
    uint64_t device = 0;
    int64_t free = 0;
  };
  Room room() const;

 private:
  std::string directory_;
  int fd_ = -1;
  bool direct_ = false;
};

/// For file systems that know no file without a name: one that loses it at once. A descriptor, or -1 with errno.
int open_and_unlink(const std::string& directory, int flags);

/// The free bytes of a file that may grow without end: those that the file system gave already ("backed"), and those that
/// it has to give first. Neighbours of one kind are one. Not thread-safe.
class FreeExtents {
 public:
  struct Taken {
    int64_t offset = -1;
    bool backed = false;
  };
  /// The smallest backed extent that is large enough, else the smallest other one, else the file's end.
  Taken take(int64_t nbytes);
  /// Gives bytes back. `backed`: the file system has given them.
  void give(int64_t offset, int64_t nbytes, bool backed);
  int64_t backed_bytes() const { return backed_bytes_; }
  /// Calls visit(offset, nbytes) for each backed extent; from then on none is.
  template <class Visit>
  void release_backed(Visit&& visit) {
    const std::map<int64_t, int64_t> all = std::exchange(kinds_[1].by_offset, {});
    kinds_[1].by_size.clear();
    backed_bytes_ = 0;
    for (const auto& [offset, nbytes] : all) {
      visit(offset, nbytes);
      give(offset, nbytes, false);
    }
  }

 private:
  struct Kind {
    std::map<int64_t, int64_t> by_offset;         // -> bytes
    std::set<std::pair<int64_t, int64_t>> by_size;  // (bytes, offset)
    void add(int64_t offset, int64_t nbytes);
    void remove(std::map<int64_t, int64_t>::iterator at);
  };
  Kind kinds_[2];
  int64_t end_ = 0, backed_bytes_ = 0;
};

}  // namespace strata::memory
