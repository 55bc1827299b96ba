#pragma once
// Ranks on another host: a remote shell runs this command there, which starts them and tells what they do.
//
// The other side reads from its standard input first what it shall start (the environment with the job's secret comes
// this way, since a command line is seen by everybody on both hosts), then lines "signal N"; at the input's end it ends
// its ranks. It writes lines: "s RANK PID" for started, "o RANK TEXT" and "e RANK TEXT" for lines of output and error,
// "x RANK STATUS" for ended, "n TEXT" for what it says itself, "f TEXT" where it could not start them.

#include <string>
#include <vector>

#include "apps/strata/rank_processes.h"

namespace strata::cli {

/// Text of what a host shall start, and back. decode() takes it from the beginning of `text`: false while its end is
/// missing. Throws IoError for what encode() does not give.
std::string encode(const HostStart& start);
bool decode(std::string& text, HostStart& start);

/// The other side's work; returns the exit status.
int serve_host();

/// A host whose ranks are started through a remote shell.
class RemoteHost {
 public:
  /// `shell`: the remote shell and its options; the host's name and the command follow as two more arguments.
  RemoteHost(RankEvents& events, std::string name, const std::vector<std::string>& shell, const HostStart& start,
             const sigset_t& signals);
  ~RemoteHost();
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  void signal(int number);
  /// Gives the connection up: ends the remote shell, whereupon the other side ends what it started.
  void drop();
  bool running() const { return pid_ > 0; }
  void append_to(std::vector<pollfd>& fds) const;
  void read(const std::vector<pollfd>& fds);
  /// After SIGCHLD. True once when the remote shell has ended: `why` says how, and what it said last.
  bool reap(std::string& why);
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return start_.ranks; }

 private:
  void take(std::string_view line);
  void stray(std::string_view line);  // what the remote shell itself says
  void send();

  RankEvents& events_;
  std::string name_;
  HostStart start_;
  pid_t pid_ = -1;
  Descriptor input_;
  std::string pending_;       // what the other side is still to read
  std::vector<Lines> pipes_;  // output, error
  std::string said_;
};

}  // namespace strata::cli
