#pragma once
// The run's log, metrics.jsonl: one JSON object a line, one line a step.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// What one optimizer step reports. NaN means "not measured" and is left out of the file.
struct StepMetrics {
  int64_t step = 0;           ///< steps done, counted from 1
  double loss = NAN;          ///< mean training loss of the step's batches, nats per token
  double lr = NAN;            ///< learning rate of the step
  double grad_norm = NAN;     ///< norm of the gradient before clipping
  double tokens_per_s = NAN;  ///< training throughput of the step
  double elapsed_s = NAN;     ///< seconds of training so far, resumed parts included
  int64_t tokens = 0;         ///< tokens trained on so far
  double valid_loss = NAN;    ///< mean validation loss, where it was measured after this step
  double peak_memory = NAN;   ///< most bytes that tensors held at once so far, on the run's device
};

/// One step as a line of JSON, without the line's end.
std::string to_json(const StepMetrics& metrics);

/// Appends steps to a metrics.jsonl. Every line reaches the file in one write as soon as it is given, so a killed
/// process loses at most the line it was writing.
///
///     MetricsWriter log("runs/a/metrics.jsonl", resume_step);
///     log.write({.step = 1, .loss = 5.5});
class MetricsWriter {
 public:
  /// Opens or creates the file and drops every line after step `resume_step` (0: all lines), along with a torn or
  /// foreign tail. Throws IoError.
  explicit MetricsWriter(const std::string& path, int64_t resume_step = 0);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// Throws IoError, disk full included.
  void write(const StepMetrics& metrics);

 private:
  std::string path_;
  int fd_ = -1;
};

/// The steps in a metrics.jsonl. A last line that is not whole is left out, being what a killed process leaves; any
/// other line that is not a step is an IoError naming the line. Keys that are not known are passed over.
std::vector<StepMetrics> read_metrics(const std::string& path);

/// The same from text; `source` names it in messages.
std::vector<StepMetrics> parse_metrics(std::string_view text, std::string_view source = "metrics");

}  // namespace strata
