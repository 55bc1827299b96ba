#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/train/report.h"
#include "strata/train/run.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string out, time_line;
  bool no_sample = false, no_limits = false;
};

// The recorded step's time line alone.
int draw_time_line(const Arguments& a) {
  if (a.runs.size() != 1) throw UsageError("--time-line draws the step of one run");
  const lab::Trace trace = read_trace(a.runs[0]);
  check<IoError>(!trace.tracks.empty(), "report", "'", a.runs[0],
                 "' has no step.trace.json: runs with a [memory] section write one");
  io::write_file(a.time_line, trace.to_svg());
  std::fputs(fmt::format("{}\ntime line {}\n", to_text(trace.summary()), a.time_line).c_str(), stdout);
  return kOk;
}

int run(const Arguments& a) {
  if (!a.time_line.empty()) return draw_time_line(a);
  std::string out = a.out;
  if (a.runs.size() == 1) {
    if (out.empty()) out = a.runs[0] + "/report.html";
    write_report(out, read_run(a.runs[0], !a.no_sample, !a.no_limits));
  } else {
    if (out.empty()) out = "report.html";
    std::vector<ReportInput> runs;
    for (const std::string& folder : a.runs) {
      runs.push_back(read_run(folder));
      runs.back().title = folder;  // their last parts may be the same
    }
    io::write_file(out, comparison_html(runs));
  }
  std::fputs(fmt::format("report {}\n", out).c_str(), stdout);
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Body& body) {
  CLI::App* report = app.add_subcommand("report", "The page of a run, written again, or several runs on one page");
  auto a = std::make_shared<Arguments>();
  report->add_option("RUN", a->runs, "Folders of runs; with several their curves lie over each other")->required();
  report->add_option("--out", a->out, "Page to write [RUN/report.html; of several ./report.html]")
      ->type_name("FILE.html")
      ->check(writable_file());
  report
      ->add_option("--time-line", a->time_line,
                   "Write, in place of the page, the picture of what the recorded step computed and moved when")
      ->type_name("FILE.svg")
      ->check(writable_file());
  report->add_flag("--no-sample", a->no_sample, "The model of a single run writes no text for the page");
  report->add_flag(
      "--no-limits", a->no_limits,
      "Do not measure what this machine can do, which a single run's table of its step's time is compared with");
  report->footer(
      "  strata report runs/a runs/b --out compare.html\n\n"
      "A run may still be training. The settings are those of its newest checkpoint.");
  report->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
