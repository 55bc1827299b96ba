#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/strata/binding.h"
#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/host_list.h"
#include "apps/strata/rank_processes.h"
#include "apps/strata/remote_host.h"
#include "apps/strata/shell_word.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/job.h"
#include "strata/dist/meeting_inl.h"
#include "strata/dist/stragglers_inl.h"
#include "strata/io/files.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct LaunchOptions {
  int ranks = 0;
  std::string hostfile, host, shell = "ssh", bind = "auto", order;
  int port = 0;
  double grace = 10;
  int restarts = 0, min_ranks = 0;
  std::vector<std::string> command;
  std::string again;  // this launch as it would be written once more, without the program
};

// Variables that tell of the host where they are set, and not of the work.
constexpr std::string_view kOfHost[] = {"HOSTNAME",
                                        "SSH_CLIENT",
                                        "SSH_CONNECTION",
                                        "SSH_TTY",
                                        "SSH_AUTH_SOCK",
                                        "DISPLAY",
                                        "DBUS_SESSION_BUS_ADDRESS",
                                        "XDG_RUNTIME_DIR",
                                        "XDG_SESSION_ID",
                                        "TMPDIR",
                                        "SHLVL",
                                        "_"};

// This process's environment, without what launchers around this one and, for other hosts, this host have set.
std::vector<std::string> environment(bool elsewhere) {
  const std::vector<std::string> launchers = distributed::job_variables();
  std::vector<std::string> kept;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view text = *v, name = text.substr(0, text.find('='));
    if (std::ranges::find(launchers, name) != launchers.end()) continue;
    if (elsewhere && std::ranges::find(kOfHost, name) != std::end(kOfHost)) continue;
    kept.emplace_back(text);
  }
  return kept;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

// The options that were given, but for the program.
std::string written_again(const CLI::App& launch) {
  std::string text = "strata launch";
  for (const CLI::Option* o : launch.get_options()) {
    if (o->count() == 0 || o->get_positional()) continue;
    text += o->get_snames().empty() ? " --" + o->get_lnames().at(0) : " -" + o->get_snames().at(0);
    for (const std::string& value : o->results()) text += " " + shell_word(value);
  }
  return text;
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& h : hosts) slots += h.slots;
  return slots;
}

// Ranks by host, as many on each as it has slots.
std::vector<Host> shares(const LaunchOptions& options) {
  std::vector<Host> hosts;
  if (options.hostfile.empty()) {
    if (options.ranks == 0) throw UsageError("say how many ranks to start (-n), or where (--hostfile)");
    return {{"localhost", options.ranks}};
  }
  hosts = parse_hosts(io::read_file(options.hostfile, uint64_t{1} << 24), options.hostfile);
  int left = options.ranks;
  const int slots = slots_of(hosts);
  if (left > slots) throw UsageError(fmt::format("-n {}: {} has {} slots", left, options.hostfile, slots));
  if (left == 0) return hosts;
  for (Host& h : hosts) {
    h.slots = std::min(h.slots, left);
    left -= h.slots;
  }
  std::erase_if(hosts, [](const Host& h) { return h.slots == 0; });
  return hosts;
}

class Launch final : public RankEvents {
 public:
  explicit Launch(const LaunchOptions& options);
  ~Launch() override { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int run();

  void started(int rank, int64_t pid) override;
  void line(int rank, bool error, std::string_view text) override;
  void ended(int rank, int status) override;

 private:
  struct Rank {
    std::string host;
    int64_t pid = 0;
    bool over = false;
    int told = 0;  // of its failure, as the coordinator counts them: that which another process was started for
  };
  enum class Stage { running, asked, killed, dropped };  // what the ranks have been told

  void start();
  void take_signals();
  void signal_all(int number);
  void failed(int rank, std::string_view why, int status);
  void set_failure(int rank, std::string_view why, int status);
  bool goes_on_without(int rank, std::string_view why);
  void replace_dead();
  void look_for_silent();
  void go_on_to_end();
  void flush();
  bool running() const;
  std::string name_of(int rank) const;

  const LaunchOptions options_;
  const std::vector<Host> hosts_;
  const std::vector<int> order_;  // the rank of each slot, host by host
  const milliseconds grace_;
  sigset_t before_;
  Descriptor signals_;
  std::optional<RankProcesses> here_;
  std::vector<std::unique_ptr<RemoteHost>> elsewhere_;
  std::optional<distributed::Coordinator> coordinator_;
  distributed::detail::StragglerNews stragglers_;
  std::vector<Rank> ranks_;
  std::vector<int> dead_;  // in whose place other processes are to be started
  int replaced_ = 0;
  std::string output_[2];  // what is still to be written to standard output and error
  std::string failure_;    // of the first rank that failed
  int status_ = kOk;
  bool interrupted_ = false, unread_ = false;
  Stage stage_ = Stage::running;
  Clock::time_point next_stage_ = Clock::time_point::max();
};

Launch::Launch(const LaunchOptions& options)
    : options_(options),
      hosts_(shares(options)),
      order_(ranks_of_slots(options.order, slots_of(hosts_))),
      grace_(static_cast<int64_t>(1000 * options.grace)) {
  // They come through a descriptor; the ranks get the mask that was, the coordinator's threads take none.
  sigset_t handled;
  sigemptyset(&handled);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&handled, s);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&handled, SIGHUP);  // nohup
  ::sigprocmask(SIG_BLOCK, &handled, &before_);
  signals_ = Descriptor(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  ::signal(SIGPIPE, SIG_IGN);
}

void Launch::start() {
  const bool alone = std::ranges::all_of(hosts_, [](const Host& h) { return is_here(h.name); });
  const std::string own = own_name();
  ranks_.resize(order_.size());
  size_t slot = 0;
  for (const Host& h : hosts_)
    for (int i = 0; i < h.slots; ++i) ranks_[static_cast<size_t>(order_[slot++])].host = is_here(h.name) ? own : h.name;
  (void)find_program(options_.command.at(0));
  // Before there are threads: it starts a process that is a copy of this one.
  here_.emplace(*this);
  const std::string host = !options_.host.empty() ? options_.host : alone ? "127.0.0.1" : own;
  const std::string secret = distributed::detail::random_secret();
  const int size = static_cast<int>(ranks_.size());
  coordinator_.emplace(distributed::CoordinatorOptions{
      .size = size, .host = distributed::detail::interface_for(host), .port = options_.port, .secret = secret});
  const std::string address = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  line(-1, true,
       fmt::format("strata: {} ranks, http://{}:{}/status", size, alone ? "localhost" : address, coordinator_->port()));
  flush();
  HostStart one{.folder = {}, .command = options_.command, .size = size, .bind = options_.bind};
  if (char* folder = ::getcwd(nullptr, 0); folder != nullptr) {
    one.folder = folder;
    std::free(folder);
  }
  auto next = order_.begin();
  for (const Host& h : hosts_) {
    one.environment = environment(!is_here(h.name));
    for (const std::string& v :
         {std::string("STRATA_LAUNCH=1"), "MASTER_ADDR=" + host, fmt::format("MASTER_PORT={}", coordinator_->port()),
          "STRATA_JOB_SECRET=" + secret, fmt::format("{}={}", kLaunchedAs, options_.again)})
      one.environment.push_back(v);
    if (options_.restarts > 0 || options_.min_ranks > 0) one.environment.emplace_back("STRATA_REPLACES=1");
    one.ranks.assign(next, next + h.slots);
    next += h.slots;
    if (is_here(h.name))
      here_->start(one, ::isatty(STDIN_FILENO) ? -1 : STDIN_FILENO, before_);
    else
      elsewhere_.push_back(std::make_unique<RemoteHost>(*this, h.name, words_of(options_.shell), one, before_));
  }
}

int Launch::run() {
  start();
  while (running() || !dead_.empty()) {
    replace_dead();
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    here_->append_to(fds);
    for (const auto& host : elsewhere_) host->append_to(fds);
    const auto wait = std::min<Clock::duration>(next_stage_ - Clock::now(), milliseconds(500));
    ::poll(fds.data(), fds.size(),
           static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(wait).count())));
    here_->read(fds);
    for (const auto& host : elsewhere_) host->read(fds);
    if (fds[0].revents != 0) take_signals();
    look_for_silent();
    flush();
    if (Clock::now() >= next_stage_) go_on_to_end();
  }
  flush();
  if (failure_.empty()) return unread_ ? kFailure : kOk;
  std::fputs(fmt::format("strata: error: {}\n", failure_).c_str(), stderr);
  return status_;
}

bool Launch::running() const {
  return here_->running() || std::ranges::any_of(elsewhere_, [](const auto& host) { return host->running(); });
}

std::string Launch::name_of(int rank) const {
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  return r.pid > 0 ? fmt::format("rank {} ({}, pid {})", rank, r.host, r.pid)
                   : fmt::format("rank {} ({})", rank, r.host);
}

void Launch::started(int rank, int64_t pid) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.pid = pid;
  coordinator_->started(rank, r.host, pid);
}

void Launch::line(int rank, bool error, std::string_view text) {
  std::string& out = output_[error];
  if (rank >= 0) out += fmt::format("[{}] ", rank);
  out += text;
  out += '\n';
}

void Launch::ended(int rank, int status) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  if (r.over) return;
  r.over = true;
  if (status == 0)
    coordinator_->leave(rank);
  else if (!WIFSIGNALED(status) || !goes_on_without(rank, end_text(status)))  // else it is the program's own decision
    failed(rank, end_text(status), exit_status(status));
}

// Of a rank that died: whether another process takes its place, or the others go on.
bool Launch::goes_on_without(int rank, std::string_view why) {
  if (interrupted_ || stage_ != Stage::running || !failure_.empty()) return false;
  Rank& r = ranks_[static_cast<size_t>(rank)];
  const auto left = std::ranges::count_if(ranks_, [](const Rank& other) { return !other.over; });
  const bool again = r.host == own_name() && replaced_ < options_.restarts;
  if (!again && (options_.min_ranks == 0 || left < options_.min_ranks)) return false;
  coordinator_->fail(rank, why);
  r.told = coordinator_->ranks()[static_cast<size_t>(rank)].order;
  std::string then = left == 1 ? "1 rank goes on" : fmt::format("{} ranks go on", left);
  if (again) {
    ++replaced_;
    dead_.push_back(rank);
    then = fmt::format("another process takes its place ({} of {})", replaced_, options_.restarts);
  } else {
    coordinator_->lose(rank);
  }
  line(-1, true, fmt::format("strata: {} {}; {}", name_of(rank), why, then));
  return true;
}

void Launch::replace_dead() {
  for (const int rank : std::exchange(dead_, {})) {
    if (interrupted_ || !failure_.empty()) continue;
    ranks_[static_cast<size_t>(rank)].over = false;
    try {
      here_->replace(rank, {fmt::format("STRATA_JOINS={}", coordinator_->formation().number)});
    } catch (const IoError& e) {
      ranks_[static_cast<size_t>(rank)].over = true;
      failed(rank, fmt::format("cannot be started again: {}", e.what()), kFailure);
    }
  }
}

void Launch::failed(int rank, std::string_view why, int status) {
  // Others may have ended because of one that the coordinator has missed.
  look_for_silent();
  coordinator_->fail(rank, why);
  if (failure_.empty()) set_failure(rank, why, status);
}

void Launch::set_failure(int rank, std::string_view why, int status) {
  failure_ = fmt::format("{} {}", name_of(rank), why);
  status_ = status;
  // After a signal from outside they may take their time to save what they have.
  if (!interrupted_ && stage_ == Stage::running) next_stage_ = Clock::now() + grace_;
}

void Launch::look_for_silent() {
  if (!failure_.empty()) return;
  const std::vector<distributed::RankState> states = coordinator_->ranks();
  if (const std::string text = stragglers_.take(states); !text.empty()) line(-1, true, "strata: " + text);
  int first = -1;
  for (int r = 0; r < static_cast<int>(states.size()); ++r)
    if (!ranks_[r].over && states[r].order > ranks_[r].told && (first < 0 || states[r].order < states[first].order))
      first = r;
  if (first < 0) return;
  if ((options_.restarts > 0 || options_.min_ranks > 0) && ranks_[first].host == own_name()) {
    // Its end is then seen as any other's.
    ranks_[first].told = states[first].order;
    here_->kill(first);
    line(-1, true, fmt::format("strata: {} gave {}; it gets SIGKILL", name_of(first), states[first].failure));
    return;
  }
  set_failure(first, "gave " + states[first].failure, kFailure);
}

void Launch::go_on_to_end() {
  next_stage_ = Clock::now() + std::max(grace_, milliseconds(1000));
  std::string left;
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r].over && left.size() < 100) left += fmt::format("{}{}", left.empty() ? "" : ", ", r);
  switch (stage_) {
    case Stage::running:
      line(-1, true, fmt::format("strata: {}; still running: {}; they get SIGTERM", failure_, left));
      stage_ = Stage::asked;
      signal_all(SIGTERM);
      break;
    case Stage::asked:
      line(-1, true, fmt::format("strata: still running: {}; they get SIGKILL", left));
      stage_ = Stage::killed;
      signal_all(SIGKILL);
      break;
    case Stage::killed:
    case Stage::dropped:
      stage_ = Stage::dropped;
      for (const auto& host : elsewhere_) host->drop();
      break;
  }
}

void Launch::signal_all(int number) {
  here_->signal(number);
  for (const auto& host : elsewhere_) host->signal(number);
}

void Launch::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    if (number == SIGUSR1 || number == SIGUSR2) {
      signal_all(number);
    } else if (interrupted_) {
      stage_ = Stage::killed;
      next_stage_ = Clock::now() + milliseconds(5000);
      signal_all(SIGKILL);
    } else {
      interrupted_ = true;
      next_stage_ = Clock::time_point::max();
      line(-1, true, fmt::format("strata: SIG{} for all ranks (once more to kill them)", ::sigabbrev_np(number)));
      signal_all(number);
    }
  }
  here_->reap();
  for (const auto& host : elsewhere_) {
    std::string why;
    if (!host->reap(why)) continue;
    for (const int r : host->ranks()) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      if (rank.over) continue;
      rank.over = true;
      failed(r, fmt::format("is lost with its host: {}", why), kFailure);
    }
  }
}

void Launch::flush() {
  for (const int fd : {0, 1}) {
    std::string& text = output_[fd];
    if (!text.empty() && !unread_ && !write_all(fd + 1, text)) {
      // Nobody reads: the job has no more use than any program before a closed pipe.
      unread_ = true;
      if (failure_.empty()) {
        failure_ =
            fmt::format("cannot write to the standard {}: {}", fd == 0 ? "output" : "error", io::errno_text(errno));
        status_ = kFailure;
      }
      stage_ = Stage::asked;
      next_stage_ = Clock::now() + grace_;
      signal_all(SIGTERM);
    }
    text.clear();
  }
}

}  // namespace

void add_launch(CLI::App& app, Body& body, std::vector<std::string> program) {
  CLI::App* launch = app.add_subcommand("launch", "Start a program several times, as the ranks of one job");
  auto options = std::make_shared<LaunchOptions>();
  auto serve = std::make_shared<bool>(false);
  launch->add_option("-n,--ranks", options->ranks, "How many to start (all slots of --hostfile)")
      ->type_name("N")
      ->check(between<int64_t>(1, 65536));
  launch->add_option("--hostfile", options->hostfile, "Where to start them: lines HOST slots=N (this host alone)")
      ->type_name("FILE");
  launch->add_option("--host", options->host, "What the ranks call this host (127.0.0.1; its name with other hosts)")
      ->type_name("HOST");
  launch->add_option("--port", options->port, "The coordinator's port (any that is free)")
      ->type_name("PORT")
      ->check(between<int64_t>(1, 65535));
  launch->add_option("--rsh", options->shell, "The remote shell, and options of it")
      ->type_name("COMMAND")
      ->capture_default_str();
  launch
      ->add_option(
          "--bind", options->bind,
          "Processors of each rank: none (all of them), cores of its own, numa (a node of memory), beside its card "
          "where it has one; auto is cores where there are two or more for each")
      ->type_name("HOW")
      ->capture_default_str();
  launch
      ->add_option("--order", options->order,
                   "Which slot each rank has, host by host and on each from 0 on, as strata plan --order prints it "
                   "(ranks in the order of the slots)")
      ->type_name("SLOTS");
  launch
      ->add_option("--grace", options->grace,
                   "Seconds that the others have to end by themselves after one failed, then after SIGTERM")
      ->type_name("SECONDS")
      ->check(between<double>(0, 86400))
      ->capture_default_str();
  launch
      ->add_option(
          "--restarts", options->restarts,
          "Ranks of this host that may be killed in all: another process takes the place of each, and the others, "
          "which stay, go on with it from the last step that they mirrored or saved")
      ->type_name("N")
      ->check(between<int64_t>(0, 1000000))
      ->capture_default_str();
  launch
      ->add_option(
          "--min-ranks", options->min_ranks,
          "Where nobody takes the place of a killed rank, go on with the others as long as there are so many (0: "
          "the job ends)")
      ->type_name("N")
      ->check(between<int64_t>(0, 65536))
      ->capture_default_str();
  launch->add_flag("--serve", *serve, "For this command on other hosts")->group("");
  launch->add_option("program", options->command, "What to start, behind --, and its arguments")
      ->type_name("PROGRAM ARGS");
  launch->positionals_at_end();
  launch->callback([&body, options, serve, launch, program = std::move(program)] {
    options->again = written_again(*launch);
    options->command.insert(options->command.end(), program.begin(), program.end());
    body = [options, serve] {
      if (*serve) return serve_host();
      (void)parse_bind(options->bind);
      if (options->command.empty()) throw UsageError("what shall be started? strata launch -n 4 -- PROGRAM ARGS");
      return Launch(*options).run();
    };
  });
}

}  // namespace strata::cli
