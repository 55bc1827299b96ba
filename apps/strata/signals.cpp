#include "apps/strata/signals.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>

#include <unistd.h>

namespace strata::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;
const char* g_after = "";
struct sigaction g_outer_int, g_outer_term;

void on_signal(int number) {
  if (g_stop) ::_exit(128 + number);
  g_stop = 1;
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
