#include "apps/strata/rank_processes.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <sys/wait.h>

#include "apps/strata/binding.h"
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
  Start one{.path = find_program(start.command.at(0)),
            .arguments = start.command,
            .environment = start.environment,
            .folder = start.folder,
            .signals = signals};
  const Binding binding = bind_ranks(parse_bind(start.bind), start.ranks, start.environment);
  if (!binding.line.empty()) events_.line(-1, true, "strata: " + binding.line);
  const bool counted = sets(start.environment, "STRATA_NUM_THREADS") || sets(start.environment, "OMP_NUM_THREADS");
  one.environment.push_back(fmt::format("WORLD_SIZE={}", start.size));
  one.environment.push_back(fmt::format("LOCAL_WORLD_SIZE={}", start.ranks.size()));
  const size_t shared = one.environment.size();
  for (size_t i = 0; i < start.ranks.size(); ++i) {
    const int rank = start.ranks[i];
    one.environment.resize(shared);
    one.environment.push_back(fmt::format("RANK={}", rank));
    one.environment.push_back(fmt::format("LOCAL_RANK={}", i));
    int threads = num_threads() / static_cast<int>(start.ranks.size());
    if (!binding.shares.empty()) {
      const ProcessorShare& share = binding.shares[i];
      one.processors = share.processors;
      threads = share.threads;
    }
    if (!counted) one.environment.push_back(fmt::format("STRATA_NUM_THREADS={}", std::max(1, threads)));
    one.input = rank == 0 ? input : -1;
    Process p{.rank = rank, .pid = 0, .start = one, .output = {}, .error = {}};
    begin(p);
    p.start.input = -1;  // another process in its place has none
    processes_.push_back(std::move(p));
    events_.started(rank, processes_.back().pid);
  }
}

void RankProcesses::begin(Process& process) {
  Pipe output, error;
  process.start.output = output.writes.get();
  process.start.error = error.writes.get();
  process.pid = start_process(process.start);
  guard_.add(process.pid);
  process.output.emplace(std::move(output.reads));
  process.error.emplace(std::move(error.reads));
}

void RankProcesses::replace(int rank, const std::vector<std::string>& more) {
  for (Process& p : processes_) {
    if (p.rank != rank || p.pid > 0) continue;
    const std::vector<std::string> own = p.start.environment;
    p.start.environment.insert(p.start.environment.end(), more.begin(), more.end());
    begin(p);
    p.start.environment = own;  // what is said of the next one may be another thing
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
