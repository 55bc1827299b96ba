#pragma once
// What may end a process, or is limited for good, is tried in one of its own.

#include <cstdio>
#include <exception>

#include <sys/wait.h>
#include <unistd.h>

namespace strata {

/// Runs `body`, which returns a status, in a child process: its exit status, 99 where it threw (what is on stderr), 128
/// + the number of the signal that ended it.
template <class F>
int in_child(F&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace strata
