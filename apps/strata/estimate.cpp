#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/io/files.h"
#include "strata/lab/known_cards.h"
#include "strata/lab/peaks.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/train/estimate.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/memory_plan.h"
#include "strata/train/progress.h"
#include "strata/train/tier_plan.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string config, dtype, device, by, memory_timeline, card;
  bool no_limits = false;
  std::vector<std::string> set;
};

std::string duration(double s) {
  return s < 1 ? fmt::format("{:.3g} ms", 1e3 * s) : fmt::format("{:.3g} s", s);
}

// What the device can do: of a card that is elsewhere, what was measured there.
lab::Limits limits_of(const Arguments& a, const TrainConfig& config, bool known) {
  if (!a.card.empty()) return lab::known_card(a.card).limits;
  if (!known || a.no_limits) return {};
  try {
    return lab::measure_limits(parse_device(config.device), /*seconds=*/0.1);
  } catch (const Error&) {  // no room for it
    return {};
  }
}

// What is where, and what that costs.
void tell_of_tiers(const Arguments& a, const TrainConfig& config, bool known, const lab::Limits& limits) {
  if (!config.memory.any()) return;
  if (!known && a.card.empty())
    throw UsageError(
        fmt::format("there is no {} here, so what moving costs is not known: name a card that was measured, "
                    "--card {}",
                    config.device, lab::known_cards()[0].name));
  const TierRates rates = a.card.empty() ? measure_rates(parse_device(config.device), config.memory.budget())
                                         : rates_of(lab::known_card(a.card));
  std::fputs(fmt::format("\n{}", to_text(plan_tiers(config, limits, rates))).c_str(), stdout);
}

// What a step computes and moves, and how long that takes at least.
void tell_of_step(const Arguments& a, const TrainConfig& config, const lab::Limits& limits) {
  const Device device = parse_device(config.device);
  const DryStep step = record_dry_step(config);
  const lab::StepCosts costs = step.costs(limits);
  const lab::CostRow all = costs.all();
  std::fputs(fmt::format("\nA step of {} tokens: {:.4g} GFLOP, at least {} moved\n", step.tokens, 1e-9 * all.flops,
                         memory::bytes_text(static_cast<int64_t>(all.bytes)))
                 .c_str(),
             stdout);
  if (all.limit > 0)
    std::fputs(fmt::format("It takes {} at least {}: {} tokens/s at most\n", duration(all.limit),
                           !a.card.empty()   ? fmt::format("on an {}", lab::known_card(a.card).title)
                           : device.is_cpu() ? std::string("on this machine")
                                             : fmt::format("on this {}", cuda::properties(device.index).name),
                           format_count(static_cast<double>(step.tokens) / all.limit))
                   .c_str(),
               stdout);
  for (size_t i = 0; i < std::size(lab::kCostBy); ++i)
    if (a.by == lab::kCostBy[i]) std::fputs(('\n' + costs.table(static_cast<lab::CostBy>(i))).c_str(), stdout);
  if (a.memory_timeline.empty()) return;
  io::write_file(a.memory_timeline,
                 step.timeline_html(a.config.empty() ? "a training step" : a.config, config.device, limits));
  std::fputs(fmt::format("\nmemory {}\n", a.memory_timeline).c_str(), stdout);
}

int run(const Arguments& a) {
  std::vector<std::string> overrides;
  if (!a.dtype.empty()) overrides.push_back("train.dtype=" + a.dtype);
  if (!a.device.empty()) overrides.push_back("train.device=" + a.device);
  overrides.insert(overrides.end(), a.set.begin(), a.set.end());
  TrainConfig config;
  try {
    config = load_config(a.config, overrides);
  } catch (const ValueError& e) {
    throw UsageError(e.what());
  }
  const Device device = parse_device(config.device);
  // A card that is elsewhere: what the run needs can still be told.
  const bool known = !device.is_cuda() || device.index < cuda::device_count();
  const MemoryPlan plan = plan_memory(config, memory::tightest_bound(known ? device : Device::meta()));
  TrainConfig whole = config;  // with what a model that is there says of itself
  apply_init(whole);
  const ModelConfig& m = whole.model;
  const std::string name =
      config.init.empty() ? fmt::format("{} of {} layers, dim {}", m.family, m.layers, m.dim) : config.init;
  std::fputs(fmt::format("{}: {} parameters; batch {} of {} tokens, {}\n\n", name,
                         format_count(static_cast<double>(plan.need.parameter_count)), config.batch, m.context,
                         config.dtype)
                 .c_str(),
             stdout);
  std::fputs(to_text(plan).c_str(), stdout);
  if (config.parallel.pp > 1)
    std::fputs(fmt::format("That is the rank that takes most of {}: its stages.\n", plan.need.ranks).c_str(), stdout);
  for (const MemoryFix& fix : plan.fixes)
    std::fputs(fmt::format("It would with {}: {:.3f} GiB.\n", to_options(fix),
                           static_cast<double>(fix.peak + plan.program) / (1 << 30))
                   .c_str(),
               stdout);
  if (!known)
    std::fputs(fmt::format("Whether it fits is not known: there is no {} here.\n", config.device).c_str(), stdout);
  const lab::Limits limits = limits_of(a, config, known);
  tell_of_tiers(a, config, known, limits);
  tell_of_step(a, config, limits);
  return kOk;
}

}  // namespace

void add_estimate(CLI::App& app, Body& body) {
  CLI::App* estimate = app.add_subcommand(
      "estimate",
      "The memory that training will take, from a dry run, and whether there is as much; the least time of a step");
  auto a = std::make_shared<Arguments>();
  estimate->add_option("config", a->config, "Settings (TOML), as for strata train");
  estimate->add_option("--dtype", a->dtype, "f32, or autocast to bf16, f16 or fp8 with f32 weights")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "fp8"}));
  estimate->add_option("--device", a->device, "cpu, cuda, or one card of several: cuda:1")
      ->type_name("DEVICE")
      ->check(device_name());
  estimate->add_option("--set", a->set, "Any setting, e.g. --set train.batch=64")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
  estimate->add_option("--by", a->by, "What the step computes and moves, row by row: op, module or phase")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"op", "module", "phase"}));
  estimate
      ->add_option("--memory-timeline", a->memory_timeline,
                   "Write a forecast of who holds memory during a step, as a page")
      ->type_name("FILE.html")
      ->check(writable_file());
  std::string cards;
  for (const lab::KnownCard& c : lab::known_cards()) cards += (cards.empty() ? "" : ", ") + std::string(c.name);
  estimate->add_option("--card", a->card, "Forecast for a card that was measured elsewhere: " + cards)
      ->type_name("NAME")
      ->check(CLI::Validator(
          [](const std::string& name) {
            for (const lab::KnownCard& c : lab::known_cards())
              if (c.name == name) return std::string();
            return "there are no measurements of '" + name + "'";
          },
          "NAME"));
  estimate->add_flag("--no-limits", a->no_limits,
                     "Do not measure what this machine can do, so the least time of a step is not told");
  estimate->footer(
      "Runs one step with shapes only: nothing is allocated and nothing computed, so that a model of any size is "
      "answered at once (what this machine can do is measured, which takes a second). Activations are gone when all "
      "gradients are there: the peak is less than the sum of the "
      "lines. What is free is the least that the machine, its control groups and ulimit -v leave, or the card.");
  estimate->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
