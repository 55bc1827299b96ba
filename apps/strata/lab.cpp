#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/op_names.h"
#include "apps/strata/signals.h"
#include "apps/strata/verify_jobs.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/io/files.h"
#include "strata/lab/bench.h"
#include "strata/lab/peaks.h"
#include "strata/lab/placed.h"
#include "strata/lab/plan.h"
#include "strata/lab/verify.h"

namespace strata::cli {
namespace {

struct Options {
  std::vector<std::string> names;
  std::string dtype, json, plan, device = "cpu";
  double seconds = 0.2, limit = 300;
  int threads = 0, jobs = 1, ranks = 0;
  bool no_backward = false, no_limits = false, named = false;
};

// Which op is at work, on a terminal only.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void step(std::string_view name) {
    ++done_;
    if (shown_) std::fputs(fmt::format("\r\033[K{}/{} {}", done_, total_, name).c_str(), stderr);
  }

 private:
  size_t total_, done_ = 0;
  bool shown_;
};

void need_device(const char* command, Device device) {
  if (device.is_cuda() && cuda::device_count() == 0)
    throw DeviceError(command, cat("no CUDA device: ", cuda::unavailable_reason()));
}

// Placement never changes meaning: on ranks that are threads.
int run_verify_placed(const Options& o) {
  const std::vector<const OpBase*> ops = find_ops(o.names);
  std::vector<lab::PlacedReport> reports;
  const StopOnSignal signals("the op at work");
  {
    Progress progress(ops.size());
    for (const OpBase* op : ops) {
      if (StopOnSignal::stop_requested()) break;
      progress.step(op->name());
      reports.push_back(lab::verify_placed(*op, {.ranks = o.ranks}));
    }
  }
  std::fputs(lab::table(reports).c_str(), stdout);
  if (!o.json.empty()) io::write_file(o.json, lab::to_json(reports));
  const bool whole = reports.size() == ops.size();
  if (!whole) std::fputs(fmt::format("stopped after {} of {} ops\n", reports.size(), ops.size()).c_str(), stdout);
  return whole && std::all_of(reports.begin(), reports.end(), [](const auto& r) { return r.ok(); }) ? kOk : kFailure;
}

int run_verify(const Options& o) {
  if (o.ranks > 0) return run_verify_placed(o);
  lab::VerifyOptions options;
  options.device = parse_device(o.device);
  need_device("lab verify", options.device);
  if (!o.dtype.empty()) options.dtypes = parse_dtypes(o.dtype);
  if (o.named) return verify_named(options);
  const std::vector<const OpBase*> ops = find_ops(o.names);
  std::vector<lab::OpReport> reports;
  const StopOnSignal signals("the ops at work");
  {
    Progress progress(ops.size());
    if (o.jobs > 1) {
      std::vector<std::string> arguments{"lab", "verify", "--device", o.device, "--named"};
      if (!o.dtype.empty()) arguments.insert(arguments.end(), {"--dtype", o.dtype});
      const auto started = [&](std::string_view name) { progress.step(name); };
      reports = verify_in_processes(ops, arguments, o.jobs, o.limit, started);
    } else {
      for (const OpBase* op : ops) {
        if (StopOnSignal::stop_requested()) break;
        progress.step(op->name());
        reports.push_back(lab::verify(*op, options));
      }
    }
  }
  std::fputs(lab::table(reports).c_str(), stdout);
  if (!o.json.empty()) io::write_file(o.json, lab::to_json(reports));
  const bool whole = reports.size() == ops.size();
  if (!whole) std::fputs(fmt::format("stopped after {} of {} ops\n", reports.size(), ops.size()).c_str(), stdout);
  return whole && std::all_of(reports.begin(), reports.end(), [](const auto& r) { return r.ok(); }) ? kOk : kFailure;
}

lab::Limits measured_limits(Device device) {
  const lab::Limits l = lab::measure_limits(device);
  const std::string who =
      device.is_cpu() ? fmt::format("{} threads", num_threads()) : std::string(cuda::properties(device.index).name);
  std::fputs(
      fmt::format("Limits, {}: {:.1f} GB/s, {:.0f} GFLOP/s of f32 multiply-adds, matmul {:.0f} in f32, {:.0f} in "
                  "bf16\n\n",
                  who, l.gb_s, l.gflops, l.matmul_f32, l.matmul_bf16)
          .c_str(),
      stdout);
  return l;
}

int run_bench(const Options& o) {
  lab::BenchOptions options;
  options.device = parse_device(o.device);
  need_device("lab bench", options.device);
  if (!o.dtype.empty()) options.dtypes = parse_dtypes(o.dtype);
  options.seconds = o.seconds;
  options.backward = !o.no_backward;
  if (o.threads > 0) set_num_threads(o.threads);
  const std::vector<const OpBase*> ops = find_ops(o.names);
  if (!o.no_limits) options.limits = measured_limits(options.device);
  std::vector<lab::BenchResult> results;
  size_t timed = 0;
  const auto begin = std::chrono::steady_clock::now();
  const StopOnSignal signals("this op");
  {
    Progress progress(ops.size());
    for (const OpBase* op : ops) {
      if (StopOnSignal::stop_requested()) break;
      progress.step(op->name());
      const auto some = lab::bench(*op, options);
      results.insert(results.end(), some.begin(), some.end());
      ++timed;
    }
  }
  std::fputs(lab::table(results).c_str(), stdout);
  if (!o.json.empty()) io::write_file(o.json, lab::to_json(results, options.limits));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool whole = timed == ops.size();
  std::fputs(
      fmt::format("{} {} of {} ops in {:.0f} s\n", whole ? "timed" : "stopped after", timed, ops.size(), took).c_str(),
      stdout);
  return whole ? kOk : kFailure;
}

int run_compare(const Options& o) {
  // Planned on the host for either: no card is needed.
  const bool card = parse_device(o.device).is_cuda();
  const lab::PlanOptions options = card ? lab::PlanOptions::card() : lab::PlanOptions();
  std::vector<const OpBase*> ops = find_ops(o.names);
  // What only other ops call has no function of its name elsewhere.
  std::erase_if(ops, [](const OpBase* op) { return op->internal(); });
  std::string lines;
  size_t cases = 0;
  const StopOnSignal signals("this op");
  {
    Progress progress(ops.size());
    for (const OpBase* op : ops) {
      if (StopOnSignal::stop_requested()) return kFailure;
      progress.step(op->name());
      const lab::Plan plan = lab::plan(*op, options);
      lines += lab::to_json_lines(*op, plan);
      cases += plan.cases.size();
    }
  }
  if (o.plan.empty()) {
    std::fputs(lines.c_str(), stdout);
  } else {
    io::write_file(o.plan, lines);
    std::fputs(fmt::format("{} cases of {} ops in {}\n", cases, ops.size(), o.plan).c_str(), stdout);
  }
  return kOk;
}

}  // namespace

void add_lab(CLI::App& app, Body& body) {
  CLI::App* lab = app.add_subcommand("lab", "Verify the operations, or time them against this machine's limits");
  lab->require_subcommand(1);
  auto o = std::make_shared<Options>();
  const auto common = [&](CLI::App* c, const char* dtypes) {
    c->add_option("OP", o->names, "Names of ops or families; none means all");
    c->add_option("--dtype", o->dtype, dtypes)->type_name("LIST");
    c->add_option("--json", o->json, "Write the results to this file as well")
        ->type_name("FILE")
        ->check(writable_file());
  };

  CLI::App* verify = lab->add_subcommand(
      "verify",
      "Run every record's samples against its reference: forward, gradient, second gradient, strided and empty "
      "arguments, dry run, in place, threads, refusals. Exit status 1 when anything fails");
  common(verify, "Only these, e.g. f32,bf16; otherwise every dtype of the record");
  verify->add_option("--device", o->device, "cpu or cuda")->type_name("DEVICE")->check(device_name());
  verify->add_option("--jobs", o->jobs, "Processes that share the ops; an op that ends its process fails alone")
      ->type_name("N")
      ->check(between(1, 256));
  verify->add_option("--limit", o->limit, "With --jobs: seconds that one op may take")
      ->type_name("SECONDS")
      ->check(between(1e-3, 1e6))
      ->capture_default_str();
  verify
      ->add_option("--ranks", o->ranks,
                   "Instead: each op with arguments sharded over N ranks (threads) in every way, against whole ones")
      ->type_name("N")
      ->check(between(2, 64));
  verify->add_flag("--named", o->named, "What --jobs starts: names from the standard input, reports as JSON")
      ->group("");
  verify->callback([&body, o] { body = [o] { return run_verify(*o); }; });

  CLI::App* bench = lab->add_subcommand(
      "bench", "Time forward and backward; give GFLOP/s, GB/s and the fraction of the measured limit");
  common(bench, "These, e.g. f32,bf16, or all; f32 otherwise");
  bench->add_option("--device", o->device, "cpu or cuda")->type_name("DEVICE")->check(device_name());
  bench->add_option("--seconds", o->seconds, "Time for each measurement")
      ->check(between(1e-3, 60.0))
      ->capture_default_str();
  bench->add_option("--threads", o->threads, "Threads to use")->check(between(1, 4096));
  bench->add_flag("--no-backward", o->no_backward, "Forward only");
  bench->add_flag("--no-limits", o->no_limits, "Do not measure the machine's limits first");
  bench->callback([&body, o] { body = [o] { return run_bench(*o); }; });

  CLI::App* compare = lab->add_subcommand(
      "compare",
      "Plan what bench/compare_ops.py times beside PyTorch: every op at each size, dtype, layout and option");
  compare->add_option("OP", o->names, "Names of ops or families; none means all");
  compare->add_option("--device", o->device, "cpu or cuda: how large is large")
      ->type_name("DEVICE")
      ->check(device_name());
  compare
      ->add_option("--plan", o->plan, "Write the cases to this file, one JSON object a line; otherwise they are shown")
      ->type_name("FILE")
      ->check(writable_file());
  compare->callback([&body, o] { body = [o] { return run_compare(*o); }; });
}

}  // namespace strata::cli
