#include "strata/train/run_lock.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>

#include "strata/core/error.h"

namespace strata {

RunLock::RunLock(const std::string& out) : folder_(::open(out.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_.fd < 0) return;  // writing there will say why
  while (::flock(folder_.fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    check<IoError>(errno != EWOULDBLOCK, "train", "another process is training into '", out,
                   "': wait for its end, or give another --out");
    return;
  }
}

}  // namespace strata
