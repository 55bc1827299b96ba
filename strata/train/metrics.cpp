#include "strata/train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/descriptor.h"
#include "strata/io/files.h"
#include "strata/io/json.h"

namespace strata {
namespace {

// A log has a line for each step: no length is too long.
constexpr uint64_t kMaxLog = ~uint64_t{0};

constexpr struct {
  const char* name;
  double StepMetrics::*field;
} kNumbers[] = {
    {"loss", &StepMetrics::loss},
    {"lr", &StepMetrics::lr},
    {"grad_norm", &StepMetrics::grad_norm},
    {"tokens_per_s", &StepMetrics::tokens_per_s},
    {"elapsed_s", &StepMetrics::elapsed_s},
    {"valid_loss", &StepMetrics::valid_loss},
    {"peak_memory", &StepMetrics::peak_memory},
    {"sent_bytes", &StepMetrics::sent_bytes},
    {"plain_bytes", &StepMetrics::plain_bytes},
    {"exchange_s", &StepMetrics::exchange_s},
};

std::optional<StepMetrics> parse_line(std::string_view line) {
  nlohmann::json json;
  try {
    json = io::parse_json(line, {});
  } catch (const IoError&) {
    return std::nullopt;
  }
  if (!json.is_object()) return std::nullopt;
  StepMetrics m;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer() || step->get<int64_t>() < 0) return std::nullopt;
  m.step = step->get<int64_t>();
  if (const auto it = json.find("tokens"); it != json.end()) {
    if (!it->is_number_integer()) return std::nullopt;
    m.tokens = it->get<int64_t>();
  }
  for (const auto& [name, field] : kNumbers) {
    const auto it = json.find(name);
    if (it == json.end() || it->is_null()) continue;
    if (!it->is_number()) return std::nullopt;
    m.*field = it->get<double>();
  }
  return m;
}

// Calls visit(number, text with its end, its step if it is one) for each whole line until visit returns false. A last
// line that is not whole is what a killed process leaves, even where a later write ended it.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    const auto m = parse_line(text.substr(0, end));
    if (!m && end + 1 == text.size()) return;
    if (!visit(number, text.substr(0, end + 1), m)) return;
    text.remove_prefix(end + 1);
  }
}

// What can be read of a log up to a step.
struct Salvaged {
  std::string text;
  int64_t lines = 0, last = 0;  // of text
  std::string wrong;            // the first thing that is; empty for nothing
  std::string missing;          // the first steps that have no line
};
Salvaged salvage(std::string_view log, int64_t last_step) {
  Salvaged s;
  const auto gap = [&](int64_t next) {
    if (next > s.last + 1 && s.missing.empty())
      s.missing =
          s.last + 2 == next ? fmt::format("step {}", s.last + 1) : fmt::format("steps {} to {}", s.last + 1, next - 1);
  };
  for_each_line(log, [&](int64_t number, std::string_view line, const std::optional<StepMetrics>& m) {
    if (m && m->step > last_step) return false;
    if (!m || m->step <= s.last) {
      if (s.wrong.empty())
        s.wrong = m ? fmt::format("line {} is of step {} again", number, m->step)
                    : fmt::format("line {} is no step of a run", number);
      return true;
    }
    gap(m->step);
    s.last = m->step;
    s.text += line;
    ++s.lines;
    return true;
  });
  gap(last_step + 1);
  return s;
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  std::string s = fmt::format("{{\"step\":{},\"tokens\":{}", m.step, m.tokens);
  for (const auto& [name, field] : kNumbers)
    if (std::isfinite(m.*field)) s += fmt::format(",\"{}\":{:.12g}", name, m.*field);
  return s + '}';
}

std::string to_string(const LogMark& mark) {
  return fmt::format("{} {} {}", mark.lines, mark.bytes, io::to_hex(mark.xxh64));
}

LogMark parse_log_mark(std::string_view text) {
  LogMark mark;
  const char* const end = text.data() + text.size();
  const auto [lines_end, e1] = std::from_chars(text.data(), end, mark.lines);
  if (e1 != std::errc() || mark.lines < 0 || lines_end == end || *lines_end != ' ') return {};
  const auto [bytes_end, e2] = std::from_chars(lines_end + 1, end, mark.bytes);
  if (e2 != std::errc() || bytes_end == end || *bytes_end != ' ') return {};
  return io::parse_hex({bytes_end + 1, end}, mark.xxh64) ? mark : LogMark{};
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t resume_step, const LogMark& mark,
                             std::vector<std::string>* notes)
    : path_(path) {
  const auto note = [&](std::string text) {
    if (notes) notes->push_back(std::move(text));
  };
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  written_.lines = 0;
  if (resume_step == 0 && mark.lines < 0) {
    if (there && S_ISREG(status.st_mode) && status.st_size > 0)
      note(fmt::format("the log that was there, '{}', is kept as '{}'", path, io::keep_aside(path)));
  } else if (!there) {
    note(fmt::format("'{}' is gone: the log goes on after step {}", path, resume_step));
  } else if (S_ISREG(status.st_mode)) {
    const std::string log = io::read_file(path, kMaxLog);
    if (mark.lines >= 0 && log.size() >= mark.bytes &&
        io::xxh64(std::string_view(log).substr(0, mark.bytes)) == mark.xxh64) {
      written_ = mark;
    } else {
      const Salvaged s = salvage(log, resume_step);
      written_.lines = s.lines;
      written_.bytes = s.text.size();
      // of an older checkpoint's log nothing else is known
      const bool as_it_is = mark.lines < 0 && s.wrong.empty();
      if (as_it_is && !s.missing.empty()) note(fmt::format("'{}' has no line for {}", path, s.missing));
      if (!as_it_is) {
        const std::string wrong = !s.wrong.empty()     ? s.wrong
                                  : !s.missing.empty() ? fmt::format("there is no line for {}", s.missing)
                                                       : std::string("a line was changed");
        const std::string aside = io::keep_aside(path);
        io::write_file(path, s.text);
        note(fmt::format("'{}' is not what the run wrote: {}. It is kept as '{}', its {} whole lines are taken over",
                         path, wrong, aside, s.lines));
      }
    }
    hasher_.update(std::string_view(io::read_file(path, kMaxLog)).substr(0, written_.bytes));
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644);
  check<IoError>(fd_ >= 0, "", "cannot open '", path, "': ", io::errno_text(errno));
  // Pipes and devices have nothing to drop.
  regular_ = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  if (regular_ && ::ftruncate(fd_, static_cast<off_t>(written_.bytes)) != 0) {
    const int error = errno;
    ::close(fd_);
    throw IoError("", cat("cannot truncate '", path, "': ", io::errno_text(error)));
  }
}

MetricsWriter::~MetricsWriter() {
  ::close(fd_);
}

void MetricsWriter::write(const StepMetrics& metrics) {
  const std::string line = to_json(metrics) + '\n';
  size_t done = 0;
  const int error = io::write_all(fd_, line.data(), line.size(), done);
  written_.bytes += done;
  hasher_.update(line.data(), done);
  check<IoError>(error == 0, "", "cannot write '", path_, "': ", io::errno_text(error));
  ++written_.lines;
}

LogMark MetricsWriter::mark() {
  if (!regular_) return {};
  check<IoError>(::fdatasync(fd_) == 0, "", "cannot write '", path_, "': ", io::errno_text(errno));
  written_.xxh64 = hasher_.digest();
  return written_;
}

namespace {
std::vector<StepMetrics> parse(std::string_view text, std::string_view source, std::vector<std::string>* notes) {
  std::vector<StepMetrics> steps;
  for_each_line(text, [&](int64_t number, std::string_view, const std::optional<StepMetrics>& m) {
    if (m) {
      steps.push_back(*m);
    } else {
      const std::string wrong = fmt::format("line {} is not a step of a run", number);
      check<IoError>(notes != nullptr, source, wrong);
      notes->push_back(fmt::format("{}: {}", source, wrong));
    }
    return true;
  });
  return steps;
}
}  // namespace

std::vector<StepMetrics> parse_metrics(std::string_view text, std::string_view source) {
  return parse(text, source, nullptr);
}

std::vector<StepMetrics> read_metrics(const std::string& path, std::vector<std::string>* notes) {
  return parse(io::read_file(path, kMaxLog), path, notes);
}

}  // namespace strata
