#include "strata/io/descriptor.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace strata::io {
namespace {

// Holds SIGXFSZ and SIGPIPE back from this thread. Both come from its own writes; those that came meanwhile are taken
// away again, one that was pending before stays.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&mine_);
    for (const int s : {SIGXFSZ, SIGPIPE})
      if (!sigismember(&pending, s)) sigaddset(&mine_, s);
    pthread_sigmask(SIG_BLOCK, &mine_, &before_);
  }
  ~HeldSignals() {
    if (failed) {
      const timespec now{};
      while (sigtimedwait(&mine_, nullptr, &now) > 0 || errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  bool failed = false;

 private:
  sigset_t mine_, before_;
};

}  // namespace

int write_all(int fd, const void* data, size_t bytes, size_t& done) {
  HeldSignals signals;
  const char* p = static_cast<const char*>(data);
  for (done = 0; done < bytes;) {
    const ssize_t n = ::write(fd, p + done, std::min<size_t>(bytes - done, size_t{1} << 30));
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    const int error = n < 0 ? errno : EIO;
    if (error == EINTR) continue;
    signals.failed = true;
    return error;
  }
  return 0;
}

bool is_named(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

bool try_lock(int fd) {
  int status;
  do status = ::flock(fd, LOCK_EX | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return status == 0;
}

}  // namespace strata::io
