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
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction g_outer[std::size(kSignals)];

void on_signal(int number) {
  // A terminal that is closed says so more than once.
  if (g_stop && number != SIGHUP) ::_exit(128 + number);
  g_stop = 1;
  if (number == SIGHUP) return;
  const int saved = errno;
  // Nothing can be done here where the terminal is gone.
  for (const char* text : {"\nstopping after ", g_after, " (once more to stop at once)\n"})
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
  errno = saved;
}

}  // namespace

StopOnSignal::StopOnSignal(const char* after) {
  g_stop = 0;
  g_after = after;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &action, &g_outer[i]);
    // nohup: the terminal's end is none of ours.
    if (kSignals[i] == SIGHUP && g_outer[i].sa_handler == SIG_IGN) ::sigaction(SIGHUP, &g_outer[i], nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &g_outer[i], nullptr);
}

bool StopOnSignal::stop_requested() {
  return g_stop != 0;
}

}  // namespace strata::cli
