#pragma once
// Ctrl-C: the first asks the run to save and stop, the second ends the process at once.

namespace strata::cli {

/// While it lives, SIGINT, SIGTERM and SIGHUP set a flag (SIGHUP unless it was ignored, as under nohup); a second
/// SIGINT or SIGTERM ends the process with status 128 + its number. One at a time.
class StopOnSignal {
 public:
  /// `after`: what is finished first ("this step"), a text that outlives this. With `or_pipe` SIGPIPE sets the flag as
  /// well, where nobody reads the output any more; likewise unless it was
  /// ignored.
  explicit StopOnSignal(const char* after, bool or_pipe = false);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  /// True once a signal came.
  static bool stop_requested();
};

}  // namespace strata::cli
