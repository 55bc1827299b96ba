#include "strata/train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"

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
};

std::optional<StepMetrics> parse_line(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
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

// Calls visit(step, end of its line in bytes) for each whole line until visit returns false.
template <class Visit>
void for_each_line(std::string_view text, std::string_view source, Visit&& visit) {
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return;
    const auto m = parse_line(text.substr(begin, end - begin));
    // A torn line may have been followed by the line's end of a later write only if it is the last.
    if (!m && end + 1 == text.size()) return;
    check<IoError>(m.has_value(), source, "line ", number, " is not a step of a run");
    if (!visit(*m, end + 1)) return;
    begin = end + 1;
  }
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  std::string s = fmt::format("{{\"step\":{},\"tokens\":{}", m.step, m.tokens);
  for (const auto& [name, field] : kNumbers)
    if (std::isfinite(m.*field)) s += fmt::format(",\"{}\":{:.12g}", name, m.*field);
  return s + '}';
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t resume_step) : path_(path) {
  off_t keep = 0;
  if (resume_step > 0 && ::access(path.c_str(), F_OK) == 0) {
    for_each_line(io::read_file(path, kMaxLog), path, [&](const StepMetrics& m, size_t end) {
      if (m.step > resume_step) return false;
      keep = static_cast<off_t>(end);
      return true;
    });
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644);
  check<IoError>(fd_ >= 0, "metrics", "cannot open '", path, "': ", std::strerror(errno));
  struct stat status {};
  // Pipes and devices have nothing to drop.
  if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && ::ftruncate(fd_, keep) != 0) {
    const int error = errno;
    ::close(fd_);
    throw IoError("metrics", cat("cannot truncate '", path, "': ", std::strerror(error)));
  }
}

MetricsWriter::~MetricsWriter() {
  ::close(fd_);
}

void MetricsWriter::write(const StepMetrics& metrics) {
  const std::string line = to_json(metrics) + '\n';
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    check<IoError>(n > 0, "metrics", "cannot write '", path_, "': ", n < 0 ? std::strerror(errno) : "nothing written");
    done += static_cast<size_t>(n);
  }
}

std::vector<StepMetrics> parse_metrics(std::string_view text, std::string_view source) {
  std::vector<StepMetrics> steps;
  for_each_line(text, source, [&](const StepMetrics& m, size_t) {
    steps.push_back(m);
    return true;
  });
  return steps;
}

std::vector<StepMetrics> read_metrics(const std::string& path) {
  return parse_metrics(io::read_file(path, kMaxLog), path);
}

}  // namespace strata
