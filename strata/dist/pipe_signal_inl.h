// SIGPIPE, kept from one thread while it writes to sockets that may be closed.
#pragma once

#include <signal.h>
#include <time.h>

namespace strata::distributed::detail {

// Blocks SIGPIPE for the calling thread, takes away what its own writes raised meanwhile and leaves one that was pending
// before. A thread that begins meanwhile keeps it blocked.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    ours_ = !sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    while (ours_ && sigtimedwait(&pipe_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
  bool ours_;
};

}  // namespace strata::distributed::detail
