#include "apps/strata/child_process.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::cli {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& t : texts) all.push_back(const_cast<char*>(t.c_str()));
  all.push_back(nullptr);
  return all;
}

// Between fork and exec only what is safe in a signal handler.
[[noreturn]] void become(const Start& start, char* const* argv, char* const* envp, pid_t parent, int null, int told) {
  const auto bind = [&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int p : start.processors) CPU_SET(p, &set);
    return start.processors.empty() || ::sched_setaffinity(0, sizeof set, &set) == 0;
  };
  const auto fail = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t n = ::write(told, &error, sizeof error);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  // The parent may have ended before the system was told.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) fail();
  for (const int s : {SIGPIPE, SIGXFSZ}) ::signal(s, SIG_DFL);  // what this command ignores
  ::sigprocmask(SIG_SETMASK, &start.signals, nullptr);
  // Copies above the three first: a source may be one of them.
  int from[3] = {start.input >= 0 ? start.input : null, start.output, start.error};
  for (int& fd : from)
    if ((fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) fail();
  for (int i = 0; i < 3; ++i)
    if (::dup2(from[i], i) < 0) fail();
#ifdef SYS_close_range
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC; older kernels keep what was opened without the flag
  ::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec);
#endif
  if (!start.folder.empty() && ::chdir(start.folder.c_str()) != 0) fail();
  if (!bind()) fail();
  ::execve(start.path.c_str(), argv, envp);
  fail();
  ::_exit(127);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    std::swap(fd_, other.fd_);
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Pipe::Pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError("launch", cat("no pipe: ", io::errno_text(errno)));
  reads = Descriptor(ends[0]);
  writes = Descriptor(ends[1]);
}

pid_t start_process(const Start& start) {
  const std::vector<char*> argv = pointers(start.arguments), envp = pointers(start.environment);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Pipe told;
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw IoError("launch", cat("cannot start a process: ", io::errno_text(errno)));
  if (pid == 0) become(start, argv.data(), envp.data(), parent, null.get(), told.writes.get());
  ::setpgid(pid, pid);  // whoever comes first
  told.writes.reset();
  int error = 0;
  ssize_t n = 0;
  do n = ::read(told.reads.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof error)) {
    ::waitpid(pid, nullptr, 0);
    throw IoError("launch", cat("cannot run ", io::quote(start.arguments[0]), ": ", io::errno_text(error)));
  }
  return pid;
}

std::string find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (runs(name)) return name;
    const bool there = ::access(name.c_str(), F_OK) == 0;
    throw UsageError(fmt::format("{} {}", io::quote(name), there ? "is no program that can run" : "is not there"));
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!name.empty() && !rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    const std::string file = cat(folder.empty() ? "." : folder, "/", name);
    if (runs(file)) return file;
  }
  throw UsageError(fmt::format("there is no program {} in PATH", io::quote(name)));
}

Guard::Guard() {
  pid_ = ::fork();
  if (pid_ < 0) throw IoError("launch", cat("cannot start a process: ", io::errno_text(errno)));
  if (pid_ != 0) {
    pipe_.reads.reset();
    return;
  }
  // Signals that end the other leave this one to do its work.
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setpgid(0, 0);
  const int reads = ::dup2(pipe_.reads.get(), 3);
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
#ifdef SYS_close_range
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
#endif
  if (pipe_.writes.get() > 3) ::close(pipe_.writes.get());
  std::vector<pid_t> groups;
  pid_t told = 0;
  for (ssize_t n = 0; (n = ::read(reads, &told, sizeof told)) != 0;) {
    if (n != static_cast<ssize_t>(sizeof told)) continue;  // written in one piece: this is an interruption
    if (told > 0)
      groups.push_back(told);
    else
      std::erase(groups, -told);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

Guard::~Guard() {
  pipe_.writes.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::tell(pid_t group) {
  write_all(pipe_.writes.get(), {reinterpret_cast<const char*>(&group), sizeof group});
}

Lines::Lines(Descriptor reads) : reads_(std::move(reads)) {
  ::fcntl(reads_.get(), F_SETFL, O_NONBLOCK);
}

void Lines::cut(const std::function<void(std::string_view)>& line) {
  size_t begin = 0;
  for (size_t end = 0; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1)
    line(std::string_view(partial_).substr(begin, end - begin));
  for (; partial_.size() - begin > kLongestLine; begin += kLongestLine)
    line(std::string_view(partial_).substr(begin, kLongestLine));
  partial_.erase(0, begin);
}

void Lines::read(const std::function<void(std::string_view)>& line) {
  char buffer[65536];
  // Not for ever: others write as well.
  for (int i = 0; i < 4 && open(); ++i) {
    const ssize_t n = ::read(reads_.get(), buffer, sizeof buffer);
    if (n > 0) {
      partial_.append(buffer, static_cast<size_t>(n));
      cut(line);
    } else if (n == 0) {
      finish(line);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) finish(line);
      return;
    }
  }
}

void Lines::finish(const std::function<void(std::string_view)>& line) {
  if (!open()) return;
  char buffer[65536];
  // What is there, and no more: whoever has left the group may hold the pipe for ever. A pipe holds 1 MiB at most,
  // unless somebody goes on writing.
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::read(reads_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    partial_.append(buffer, static_cast<size_t>(n));
    cut(line);
  }
  reads_.reset();
  if (!partial_.empty()) line(partial_);
  partial_.clear();
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with status {}", WEXITSTATUS(status));
  const char* name = ::sigabbrev_np(WTERMSIG(status));
  return name != nullptr ? fmt::format("was killed by SIG{}", name)
                         : fmt::format("was killed by signal {}", WTERMSIG(status));
}

int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace strata::cli
