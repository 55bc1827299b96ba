#pragma once
// The ranks of a job that run on this host.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

#include "apps/strata/child_process.h"

namespace strata::cli {

/// What ranks do, whichever host they are on.
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  virtual void started(int rank, int64_t pid) = 0;
  /// A line of its standard output or error; of rank -1: what the launcher says of a host's ranks.
  virtual void line(int rank, bool error, std::string_view text) = 0;
  /// It ended; `status` as waitpid() gives it. Nothing comes from it any more.
  virtual void ended(int rank, int status) = 0;
};

/// What a host needs to know to start its ranks.
struct HostStart {
  std::string folder;                    ///< where they run
  std::vector<std::string> environment;  ///< "NAME=value", without what each rank has of its own
  std::vector<std::string> command;      ///< the program's name, and its arguments
  std::vector<int> ranks;                ///< its ranks: LOCAL_RANK, processors and card of each are its place here
  int size = 0;                          ///< of the job
  std::string bind = "auto";             ///< what of the host each may use (parse_bind())
};

/// The ranks' processes. When one ends, what is left of its process group is killed; so are all groups when this
/// object's process ends.
class RankProcesses {
 public:
  explicit RankProcesses(RankEvents& events) : events_(events) {}
  ~RankProcesses();
  /// Starts them, bound to processors as `start.bind` says. `input`: standard input of rank 0, -1 for none; `signals`:
  /// what they block. Where neither STRATA_NUM_THREADS nor OMP_NUM_THREADS is set, each gets as many threads as its
  /// share of the processors has. Throws UsageError where there is no such program or no such binding, IoError where
  /// one does not begin.
  void start(const HostStart& start, int input, const sigset_t& signals);
  /// Starts another process as this rank, whose own has ended, with `more` ("NAME=value") in its environment. Throws
  /// IoError where it does not begin.
  void replace(int rank, const std::vector<std::string>& more);
  void signal(int number);
  /// Ends a rank that does not answer, at once.
  void kill(int rank);
  bool running() const;
  void append_to(std::vector<pollfd>& fds) const;
  /// Takes what has come through those whose turn it is.
  void read(const std::vector<pollfd>& fds);
  /// After SIGCHLD: those that ended.
  void reap();

 private:
  struct Process {
    int rank;
    pid_t pid;    // and its group; 0 once it ended
    Start start;  // how it was started
    std::optional<Lines> output, error;
  };
  void begin(Process& process);

  RankEvents& events_;
  Guard guard_;
  std::vector<Process> processes_;
};

}  // namespace strata::cli
