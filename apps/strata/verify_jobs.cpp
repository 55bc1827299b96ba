#include "apps/strata/verify_jobs.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/strata/command.h"
#include "apps/strata/signals.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

// A report is a list of one object, laid out so that the list's end alone stands at the beginning of a line.
constexpr std::string_view kReportEnd = "\n]\n";

// A process that verifies one op after the other. Destroying it ends it.
class Worker {
 public:
  explicit Worker(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw IoError("lab verify", cat("no connection to a process: ", std::strerror(errno)));
    channel_ = ends[0];
    std::vector<char*> argv{const_cast<char*>("strata")};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error == 0) return;
    ::close(channel_);
    throw IoError("lab verify", cat("cannot start a process: ", std::strerror(error)));
  }
  ~Worker() {
    ::close(channel_);
    end();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void give(size_t job, const OpBase& op) {
    job_ = job;
    busy_ = true;
    begin_ = Clock::now();
    received_.clear();
    const std::string line = cat(op.name(), "\n");
    ::send(channel_, line.data(), line.size(), MSG_NOSIGNAL);  // a process that has ended shows when it is read
  }
  /// Takes what has arrived; false at the end of the process.
  bool receive() {
    char buffer[65536];
    const ssize_t n = ::read(channel_, buffer, sizeof buffer);
    if (n > 0) received_.append(buffer, static_cast<size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
  }
  bool has_report() const { return received_.ends_with(kReportEnd); }
  const std::string& report() {
    busy_ = false;
    return received_;
  }
  void kill() { ::kill(pid_, SIGKILL); }
  /// Waits for the end; says how it came.
  std::string end() {
    int status = 0;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (!WIFSIGNALED(status)) return fmt::format("ended with status {}", WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal));
  }
  bool busy() const { return busy_; }
  size_t job() const { return job_; }
  int channel() const { return channel_; }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  pid_t pid_ = -1;
  int channel_ = -1;
  bool busy_ = false;
  size_t job_ = 0;
  Clock::time_point begin_;
  std::string received_;
};

lab::OpReport lost(const OpBase& op, double seconds, std::string why) {
  lab::OpReport r;
  r.op = op.name();
  r.family = op.family();
  r.seconds = seconds;
  r.failed[static_cast<size_t>(lab::Check::samples)] = 1;
  r.failures.push_back({lab::Check::samples, DType::f32, "all samples of all dtypes", std::move(why)});
  return r;
}

}  // namespace

int verify_named(const lab::VerifyOptions& options) {
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    const OpBase* op = OpBase::find(line);
    if (op == nullptr) throw UsageError(fmt::format("there is no op '{}'", line));
    std::fputs(lab::to_json({lab::verify(*op, options)}).c_str(), stdout);
    std::fflush(stdout);
  }
  return kOk;
}

std::vector<lab::OpReport> verify_in_processes(const std::vector<const OpBase*>& ops,
                                               const std::vector<std::string>& arguments, int jobs, double seconds,
                                               const std::function<void(std::string_view)>& started) {
  std::vector<lab::OpReport> reports(ops.size());
  std::vector<std::unique_ptr<Worker>> workers(std::min(ops.size(), static_cast<size_t>(std::max(jobs, 1))));
  // The processors are divided as well.
  ::setenv("OMP_NUM_THREADS", std::to_string(std::max(1, num_threads() / std::max(jobs, 1))).c_str(), 0);
  size_t next = 0, done = 0;
  const auto employ = [&](std::unique_ptr<Worker>& w) {
    if (next == ops.size()) return;
    if (!w) w = std::make_unique<Worker>(arguments);
    started(ops[next]->name());
    w->give(next, *ops[next]);
    ++next;
  };
  for (auto& w : workers) employ(w);
  while (done < ops.size()) {
    for (; StopOnSignal::stop_requested() && next < ops.size(); ++next, ++done)
      reports[next] = lost(*ops[next], 0, "stopped before its turn");
    std::vector<pollfd> fds;
    for (const auto& w : workers) fds.push_back({w && w->busy() ? w->channel() : -1, POLLIN, 0});
    ::poll(fds.data(), fds.size(), 100);
    for (size_t i = 0; i < workers.size(); ++i) {
      auto& w = workers[i];
      if (fds[i].fd < 0) continue;
      lab::OpReport& report = reports[w->job()];
      const OpBase& op = *ops[w->job()];
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        if (!w->receive()) {
          report = lost(op, w->elapsed(), cat("the process that verified it ", w->end()));
          w.reset();
        } else if (w->has_report()) {
          report = lab::reports_from_json(w->report()).at(0);
          // A failed kernel may have stopped the card for its process.
          if (!report.ok()) w.reset();
        } else {
          continue;
        }
      } else if (w->elapsed() > seconds) {
        w->kill();
        report = lost(op, w->elapsed(), fmt::format("took longer than {} s and was stopped", seconds));
        w.reset();
      } else {
        continue;
      }
      ++done;
      employ(w);
    }
  }
  return reports;
}

}  // namespace strata::cli
