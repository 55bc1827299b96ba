#include "apps/strata/rank_processes.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <sys/wait.h>

#include "strata/core/parallel.h"

namespace strata::cli {
namespace {

bool sets(const std::vector<std::string>& environment, std::string_view name) {
  return std::ranges::any_of(environment, [&](std::string_view v) {
    return v.starts_with(name) && v.size() > name.size() && v[name.size()] == '=';
  });
}

}  // namespace

void RankProcesses::start(const HostStart& start, int input, const sigset_t& signals) {
  shared_ = {.path = find_program(start.command.at(0)),
             .arguments = start.command,
             .environment = start.environment,
             .folder = start.folder,
             .signals = signals};
  first_ = start.first;
  if (!sets(start.environment, "STRATA_NUM_THREADS") && !sets(start.environment, "OMP_NUM_THREADS"))
    shared_.environment.push_back(fmt::format("STRATA_NUM_THREADS={}", std::max(1, num_threads() / start.count)));
  shared_.environment.push_back(fmt::format("WORLD_SIZE={}", start.size));
  shared_.environment.push_back(fmt::format("LOCAL_WORLD_SIZE={}", start.count));
  for (int i = 0; i < start.count; ++i) {
    Start one = shared_;
    one.input = start.first + i == 0 ? input : -1;
    Process p{start.first + i, 0, {}, {}};
    begin(p, std::move(one));
    processes_.push_back(std::move(p));
    events_.started(processes_.back().rank, processes_.back().pid);
  }
}

void RankProcesses::begin(Process& process, Start one) {
  one.environment.push_back(fmt::format("RANK={}", process.rank));
  one.environment.push_back(fmt::format("LOCAL_RANK={}", process.rank - first_));
  Pipe output, error;
  one.output = output.writes.get();
  one.error = error.writes.get();
  process.pid = start_process(one);
  guard_.add(process.pid);
  process.output.emplace(std::move(output.reads));
  process.error.emplace(std::move(error.reads));
}

void RankProcesses::replace(int rank, const std::vector<std::string>& more) {
  Start one = shared_;
  one.environment.insert(one.environment.end(), more.begin(), more.end());
  for (Process& p : processes_) {
    if (p.rank != rank || p.pid > 0) continue;
    begin(p, std::move(one));
    events_.started(rank, p.pid);
    return;
  }
}

void RankProcesses::kill(int rank) {
  for (const Process& p : processes_)
    if (p.rank == rank && p.pid > 0) ::kill(-p.pid, SIGKILL);
}

RankProcesses::~RankProcesses() {
  signal(SIGKILL);
  for (const Process& p : processes_)
    if (p.pid > 0)
      while (::waitpid(p.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
}

void RankProcesses::signal(int number) {
  for (const Process& p : processes_) {
    if (p.pid <= 0) continue;
    ::kill(-p.pid, number);
    ::kill(-p.pid, SIGCONT);  // who is stopped hears nothing else
  }
}

bool RankProcesses::running() const {
  return std::ranges::any_of(processes_, [](const Process& p) { return p.pid > 0; });
}

void RankProcesses::append_to(std::vector<pollfd>& fds) const {
  for (const Process& p : processes_)
    for (const Lines* lines : {&*p.output, &*p.error})
      if (lines->open()) fds.push_back({lines->fd(), POLLIN, 0});
}

void RankProcesses::read(const std::vector<pollfd>& fds) {
  for (Process& p : processes_)
    for (const bool error : {false, true}) {
      Lines& lines = error ? *p.error : *p.output;
      if (lines.open() &&
          std::ranges::any_of(fds, [&](const pollfd& f) { return f.fd == lines.fd() && f.revents != 0; }))
        lines.read([&](std::string_view text) { events_.line(p.rank, error, text); });
    }
}

void RankProcesses::reap() {
  for (Process& p : processes_) {
    siginfo_t info{};
    // Kept as it is until its group is dead, so that the number stays the group's.
    if (p.pid <= 0 || ::waitid(P_PID, static_cast<id_t>(p.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != p.pid)
      continue;
    ::kill(-p.pid, SIGKILL);
    int status = 0;
    guard_.remove(p.pid);
    ::waitpid(p.pid, &status, 0);
    p.pid = 0;
    p.output->finish([&](std::string_view text) { events_.line(p.rank, false, text); });
    p.error->finish([&](std::string_view text) { events_.line(p.rank, true, text); });
    events_.ended(p.rank, status);
  }
}

}  // namespace strata::cli
