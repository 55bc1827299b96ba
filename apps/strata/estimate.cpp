#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/bounds.h"
#include "strata/train/memory_plan.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string config, dtype, device;
  std::vector<std::string> set;
};

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
  std::fputs(
      fmt::format("{} of {} layers, dim {}: {} parameters; batch {} of {} tokens, {}\n\n", config.model.family,
                  config.model.layers, config.model.dim, format_count(static_cast<double>(plan.need.parameter_count)),
                  config.batch, config.model.context, config.dtype)
          .c_str(),
      stdout);
  std::fputs(to_text(plan).c_str(), stdout);
  for (const MemoryFix& fix : plan.fixes)
    std::fputs(fmt::format("It would with {}: {:.3f} GiB.\n", to_options(fix),
                           static_cast<double>(fix.peak + plan.program) / (1 << 30))
                   .c_str(),
               stdout);
  if (!known)
    std::fputs(fmt::format("Whether it fits is not known: there is no {} here.\n", config.device).c_str(), stdout);
  return kOk;
}

}  // namespace

void add_estimate(CLI::App& app, Body& body) {
  CLI::App* estimate = app.add_subcommand(
      "estimate", "The memory that training will take, from a dry run, and whether there is as much");
  auto a = std::make_shared<Arguments>();
  estimate->add_option("config", a->config, "Settings (TOML), as for strata train");
  estimate->add_option("--dtype", a->dtype, "f32, or autocast to bf16 or f16 with f32 weights")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  estimate->add_option("--device", a->device, "cpu, cuda, or one card of several: cuda:1")
      ->type_name("DEVICE")
      ->check(device_name());
  estimate->add_option("--set", a->set, "Any setting, e.g. --set train.batch=64")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
  estimate->footer(
      "Runs one step with shapes only: nothing is allocated and nothing computed, so that a model of any size is "
      "answered at once. Activations are gone when all gradients are there: the peak is less than the sum of the "
      "lines. What is free is the least that the machine, its control groups and ulimit -v leave, or the card.");
  estimate->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
