#pragma once
// The line that shows how a run is going.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "strata/train/metrics.h"

namespace strata {

/// Seconds as people read them: "42s", "3m05s", "2h07m", "5d03h"; "--" for NaN or negative.
std::string format_duration(double seconds);

/// A count with three digits and a unit: "950", "12.3k", "4.56M".
std::string format_count(double n);

/// The progress line: bar, percent, step, loss, lr, tokens/s, time left; exactly the parts that fit in `width` columns,
/// the least important left out first. Time left is extrapolated from the steps since `first_step`, whose
/// elapsed_s was `first_elapsed_s`.
/// `unit` is what tokens_per_s counts; without `with_bar` the rest alone.
std::string progress_line(const StepMetrics& metrics, int64_t total_steps, int width, int64_t first_step = 0,
                          double first_elapsed_s = 0.0, std::string_view unit = "tok", bool with_bar = true);

/// Draws progress_line(): on a terminal as one line that is redrawn at most 10 times a second, elsewhere as a plain
/// line without the bar every `plain_interval_s` seconds (and for the first and the last step).
class Progress {
 public:
  Progress(int64_t total_steps, std::FILE* out = stderr, double plain_interval_s = 10.0, std::string unit = "tok");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A run that goes on from `step`, reached after `elapsed_s` seconds.
  void resume(int64_t step, double elapsed_s);
  /// The run has this many steps from now on.
  void set_total(int64_t steps) { total_steps_ = steps; }
  void update(const StepMetrics& metrics);
  /// A line of its own above the progress line (a validation result, a saved checkpoint).
  void note(std::string_view text);
  /// Draws the last state a last time and ends the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  int64_t total_steps_;
  std::FILE* out_;
  std::string unit_;
  Clock::duration interval_;
  bool terminal_;
  bool drawn_ = false;    // the terminal's current line holds the bar
  bool pending_ = false;  // last_ has not been drawn
  int64_t first_step_ = 0;
  double first_elapsed_s_ = 0.0;
  StepMetrics last_;
  Clock::time_point last_draw_;
};

}  // namespace strata
