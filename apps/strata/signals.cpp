#include "apps/strata/signals.h"

#include <cerrno>
#include <csignal>

#include <unistd.h>

namespace strata::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;
struct sigaction g_outer_int, g_outer_term;

void on_signal(int number) {
  if (g_stop) ::_exit(128 + number);
  g_stop = 1;
  const int saved = errno;
  static constexpr char kText[] = "\nstopping after this step (once more to stop at once)\n";
  // Nothing can be done here where the terminal is gone.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  errno = saved;
}

}  // namespace

StopOnSignal::StopOnSignal() {
  g_stop = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &g_outer_int);
  ::sigaction(SIGTERM, &action, &g_outer_term);
}

StopOnSignal::~StopOnSignal() {
  ::sigaction(SIGINT, &g_outer_int, nullptr);
  ::sigaction(SIGTERM, &g_outer_term, nullptr);
}

bool StopOnSignal::stop_requested() {
  return g_stop != 0;
}

}  // namespace strata::cli
