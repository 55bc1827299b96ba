#include "strata/memory/disk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <system_error>

#include "strata/core/error.h"
#include "strata/memory/disk_engine.h"
#include "strata/memory/disk_store.h"

namespace strata::memory {
namespace {

int open_unnamed(const std::string& directory, int flags) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  // What file systems without such files answer; an old kernel takes the flag for O_DIRECTORY.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)) return fd;
  return open_and_unlink(directory, flags);
}

// A file system may open a file so, and refuse to read it.
bool takes_pages(int fd) {
  const std::unique_ptr<void, void (*)(void*)> page(std::aligned_alloc(kDiskPage, kDiskPage), std::free);
  return page && reserve_in_file(fd, 0, kDiskPage) == 0 &&
         ::pread(fd, page.get(), kDiskPage, 0) == static_cast<ssize_t>(kDiskPage);
}

}  // namespace

int open_and_unlink(const std::string& directory, int flags) {
  std::string name = directory + "/.strata-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

UnnamedFile::UnnamedFile(const std::string& directory, bool direct) : directory_(directory) {
  if (direct) {
    fd_ = open_unnamed(directory, O_DIRECT);
    direct_ = fd_ >= 0 && takes_pages(fd_);
    if (fd_ >= 0 && !direct_) {
      ::close(fd_);
      fd_ = -1;
    }
  }
  if (fd_ < 0) fd_ = open_unnamed(directory, 0);
  check<IoError>(fd_ >= 0, "DiskStore", "cannot make a file in ", directory, ": ", std::generic_category().message(errno));
}

UnnamedFile::~UnnamedFile() {
  if (fd_ >= 0) ::close(fd_);
}

UnnamedFile::Room UnnamedFile::room() const {
  struct stat file {};
  struct statvfs system {};
  if (::fstat(fd_, &file) != 0 || ::fstatvfs(fd_, &system) != 0) return {};
  return {file.st_dev, static_cast<int64_t>(system.f_bavail * system.f_frsize)};
}

void FreeExtents::Kind::add(int64_t offset, int64_t nbytes) {
  by_offset.emplace(offset, nbytes);
  by_size.emplace(nbytes, offset);
}
void FreeExtents::Kind::remove(std::map<int64_t, int64_t>::iterator at) {
  by_size.erase({at->second, at->first});
  by_offset.erase(at);
}

FreeExtents::Taken FreeExtents::take(int64_t nbytes) {
  for (const bool backed : {true, false}) {
    Kind& kind = kinds_[backed];
    const auto fit = kind.by_size.lower_bound({nbytes, 0});
    if (fit == kind.by_size.end()) continue;
    const auto [size, offset] = *fit;
    kind.remove(kind.by_offset.find(offset));
    if (size > nbytes) kind.add(offset + nbytes, size - nbytes);
    if (backed) backed_bytes_ -= nbytes;
    return {offset, backed};
  }
  end_ += nbytes;
  return {end_ - nbytes, false};
}

void FreeExtents::give(int64_t offset, int64_t nbytes, bool backed) {
  if (backed) backed_bytes_ += nbytes;
  Kind& kind = kinds_[backed];
  const auto after = kind.by_offset.lower_bound(offset);
  if (after != kind.by_offset.end() && after->first == offset + nbytes) {
    nbytes += after->second;
    kind.remove(after);
  }
  const auto next = kind.by_offset.lower_bound(offset);
  if (next != kind.by_offset.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      nbytes += before->second;
      kind.remove(before);
    }
  }
  if (!backed && offset + nbytes == end_) {
    end_ = offset;
    return;
  }
  kind.add(offset, nbytes);
}

}  // namespace strata::memory
