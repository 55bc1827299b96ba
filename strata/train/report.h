#pragma once
// report.html: a run on one page that needs nothing but a browser.

#include <string>
#include <utility>
#include <vector>

#include "strata/lab/step_costs.h"
#include "strata/lab/trace.h"
#include "strata/train/config.h"
#include "strata/train/machine.h"
#include "strata/train/metrics.h"

namespace strata {

/// What a report shows. Text may hold any bytes; it is shown as text, never as HTML.
struct ReportInput {
  std::string title;                 ///< e.g. the run folder's name
  std::string status;                ///< "finished", "stopped at step 120", "running" ...; may be empty
  std::vector<StepMetrics> metrics;  ///< every step so far
  TrainConfig config;
  MachineInfo machine;
  int64_t parameters = 0;                                  ///< elements of the model's parameters; 0 when not known
  std::string sample_prompt;                               ///< the start that the model was given
  std::string sample;                                      ///< what it wrote after it; empty for no sample
  std::vector<std::pair<std::string, std::string>> notes;  ///< further rows of the run's table (dates, data ...)
  /// A network that TrainConfig does not describe, as text: shown in the settings' place, beside `settings`. Of
  /// `config` only the number of steps is shown then.
  std::string network;
  std::vector<std::pair<std::string, std::string>> settings;
  std::string unit = "tokens";  ///< what is counted and timed
  lab::StepCosts costs;         ///< of one step, for the table "where the time and bytes go"; empty for none
  lab::Trace trace;             ///< of that step, for the time line; empty for none
};

/// The page. A run of any length gives a page of bounded size: curves of more than 2,000 points are averaged down.
std::string report_html(const ReportInput& input);

/// Writes report_html() to `path`, whole or not at all. Throws IoError.
void write_report(const std::string& path, const ReportInput& input);

/// Several runs on one page: a table of what came out, their curves over each other (over steps, tokens or time), and a
/// table of the settings in which they differ. Of each run the title, status, metrics, settings and parameters are
/// read.
std::string comparison_html(const std::vector<ReportInput>& runs);

/// What a run's folder tells of it: metrics.jsonl, and the newest checkpoint's settings (without one the settings are
/// not known, and `network` says so), and the step that it recorded. With `with_sample` the model writes one, as at the
/// end of training. With `with_limits` this machine, or its card, is measured (about a second), to say how near the
/// step's calls came to what it can do. Throws IoError for a folder that holds no run.
ReportInput read_run(const std::string& folder, bool with_sample = false, bool with_limits = false);

}  // namespace strata
