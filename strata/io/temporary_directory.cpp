#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temporary_directory_inl.h"

namespace strata::io {
namespace fs = std::filesystem;

TemporaryDirectory::TemporaryDirectory(const std::string& parent, std::string_view name) {
  static std::atomic<uint64_t> counter{0};
  while (!lock_) {
    path_ = (fs::path(parent) / cat(kTemporaryPrefix, name, "-", ::getpid(), "-", ++counter)).string();
    if (::mkdir(path_.c_str(), 0777) != 0) {
      const int error = errno;
      check<IoError>(error == EEXIST, "", "cannot make a directory in '", parent, "': ", errno_text(error));
      continue;
    }
    lock_.emplace(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    check<IoError>(lock_->fd >= 0 || errno == ENOENT, "", "cannot open '", path_, "': ", errno_text(errno));
    // somebody who cleans up may have had it between the calls; where there are no locks, nobody does
    if (lock_->fd < 0 || (!try_lock(lock_->fd) && errno == EWOULDBLOCK) || !is_named(lock_->fd, path_)) lock_.reset();
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (is_named(lock_->fd, path_)) fs::remove_all(path_, ignored);
}

void remove_leftover_directories(const std::string& parent, std::string_view prefix) {
  std::error_code ignored;
  std::vector<std::string> found;
  for (auto it = fs::directory_iterator(parent, ignored); !ignored && it != fs::directory_iterator();
       it.increment(ignored))
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path().string());
  for (const std::string& path : found) {
    const Descriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)};
    if (folder.fd >= 0 && try_lock(folder.fd)) fs::remove_all(path, ignored);
  }
}

}  // namespace strata::io
