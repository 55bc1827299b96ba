#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/signals.h"
#include "strata/core/error.h"
#include "strata/dist/group.h"
#include "strata/io/files.h"
#include "strata/lab/peaks.h"
#include "strata/lab/profile.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/memory/timeline.h"
#include "strata/train/memory_plan.h"
#include "strata/train/plan/auto_layout.h"
#include "strata/train/progress.h"
#include "strata/train/run.h"
#include "strata/train/tier_plan.h"
#include "strata/train/trainer.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string config, data, init, out, dtype, device, graph, memory_timeline;
  bool resume = false, quiet = false, profile = false, no_memory_check = false;
  long long steps = 0, seed = -1;
  std::vector<std::string> set;
};

// A text as a TOML value.
std::string in_quotes(const std::string& text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c == '\n' ? "\\n" : std::string(1, c);
  }
  return s + '"';
}

// The options that are short for a key, then --set, so that the latter wins.
std::vector<std::string> overrides(const Arguments& a) {
  std::vector<std::string> all;
  if (!a.data.empty()) all.push_back("data.path=" + in_quotes(a.data));
  if (!a.init.empty()) all.push_back("model.init=" + in_quotes(a.init));
  if (!a.dtype.empty()) all.push_back("train.dtype=" + in_quotes(a.dtype));
  if (!a.device.empty()) all.push_back("train.device=" + in_quotes(a.device));
  if (!a.graph.empty()) all.push_back("train.graph=" + in_quotes(a.graph));
  if (a.steps > 0) all.push_back(fmt::format("train.steps={}", a.steps));
  if (a.seed >= 0) all.push_back(fmt::format("train.seed={}", a.seed));
  all.insert(all.end(), a.set.begin(), a.set.end());
  return all;
}

// The run asks after each step whether to stop: the place to drop the first steps, which load libraries and choose
// kernels, from the profile.
constexpr int kUnprofiledSteps = 3;
lab::OpProfile* g_profile = nullptr;
int g_steps = 0;
bool after_step() {
  if (++g_steps == kUnprofiledSteps && g_profile) g_profile->reset();
  return StopOnSignal::stop_requested();
}

lab::Limits measured_limits(Device device) {
  try {
    return lab::measure_limits(device, /*seconds=*/0.1);
  } catch (const MemoryError&) {  // the tables do without
    return {};
  }
}

// Before anything is made or read: a run that is too large would be ended by the system, without a word.
void require_memory(const TrainConfig& config) {
  TrainConfig of_rank = config;
  const int64_t others = config.parallel.tp * config.parallel.pp * config.parallel.cp;
  if (of_rank.parallel.dp == 0) of_rank.parallel.dp = std::max<int64_t>(distributed::size() / others, 1);
  if (of_rank.parallel.dp * others != distributed::size()) return;  // the run says that the job is another one
  const MemoryPlan plan = plan_memory(of_rank, memory::tightest_bound(parse_device(config.device)));
  if (plan.fits) return;
  std::fputs(to_text(plan).c_str(), stderr);
  std::string text = "the model does not fit into the memory that is free";
  std::string_view joint = "; it would with";
  // Other places change no number: they come before other batches. Libraries and threads, which are not there yet, take
  // something of what is free.
  if (const std::string budget = budget_advice(config, (plan.bound.free() - plan.program) / 4 * 3); !budget.empty()) {
    text += fmt::format("{} {}", joint, budget);
    joint = ", or";
  }
  for (const MemoryFix& fix : plan.fixes) {
    text += fmt::format("{} {} ({:.2f} GiB)", joint, to_options(fix),
                        static_cast<double>(fix.peak + plan.program) / (1 << 30));
    joint = ", or";
  }
  throw MemoryError("train", text + "; --no-memory-check trains all the same");
}

// The job that a launcher started this process in, for as long as it trains.
struct InJob {
  InJob() {
    if (distributed::current_job()) distributed::init();
  }
  // In order: after a failure the others have heard of it, and nobody waits for this process.
  ~InJob() {
    try {
      if (std::uncaught_exceptions() == 0) distributed::shutdown();
    } catch (const Error& e) {
      std::fputs(fmt::format("note: {}\n", e.what()).c_str(), stderr);
    }
  }
};

// The command that goes on with a run, started as this process was.
std::string to_go_on(const std::string& out) {
  const std::string own = fmt::format("strata train --resume --out {}", out);
  const auto job = distributed::current_job();
  if (!job || job->size == 1) return own;
  const char* as = std::getenv(kLaunchedAs);
  if (as != nullptr && job->launcher == "strata launch") return fmt::format("{} -- {}", as, own);
  if (job->launcher == "mpirun" || job->launcher == "mpiexec" || job->launcher == "srun")
    return fmt::format("{} -n {} {}", job->launcher, job->size, own);
  return fmt::format("{} (as {} processes, as before)", own, job->size);
}

int run(const Arguments& a) {
  const InJob job;
  const bool leads = distributed::rank() == 0;  // who tells people and writes files
  const std::string out =
      !a.out.empty() ? a.out : "runs/" + (a.config.empty() ? "run" : std::filesystem::path(a.config).stem().string());
  TrainConfig config;
  try {
    if (a.resume && a.config.empty() && has_run(out)) {
      const FoundRun found = find_run(out);
      config = parse_config(to_toml(found.state.config), found.path, overrides(a));
    } else {
      config = load_config(a.config, overrides(a));
    }
  } catch (const ValueError& e) {
    throw UsageError(e.what());
  }
  if (parse_device(config.device).is_cuda() && distributed::size() > 1) {
    distributed::take_own_card();
    distributed::card();  // says why where there is none
  }
  if (config.data.path.empty() && a.resume && !has_run(out))
    throw UsageError("'" + out + "' holds no run to go on with: give its folder as --out, or --data to begin one");
  if (config.data.path.empty()) throw UsageError("no text to train on: give --data FILE or --data FOLDER");

  config = plan::settle_layout(config, a.quiet || !leads ? nullptr : stderr);

  // Of a run with a budget the trainer asks, by its plan: what is elsewhere need not fit here.
  if (!a.no_memory_check && !config.memory.any()) require_memory(config);

  const StopOnSignal signals("this step", /*or_pipe=*/true);
  std::optional<lab::OpProfile> profile;
  if (a.profile && leads) {
    const Device device = parse_device(config.device);
    g_profile = &profile.emplace(device, measured_limits(device));
  }
  std::optional<memory::Timeline> timeline;
  if (!a.memory_timeline.empty() && leads) timeline.emplace(parse_device(config.device));
  // Also of a run that fails: who held the memory is asked most where there was too little.
  const auto write_timeline = [&] {
    if (!timeline) return;
    timeline->stop();
    io::write_file(a.memory_timeline,
                   a.memory_timeline.ends_with(".json") ? timeline->to_json() : timeline->to_html(out));
  };
  const auto write_quietly = [&] {
    try {
      write_timeline();
    } catch (const IoError& e) {  // what ended the run is the greater news
      std::fputs(fmt::format("note: {}\n", e.what()).c_str(), stderr);
    }
  };
  TrainResult r;
  try {
    r = train(config, {.out = out,
                       .resume = a.resume,
                       .stop_requested = &after_step,
                       .log = a.quiet ? nullptr : stderr,  // of rank 0, whoever that is in the end
                       .warnings = a.quiet ? stderr : nullptr,
                       .memory_check = !a.no_memory_check});
  } catch (...) {
    write_quietly();
    throw;
  }
  if (distributed::rank() != 0) return kOk;
  std::fputs(r.finished ? fmt::format("{}: {} steps", r.status, r.step).c_str() : r.status.c_str(), stdout);
  if (r.last.step > 0) std::fputs(fmt::format(", loss {:.4f}", r.last.loss).c_str(), stdout);
  if (r.valid_step > 0) {
    std::fputs(fmt::format(", validation loss {:.4f}", r.valid_loss).c_str(), stdout);
    if (r.valid_step < r.step) std::fputs(fmt::format(" at step {}", r.valid_step).c_str(), stdout);
  }
  std::fputs(fmt::format("\npeak memory {} of tensors, {} reserved\n", memory::bytes_text(r.peak_memory),
                         memory::bytes_text(r.peak_reserved))
                 .c_str(),
             stdout);
  if (!r.checkpoint.empty()) std::fputs(fmt::format("checkpoint {}\n", r.checkpoint).c_str(), stdout);
  std::fputs(fmt::format("report {}/report.html\n", out).c_str(), stdout);
  std::fflush(stdout);
  write_timeline();  // where it fails, the run has been told of
  if (timeline) std::fputs(fmt::format("memory {}\n", a.memory_timeline).c_str(), stdout);
  if (profile)
    std::fputs((profile->table(lab::CostBy::op) + '\n' + profile->table(lab::CostBy::module, 30) + '\n' +
                profile->table(lab::CostBy::phase))
                   .c_str(),
               stdout);
  if (!r.finished) std::fputs(fmt::format("go on with: {}\n", to_go_on(out)).c_str(), stdout);
  return kOk;
}

}  // namespace

void add_train(CLI::App& app, Body& body) {
  CLI::App* train = app.add_subcommand("train", "Train a language model on text");
  auto a = std::make_shared<Arguments>();
  train->add_option("config", a->config, "Settings (TOML); the defaults below hold where it is silent");
  train->add_option("--data", a->data, "Text file, or folder of text files, to train on")->type_name("PATH");
  train
      ->add_option(
          "--init", a->init,
          "Begin from a model that exists: a folder as Hugging Face writes it, or a run's (sections [model] and "
          "[tune])")
      ->type_name("DIR");
  train->add_option("--out", a->out, "Folder for the run [runs/NAME, NAME being the configuration's]")
      ->type_name("DIR");
  train->add_flag(
      "--resume", a->resume,
      "Go on from the newest checkpoint in --out, to the exact sample; its settings hold unless others are given");
  train->add_option("--steps", a->steps, "Optimizer steps, earlier parts of the run included")
      ->type_name("N")
      ->check(at_least(1));
  train->add_option("--seed", a->seed, "Seed of the weights, the order of the data and dropout")
      ->type_name("N")
      ->check(at_least(0));
  train->add_option("--dtype", a->dtype, "f32, or autocast to bf16, f16 or fp8 with f32 weights")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "fp8"}));
  train->add_option("--device", a->device, "cpu, cuda, or one card of several: cuda:1")
      ->type_name("DEVICE")
      ->check(device_name());
  train->add_option("--graph", a->graph, "On a CUDA device, a step as one CUDA graph: auto, on or off")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  train->add_option("--set", a->set, "Any setting below, e.g. --set model.layers=6")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
  train->add_flag("--no-memory-check", a->no_memory_check,
                  "Train although strata estimate says that the run does not fit into memory");
  train->add_flag("--quiet", a->quiet, "No progress and no notes, but warnings");
  train->add_flag(
      "--profile", a->profile,
      "At the end, the time spent in each op, module and phase after the first three steps (on a card: of its "
      "stream), bytes and operations, and how near that is to what the machine can do");
  train
      ->add_option("--memory-timeline", a->memory_timeline,
                   "Write who holds the device's memory over time, of the first 200,000 events: a page, or JSON where "
                   "the name ends so")
      ->type_name("FILE.html")
      ->check(writable_file());
  train->footer([] {
    return "Writes to the run's folder: checkpoints, metrics.jsonl (one line a step), report.html (the run on one "
           "page).\n"
           "Ctrl-C saves and stops; once more stops at once. A killed run goes on with --resume as if nothing had "
           "been.\n\n"
           "  strata train --data book.txt --out runs/book --set model.layers=6 train.lr=1e-3\n"
           "  strata train --resume --out runs/book --steps 5000\n"
           "  strata train --data chats.jsonl --init models/llama --set data.format=chat tune.method=lora\n"
           "  strata generate --checkpoint runs/book --prompt 'Once'\n\n"
           "Settings, with their defaults:\n" +
           config_help();
  });
  train->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
