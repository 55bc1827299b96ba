#include "apps/strata/signals.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include <unistd.h>

namespace strata::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;
const char* g_after = "";
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
struct sigaction g_outer[std::size(kSignals)];
size_t g_handled = 0;  // of them, from the first on

void on_signal(int number) {
  // A terminal that is closed, and a pipe, say so more than once.
  const bool gone = number == SIGHUP || number == SIGPIPE;
  if (g_stop && !gone) ::_exit(128 + number);
  g_stop = 1;
  if (gone) return;
  const int saved = errno;
  // Nothing can be done here where the terminal is gone.
  for (const char* text : {"\nstopping after ", g_after, " (once more to stop at once)\n"})
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
  errno = saved;
}

}  // namespace

StopOnSignal::StopOnSignal(const char* after, bool or_pipe) {
  g_stop = 0;
  g_handled = std::size(kSignals) - (or_pipe ? 0 : 1);
  g_after = after;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < g_handled; ++i) {
    ::sigaction(kSignals[i], &action, &g_outer[i]);
    // nohup: the terminal's end is none of ours. Nor is the pipe's where somebody ignores it.
    const bool may_be_ignored = kSignals[i] == SIGHUP || kSignals[i] == SIGPIPE;
    if (may_be_ignored && g_outer[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &g_outer[i], nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (size_t i = 0; i < g_handled; ++i) ::sigaction(kSignals[i], &g_outer[i], nullptr);
}

bool StopOnSignal::stop_requested() {
  return g_stop != 0;
}

}  // namespace strata::cli
