#pragma once
// Runs the strata program as a child, for tests.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace strata::cli {

struct Result {
  int status = -1;     ///< exit status; 128 + number where a signal ended it
  std::string output;  ///< standard output and error
};

/// The program: $STRATA_CLI, or the build's.
inline const char* program() {
  const char* path = std::getenv("STRATA_CLI");
  return path != nullptr ? path : STRATA_CLI;
}

/// Runs `strata ARGUMENTS` through the shell, which `before` may prepare ("ulimit -f 1;").
inline Result strata(const std::string& arguments, const std::string& before = {}) {
  Result r;
  std::FILE* pipe = ::popen(("{ " + before + " " + program() + " " + arguments + "; } 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return r;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) r.output.append(buffer, n);
  const int status = ::pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

/// A running `strata`, its output thrown away.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
    std::vector<char*> argv{const_cast<char*>(program())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(program(), argv.data());
    ::_exit(127);
  }
  ~Child() {
    if (running()) {
      kill(SIGKILL);
      wait();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool running() {
    if (!ended_ && ::wait4(pid_, &status_, WNOHANG, &usage_) == pid_) ended_ = true;
    return !ended_;
  }
  void kill(int signal) { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  /// As Result::status.
  int wait() {
    if (!ended_ && ::wait4(pid_, &status_, 0, &usage_) == pid_) ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  /// The most memory that was resident, in bytes; once it has ended.
  int64_t peak_resident() const { return int64_t{1024} * usage_.ru_maxrss; }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  struct rusage usage_ {};
};

}  // namespace strata::cli
