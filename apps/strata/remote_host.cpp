#include "apps/strata/remote_host.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = size_t{1} << 26, kMostTexts = size_t{1} << 16, kMostRanks = size_t{1} << 20;
constexpr std::chrono::seconds kGrace{5};  // between SIGTERM and SIGKILL, once nobody listens any more

void put(std::string& out, std::string_view text) {
  out += fmt::format("{} ", text.size());
  out += text;
}

// Takes a number and the blank behind it; false where more is to come.
bool take_number(std::string_view& rest, size_t most, size_t& value) {
  const size_t blank = rest.find(' ');
  if (blank == std::string_view::npos && rest.size() < 20) return false;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + std::min(blank, rest.size()), value);
  if (blank == std::string_view::npos || error != std::errc() || end != rest.data() + blank || value > most)
    throw IoError("launch", "what to start makes no sense");
  rest.remove_prefix(blank + 1);
  return true;
}
bool take_text(std::string_view& rest, std::string& text) {
  size_t size = 0;
  if (!take_number(rest, kMostBytes, size) || rest.size() < size) return false;
  text = rest.substr(0, size);
  rest.remove_prefix(size);
  return true;
}
bool take_texts(std::string_view& rest, std::vector<std::string>& texts) {
  size_t count = 0;
  if (!take_number(rest, kMostTexts, count)) return false;
  texts.clear();
  for (std::string text; texts.size() < count && take_text(rest, text);) texts.push_back(text);
  return texts.size() == count;
}

// Tells the launcher, in the lines above.
class Teller final : public RankEvents {
 public:
  void started(int rank, int64_t pid) override { out_ += fmt::format("s {} {}\n", rank, pid); }
  void line(int rank, bool error, std::string_view text) override {
    out_ += rank < 0 ? "n " : fmt::format("{} {} ", error ? 'e' : 'o', rank);
    out_ += text;
    out_ += '\n';
  }
  void ended(int rank, int status) override { out_ += fmt::format("x {} {}\n", rank, status); }
  void failed(std::string_view why) { out_ += fmt::format("f {}\n", why); }
  // False where nobody listens.
  bool flush() {
    const bool good = write_all(STDOUT_FILENO, out_);
    out_.clear();
    return good;
  }

 private:
  std::string out_;
};

}  // namespace

std::string encode(const HostStart& start) {
  std::string out;
  put(out, start.folder);
  for (const auto* texts : {&start.environment, &start.command}) {
    out += fmt::format("{} ", texts->size());
    for (const std::string& t : *texts) put(out, t);
  }
  put(out, start.bind);
  out += fmt::format("{} {} ", start.size, start.ranks.size());
  for (const int rank : start.ranks) out += fmt::format("{} ", rank);
  return out;
}

bool decode(std::string& text, HostStart& start) {
  if (text.size() > kMostBytes) throw IoError("launch", "what to start is too long");
  std::string_view rest = text;
  if (!take_text(rest, start.folder) || !take_texts(rest, start.environment) || !take_texts(rest, start.command) ||
      !take_text(rest, start.bind))
    return false;
  size_t size = 0, count = 0;
  if (!take_number(rest, kMostRanks, size) || !take_number(rest, kMostRanks, count)) return false;
  start.size = static_cast<int>(size);
  start.ranks.clear();
  for (size_t rank = 0; start.ranks.size() < count && take_number(rest, kMostRanks, rank);)
    start.ranks.push_back(static_cast<int>(rank));
  if (start.ranks.size() < count) return false;
  std::vector<int> ranks = start.ranks;
  std::ranges::sort(ranks);
  if (start.command.empty() || ranks.empty() || ranks.back() >= start.size ||
      std::ranges::adjacent_find(ranks) != ranks.end())
    throw IoError("launch", "what to start makes no sense");
  text.erase(0, text.size() - rest.size());
  return true;
}

int serve_host() {
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&handled, s);
  ::sigprocmask(SIG_BLOCK, &handled, &before);
  ::signal(SIGPIPE, SIG_IGN);
  const Descriptor signals(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  ::fcntl(STDIN_FILENO, F_SETFL, ::fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  Teller teller;
  RankProcesses ranks(teller);
  HostStart start;
  std::string input;
  bool begun = false, over = false;
  Clock::time_point kill_at = Clock::time_point::max();
  const auto end_all = [&] {
    if (over) return;
    over = true;
    ranks.signal(SIGTERM);
    kill_at = Clock::now() + kGrace;
  };
  while (!(begun || over) || ranks.running()) {
    std::vector<pollfd> fds{{signals.get(), POLLIN, 0}, {over ? -1 : STDIN_FILENO, POLLIN, 0}};
    ranks.append_to(fds);
    ::poll(fds.data(), fds.size(), over ? 100 : -1);
    ranks.read(fds);
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      while (::read(signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        if (info.ssi_signo != SIGCHLD) end_all();
      ranks.reap();
    }
    if (fds[1].revents != 0) {
      char buffer[65536];
      const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) end_all();
      if (n > 0) input.append(buffer, static_cast<size_t>(n));
      try {
        if (!begun && decode(input, start)) {
          begun = true;
          // A program that is named by its path is meant from there.
          if (::chdir(start.folder.c_str()) != 0)
            throw IoError("", cat("cannot go to ", io::quote(start.folder), ": ", io::errno_text(errno)));
          ranks.start(start, -1, before);
        }
      } catch (const std::exception& e) {
        teller.failed(e.what());
        begun = true;
        end_all();
      }
      for (size_t end = 0; begun && (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
        int number = 0;
        const std::string_view line(input.data(), end);
        if (!line.starts_with("signal ")) continue;
        std::from_chars(line.data() + 7, line.data() + line.size(), number);
        if (number > 0 && number < NSIG) ranks.signal(number);
      }
    }
    if (Clock::now() >= kill_at) ranks.signal(SIGKILL);
    if (!teller.flush()) end_all();
  }
  return teller.flush() ? kOk : kFailure;
}

RemoteHost::RemoteHost(RankEvents& events, std::string name, const std::vector<std::string>& shell,
                       const HostStart& start, const sigset_t& signals)
    : events_(events), name_(std::move(name)), start_(start), pending_(encode(start)) {
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0)
    throw IoError("launch", cat("cannot find this command's own file: ", io::errno_text(errno)));
  if (std::string_view(self).find('\'') != std::string_view::npos)
    throw IoError("launch", cat("a remote shell cannot be told of ", self));
  Start one{.path = find_program(shell.at(0)), .arguments = shell, .signals = signals};
  one.arguments.push_back(name_);
  one.arguments.push_back(fmt::format("exec '{}' launch --serve", self));
  for (char** v = environ; *v != nullptr; ++v) one.environment.emplace_back(*v);
  Pipe input, output, error;
  one.input = input.reads.get();
  one.output = output.writes.get();
  one.error = error.writes.get();
  pid_ = start_process(one);
  input_ = std::move(input.writes);
  ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  pipes_.emplace_back(std::move(output.reads));
  pipes_.emplace_back(std::move(error.reads));
  send();
}

RemoteHost::~RemoteHost() {
  drop();
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RemoteHost::drop() {
  input_.reset();
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

void RemoteHost::send() {
  while (input_ && !pending_.empty()) {
    const ssize_t n = ::write(input_.get(), pending_.data(), pending_.size());
    if (n > 0)
      pending_.erase(0, static_cast<size_t>(n));
    else if (n < 0 && errno == EAGAIN)
      return;
    else if (n == 0 || errno != EINTR)
      input_.reset();  // the shell has ended: reap() tells
  }
}

void RemoteHost::signal(int number) {
  pending_ += fmt::format("signal {}\n", number);
  send();
}

void RemoteHost::append_to(std::vector<pollfd>& fds) const {
  for (const Lines& p : pipes_)
    if (p.open()) fds.push_back({p.fd(), POLLIN, 0});
  if (input_ && !pending_.empty()) fds.push_back({input_.get(), POLLOUT, 0});
}

void RemoteHost::stray(std::string_view text) {
  said_ = text;
  events_.line(-1, true, cat(name_, ": ", text));
}

void RemoteHost::take(std::string_view text) {
  if (text.starts_with("f ")) {
    said_ = text.substr(2);
    return;
  }
  if (text.starts_with("n ")) return events_.line(-1, true, cat(name_, ": ", text.substr(2)));
  int rank = -1;
  const char* const end = text.data() + text.size();
  if (text.size() < 4 || std::string_view("soex").find(text[0]) == std::string_view::npos || text[1] != ' ')
    return stray(text);
  const char* at = std::from_chars(text.data() + 2, end, rank).ptr;
  if (std::ranges::find(start_.ranks, rank) == start_.ranks.end() || at == end || *at != ' ') return stray(text);
  ++at;
  if (text[0] == 'o' || text[0] == 'e') {
    events_.line(rank, text[0] == 'e', std::string_view(at, static_cast<size_t>(end - at)));
    return;
  }
  int64_t number = 0;
  if (std::from_chars(at, end, number).ptr != end) return stray(text);
  if (text[0] == 's')
    events_.started(rank, number);
  else
    events_.ended(rank, static_cast<int>(number));
}

void RemoteHost::read(const std::vector<pollfd>& fds) {
  send();
  for (Lines& p : pipes_)
    if (p.open() && std::ranges::any_of(fds, [&](const pollfd& f) { return f.fd == p.fd() && f.revents != 0; }))
      p.read([&](std::string_view text) { &p == &pipes_[0] ? take(text) : stray(text); });
}

bool RemoteHost::reap(std::string& why) {
  int status = 0;
  siginfo_t info{};
  if (pid_ <= 0 || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return false;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  input_.reset();
  pipes_[0].finish([&](std::string_view text) { take(text); });
  pipes_[1].finish([&](std::string_view text) { stray(text); });
  why = cat("the remote shell ", end_text(status), said_.empty() ? "" : ": ", said_);
  return true;
}

}  // namespace strata::cli
