#pragma once
// Processes that end with this one, and their output in lines.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <sys/types.h>

namespace strata::cli {

/// A file descriptor, closed with it.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_;
};

/// Both ends of a pipe, closed on exec. Throws IoError.
struct Pipe {
  Descriptor reads, writes;
  Pipe();
};

/// What to run, and how.
struct Start {
  std::string path;                      ///< of the program's file
  std::vector<std::string> arguments;    ///< its name first
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string folder;                    ///< where it runs; empty: here
  int input = -1;                        ///< its standard input; -1: none
  int output = -1, error = -1;           ///< its standard output and error
  sigset_t signals;                      ///< those that it blocks
  std::vector<int> processors;           ///< those that it may use; empty: those of this process
};

/// Starts it in a process group of its own, which it leads; it is killed when the calling thread ends, which must be
/// the main one. It has no open files but the three. Throws IoError saying why it did not begin.
pid_t start_process(const Start& start);

/// Finds a program as a shell does. Throws UsageError where there is none that can run.
std::string find_program(const std::string& name);

/// Kills process groups when this process has ended, however that came: a process of its own that waits for it.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  void add(pid_t group) { tell(group); }
  void remove(pid_t group) { tell(-group); }

 private:
  void tell(pid_t group);
  Pipe pipe_;
  pid_t pid_ = -1;
};

/// Cuts what comes through a pipe into lines of at most 64 KiB; longer ones come in pieces.
class Lines {
 public:
  /// The pipe's end becomes non-blocking.
  explicit Lines(Descriptor reads);
  int fd() const { return reads_.get(); }
  bool open() const { return static_cast<bool>(reads_); }
  /// Takes what has arrived, and closes the pipe at its end.
  void read(const std::function<void(std::string_view)>& line);
  /// As read(); then a last line without its end is a line, and the pipe is closed.
  void finish(const std::function<void(std::string_view)>& line);

 private:
  void cut(const std::function<void(std::string_view)>& line);
  Descriptor reads_;
  std::string partial_;
};

/// All of it, whatever a descriptor takes at a time; false with errno where that fails.
bool write_all(int fd, std::string_view text);

/// "ended with status 3" or "was killed by SIGKILL", of what waitpid() says.
std::string end_text(int status);
/// As shells give it: 128 + number where a signal ended it.
int exit_status(int status);

}  // namespace strata::cli
