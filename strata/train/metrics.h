#pragma once
// The run's log, metrics.jsonl: one JSON object a line, one line a step.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "strata/io/hash.h"

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
  double sent_bytes = NAN;    ///< what rank 0 sent for gradients in the step, with parallel.reduce but plain
  double plain_bytes = NAN;   ///< what gradients as they are would have taken
  double exchange_s = NAN;    ///< seconds of the exchange on the host, coding included
};

/// One step as a line of JSON, without the line's end.
std::string to_json(const StepMetrics& metrics);

/// What a metrics.jsonl held at some moment. A checkpoint keeps it, so that the run that goes on from there knows its
/// log.
struct LogMark {
  int64_t lines = -1;  ///< -1: not known
  uint64_t bytes = 0;
  uint64_t xxh64 = 0;  ///< of those bytes
};
/// "12 3400 ef46db3751d8e999", and back; a mark that is not known where the text is no such.
std::string to_string(const LogMark& mark);
LogMark parse_log_mark(std::string_view text);

/// Appends steps to a metrics.jsonl. Every line reaches the file in one write as soon as it is given, so a killed
/// process loses at most the line it was writing.
///
///     MetricsWriter log("runs/a/metrics.jsonl", resume_step);
///     log.write({.step = 1, .loss = 5.5});
class MetricsWriter {
 public:
  /// Opens or creates the file and drops every line after step `resume_step`, along with a torn tail. With
  /// `resume_step` 0 and no `mark` a log that is there is kept aside (keep_aside in strata/io/files.h) and a new one
  /// begun. A log with broken lines, or that is not what `mark` knows, is kept aside, too, and its whole lines are
  /// taken over. `notes` is told what was mended and what is missing. Throws IoError.
  explicit MetricsWriter(const std::string& path, int64_t resume_step = 0, const LogMark& mark = {},
                         std::vector<std::string>* notes = nullptr);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// Throws IoError, disk full included.
  void write(const StepMetrics& metrics);
  /// What the file holds, once that is on the disk. Of a pipe or a device nothing is known.
  LogMark mark();

 private:
  std::string path_;
  int fd_ = -1;
  bool regular_ = false;
  LogMark written_;  // its checksum is `hasher_`'s
  io::Hasher hasher_;
};

/// The steps in a metrics.jsonl. A last line that is not whole is left out, being what a killed process leaves; any
/// other line that is not a step is an IoError naming the line, or, where `notes` is given, left out with a word there.
/// Keys that are not known are passed over.
std::vector<StepMetrics> read_metrics(const std::string& path, std::vector<std::string>* notes = nullptr);

/// The same from text; `source` names it in messages.
std::vector<StepMetrics> parse_metrics(std::string_view text, std::string_view source = "metrics");

}  // namespace strata
