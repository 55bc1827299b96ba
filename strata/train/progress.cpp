#include "strata/train/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace strata {
namespace {

int terminal_width(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool is_terminal(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(out)) != 0 && (term == nullptr || std::string_view(term) != "dumb");
}

// Columns taken by text whose only non-ASCII characters are one column wide.
int columns(std::string_view s) {
  return static_cast<int>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string bar(double fraction, int width) {
  // The last cell grows by eighths.
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string s;
  for (int i = 0; i < eighths / 8; ++i) s += "█";
  s += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < width; ++i) s += "░";
  return s;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "--";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string format_count(double n) {
  if (!std::isfinite(n)) return "--";
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (std::fabs(n) >= 999.5 && unit < 4) n /= 1000, ++unit;
  if (unit == 0) return fmt::format("{:.0f}", n);
  const int digits = std::fabs(n) < 9.995 ? 2 : std::fabs(n) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", n, digits, kUnits[unit]);
}

std::string progress_line(const StepMetrics& m, int64_t total_steps, int width, int64_t first_step,
                          double first_elapsed_s, std::string_view unit, bool with_bar) {
  const double fraction = total_steps > 0 ? static_cast<double>(m.step) / static_cast<double>(total_steps) : 0.0;
  const int64_t done = m.step - first_step;
  const double left = done > 0 ? (m.elapsed_s - first_elapsed_s) / static_cast<double>(done) *
                                     static_cast<double>(std::max<int64_t>(total_steps - m.step, 0))
                               : NAN;
  const std::string total = fmt::format("{}", total_steps);
  // In the order in which they are shown, with the order in which they go when there is no room.
  struct Part {
    int importance;
    std::string text;
  } parts[] = {
      {6, fmt::format("{:3.0f}%", std::floor(100 * fraction))},
      {5, fmt::format("step {:>{}}/{}", m.step, total.size(), total)},
      {7, std::isfinite(m.loss) ? fmt::format("loss {:.4f}", m.loss) : std::string("loss nan")},
      {1, std::isfinite(m.lr) ? fmt::format("lr {:.2e}", m.lr) : std::string()},
      {3, std::isfinite(m.tokens_per_s) ? fmt::format("{} {}/s", format_count(m.tokens_per_s), unit) : std::string()},
      {4, m.step < total_steps ? fmt::format("{} left", format_duration(left))
                               : fmt::format("in {}", format_duration(m.elapsed_s))},
  };
  constexpr int kBar = 20;
  constexpr int kBarImportance = 2;
  for (int least = 0;; ++least) {
    std::string s;
    if (with_bar && least <= kBarImportance) s = bar(fraction, kBar);
    for (const Part& part : parts) {
      if (part.importance < least || part.text.empty()) continue;
      if (!s.empty()) s += "  ";
      s += part.text;
    }
    if (columns(s) <= width) return s;
    if (least == 8) return "";
  }
}

Progress::Progress(int64_t total_steps, std::FILE* out, double plain_interval_s, std::string unit)
    : total_steps_(total_steps), out_(out), unit_(std::move(unit)), terminal_(is_terminal(out)) {
  interval_ = terminal_ ? std::chrono::milliseconds(100)
                        : std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plain_interval_s));
  // In the past, so that the first step is shown.
  last_draw_ = Clock::now() - interval_;
}

Progress::~Progress() {
  finish();
}

void Progress::resume(int64_t step, double elapsed_s) {
  first_step_ = step;
  first_elapsed_s_ = elapsed_s;
}

void Progress::update(const StepMetrics& metrics) {
  last_ = metrics;
  pending_ = true;
  if (Clock::now() - last_draw_ >= interval_) draw();
}

void Progress::draw() {
  const int width = terminal_ ? terminal_width(out_) - 1 : 120;
  const std::string line = progress_line(last_, total_steps_, width, first_step_, first_elapsed_s_, unit_, terminal_);
  // \r\x1b[K: to the line's start, and clear it.
  std::fputs(fmt::format("{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n").c_str(), out_);
  std::fflush(out_);
  drawn_ = terminal_;
  pending_ = false;
  last_draw_ = Clock::now();
}

void Progress::note(std::string_view text) {
  std::fputs(fmt::format("{}{}\n", drawn_ ? "\r\x1b[K" : "", text).c_str(), out_);
  std::fflush(out_);
  if (drawn_) draw();
}

void Progress::finish() {
  if (pending_) draw();
  if (drawn_) std::fputc('\n', out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace strata
